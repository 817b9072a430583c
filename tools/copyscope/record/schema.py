"""The keys of schema 1 as data: what every record holds (docs/reference/record.md says what each means).

A shape is: a type name ("int", "num", "str", "bool", "object", "list", "any"; a trailing ? allows null),
a dict (an object with at least these keys), a one-element list (every element has that shape),
Each(shape) (an object whose keys are free, every value has that shape) or Maybe(shape) (null or that shape).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Shape = Any


@dataclass(frozen=True)
class Each:
    """An object with free keys; every value has the shape."""

    shape: Shape


@dataclass(frozen=True)
class Maybe:
    """Null or the shape."""

    shape: Shape


# fmt: off
# endings that say what a number counts or is measured in
UNITS = ("_ns", "_us", "_s", "_bytes", "_gbps", "_hz", "_percent", "_share", "_messages", "_calls",
         "_samples", "_misses", "_per_kib", "_share_of_wall", "_switches", "_reads", "_sends", "_segments")
# names that are themselves a count of things, a share, a ratio or an index
PLAIN = frozenset((
    "schema", "bytes", "messages", "calls", "cycles", "instructions", "samples", "share", "level", "count",
    "of", "repeat", "order", "seed", "index", "block", "fields", "threads", "cpus_online",
    "perf_event_paranoid", "kptr_restrict", "value", "running", "left", "right", "tolerance", "ratio", "low",
    "high", "effect", "pairs", "sends", "completions", "copied", "notifications", "enobufs", "eagain",
    "max_in_flight", "in_flight", "unprobed", "probed", "ledger", "weight", "period", "pid", "tid",
    "replies", "zerocopy_calls", "first_wrong_offset", "samples_squared",
    "time_every", "zerocopied", "before_return",
    "time_every", "timed_calls", "reads", "events", "gate", "self_ns_squared", "page_faults",
))

_TOTALS = {
    "bytes": "int", "messages": "int", "calls": "int", "process_cpu_ns": "int", "user_ns": "int",
    "system_ns": "int", "voluntary_switches": "int", "involuntary_switches": "int",
}
_ZEROCOPY_TOTALS = {
    "sends": "int", "bytes_sent": "int", "completions": "int", "copied": "int", "bytes_copied": "int",
    "enobufs": "int", "notifications": "int", "in_flight": "int", "max_in_flight": "int",
    "errqueue_reads": "int",
}
_SENDER = {
    **_TOTALS, "short_sends": "int", "eagain": "int", "gather_timed_messages": "int",
    "gather_timed_ns": "int", "gather_broken_messages": "int", "send_syscalls": Each("int"),
    "zerocopy": Maybe(_ZEROCOPY_TOTALS),
}
_VERIFY = {"checked_bytes": "int", "wrong_bytes": "int", "first_wrong_offset": "int?"}
_RECEIVER = {**_TOTALS, "messages": "int?", "verify": Maybe(_VERIFY), "truncated_bytes": "int"}
_REPORT = {
    "role": "str", "impl": "str?", "pid": "int", "options": "object", "claim": "object?",
    "threads": ["object"], "histograms": "object", "slices": ["list"], "limits": "object", "errors": "list",
}
_COUNTER = {
    "value": "num?", "unit": "str", "status": "str", "running": "num?", "reason": "str?", "parts": "list?",
}

RAW: dict[str, Shape] = {
    "schema": "int",
    "copyscope": {"version": "str", "git": "str?", "dirty": "bool?"},
    "run": {
        "id": "str", "experiment": "str?", "factors": "object?", "repeat": "int", "order": "int",
        "seed": "int", "started": "str", "wall_s": "num", "measured_s": "num", "interrupted": "bool",
        "errors": ["str"],
        "segments": [{
            "index": "int", "block": "int", "arm": "str", "begin_ns": "int", "end_ns": "int",
            "sender": _SENDER, "receiver": _RECEIVER,
        }],
    },
    "workload": {
        "impl": "str", "size_bytes": "int", "fields": "int", "threads": "int", "duration_s": "num?",
        "messages": "int?", "mode": "str", "receiver": "str", "align": "str", "pages": "str",
        "working_set_messages": "int", "touch": "bool", "verify": "bool", "nodelay": "bool",
        "congestion_control": "str?", "sndbuf_bytes": "int?", "rcvbuf_bytes": "int?", "placement": "str",
        "time_every": "int",
    },
    "topology": {
        "kind": "str", "mtu_bytes": "int?", "offloads": "object", "local_delivery": "bool", "xdp": "str?",
        "devices": [{"side": "str", "name": "str", "driver": "str?", "features": "object"}],
        "packet_sockets": [{
            "side": "str", "device": "str?", "protocol": "any", "pid": "int?", "comm": "str?",
        }],
        "addresses": {"sender": "str", "receiver": "str"},
    },
    "machine": {
        "hostname": "str", "kernel": "str", "arch": "str", "cpu_model": "str", "cpus_online": "int",
        "hypervisor": "str?", "pmu": "list", "hybrid": "object?", "governor": "str?", "turbo": "any",
        "smt": "any", "mitigations": "object", "clocksource": "str?", "perf_event_paranoid": "int?",
        "kptr_restrict": "int?", "lockdown": "str?", "sysctls": "object", "limits": "object",
        "steal_percent": "num?", "tools": "object", "memory_bytes": "int?", "caches": "object",
    },
    "traffic": {"sender": {**_REPORT, **_SENDER}, "receiver": {**_REPORT, **_RECEIVER}},
    "counters": {"sender": Each(_COUNTER), "receiver": Each(_COUNTER)},
    "bytes": [{
        "side": "str", "hook": "str", "calls": "int", "bytes": "int", "zerocopy_calls": "int?",
        "zerocopy_bytes": "int?",
    }],
    "calls": [{
        "side": "str", "syscall": "str", "calls": "int", "bytes": "int", "on_cpu_ns": "int?",
        "softirq_ns": "int?", "blocked_ns": "int?", "timed_calls": "int", "histogram": "object?",
        "arm": "str",
    }],
    "functions": Maybe({
        "cells": [{
            "side": "str", "context": "str", "category": "str", "calls": "int", "bytes": "int",
            "timed_calls": "int", "self_ns": "int", "self_ns_squared": "num", "counters": Each("int"),
        }],
        "roots": [{
            "side": "str", "calls": "int", "timed_calls": "int", "inclusive_ns": "int",
            "counters": Each("int"),
        }],
        "page_bytes": "int",
        "owners": Maybe([{
            "owner_side": "str?", "current_side": "str", "context": "str?", "calls": "int", "bytes": "int",
        }]),
        "completions": Maybe([{"side": "str", "copied": "int", "zerocopied": "int"}]),
        "completion_latency": Maybe([{
            "side": "str", "count": "int", "before_return": "int", "histogram": "object",
        }]),
        "gate": "int",
        "events": [{"name": "str", "unit": "str", "status": "str", "reason": "str?", "running": "num?"}],
        "read_cost": Maybe({
            "reads": "int", "events": "int", "median_ns": "num", "low_ns": "num", "high_ns": "num",
            "clock_ns": "num",
            "added": [{"name": "str", "count": "num", "low": "num", "high": "num"}],
        }),
    }),
    "hooks": [{
        "id": "str", "instrument": "str", "symbol": "str", "state": "str", "how": "str?", "reason": "str?",
        "required": "bool",
    }],
    "sampler": {
        "events": [{"name": "str", "unit": "str", "status": "str", "reason": "str?"}],
        "frequency_hz": "num", "taxonomy_version": "str", "enabled_ns": "int",
        "bursts": Maybe(Each({
            "period_ns": "int", "armed_ns": "int", "count": "int", "samples": "int", "samples_squared": "int"
        })),
    },
    "samples": [{
        "side": "str", "context": "str", "event": "str", "kind": "str", "category": "str", "symbol": "str",
        "samples": "int", "weight": "num",
    }],
    "loss": Each("any"),
}

_COST = {
    "side": "str", "context": "str", "cpu_ns": "num?", "ns_per_kib": "num?", "share": "num?",
    "cycles": "num?", "instructions": "num?", "l1d_misses": "num?", "llc_misses": "num?", "method": "str",
    "samples": "int?", "ci": Maybe({"low_ns": "num", "high_ns": "num", "level": "num"}),
    "reasons": Each("str"),
}
_SIDE = {
    "cpu_ns": "num?", "cpu_source": "str", "burst_ns": "num?", "sampled_share": "num?", "user_ns": "int?",
    "samples": "int?", "unattributed_share": "num?",
    "on_cpu_share_of_wall": "num?", "reasons": Each("str"),
}
_ARM = {
    "ratio": "num?", "low": "num?", "high": "num?", "level": "num?", "effect": "num?", "pairs": "int",
    "segments": Each("int"), "reason": "str?",
}

DERIVED: dict[str, Shape] = {
    "throughput_gbps": {"unprobed": "num?", "probed": "num?", "reasons": Each("str")},
    "tx_bytes": "int", "rx_bytes": "int", "messages": "int",
    "loss": Each({"count": "int?", "of": "int?", "share": "num?"}),
    "ledger": [{"account": "str", "bytes": "int?", "bytes_method": "str?", "calls": "int?", **_COST}],
    "stages": [{"stage": "str", **_COST}],
    "exact": [{
        "side": "str", "context": "str", "category": "str", "ledger_name": "str", "calls": "int",
        "bytes": "int", "timed_calls": "int", "self_ns": "int", "cpu_ns": "num?", "ns_per_kib": "num?",
        "share": "num?", "cycles": "num?", "instructions": "num?", "l1d_misses": "num?", "llc_misses": "num?",
        "cpu_clock_ns": "num?", "page_faults": "num?", "dtlb_load_misses": "num?",
        "dtlb_store_misses": "num?", "itlb_load_misses": "num?", "method": "str",
        "ci": Maybe({"low_ns": "num", "high_ns": "num", "level": "num"}), "reasons": Each("str"),
    }],
    "zerocopy_life": Maybe({
        "owners": [{
            "owner_side": "str?", "calls": "int", "bytes": "int",
            "runs": [{"side": "str", "context": "str?", "calls": "int", "bytes": "int"}],
        }],
        "notified": [{
            "side": "str", "copied": "int", "zerocopied": "int", "count": "int", "before_return": "int",
            "p50_ns": "int?", "p99_ns": "int?",
        }],
    }),
    "sides": {
        "sender": _SIDE, "receiver": _SIDE,
        "other": {"cpu_ns": "num?", "samples": "int?", "rule": "str", "reasons": Each("str")},
        "elsewhere": {"cpu_ns": "num?", "samples": "int?", "cause": "str", "reasons": Each("str")},
    },
    "zerocopy": Maybe({
        "sends": "int", "completions": "int", "copied": "int", "bytes_sent": "int", "bytes_copied": "int",
        "bytes_silent": "int?", "bytes_zero_copy": "int?", "enobufs": "int", "notifications": "int",
        "max_in_flight": "int", "cause": Maybe({"code": "str", "sentence": "str"}),
    }),
    "identities": [{
        "name": "str", "what": "str", "left": "num?", "right": "num?", "unit": "str", "tolerance": "num",
        "holds": "bool?", "reason": "str?",
    }],
    "overhead": {
        "ratio": "num?", "low": "num?", "high": "num?", "level": "num?", "reason": "str?",
        "segments": {"unprobed": "int", "ledger": "int"}, "arms": {"ledger": _ARM, "calls": _ARM},
    },
    "verdict": {
        "valid": "bool", "reasons": ["str"], "sentence": "str", "limit": {"who": "str", "evidence": "str"},
    },
}
# fmt: on
