"""What a watched command is before it begins: it waits for the word, becomes the user, and then the command.

A program of its own that command.py starts, and no fork of it: a fork goes on in Python, which may stand
still for ever where there are threads. It imports nothing of ours. Its arguments: the descriptor on which it
waits, the one on which it says that it does and why it failed, the command.
"""

import json
import os
import signal
import sys
from typing import NoReturn

RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Python ignores these for itself, and exec(2) would pass that on.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
WAITING = b"."


def become(argv: list[str], word: int, answer: int) -> NoReturn:
    """Wait, drop privileges, exec. Never returns."""
    try:
        for number in RESET:
            # A signal that was ignored when we were started (nohup(1)) is ignored by the command, too.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        for number in IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        for pipe in (word, answer):
            os.set_inheritable(pipe, False)
        # The name that exec will give it: it may have ended before anybody can ask for that.
        with open("/proc/self/comm", "wb") as comm:  # noqa: PTH123 (pathlib takes as long as Python itself)
            comm.write(os.fsencode(argv[0].rpartition("/")[2]))
        os.write(answer, WAITING)
        with open(word, "rb") as told:
            said = told.read()
        if not said.endswith(b"\n"):  # it is not wanted, or our parent has gone
            os._exit(127)
        how = json.loads(said)
        if how["uid"] is not None:
            os.setgroups([])
            os.setgid(how["gid"])
            if how["name"] is not None:
                os.initgroups(how["name"], how["gid"])
            os.setuid(how["uid"])
        os.execvpe(argv[0], argv, how["environment"])
    except OSError as error:
        os.write(answer, str(error.errno).encode())
    os._exit(127)


if __name__ == "__main__":
    become(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
