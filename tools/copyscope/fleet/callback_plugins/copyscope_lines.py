"""Says of each host, in a line of JSON, that it is asked and what came of it; ends with its starter."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

PLACE = "COPYSCOPE_LINES"


def descendants(pid: int) -> list[int]:
    """All that a process has started, and what these have, the youngest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [*descendants(child), child]
    return found


def packed(words: str) -> str:
    """What a host said, which may be no Unicode."""
    return base64.b64encode(words.encode(errors="backslashreplace")).decode()


def end_with(handle: int, place: str) -> None:
    """When nobody holds the other end, nothing of this goes on, and the play's files go.

    Workers have sessions of their own. The starter, if it was killed, removes nothing.
    """
    while os.read(handle, 1):
        pass
    shutil.rmtree(place, ignore_errors=True)
    held: dict[int, int] = {}
    for pid in descendants(os.getpid()):
        try:
            held[pid] = os.pidfd_open(pid)
        except OSError:
            continue
    # Who is held and found again is the one who was meant: numbers are given away anew.
    for pid in descendants(os.getpid()):
        try:
            signal.pidfd_send_signal(held[pid], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            continue
    os.kill(os.getpid(), signal.SIGKILL)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """The only thing of ansible that speaks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "copyscope_lines"

    def __init__(self) -> None:
        super().__init__()
        lines, alive, place = os.environ[PLACE].split(" ", 2)
        self._stream = os.fdopen(int(lines), "w", encoding="utf-8")
        threading.Thread(target=end_with, args=(int(alive), place), daemon=True).start()

    def _say(self, host: Any, **what: Any) -> None:
        self._stream.write(json.dumps({"host": host.get_name(), **what}) + "\n")
        self._stream.flush()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        del task
        self._say(host)

    def v2_runner_on_ok(self, result: Any) -> None:
        said = dict(getattr(result, "result", None) or result._result)
        keys = ("status", "output", "errors", "seconds", "facts")
        self._say(result._host, ended="ok", **{key: said.get(key) for key in keys})

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        del ignore_errors
        said = dict(result._result)
        # The task's own time was over: not even the module answered.
        timed_out = said.get("timedout")
        status = None if timed_out else 1
        words = (said.get("module_stderr"), said.get("module_stdout"), said.get("msg"))
        errors = next((str(word).strip() for word in words if word and str(word).strip()), "no reason given")
        self._say(
            result._host,
            ended="failed",
            status=status,
            errors=packed(errors),
            seconds=timed_out.get("period", 0.0) if isinstance(timed_out, dict) else 0.0,
        )

    def v2_runner_on_unreachable(self, result: Any) -> None:
        errors = str(result._result.get("msg", "")).strip()
        self._say(result._host, ended="unreachable", errors=packed(errors))
