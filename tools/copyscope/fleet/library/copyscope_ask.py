#!/usr/bin/python
"""What runs on a host: one command of copyscope, for as long as its time and somebody listens.

The standard library and ansible.module_utils only, as of Python 3.8; nothing of ours.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

LOOK_MS = 200
# So long it has to end by itself, as after Ctrl-C.
END_S = 3.0
OUTPUT_MAX_BYTES = 64 << 20
ERRORS_MAX_BYTES = 16 << 10


def facts() -> dict[str, object]:
    """What a table of hosts says of each."""
    drivers = {driver.resolve().name for driver in Path("/sys/class/net").glob("*/device/driver")}
    return {"kernel": os.uname().release, "arch": os.uname().machine, "nics": sorted(drivers)}


def listened_to(parent: int) -> bool:
    """Whether what we would say is still read: sshd closes its end when the connection is gone."""
    poll = select.poll()
    poll.register(1, 0)
    return os.getppid() == parent and not poll.poll(0)


def end(child: subprocess.Popen[bytes]) -> None:
    """In order, and with all of its group; what does not go is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            child.wait(END_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def answer(
    status: int | None, output: bytes | bytearray, errors: bytes | bytearray, seconds: float
) -> dict[str, object]:
    return {
        "status": status,
        "output": base64.b64encode(output).decode(),
        "errors": base64.b64encode(errors).decode(),
        "seconds": seconds,
        "facts": facts(),
    }


def ask(argv: list[str], timeout_s: float) -> dict[str, object]:
    """What the command said, and its status: None when its time was over."""
    began, parent = time.monotonic(), os.getppid()
    child = subprocess.Popen(
        # When we are killed it ends, too.
        ["setpriv", "--pdeathsig", "TERM", "--", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout and child.stderr
    output, errors, status = bytearray(), bytearray(), None
    streams = {child.stdout.fileno(): output, child.stderr.fileno(): errors}
    poll = select.poll()
    for handle in streams:
        poll.register(handle, select.POLLIN)
    try:
        while streams and time.monotonic() - began < timeout_s and listened_to(parent):
            for handle, _ in poll.poll(LOOK_MS):
                said = os.read(handle, 1 << 16)
                streams[handle] += said
                if not said:
                    poll.unregister(handle)
                    del streams[handle]
            del errors[:-ERRORS_MAX_BYTES]
            if len(output) > OUTPUT_MAX_BYTES:
                return answer(1, b"", b"more was said than any record has", time.monotonic() - began)
        if not streams:
            status = child.wait(END_S)
        return answer(status, output, errors, time.monotonic() - began)
    finally:
        end(child)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "str", "required": True},
            "timeout_s": {"type": "float", "required": True},
        }
    )
    argv = json.loads(base64.b64decode(module.params["argv"]))
    module.exit_json(changed=False, **ask(argv, module.params["timeout_s"]))


if __name__ == "__main__":
    main()
