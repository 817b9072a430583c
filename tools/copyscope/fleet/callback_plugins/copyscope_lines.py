# SPDX-License-Identifier: GPL-2.0-only
"""Callback plugin for ansible: write a line of JSON when the task begins and when it ends on a host.

When the copyscope process that started ansible exits, the plugin ends ansible.
"""

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

# Environment variable: descriptor to write lines to, descriptor that closes when copyscope exits, directory.
VARIABLE = "COPYSCOPE_LINES"


def descendants(pid: int) -> list[int]:
    """Return the ids of all descendants of a process, children before their parents."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            pids += [*descendants(child), child]
    return pids


def to_base64(text: str) -> str:
    """Encode text from a host in base64. The text may contain surrogates."""
    return base64.b64encode(text.encode(errors="backslashreplace")).decode()


def kill_with_copyscope(handle: int, directory: str) -> None:
    """Wait until copyscope exits and closes its end of a pipe; then remove its files and kill ansible.

    Ansible's workers have their own sessions, so each descendant is killed individually. The files are
    removed here because a killed copyscope could not remove them.
    """
    while os.read(handle, 1):
        pass
    shutil.rmtree(directory, ignore_errors=True)
    pidfds: dict[int, int] = {}
    for pid in descendants(os.getpid()):
        try:
            pidfds[pid] = os.pidfd_open(pid)
        except OSError:
            continue
    # List the descendants again: a pid that is still listed was not reused before its pidfd was opened.
    for pid in descendants(os.getpid()):
        try:
            signal.pidfd_send_signal(pidfds[pid], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            continue
    os.kill(os.getpid(), signal.SIGKILL)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Replacement for ansible's usual standard output."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "copyscope_lines"

    def __init__(self) -> None:
        """Open the pipe for lines, and start the thread that waits until copyscope exits."""
        super().__init__()
        lines_handle, alive_handle, directory = os.environ[VARIABLE].split(" ", 2)
        self._stream = os.fdopen(int(lines_handle), "w", encoding="utf-8")
        arguments = (int(alive_handle), directory)
        threading.Thread(target=kill_with_copyscope, args=arguments, daemon=True).start()

    def _write_line(self, host: Any, **values: Any) -> None:
        self._stream.write(json.dumps({"host": host.get_name(), **values}) + "\n")
        self._stream.flush()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        del task
        self._write_line(host)

    def v2_runner_on_ok(self, result: Any) -> None:
        values = dict(getattr(result, "result", None) or result._result)
        keys = ("status", "output", "errors", "seconds", "facts")
        self._write_line(result._host, ended="ok", **{key: values.get(key) for key in keys})

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Write the line for a host on which the module failed or reached the task's time limit."""
        del ignore_errors
        values = dict(result._result)
        # Set if the time limit of the ansible task was reached before the module answered.
        timed_out = values.get("timedout")
        status = None if timed_out else 1
        texts = (values.get("module_stderr"), values.get("module_stdout"), values.get("msg"))
        errors = next((str(text).strip() for text in texts if text and str(text).strip()), "no reason given")
        self._write_line(
            result._host,
            ended="failed",
            status=status,
            errors=to_base64(errors),
            seconds=timed_out.get("period", 0.0) if isinstance(timed_out, dict) else 0.0,
        )

    def v2_runner_on_unreachable(self, result: Any) -> None:
        errors = str(result._result.get("msg", "")).strip()
        self._write_line(result._host, ended="unreachable", errors=to_base64(errors))
