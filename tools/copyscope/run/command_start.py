# SPDX-License-Identifier: GPL-2.0-only
"""Starter of a watched command: wait until released, become the invoking user, and execute the command.

command.py starts this file as a program. A mere fork of copyscope would go on running Python, and could hang
forever because of other threads. This program imports nothing from copyscope. Arguments: the descriptor from
which the release is read, the descriptor for readiness or an errno, and the words of the command.
"""

import json
import os
import signal
import sys
from typing import NoReturn

RESET_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Signals that Python ignores. Without a reset, the command would ignore these signals, too.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Byte that reports that the starter runs.
READY = b"."


def execute_when_released(argv: list[str], release_fd: int, answer_fd: int) -> NoReturn:
    """Wait for the release, drop privileges and execute the command `argv`. Never returns.

    `release_fd`: pipe from which the user and environment are read, as the release. `answer_fd`: pipe for
    READY, and for the errno of a failure.
    """
    try:
        for number in RESET_SIGNALS:
            # A signal that was ignored when copyscope started (nohup(1)) stays ignored in the command.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        for number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        for fd in (release_fd, answer_fd):
            os.set_inheritable(fd, False)
        # Set the name that exec will give the process, because the command may exit before anybody reads it.
        with open("/proc/self/comm", "wb") as comm:  # noqa: PTH123 (pathlib takes as long as Python itself)
            comm.write(os.fsencode(argv[0].rpartition("/")[2]))
        os.write(answer_fd, READY)
        with open(release_fd, "rb") as pipe:
            options_line = pipe.read()
        if not options_line.endswith(b"\n"):  # the command is not released, or copyscope has died
            os._exit(127)
        options = json.loads(options_line)
        if options["uid"] is not None:
            os.setgroups([])
            os.setgid(options["gid"])
            if options["name"] is not None:
                os.initgroups(options["name"], options["gid"])
            os.setuid(options["uid"])
        os.execvpe(argv[0], argv, options["environment"])
    except OSError as error:
        os.write(answer_fd, str(error.errno).encode())
    os._exit(127)


if __name__ == "__main__":
    execute_when_released(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
