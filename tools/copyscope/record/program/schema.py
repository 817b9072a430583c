"""The keys of a record of a watched program: those of record/schema.py but for our own traffic's."""

from __future__ import annotations

from copyscope.record.schema import DERIVED, RAW, Each, Maybe, Shape

# fmt: off
_MOVED = {
    "protocol": "str", "direction": "str", "syscall": "str", "calls": "int", "bytes": "int",
    "zerocopy_calls": "int", "zerocopy_bytes": "int", "nodelay_calls": "int", "cork_calls": "int",
    "largest_bytes": "int", "sizes": ["list"],
}
_SPARED = {
    "why": "str", "until": "str?", "sent_bytes": "int", "sent_calls": "int", "sent_calls_low": "int?",
    "sent_calls_high": "int?", "received_bytes": "int", "received_calls": "int",
    "received_calls_low": "int?", "received_calls_high": "int?",
    "counted": [{
        "wall_ns": "int", "sent_bytes": "int", "sent_calls": "int", "received_bytes": "int",
        "received_calls": "int", "copied_out_bytes": "int", "copied_out_calls": "int",
        "sent_inner_bytes": "int?", "sent_outer_bytes": "int?", "received_inner_bytes": "int?",
        "received_outer_bytes": "int?",
    }],
}
_SHAPE = {
    "protocol": "str", "syscall": "str", "messages": "int", "unreadable": "int", "repeated": "int",
    "buffers": "int", "looked": "int", "page_aligned": "int", "line_aligned": "int", "sends": "int",
    "rounds": "int", "buffers_per_message": ["list"], "rounds_per_send": ["list"],
}
_SIDE_OF_IT = {
    "calls": "int", "bytes": "int", "mean_bytes": "num", "median_low_bytes": "int", "sizes": ["list"],
    "by_call": [{"protocol": "str", "syscall": "str", "calls": "int", "bytes": "int"}],
    "zerocopy_share": "num", "page_share": "num", "memory_share": "num", "nodelay_share": "num",
    "cork_share": "num", "io_uring_share": "num",
}

WATCH_RAW: dict[str, Shape] = {
    **{key: RAW[key] for key in (
        "schema", "copyscope", "machine", "calls", "functions", "hooks", "sampler", "samples", "loss",
        "bytes",
    )},
    "run": {
        **{key: shape for key, shape in RAW["run"].items() if key != "segments"},
        "segments": [{
            "index": "int", "block": "int", "arm": "str", "begin_ns": "int", "end_ns": "int",
            "target": {
                "bytes": "int", "bytes_sent": "int", "bytes_received": "int", "send_calls": "int",
                "counts_taken": "bool", "receive_calls": "int", "calls_estimated": "bool",
                "edge_sent_bytes": "int", "edge_received_bytes": "int",
                "edge_send_calls": "int", "edge_receive_calls": "int", "process_cpu_ns": "int",
                "voluntary_switches": "int", "processes": "int", "threads": "int", "births": "int",
                "open_zerocopy_sends": "int",
                "completions": "int",
                "copied": "int", "notifications": "int", "unseen": "int", "untold": "int",
            },
        }],
    },
    "workload": {"impl": "str?", "command": "list?", "duration_s": "num?", "messages": "int?"},
    "target": {
        "how": "str", "name": "str", "comm": "str?", "cgroup": "str?", "netns": "str?", "follow": "bool",
        "pids": [{"pid": "int", "comm": "str"}], "forks": "int", "exits": "int", "ended": "str",
        "status": "int?", "sent_bytes": "int", "send_calls": "int", "received_bytes": "int",
        "receive_calls": "int", "page_bytes": "int?", "spared": Maybe(_SPARED),
    },
    "topology": {
        **{key: shape for key, shape in RAW["topology"].items() if key != "addresses"},
        "peers": [{"address": "str", "device": "str?", "local": "any"}],
    },
    "traffic": Maybe("object"),
    "counters": {"target": RAW["counters"]["sender"]},
    "volume": [{"arm": "str", "estimated": "bool", **_MOVED}],
    "packets": Maybe({"packets": "int", "bytes": "int", "segments": "int", "sizes": ["list"]}),
    "shapes": Maybe([_SHAPE]),
    "connections": [{
        "local": "str", "peer": "str", "snapshots": "int", "sent_bytes": "int", "sent_inner_bytes": "int",
        "sent_outer_bytes": "int", "received_bytes": "int", "received_inner_bytes": "int",
        "received_outer_bytes": "int", "mss_bytes": "int", "retransmitted_bytes": "int", "busy_ms": "int",
        "rwnd_limited_ms": "int", "sndbuf_limited_ms": "int",
    }],
    "pace": {
        "slices": [{"when": "str", "begin_ns": "int", "end_ns": "int", "bytes": "int"}],
        "lasting_connections": "int", "covered_share": "num?", "own_cpu_ns": "int?",
    },
}

WATCH_DERIVED: dict[str, Shape] = {
    **DERIVED,
    "overhead": {
        **DERIVED["overhead"],
        "attached": {
            "ratio": "num?", "low": "num?", "high": "num?", "level": "num?", "effect": "num?",
            "slices": Each("int"), "own_cpu_share": "num?", "reason": "str?",
        },
    },
    "sides": {
        "target": {
            "cpu_ns": "num?", "cpu_source": "str", "burst_ns": "num?", "cpus_used": "num?", "samples": "int?",
            "sampled_share": "num?", "unattributed_share": "num?", "reasons": Each("str"),
        },
        "other": DERIVED["sides"]["other"],
        "elsewhere": DERIVED["sides"]["elsewhere"],
    },
    "advice": Maybe({
        "text": "str", "stoppers": ["str"],
        "most_to_save": Maybe({"share": "num", "low": "num", "high": "num"}), "crossover": "object?",
        "sendfile": "object?",
    }),
    "zerocopy": Maybe({
        "sends": "int", "bytes_sent": "int", "completions": "int?", "copied": "int?", "notifications": "int?",
        "unseen": "int?", "untold": "int", "reason": "str?",
        "cause": Maybe({"code": "str", "sentence": "str"}),
    }),
    "portrait": {
        "send": Maybe(_SIDE_OF_IT), "receive": Maybe(_SIDE_OF_IT),
        "packets": Maybe({"packets": "int", "mean_bytes": "num", "mean_segments": "num", "sizes": ["list"]}),
        "buffers": Maybe({
            "messages": "int", "buffers": "int", "mean_per_message": "num", "per_message": ["list"],
            "unreadable": "int", "looked": "int", "page_share": "num?", "line_share": "num?",
            "other_share": "num?", "repeated_share": "num",
        }),
        "rounds": Maybe({"sends": "int", "rounds": "int", "mean_per_send": "num", "per_send": ["list"]}),
        "mapped": Maybe({
            "calls": "int", "bytes": "int", "pages": "int", "copied_bytes": "int", "mapped_share": "num",
        }),
        "connections": "int", "local_share": "num?", "reasons": Each("str"),
    },
}
# fmt: on
