"""Says what runs and for how long: each second on a terminal, every quarter of a minute elsewhere."""

import sys
import threading
import time

TERMINAL_S, LOG_S = 1.0, 15.0


class Ticker:
    """A thread that sleeps: 50 us of work a second are nothing to what is measured beside it."""

    def __init__(self, name: str, planned_s: float) -> None:
        self._name, self._planned_s = name, planned_s
        self._began = time.monotonic()
        self._done = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Ticker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def used_s(self) -> float:
        return time.monotonic() - self._began

    def say(self, done: str) -> None:
        """A line that stays: something has been measured."""
        self._done = done
        self._print(f"{self._name}: {done}: {self.used_s:.0f} s", stays=True)

    def _run(self) -> None:
        while not self._ended.wait(TERMINAL_S if sys.stderr.isatty() else LOG_S):
            after = f", after {self._done}" if self._done else ""
            self._print(f"{self._name}: {self.used_s:.0f} of about {self._planned_s:.0f} s{after}")

    @staticmethod
    def _print(text: str, *, stays: bool = False) -> None:
        if sys.stderr.isatty():
            # back to the begin of the line, and away with what stands there
            sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if stays else ""))
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
