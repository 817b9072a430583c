# SPDX-License-Identifier: GPL-2.0-only
"""Measurements of an invented watched program, and the raw record made of them.

    watched_record()                       one thread that writes 64 KiB at a time, to a remote peer
    watched_record(call="sendfile")        the same bytes by reference to pages
    watched_record(zerocopy=True)          with MSG_ZEROCOPY; `copied` percent of the sends are copied
    watched_record(receives=4096)          it also reads 4096 bytes after each send
    watched_record(maps=True)              it maps MAPPED bytes after each send; the same call copies BESIDE
    watched_record(protocol="mptcp")       not over TCP
    watched_record(size=1024)              smaller sends

Everything balances to the byte, except calls that belong to no segment: EDGE_CALLS while hooks are attached,
and as many while they are detached.
"""

from types import SimpleNamespace
from typing import Any, cast

from copyscope.plan.tier import choose_tier
from copyscope.record.assemble import RecordIdentity
from copyscope.record.instruments import Counter
from copyscope.record.measured import Machine, TopologySection
from copyscope.record.moved import MeasuredSegment, PastSegment
from copyscope.record.session_result import Connections, Raw
from msgspec import convert

from .documents import assemble
from .kernel import hooks
from .parts import loads, machine

Record = dict[str, Any]

