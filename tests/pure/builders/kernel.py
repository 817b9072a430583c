# SPDX-License-Identifier: GPL-2.0-only
"""Sections of an invented record with the counts of the kernel, which agree with the programs' totals."""

from typing import Any


def summed(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the totals of segments: sums, except for the maxima of `in_flight` and `max_in_flight`."""
    first = deltas[0]
    total: dict[str, Any] = {}
    for key, value in first.items():
        if isinstance(value, dict):
            total[key] = summed([d[key] for d in deltas])
        elif isinstance(value, int) and not isinstance(value, bool):
            numbers = [d[key] for d in deltas]
            total[key] = max(numbers) if key in ("in_flight", "max_in_flight") else sum(numbers)
        else:
            total[key] = value
    return total


def kernel_bytes(impl: str, receiver: str, segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the section `bytes`: counts of the byte hooks in these segments."""
    if not segments:
        return []
    sent = summed([s["sides"]["sender"] for s in segments])
    received = summed([s["sides"]["receiver"] for s in segments])
    zero_copy, in_ring = impl == "zero_copy", impl == "uring_zc"
    mapped = received.get("mapped") or {"calls": 0, "bytes": 0, "copied_bytes": 0}
    taken = received.get("spliced") or {"calls": 0, "bytes": 0}
    copied_out = 0 if receiver == "trunc" else received["bytes"] - mapped["bytes"] - taken["bytes"]
    received = {
        "calls": received["calls"] - mapped["calls"] - taken["calls"],
        "bytes": received["bytes"] - mapped["bytes"] - mapped["copied_bytes"] - taken["bytes"],
    }

    # sendfile() moves the bytes through a pipe of 16 pages.
    spliced = sent["bytes"] if impl == "sendfile" else 0
    pieces = -(-spliced // 65_536)

    def row(side: str, hook: str, calls: int, bytes_: int, zerocopy: bool) -> dict[str, Any]:
        cell = {
            "side": side,
            "hook": hook,
            "calls": calls,
            "bytes": bytes_,
            "zerocopy_calls": calls if zerocopy else 0,
            "zerocopy_bytes": bytes_ if zerocopy else 0,
        }
        if spliced:
            sending = hook == "send_bytes"
            cell |= {"spliced_calls": pieces * sending, "spliced_bytes": spliced * sending}
        return cell

    return [
        row("sender", "send_bytes", pieces or sent["calls"] + in_ring, sent["bytes"], zero_copy),
        row("receiver", "receive_bytes", received["calls"], received["bytes"], False),
        row("receiver", "copy_out_bytes", copied_out // 32_768, copied_out, False),
        # A request may pass the socket in two parts: the hook there counts two sends without zero-copy.
        *([row("sender", "uring_bytes", sent["calls"], sent["bytes"], True)] if in_ring else []),
    ]


def kernel_calls(segments: list[dict[str, Any]], gate: int) -> list[dict[str, Any]]:
    """Return the section `calls`: counts of the call timer, which times one call in `gate`."""
    rows: list[dict[str, Any]] = []
    for side, default in (("sender", "sendmsg"), ("receiver", "recvfrom")) if segments else ():
        totals = summed([s["sides"][side] for s in segments])
        if totals["calls"] == 0:
            continue
        name = next(iter(totals["send_syscalls"])) if side == "sender" else default
        name = {"send": "sendto"}.get(name, name)
        cpu_ns, timed = totals["system_ns"], -(-totals["calls"] // gate)
        on_cpu, softirq, blocked = cpu_ns * 6 // 10, cpu_ns * 4 // 10, 9_000_000
        rows.append(
            {
                "side": side,
                "syscall": name,
                "calls": totals["calls"],
                "bytes": totals["bytes"],
                "on_cpu_ns": on_cpu,
                "softirq_ns": softirq,
                "blocked_ns": blocked,
                "timed_calls": timed,
                "phase": segments[0]["phase"],
                "histogram": _histogram(on_cpu / totals["calls"], timed),
            }
        )
    return rows


def _histogram(mean_ns: float, count: int) -> dict[str, Any]:
    """Return three buckets around a mean, with half of the values in the middle bucket."""
    octave = 1 << max(2, int(mean_ns).bit_length() - 1)
    step = octave // 4
    low = octave + (int(mean_ns) - octave) // step * step if mean_ns >= octave else int(mean_ns)
    beside = count // 4
    counts = (beside, count - 2 * beside, beside)
    lows = (low - step, low, low + step)
    rows = [[first, first + step, n] for first, n in zip(lows, counts, strict=True) if n and first >= 0]
    return {"unit": "ns", "buckets": rows}


# Hooks: id, instrument, tracepoint, and True if the hook is required, as in bpf/hooks.h.
HOOKS = (
    ("send_bytes", "bytes", "sock_send_length", False),
    ("send_bytes_at_exit", "bytes", "sys_exit", False),
    ("receive_bytes", "bytes", "sock_recv_length", False),
    ("receive_bytes_at_exit", "bytes", "sys_exit", False),
    ("copy_out_bytes", "bytes", "skb_copy_datagram_iovec", True),
    ("syscall_enter", "calls", "sys_enter", True),
    ("syscall_exit", "calls", "sys_exit", True),
    ("task_switch", "calls", "sched_switch", True),
    ("softirq_enter", "calls", "softirq_entry", True),
    ("softirq_leave", "calls", "softirq_exit", True),
    ("packet_owner", "sampler", "netif_receive_skb", False),
)


RING_HOOK = ("uring_bytes", "bytes", "io_uring_complete", False)


def hooks(impl: str = "one_copy") -> list[dict[str, Any]]:
    """Return the section `hooks` of a kernel with all hooks, on which fallbacks are not used.

    Only strategies with io_uring have the hook for its requests, which older records lack.
    """
    rows = []
    for index, (name, instrument, symbol, required) in enumerate(
        (*HOOKS, RING_HOOK) if impl == "uring_zc" else HOOKS
    ):
        row = hook_row(name, instrument, symbol=symbol, how="tp_btf", required=required)
        if name.endswith("_at_exit"):
            row |= {"state": "unused", "how": None, "reason": f"{HOOKS[index - 1][2]} is better and present"}
        rows.append(row)
    return rows


def hook_row(name: str, instrument: str = "functions", **more: Any) -> dict[str, Any]:
    """Return a row of `hooks`: a function hook that is attached, with the given differences."""
    row = {"id": name, "instrument": instrument, "symbol": name, "state": "attached"}
    return {**row, "how": "fentry", "reason": None, "required": False, **more}


def counters(cpu_ns: dict[str, int], pmu: bool) -> dict[str, Any]:
    """Return the section `counters`: software events, and with `pmu` also hardware events."""

    def counter(value: int | None, unit: str, reason: str | None = None) -> dict[str, Any]:
        status = {"status": "measured", "running": 1.0} if reason is None else {"status": "unsupported"}
        return {"running": None, **status, "value": value, "unit": unit, "reason": reason, "parts": None}

    sides: dict[str, Any] = {}
    for side, spent_ns in cpu_ns.items():
        sides[side] = {"task-clock": counter(spent_ns, "ns"), "context-switches": counter(2_736, "switches")}
        per_ns = {"cycles": 3.0, "instructions": 2.4, "L1-dcache-load-misses": 0.05, "LLC-load-misses": 0.002}
        for event, rate in per_ns.items():
            absent = counter(None, event, f"{event}: not supported: this machine has no PMU")
            sides[side][event] = counter(int(spent_ns * rate), event) if pmu else absent
    return sides
