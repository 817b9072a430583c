# SPDX-License-Identifier: GPL-2.0-only
"""A raw record of a run with sender and receiver on two machines."""

import copy
from typing import Any


def on_two_hosts(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the same traffic, in which each side has its own hooks and machine."""
    raw = copy.deepcopy(raw)
    raw["hooks"] = [{**row, "side": side} for side in ("sender", "receiver") for row in raw["hooks"]]
    raw["placement"] = {"sender": [], "receiver": []}
    raw["topology"] |= {"kind": "hosts", "local_delivery": False, "rtt_us": 180}
    far = raw["machine"] | {"hostname": "web2", "kernel": "7.2.13", "cpus_online": 1}
    raw["places"] = {
        "sender": {"host": "web1", "machine": raw["machine"]},
        "receiver": {"host": "web2", "machine": far},
    }
    return raw