SEGMENT_NS = 300_000_000
EDGE_CALLS = 3
# Kinds of programs -> options of watched_record().
KINDS: dict[str, dict[str, Any]] = {
    "write": {},
    "sendfile": {"call": "sendfile"},
    "zero-copy": {"zerocopy": True},
    "zero-copy, copied": {"zerocopy": True, "copied": 100},
    "both ways": {"receives": 4096},
    "mapping": {"maps": True},
}
CALLS = 10_000
# Time of EDGE_CALLS at the speed of a segment.
EDGE_NS = SEGMENT_NS * EDGE_CALLS // CALLS
SIZE = 65_536
PAGE = 4_096
MAPPED, BESIDE = 3 * PAGE, 100
PHASES = ("unprobed", "ledger", "calls")
CPU_NS = 200_000_000
SAMPLE_NS = 1_000_000
# Samples in user mode: code that is known not to copy.
OWN_CODE = {"code": "/opt/server", "build_id": "ab12", "unknown": None, "copy": None}
STACKS = {
    "write": ("_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "ksys_write", "do_syscall_64"),
    "sendmsg": ("skb_zerocopy_iter_stream", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"),
    "sendfile": ("skb_splice_from_iter", "tcp_sendmsg_locked", "splice_to_socket", "do_sendfile"),
}


class Program:
    """Counters of a watched program as the collector reads them. move() adds calls."""

    def __init__(
        self, call: str, zerocopy: bool, copied: int, receives: int, *, maps: bool, protocol: str, size: int
    ) -> None:
        self.call, self.zerocopy, self.copied, self.receives = call, zerocopy, copied, receives
        self.maps, self.protocol, self.size = maps, protocol, size
        self.calls = self.copies = self.mappings = 0
        self.now_ns = 1_000_000_000

    def move(self, calls: int, *, copied_out: bool, counts_taken: bool) -> None:
        self.calls += calls
        self.copies += calls * copied_out
        self.mappings += calls * (self.maps and counts_taken)

    def reading(self, counts_taken: bool = False) -> Record:
        rows = [self._row("send", self.call, self.calls, self.size, zerocopy=self.zerocopy)]
        if self.receives:
            rows.append(self._row("receive", "read", self.calls, self.receives))
        if self.receives or self.maps:
            copied = self.receives + BESIDE * self.maps
            rows.append(self._row("copy_out", "other", self.copies, copied))
        if self.mappings:
            rows.append(self._row("mapped", "receive by mapping", self.mappings, MAPPED))
            rows.append(self._row("receive", "receive by mapping", self.mappings, BESIDE))
        totals = dict.fromkeys(
            ("forks", "births", "exits", "completions", "copied", "notifications", "unseen", "untold"), 0
        )
        totals["unregistered"] = 0
        if self.zerocopy:
            totals |= {"completions": self.calls, "copied": self.calls * self.copied // 100}
            totals["notifications"] = self.calls // 10
        packets = {"packets": 2 * self.calls, "bytes": self.calls * self.size, "segments": 46 * self.calls}
        return {
            "t_ns": self.now_ns,
            "page_bytes": PAGE,
            "counts_taken": counts_taken,
            "volume": rows,
            "packets": {**packets, "sizes": [[32_768, 2 * self.calls]]},
            "shapes": [self._shape()],
            "send_errors": [],
            "relays": {"threads": 0, "received_bytes": 0, "sent_bytes": 0},
            "processes": [[4711, False]],
            "totals": totals,
        }

    def _shape(self) -> Record:
        """Return the shape of sends: two buffers a message, the first page-aligned; three rounds a send.

        Sends of file pages have no buffers.
        """
        messages = 0 if self.call == "sendfile" else self.calls
        return {
            "protocol": self.protocol,
            "syscall": self.call,
            "messages": messages,
            "unreadable": 0,
            "repeated": messages // 2,
            "buffers": 2 * messages,
            "looked": 2 * messages,
            "page_aligned": messages,
            "line_aligned": messages // 2,
            "sends": self.calls,
            "rounds": 3 * self.calls,
            "buffers_per_message": [[2, messages]] if messages else [],
            "rounds_per_send": [[2, self.calls // 2], [4, self.calls - self.calls // 2]],
        }

    def _row(self, direction: str, call: str, calls: int, size: int, *, zerocopy: bool = False) -> Record:
        return {
            "protocol": self.protocol,
            "direction": direction,
            "syscall": call,
            "calls": calls,
            "bytes": calls * size,
            "zerocopy_calls": calls * zerocopy,
            "zerocopy_bytes": calls * size * zerocopy,
            "nodelay_calls": calls if direction == "send" else 0,
            "cork_calls": 0,
            "largest_bytes": size,
            "sizes": [[size, calls]],
        }


def seen_of(
    call: str = "write",
    *,
    zerocopy: bool = False,
    copied: int = 0,
    receives: int = 0,
    maps: bool = False,
    protocol: str = "tcp",
    size: int = SIZE,
    blocks: int = 3,
    phases: tuple[str, ...] = PHASES,
) -> Raw:
    """Return the result of a watching session (Raw of record/session_result.py)."""
    first = "sendmsg" if zerocopy else call
    program = Program(first, zerocopy, copied, receives, maps=maps, protocol=protocol, size=size)
    segments: list[MeasuredSegment | PastSegment] = []
    in_calls_segments = 0
    cpu_ns = switches = 0
    for index in range(blocks * len(phases)):
        phase = phases[index % len(phases)]
        ledger, calls = "ledger" in phase, "calls" in phase
        # The hook of mappings is attached in ledger segments, and stays attached once it has counted a call.
        stays, counts_taken = program.mappings > 0, ledger or program.mappings > 0
        volumes = [program.reading(stays)]
        program.move(EDGE_CALLS, copied_out=False, counts_taken=stays)
        program.now_ns += EDGE_NS
        volumes.append(program.reading(counts_taken))
        program.move(CALLS, copied_out=ledger, counts_taken=counts_taken)
        program.now_ns += SEGMENT_NS
        volumes.append(program.reading(counts_taken))
        program.move(EDGE_CALLS, copied_out=False, counts_taken=program.mappings > 0)
        program.now_ns += EDGE_NS
        volumes.append(program.reading(program.mappings > 0))
        in_calls_segments += CALLS * calls
        # Clocks and threads are read at the begin and end of the segment.
        volumes[1] |= used(cpu_ns, switches)
        cpu_ns, switches = cpu_ns + CPU_NS, switches + 5
        volumes[2] |= {**used(cpu_ns, switches), "threads": 1}
        marks = tuple({"target": volume} for volume in volumes)
        segments.append(MeasuredSegment(index, index // len(phases), phase, cast("Any", marks)))
    return Raw(
        started="2025-01-01T00:00:00+00:00",
        segments=segments,
        loads=[*loads(len(segments) * SEGMENT_NS, cpu_ns, own_ns=CPU_NS // 100)],
        errors=[],
        ended="stopped after --duration",
        tier=choose_tier("functions" in phases, ()),
        pids={4711: "server"},
        uncounted=set(),
        topology=convert(path(), TopologySection),
        machine=convert(machine(False), Machine),
        connections=connections(receives + (MAPPED + BESIDE) * maps, size),
        interrupted=False,
        collector=cast("Any", collected(program.call, in_calls_segments, receives, blocks, size)),
        counters={"target": {"task-clock": convert(counter(blocks * CPU_NS), Counter)}},
        status=None,
        wall_s=4.0,
    )


def used(cpu_ns: int, switches: int) -> Record:
    """Return CPU time and context switches as /proc has them. Every third switch is involuntary."""
    return {
        "process_cpu_ns": cpu_ns,
        "voluntary_switches": 2 * switches,
        "involuntary_switches": switches,
    }


def counter(value: int) -> Record:
    return {"value": value, "unit": "ns", "status": "measured", "running": 1.0, "reason": None, "parts": None}


def connections(receives: int, size: int) -> Connections:
    """Return a connection as counted by TCP and by hooks, which differ by at most one call."""

    def connection(sends: int) -> SimpleNamespace:
        return SimpleNamespace(
            established=True,
            local="192.0.2.2:80",
            peer="192.0.2.1:40000",
            written=max(0, sends) * size,
            taken=max(0, sends) * receives,
            mss_bytes=1448,
            bytes_retrans=0,
            busy_us=sends * 1000,
            rwnd_limited_us=sends // 2 * 1000,
            sndbuf_limited_us=0,
        )

    counted = Connections()
    for calls in (0, CALLS):
        ours = {"42": [calls * size, calls * receives]}
        counted.add({42: connection(calls)}, ours, {42: connection(calls + 1)})
    return counted


def path() -> Record:
    return {
        "kind": "eth0",
        "what": "the network of the program, as it was found",
        "mtu_bytes": 1500,
        "offloads": {"tso": True, "gso": True, "gro": True},
        "local_delivery": False,
        "xdp": None,
        "devices": [
            {"side": "target", "name": "eth0", "driver": "ether", "features": {"scatter_gather": True}}
        ],
        "packet_sockets": [
            {"side": "target", "device": "eth0", "protocol": "ETH_P_ALL", "pid": 812, "comm": "lldpd"}
        ],
        "route_congestion_control": None,
        "notes": [],
        "peers": [{"address": "192.0.2.1", "device": "eth0", "local": False}],
    }


def collected(call: str, calls: int, receives: int, blocks: int, size: int) -> Record:
    """Return the collector's report: samples of all CPU time, and the calls of the calls segments."""
    count = blocks * CPU_NS // SAMPLE_NS
    parts = (
        (STACKS.get(call, STACKS["sendfile"]), count // 4),
        (("tcp_write_xmit", "tcp_sendmsg"), count // 2),
        ((), count // 4),
    )
    call_rows = [call_row(call, calls, size)]
    if receives:
        call_rows.append(call_row("read", calls, receives))
    return {
        "hooks": hooks(),
        "sampler": {
            "events": [{"name": "cpu-clock", "unit": "ns", "status": "sampled", "reason": None}],
            "frequency_hz": 199,
            "enabled_ns": blocks * SEGMENT_NS,
        },
        "samples": [
            {
                **{"side": "target", "event": "cpu-clock", "frames": list(frames), "samples": n},
                **{"weight": n * SAMPLE_NS, "weight_squared": float(n * SAMPLE_NS**2)},
                **({} if frames else OWN_CODE),
            }
            for frames, n in parts
        ],
        "bytes": [],
        "calls": call_rows,
        "functions": None,
        "loss": {"samples_stack_map_full": 0},
    }


def call_row(call: str, calls: int, size: int) -> Record:
    return {
        "side": "target",
        "syscall": call,
        "calls": calls,
        "bytes": calls * size,
        "largest_bytes": size,
        "timed_calls": calls,
        "on_cpu_ns": calls * 5_000,
        "softirq_ns": 0,
        "blocked_ns": 0,
        "histogram": {"unit": "ns", "buckets": [[4_096, 5_120, calls]]},
    }


def watched_record(**options: Any) -> Record:
    """Return the raw record of a watched program. derive() of documents.py completes it."""
    named = {"how": "pid", "name": "server[4711]", "follow": True}
    target = named | dict.fromkeys(("comm", "cgroup", "netns", "command")) | {"duration_s": 2.7}
    identity = RecordIdentity("profile-watch-0", None, 0, 0, 42, "0123456789ab", False)
    return assemble(seen_of(**options), identity, 199, target=target)


def splicing_record() -> Record:
    """Return the raw record of a relay that splices all bytes from one socket into another."""
    raw = watched_record(call="splice between sockets", receives=SIZE)
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "copy_out"]
    for row in raw["volume"]:
        if row["direction"] == "receive":
            row["syscall"] = "splice from a socket"
    raw["calls"] = [row for row in raw["calls"] if row["syscall"] != "read"]
    return raw
