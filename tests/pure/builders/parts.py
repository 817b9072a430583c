# SPDX-License-Identifier: GPL-2.0-only
"""Parts of an invented record with little arithmetic: machine, topology, shares of CPU time."""

from typing import Any

from copyscope.record.session_result import LoadReading

# Context, kind, category, deciding symbol, thousandths of the side's CPU time.
Share = tuple[str, str, str, str, int]

SENDER_STAGES: list[Share] = [
    ("process", "stage", "syscall", "entry_SYSCALL_64_after_hwframe", 30),
    ("process", "stage", "skb_alloc", "__alloc_skb", 40),
    ("process", "stage", "tcp_ip", "tcp_write_xmit", 120),
    ("softirq", "stage", "tcp_ip", "tcp_v4_rcv", 110),
    ("process", "stage", "device", "__dev_queue_xmit", 40),
    ("softirq", "stage", "softirq", "net_rx_action", 35),
    ("softirq", "stage", "wakeup_sched", "try_to_wake_up", 90),
    ("process", "stage", "lock", "lock_sock_nested", 10),
    ("process", "stage", "memory", "get_page_from_freelist", 60),
    ("process", "stage", "irq", "sysvec_apic_timer_interrupt", 5),
    ("process", "stage", "unattributed", "some_new_function", 4),
]
SENDER: dict[str, list[Share]] = {
    "one_copy": [
        ("process", "account", "copy_in", "_copy_from_iter", 376),
        ("user", "stage", "user", "[user]", 80),
    ],
    "two_copy": [
        ("process", "account", "copy_in", "_copy_from_iter", 226),
        ("user", "stage", "user", "[user]", 230),
    ],
    "per_field": [
        ("process", "account", "copy_in", "_copy_from_iter", 346),
        ("user", "stage", "user", "[user]", 110),
    ],
    "zero_copy": [
        ("process", "account", "pin", "skb_zerocopy_iter_stream", 76),
        ("softirq", "account", "deferred", "skb_copy_ubufs", 290),
        ("process", "account", "completion", "inet_recv_error", 30),
        ("softirq", "account", "completion", "msg_zerocopy_complete", 20),
        ("user", "stage", "user", "[user]", 40),
    ],
    "sendfile": [
        ("process", "account", "pin", "skb_splice_from_iter", 120),
        ("process", "stage", "syscall", "splice_to_socket", 90),
        ("user", "stage", "user", "[user]", 20),
    ],
    "uring_zc": [
        ("process", "account", "pin", "zerocopy_fill_skb_from_iter", 76),
        ("softirq", "account", "deferred", "skb_copy_ubufs", 290),
        ("process", "account", "completion", "io_notif_tw_complete", 50),
        ("user", "stage", "user", "[user]", 40),
    ],
    "null": [],
}
RECEIVER: list[Share] = [
    ("process", "account", "copy_out", "_copy_to_iter", 520),
    ("process", "stage", "syscall", "ksys_read", 60),
    ("process", "stage", "tcp_ip", "tcp_recvmsg_locked", 200),
    ("process", "stage", "wakeup_sched", "sk_wait_data", 120),
    ("softirq", "stage", "tcp_ip", "tcp_ack", 60),
    ("user", "stage", "user", "[user]", 37),
    ("process", "stage", "unattributed", "another_new_function", 3),
]
XDP_COPY: Share = ("softirq", "account", "silent", "skb_pp_cow_data", 290)
OTHER_SHARE = 20  # ksoftirqd, in thousandths of the sender's CPU time


