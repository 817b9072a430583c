# SPDX-License-Identifier: GPL-2.0-only
"""Records that together have every key. COPYSCOPE_RECORD=run.json adds records of real runs."""

import json
import os
from pathlib import Path
from typing import Any

from copyscope.judge.crossover_file import SavedCrossover
from msgspec import convert

from builders import raw_record
from builders.encrypted import with_tls
from builders.exact import with_functions
from builders.simulated import command_record, simulated_record
from builders.two_hosts import on_two_hosts
from builders.watched import watched_record

from .documents import advise, derive

HISTOGRAM = {
    **{key: 1 for key in ("count", "min", "max", "mean", "p50", "p90", "p99", "p999")},
    "buckets": [[0, 1, 1]],
}
PART = {"pmu": "cpu_core", "value": 1, "running": 1.0, "share": 1.0}


def add_optional_keys(raw: dict[str, Any]) -> None:
    """Add keys of real runs that the builders leave out."""
    raw["topology"]["what"] = "a pair of virtual devices"
    raw["topology"]["notes"] = ["eth1 was in use here (192.0.2.1/24; routes that are not restored: 0)"]
    for device in raw["topology"]["devices"]:
        device |= {"mtu_bytes": 1500, "qdisc": "noqueue", "gso_max_bytes": 65_536}
    absent = ("microcode", "numa_nodes", "idle_driver", "transparent_hugepages")
    raw["machine"] |= {name: None for name in absent} | {"reasons": {name: "not shown" for name in absent}}
    raw["machine"]["hybrid"] = {"cpu_core": "0-7"}
    clock = {"governor": "powersave", "energy_preference": "power", "turbo": True, "on_battery": False}
    clock |= {"platform_profile": "balanced", "throttles": 0}
    raw["machine_state"] |= {"clock_before": clock, "clock_after": clock | {"throttles": 1}}
    for side, report in raw["traffic"].items():
        report |= {"sending_ns": 1, "too_short": False, "too_short_reason": None}
        report |= {"interrupted": False, "errors": ["peer: 10.0.0.1: reset"]}
        report["limits"]["memlock_enforced"] = True
        report["claim"]["what"] = "one sendmsg() over the fields"
        report["options"]["cpus"] = [0]
        report["histograms"] |= {"send_time_ns": HISTOGRAM}
        for thread in report["threads"]:
            thread |= {"sndbuf_bytes": 1, "rcvbuf_bytes": 1, "congestion_control": "cubic"}
        for counter in raw["counters"][side].values():
            counter["parts"] = [PART]
    raw["topology"]["route_congestion_control"] = "cubic"
    raw["traffic"]["sender"]["ring"] = {"bytes": 1_048_576, "huge_bytes": None}
    raw["traffic"]["receiver"] |= {"replies": 0, "impl": None}
    verify = {"checked_bytes": 1, "wrong_bytes": 0, "first_wrong_offset": None}
    raw["traffic"]["receiver"]["verify"] = verify
    raw["run"]["segments"][0]["sides"]["receiver"] |= {"verify": verify, "replies": 0}


def full_records() -> list[dict[str, Any]]:
    """Return records that together have every optional part."""
    tap = {"side": "sender", "device": None, "protocol": "ETH_P_ALL", "pid": 812, "comm": "lldpd"}
    raws = [
        raw_record("zero_copy", packet_sockets=[tap]),
        raw_record("two_copy", pmu=True),
        with_functions(
            raw_record("zero_copy", phases=("unprobed", "ledger", "functions")),
            gate=16,
            counted={"cycles": 3},
        ),
        raw_record("one_copy", kind="veth-xdp", fixed_messages=23),
        with_tls(raw_record("one_copy")),
        raw_record("uring_zc"),
        raw_record("zero_copy", receiver="map"),
        raw_record("one_copy", receiver="splice"),
        raw_record("one_copy", receiver="multishot"),
        on_two_hosts(raw_record("zero_copy")),
        raw_record("sendfile"),
    ]
    for raw in raws:
        add_optional_keys(raw)
    raws[-1]["workload"] |= {"sender": "loop", "receiver": "poll", "coalesce_us": 20, "file": "/tmp"}
    raws[-1]["workload"] |= {
        "issue": "inline",
        "registered": False,
        "push": "none",
        "call": "sendmsg",
        "via": "splice",
        "batch_sends": 1,
        "touch_received": True,
        "tls": "off",
    }
    raws[0]["stacks"] = [
        {name: value for name, value in row.items() if name != "symbol"} | {"frames": "a;b"}
        for row in raws[0]["samples"]
    ]
    raws[4]["modelled"] = simulated_record()["simulated"]
    raws[2]["samples"] = []
    raws[2]["run"] |= {"experiment": "sizes", "factors": {"impl": "zero_copy"}}
    watched = derive(watched_record(zerocopy=True, copied=100, receives=4096, maps=True))
    unsampled = watched_record() | {"samples": []}
    unsampled["target"] = unsampled["target"] | {"command": ["nginx", "-t"]}
    crossover = {
        "pair": ["one_copy", "zero_copy"],
        "threads": 1,
        "quantity": "sender_cpu_ns_per_kib",
        "verdict": "crosses",
        "above": "zero_copy",
        "size_bytes": 9,
        "low_bytes": 8,
        "high_bytes": 10,
        "by": "impl",
        "level": 0.95,
        "measured": [{"size_bytes": 9, "ratio": 1.3, "low": 1.2, "high": 1.4, "better": None}],
        "split_ns_per_kib": [],
        "costs": {},
        "where": {},
        "evidence": "they cross",
        "path": "veth",
        "file": "results/host/paths/crossover.json",
        "elsewhere": None,
    }
    watched["topology"] |= {"local_delivery": True}
    rows = convert([crossover, crossover | {"pair": ["one_copy", "sendfile"]}], list[SavedCrossover])
    watched["advice"] = advise(watched, rows[:1])
    copying = derive(watched_record())
    copying["advice"] = advise(copying, rows)
    hooked = with_functions(raw_record("one_copy", phases=("unprobed", "ledger", "calls", "functions")))
    calls_only = raw_record("zero_copy", phases=("unprobed", "calls"))
    return [derive(raw) for raw in [*raws, calls_only, hooked, watched_record()]] + [
        *(real if "simulated" in real else derive(real) for real in real_records()),
        watched,
        copying,
        derive(unsampled),
        simulated_record(),
        simulated_record(seeds=(1,)),
        command_record(),
    ]


def real_records() -> list[dict[str, Any]]:
    """Return the records that COPYSCOPE_RECORD=run.json[:run.json...] names."""
    names = [name for name in os.environ.get("COPYSCOPE_RECORD", "").split(":") if name]
    return [json.loads(Path(name).read_text()) for name in names]
