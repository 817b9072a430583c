"""Looks at a watched program that cost CPU time: no more of them than a share of one CPU."""

import time


class Seldom:
    """Something that takes CPU time from the watched program, so seldom that it is this share of one CPU."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._next_s = self._began_s = self._began_cpu_s = 0.0

    def are_cheap(self) -> bool:
        return time.monotonic() >= self._next_s

    def __enter__(self) -> None:
        self._began_s, self._began_cpu_s = time.monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._next_s = self._began_s + (time.process_time() - self._began_cpu_s) / self._share
