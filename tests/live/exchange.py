# SPDX-License-Identifier: GPL-2.0-only
"""Run a sender and a receiver over lo, for tools that start one program: IMPL MESSAGES|SECONDSs SIZE.

Prints the goodput of the run, as "goodput: 12.3 Gb/s".
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TRAFFIC = (
    Path(os.environ.get("COPYSCOPE_OUTPUT", Path(__file__).resolve().parents[2] / ".output")) / "traffic"
)


def main(impl: str, length: str, size: str) -> int:
    """Return 0 if the sender and the receiver both exited with 0."""
    stop_after = ["--duration", length[:-1]] if length.endswith("s") else ["--messages", length]
    send = [str(TRAFFIC), "send", "--impl", impl, *stop_after, "--size", size]
    with subprocess.Popen(send, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as sender:
        assert sender.stderr is not None
        port = sender.stderr.readline().strip().rpartition(":")[2]
        receive = [str(TRAFFIC), "recv", "--connect", "127.0.0.1", "--port", port]
        received = subprocess.run(receive, stdout=subprocess.PIPE, check=False)
    report = json.loads(received.stdout)
    print(f"goodput: {8 * report['bytes'] / report['sending_ns']:.3f} Gb/s")
    return sender.returncode or received.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
