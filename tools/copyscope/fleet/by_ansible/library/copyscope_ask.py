#!/usr/bin/python
"""What runs on a host of ansible: the guard, told that somebody is there as long as the connection is.

The standard library and ansible.module_utils only, as of Python 3.8; nothing of ours.
"""

from __future__ import annotations

import base64
import os
import select
import subprocess
import sys
import threading
import time

from ansible.module_utils.basic import AnsibleModule

BEAT_S = 1.0
END_S = 5.0
OUTPUT_MAX_BYTES = 64 << 20
ERRORS_MAX_BYTES = 16 << 10


def listened_to(parent: int) -> bool:
    """Whether what we would say is still read: sshd closes its end when the connection is gone."""
    poll = select.poll()
    poll.register(1, 0)
    return os.getppid() == parent and not poll.poll(0)


def beat(guard: subprocess.Popen[bytes], opening: bytes, over: threading.Event, parent: int) -> None:
    """Tells the guard its job, and then now and then that somebody is there."""
    assert guard.stdin
    try:
        guard.stdin.write(opening)
        guard.stdin.flush()
        while not over.wait(BEAT_S) and listened_to(parent):
            guard.stdin.write(b"\n")
            guard.stdin.flush()
        guard.stdin.close()
    except OSError:
        pass


def ask(guard_text: str, opening: bytes, timeout_s: float) -> dict[str, object]:
    """What the guard said, and how it ended: None when its time was over."""
    began, parent = time.monotonic(), os.getppid()
    guard = subprocess.Popen(
        [sys.executable, "-I", "-c", guard_text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    over = threading.Event()
    telling = threading.Thread(target=beat, args=(guard, opening, over, parent), daemon=True)
    telling.start()
    output, errors, status = bytearray(), bytearray(), None
    poll = select.poll()
    assert guard.stdout and guard.stderr
    streams = {guard.stdout.fileno(): output, guard.stderr.fileno(): errors}
    for handle in streams:
        poll.register(handle, select.POLLIN)
    try:
        while streams and time.monotonic() - began < timeout_s:
            for handle, _ in poll.poll(200):
                said = os.read(handle, 1 << 16)
                if said:
                    streams[handle] += said
                else:
                    poll.unregister(handle)
                    del streams[handle]
            del errors[:-ERRORS_MAX_BYTES]
            if len(output) > OUTPUT_MAX_BYTES:
                output, errors = bytearray(), bytearray(b"more was said than any record has")
                streams.clear()
                status = 1
        if not streams and status is None:
            status = guard.wait(END_S)
    finally:
        over.set()
        try:
            guard.wait(END_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
    return {
        "status": status,
        "output": base64.b64encode(output).decode(),
        "errors": base64.b64encode(errors).decode(),
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "guard": {"type": "str", "required": True},
            "opening": {"type": "str", "required": True},
            "bundle": {"type": "path", "default": ""},
            "timeout_s": {"type": "float", "required": True},
        }
    )
    opening = base64.b64decode(module.params["opening"]) + b"\n"
    bundle = module.params["bundle"]
    if bundle:
        with open(bundle, "rb") as stream:  # noqa: PTH123 (an old Python has no more)
            opening += stream.read()
    guard = base64.b64decode(module.params["guard"]).decode()
    module.exit_json(changed=False, **ask(guard, opening, module.params["timeout_s"]))


if __name__ == "__main__":
    main()