def sampled(
    impl: str, kind: str, cpu_ns: dict[str, int], events: list[str], period: int
) -> list[dict[str, Any]]:
    """Return the section `samples`: the CPU time of each side, divided by its shares into whole samples."""
    sender = [*SENDER_STAGES, *SENDER[impl]]
    if impl == "null":
        sender = [
            ("user", "stage", "user", "[user]", 990),
            ("process", "stage", "irq", "tick_nohz_handler", 10),
        ]
    if kind == "veth-xdp":
        sender = [s for s in sender if s[2] != "deferred"]
        sender += [] if impl == "null" else [XDP_COPY]
    total = sum(s[4] for s in sender)
    rows = []
    for event in events:
        for side, shares in (("sender", sender), ("receiver", RECEIVER)):
            count = cpu_ns[side] // period
            parts = total if side == "sender" else 1000
            rows += [_row(side, event, s, round(count * s[4] / parts), period) for s in shares]
        if impl != "null":
            ksoftirqd: Share = ("softirq", "stage", "softirq", "run_ksoftirqd", OTHER_SHARE)
            count = round(cpu_ns["sender"] // period * OTHER_SHARE / 1000)
            rows.append(_row("other", event, ksoftirqd, count, period))
    return [r for r in rows if r["samples"]]


def _row(side: str, event: str, share: Share, samples: int, period: int) -> dict[str, Any]:
    context, kind, category, symbol, _ = share
    # These records have three cycles per ns (kernel.counters).
    weight = samples * period * (3 if event == "cycles" else 1)
    return {
        "side": side,
        "context": context,
        "event": event,
        "kind": kind,
        "category": category,
        "symbol": symbol,
        "tie": "packet" if side == "other" else "process",
        "samples": samples,
        "weight": weight,
        "weight_squared": weight**2 / samples if samples else 0.0,
    }


# Name and unit of each event that the sampler tries.
EVENTS = (
    ("cpu-clock", "ns"),
    ("cycles", "cycles"),
    ("LLC-load-misses", "misses"),
    ("L1-dcache-load-misses", "misses"),
)


def sampler(events: list[str], enabled_ns: int) -> dict[str, Any]:
    """Return the section `sampler`."""
    rows: list[dict[str, Any]] = []
    for name, unit in EVENTS:
        why_not = "this machine has no PMU"
        if name == "cpu-clock":
            why_not = "cycles are sampled instead"
        works = {"status": "sampled", "reason": None}
        rows.append({"name": name, "unit": unit, "status": "unsupported", "reason": why_not})
        rows[-1] |= works if name in events else {}
    return {
        "events": rows,
        "frequency_hz": 4000,
        "enabled_ns": enabled_ns,
        "taxonomy_version": "1",
    }


def zero_copy_totals(kind: str, calls: int, size: int) -> dict[str, int]:
    """Return totals of a zero-copy sender: notifications report copies over lo and veth, but not with XDP."""
    copied = calls if kind in ("veth", "loopback") else 0
    return {
        **{"sends": calls, "bytes_sent": calls * size, "completions": calls},
        **{"copied": copied, "bytes_copied": copied * size},
        **dict.fromkeys(("notifications", "errqueue_reads"), calls // 4),
        **{"enobufs": 0, "in_flight": 0, "max_in_flight": 14, "waits": 0, "wait_ns": 0},
    }


def tcp_info(bytes_: int, side: str) -> dict[str, int]:
    """Return the final TCP statistics of the connection of a thread, as the kernel reports them."""
    # The sender has closed: the receiver is in CLOSE_WAIT, and the FIN counts as one byte.
    received = {"state": 8, "bytes_received": bytes_ + 1}
    moved = {"bytes_acked": bytes_} if side == "sender" else {"bytes_acked": 0, **received}
    waited = {"busy_time_us": 2_600_000, "rwnd_limited_us": 400_000, "sndbuf_limited_us": 120_000}
    return {**waited, "retransmits": 0, "rtt_us": 90, "cwnd": 40, **moved}


def topology(kind: str, packet_sockets: list[dict[str, Any]], scatter_gather: bool) -> dict[str, Any]:
    """Return the section `topology`. kind: veth, veth-xdp, loopback or nics."""
    driver = {"veth": "veth", "veth-xdp": "veth", "loopback": "lo", "nics": "mlx5_core"}[kind]
    features = {"scatter_gather": scatter_gather, "tso": True, "gso": True, "gro": True}
    devices = [
        {
            "side": side,
            "name": "lo" if kind == "loopback" else f"cs-{side[0]}0",
            "driver": driver,
            "features": dict(features),
        }
        for side in ("sender", "receiver")
    ]
    return {
        "kind": kind,
        "mtu_bytes": 65_536 if kind == "loopback" else 1500,
        "offloads": {"tso": True, "gso": True, "gro": True},
        "local_delivery": kind in ("veth", "veth-xdp", "loopback"),
        "xdp": "native" if kind == "veth-xdp" else None,
        "devices": devices,
        "packet_sockets": packet_sockets,
        "addresses": {"sender": "10.77.0.1", "receiver": "10.77.0.2"},
    }


def machine(pmu: bool) -> dict[str, Any]:
    """Return the section `machine` of a guest with two CPUs, with or without a PMU."""
    return {
        "hostname": "example",
        "kernel": "6.18.0-test",
        "arch": "x86_64",
        "cpu_model": "Example CPU @ 3.0 GHz",
        "cpus_online": 2,
        "hypervisor": "kvm",
        "pmu": ["cpu"] if pmu else [],
        **dict.fromkeys(("hybrid", "governor", "turbo", "lockdown")),
        **dict.fromkeys(("smt", "irq_time_accounting"), False),
        "mitigations": {"meltdown": "Not affected"},
        "clocksource": "tsc",
        **{"perf_event_paranoid": 2, "kptr_restrict": 0},
        "sysctls": {
            "net.core.optmem_max": "131072",
            "net.ipv4.tcp_wmem": "4096 16384 4194304",
            "net.ipv4.tcp_rmem": "4096 131072 6291456",
            "net.ipv4.tcp_congestion_control": "cubic",
            "net.ipv4.tcp_available_congestion_control": "reno cubic",
        },
        "limits": {"memlock_bytes": 8_388_608},
        "steal_percent": 0.0,
        "tools": {"perf": "6.1", "ip": "6.1.0", "clang": "14.0.6"},
        "memory_bytes": 8_589_934_592,
        "caches": {"l1d_bytes": 32_768, "l2_bytes": 1_048_576, "l3_bytes": 33_554_432},
    }


def loads(wall_ns: int, sides_ns: int, others_ns: int = 0, own_ns: int = 50_000_000) -> list[LoadReading]:
    """Return readings of the machine's load at the begin and end of a run.

    sides_ns, others_ns, own_ns: CPU time of the sides, of other programs, and of copyscope
    """
    busy_ns = sides_ns + own_ns + others_ns
    began = LoadReading(10**12, 10**9, 2, busy_ns=10**11, softirq_ns=10**9, steal_ns=0)
    ended = LoadReading(
        10**12 + wall_ns, 10**9 + own_ns, 2, busy_ns=10**11 + busy_ns, softirq_ns=10**9, steal_ns=0
    )
    return [began, ended]
