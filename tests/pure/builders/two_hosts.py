"""A raw record of a run whose sides were on two machines."""

import copy
from typing import Any

# The receiver's machine was switched on later: its clock is days behind.
BEHIND_NS = 3 * 86_400_000_000_000


def on_two_hosts(raw: dict[str, Any]) -> dict[str, Any]:
    """The same traffic: hooks, clock and machine of each side are its own."""
    raw = copy.deepcopy(raw)
    raw["hooks"] = [{**row, "side": side} for side in ("sender", "receiver") for row in raw["hooks"]]
    for segment in raw["run"]["segments"]:
        segment["receiver_begin_ns"] = segment["begin_ns"] - BEHIND_NS
        segment["receiver_end_ns"] = segment["end_ns"] - BEHIND_NS
    raw["placement"] = {"sender": [], "receiver": []}
    raw["topology"] |= {"kind": "hosts", "local_delivery": False, "rtt_us": 180}
    far = raw["machine"] | {"hostname": "web2", "kernel": "7.2.13", "cpus_online": 1}
    why = dict.fromkeys(("clock_offset_ns", "clock_offset_error_ns"), "its date(1) prints no nanoseconds")
    clock = {**dict.fromkeys(why), "reasons": why}
    raw["places"] = {
        "sender": {"host": "web1", "machine": raw["machine"], **clock},
        "receiver": {"host": "web2", "machine": far, **clock},
    }
    return raw
