#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-only
"""Module for ansible: run one copyscope command on a host, with a time limit.

The command is also ended when the connection closes. The module needs only Python 3.8 and
ansible.module_utils, because the Python package `copyscope` may be missing on the host.
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

# Interval in ms of checks of the time limit and the connection.
POLL_MS = 200
# Time in seconds from SIGTERM to SIGKILL.
TERMINATION_S = 3.0
OUTPUT_MAX_BYTES = 64 << 20
ERRORS_MAX_BYTES = 16 << 10


def facts() -> dict[str, object]:
    """Return this host's kernel, architecture and network card drivers."""
    drivers = {driver.resolve().name for driver in Path("/sys/class/net").glob("*/device/driver")}
    return {"kernel": os.uname().release, "arch": os.uname().machine, "nics": sorted(drivers)}


def is_connected(parent: int) -> bool:
    """Return True if the parent process still lives and sshd has not closed our standard output."""
    poll = select.poll()
    poll.register(1, 0)
    return os.getppid() == parent and not poll.poll(0)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child's process group with SIGTERM, then with SIGKILL if the child does not exit."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, signal_number)
            child.wait(TERMINATION_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def answer(
    status: int | None, output: bytes | bytearray, errors: bytes | bytearray, seconds: float
) -> dict[str, object]:
    """Return the result of the module. The outputs are base64, because they may not be valid Unicode."""
    return {
        "status": status,
        "output": base64.b64encode(output).decode(),
        "errors": base64.b64encode(errors).decode(),
        "seconds": seconds,
        "facts": facts(),
    }


def run_command(argv: list[str], timeout_s: float) -> dict[str, object]:
    """Run a command and return its output and exit status; the status is None if it hit the time limit."""
    began_s, parent = time.monotonic(), os.getppid()
    child = subprocess.Popen(
        # The kernel ends the command with SIGTERM when this process dies.
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
        while streams and time.monotonic() - began_s < timeout_s and is_connected(parent):
            for handle, _ in poll.poll(POLL_MS):
                chunk = os.read(handle, 1 << 16)
                streams[handle] += chunk
                if not chunk:
                    poll.unregister(handle)
                    del streams[handle]
            del errors[:-ERRORS_MAX_BYTES]
            if len(output) > OUTPUT_MAX_BYTES:
                message = b"the command printed more than 64 MiB"
                return answer(1, b"", message, time.monotonic() - began_s)
        if not streams:
            status = child.wait(TERMINATION_S)
        return answer(status, output, errors, time.monotonic() - began_s)
    finally:
        end(child)


def main() -> None:
    """Run the command in the module's parameters, and print the result for ansible."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "str", "required": True},
            "timeout_s": {"type": "float", "required": True},
        }
    )
    argv = json.loads(base64.b64decode(module.params["argv"]))
    module.exit_json(changed=False, **run_command(argv, module.params["timeout_s"]))


if __name__ == "__main__":
    main()
