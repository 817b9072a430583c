"""A program of many small calls is counted in a part of the time: what follows is exact, or says so."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from copyscope.record.program.segments import calls_between, counted_between, why_uncounted
from copyscope.run.program import processes
from copyscope.run.program.seen import Seen
from copyscope.run.program.spared import COUNTING, Spared
from copyscope.run.program.sparing import ALWAYS_SHARE, duty, hooks_share, next_time_s

Row = dict[str, Any]
PROBES = {"unprobed": (), "ledger": ("copies", "sampler"), "calls": ("calls", "packets", "shape")}
SMALL, LARGE = 64, 4096


def row(direction: str, calls: int, size: int, syscall: str, protocol: str = "tcp") -> Row:
    return {
        **{"protocol": protocol, "direction": direction, "syscall": syscall, "calls": calls},
        **{"bytes": calls * size, "zerocopy_calls": 0, "zerocopy_bytes": 0, "nodelay_calls": calls},
        **{"cork_calls": 0, "largest_bytes": size, "sizes": [[size, calls]]},
    }


class Machine:
    """A program and its kernel: each step() makes calls, of which the hooks count those while they are there.

    Three sends of 64 B for each of 4 KiB, and one receive of 64 B; all over the socket `inode`.
    """

    def __init__(self, rate: int, *, older_bytes: int = 0) -> None:
        self.rate, self.now_s = rate, 100.0
        self.open = {"watch", "volume"}
        self.spare = False
        self.hooked = {"sendto": 0, "write": 0, "recvfrom": 0}
        self.datagrams = 0
        self.inode = 7
        self.sockets = {7: [older_bytes, older_bytes], 8: [999, 999]}
        self.by_hooks = {7: [0, 0]}
        self.ended: dict[str, list[int]] = {}
        self.sent = self.sends = 0
        self.asked: list[str] = []
        self.established = self.whole_looks = 0
        self.accepted = True
        # What passes while all connections are looked at.
        self.look_s = 0.0

    def step(self, seconds: float = 0.1) -> None:
        fours = round(self.rate * seconds / 5)
        self.now_s += seconds
        moved = [fours * (3 * SMALL + LARGE), fours * SMALL]
        self.sent, self.sends = self.sent + moved[0], self.sends + 4 * fours
        for n in (0, 1):
            self.sockets[self.inode][n] += moved[n]
        if "volume" in self.open:
            for call, calls in (("sendto", 3 * fours), ("write", fours), ("recvfrom", fours)):
                self.hooked[call] += calls
            ours = self.by_hooks.setdefault(self.inode, [0, 0])
            for n in (0, 1):
                ours[n] += moved[n]

    def close_socket(self, then: int) -> None:
        """It goes on over another one."""
        self.ended[str(self.inode)] = self.sockets.pop(self.inode)
        self.by_hooks.pop(self.inode, None)
        self.inode = then
        self.sockets[then] = [0, 0]
        self.established += 1

    def ask(self, line: str, *_: Any) -> Row:
        self.asked.append(line)
        if line.startswith("open "):
            self.open |= set(line[5:].split(","))
        elif line == "close":
            self.open &= {"watch"} if self.spare else {"watch", "volume"}
        elif line.startswith("spare"):
            self.spare = line == "spare on"
        elif line == "sockets":
            return {"sockets": {str(inode): list(moved) for inode, moved in self.by_hooks.items()}}
        elif line == "volume":
            ended, self.ended = self.ended, {}
            return {
                **{"volume": self.rows(), "t_ns": round(self.now_s * 1e9), "ended": ended},
                "totals": {"established": self.established},
            }
        if line.startswith(("open ", "close")):
            # What is told of closed sockets is told once, in whichever answer comes first.
            return {"volume": self.ask("volume")}
        return {}

    def rows(self) -> list[Row]:
        made = [
            row("send", self.hooked["sendto"], SMALL, "sendto"),
            row("send", self.hooked["write"], LARGE, "write"),
            row("receive", self.hooked["recvfrom"], SMALL, "recvfrom"),
        ]
        return [*made, *([row("send", self.datagrams, 10, "sendto", "udp")] * (self.datagrams > 0))]

    def look(self) -> Any:
        self.whole_looks += 1
        self.step(self.look_s)
        return {inode: self.connection(inode) for inode in self.sockets}

    def connection(self, inode: int) -> Any:
        sent, received = self.sockets[inode]
        times = dict.fromkeys(("busy_us", "rwnd_limited_us", "sndbuf_limited_us", "bytes_retrans"), 0)
        ends = {"mss_bytes": 1448, "local": "a:1", "peer": "b:2", "established": True}
        return SimpleNamespace(
            inode=inode, written=sent, taken=received, state_number=1, receive_queue_bytes=0, **times, **ends
        )

    def again(self, known: Any) -> Any:
        """As the kernel answers for some connections by name."""
        inodes = [one.inode for one in known]
        return {i: self.connection(i) for i in inodes} if self.sockets.keys() >= set(inodes) else None


@pytest.fixture
def spared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Spared, Seen]:
    machine = Machine(**request.param)
    plan = SimpleNamespace(functions=False, whole=False, probes=PROBES)
    seen = Seen()
    if machine.sockets[7][0]:
        seen.before = [cast("Any", SimpleNamespace(moved_bytes={7: 0}))]
    monkeypatch.setattr(processes, "sockets_of", lambda _: {7, 9})
    clock = SimpleNamespace(
        monotonic=lambda: machine.now_s,
        monotonic_ns=lambda: round(machine.now_s * 1e9),
        process_time=lambda: 0.0,
    )
    monkeypatch.setattr("copyscope.run.program.spared.time", clock)
    followed = SimpleNamespace(pids={4711})
    args = cast("Any", (plan, seen, machine, followed, machine.look))
    more = {"snapshots": cast("Any", machine), "began": not seen.before}
    return machine, Spared(*args, **more), seen


def segment(machine: Machine, spared: Spared, arm: str, seconds: float = 0.1) -> tuple[Row, Row]:
    """As watched.py makes one; hooks that come and go take 10 ms, in which the program goes on."""
    probes = spared.probes(arm)
    spared.read_before()
    if probes:
        machine.ask(f"open {','.join(probes)}", "opened")
        machine.step(0.01)
    counting = "volume" in probes
    begin = spared.read_between(since=False) if counting else spared.read()
    machine.step(seconds)
    end = after = spared.read_between(since=True) if counting else spared.read()
    if probes:
        machine.step(0.01)
        spared.read_after(machine.ask("close", "closed")["volume"])
        after = spared.read()
    spared.consider(begin, end)
    return after, end


def moved(reading: Row, direction: str, key: str) -> int:
    return sum(
        int(r[key]) for r in reading["volume"] if r["direction"] == direction and r["protocol"] == "tcp"
    )


def test_the_hooks_at_the_calls_stay_where_that_is_cheap() -> None:
    # 90 ns a call: at 137,000 calls a second 1.2 % of a CPU, at 50,000 0.45 %.
    assert hooks_share(137_000, 1.0) == pytest.approx(0.01233)
    assert hooks_share(13_700, 0.1) == pytest.approx(0.01233)
    assert hooks_share(50_000, 1.0) < ALWAYS_SHARE < hooks_share(60_000, 1.0)
    assert hooks_share(0, 0.0) == 0.0


def test_the_part_of_the_time_follows_the_rate_of_the_calls() -> None:
    # 500 ns a call: a million calls a second take half a CPU while they are timed, in 1 % of the time 0.5 %.
    assert duty(1_000_000, 1.0) == pytest.approx(0.01)
    assert duty(4_000, 0.01) == pytest.approx(0.025)
    assert duty(60_000, 1.0) == duty(0, 1.0) == duty(0, 0.0) == 0.05
    for rate in (10_000, 55_000, 200_000, 600_000, 3_000_000):
        assert rate * 500e-9 * duty(rate, 1.0) <= 0.005 + 1e-12
    # It makes 60,000 calls a second while they are timed, else 100,000: of what it loses 0.5 % as well.
    assert duty(600, 0.01, 100_000.0) == pytest.approx(0.0125)
    assert duty(1_000_000, 1.0, 900_000.0) == pytest.approx(0.01)
    # Counted from 3.00 to 3.02 s, attaching included; at 2 % of the time the next one is at 4 s.
    assert next_time_s(3.0, 3.02, 0.02) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "spared", [{"rate": 500_000}, {"rate": 500_000, "older_bytes": 1_000_003}], indirect=True
)
def test_the_bytes_are_exact_and_the_calls_follow_the_mix(spared: tuple[Machine, Spared, Seen]) -> None:
    machine, one, seen = spared
    segment(machine, one, "calls", 0.02)
    assert seen.spared is not None and machine.open == {"watch"}
    assert one.probes("unprobed") == () and one.probes("ledger") == ("sampler",)
    assert one.probes("calls") == (*COUNTING, "packets", "shape")
    assert not one.skips("calls")  # an interval needs a second one
    for arm in ("ledger", "unprobed", "calls", "ledger"):
        after, end = segment(machine, one, arm)
        assert end["estimated"] is (arm != "calls")
    assert one.skips("calls") and not one.skips("ledger")
    assert moved(after, "send", "bytes") == machine.sent
    # Three of four are of 64 B: so are those that nobody counted.
    assert moved(after, "send", "calls") == pytest.approx(machine.sends, rel=1e-6)
    by_call = {r["syscall"]: r["calls"] for r in after["volume"] if r["direction"] == "send"}
    assert by_call["sendto"] == pytest.approx(3 * by_call["write"], rel=1e-6)
    assert moved(after, "receive", "bytes") == machine.sends // 4 * SMALL
    estimate = after["estimate"]
    low, high = calls_between(seen.counted, "sent", estimate["sent_bytes"])
    assert low is not None and high is not None
    assert low <= estimate["sent_calls"] <= high <= low * 1.0001 + 2
    # What the hooks counted is what TCP did, which was asked before and after.
    counted = seen.counted[-1]
    assert counted["sent_inner_bytes"] <= counted["sent_bytes"] <= counted["sent_outer_bytes"]
    assert counted["sent_bytes"] == round(500_000 * 0.1 / 5) * (3 * SMALL + LARGE)


@pytest.mark.parametrize(
    "spared", [{"rate": 500_000, "older_bytes": 1_000_003}, {"rate": 500_000}], indirect=True
)
def test_what_moves_between_the_last_hook_and_the_look_is_in_the_sum(
    spared: tuple[Machine, Spared, Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a connection that was there at the first look, and of one that came later to a program that ran."""
    machine, one, seen = spared
    monkeypatch.setattr(one, "_began", False)
    there = {inode: at for inode, at in machine.look().items() if inode != 7 or seen.before}
    seen.connections.add(there, {"7": [0, 0]}, there)
    machine.look_s = 0.002
    segment(machine, one, "calls", 0.02)
    assert seen.spared is not None
    after, _ = segment(machine, one, "unprobed")
    assert moved(after, "send", "bytes") == machine.sent
    assert moved(after, "receive", "bytes") == machine.sends // 4 * SMALL


@pytest.mark.parametrize("spared", [{"rate": 500_000, "older_bytes": 1_000_003}], indirect=True)
def test_what_a_process_sent_before_it_was_found_is_not_in_the_sum(
    spared: tuple[Machine, Spared, Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, one, seen = spared
    monkeypatch.setattr(one, "_began", False)
    seen.before = []
    seen.connections.add({8: machine.connection(8)}, {}, {8: machine.connection(8)})
    segment(machine, one, "calls", 0.02)
    after, _ = segment(machine, one, "unprobed")
    assert seen.spared is not None and moved(after, "send", "bytes") == machine.sent


@pytest.mark.parametrize("spared", [{"rate": 500_000}], indirect=True)
def test_sockets_that_come_and_go_unseen_are_in_the_sum(
    spared: tuple[Machine, Spared, Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, one, _ = spared
    segment(machine, one, "calls", 0.02)
    machine.close_socket(then=10)  # opened and closed between two looks: closing it tells
    machine.step()
    machine.close_socket(then=9)
    after, _ = segment(machine, one, "unprobed")
    assert moved(after, "send", "bytes") == machine.sent
    machine.step()
    machine.close_socket(then=11)
    monkeypatch.setattr(one, "_look_at", lambda: None)  # its namespace has gone with it
    assert moved(one.read(), "send", "bytes") == machine.sent


@pytest.mark.parametrize("spared", [{"rate": 500_000}], indirect=True)
def test_all_connections_of_the_machine_are_looked_at_only_when_one_is_new(
    spared: tuple[Machine, Spared, Seen],
) -> None:
    machine, one, _ = spared
    segment(machine, one, "calls", 0.02)
    segment(machine, one, "unprobed")
    looks = machine.whole_looks
    segment(machine, one, "ledger")
    assert machine.whole_looks == looks
    # Connected, and not yet a file: accept(2) makes it one without a word.
    machine.established += 1
    machine.accepted = False
    for more in (1, 2):
        one.read()
        assert machine.whole_looks == looks + more
    machine.accepted = True
    machine.close_socket(then=9)
    machine.step()
    assert moved(one.read(), "send", "bytes") == machine.sent
    assert machine.whole_looks == looks + 3
    machine.step()
    assert moved(one.read(), "send", "bytes") == machine.sent
    assert machine.whole_looks == looks + 3


@pytest.mark.parametrize("spared", [{"rate": 40_000}], indirect=True)
def test_of_few_calls_each_is_counted(spared: tuple[Machine, Spared, Seen]) -> None:
    machine, one, seen = spared
    for arm in ("calls", "ledger", "unprobed"):
        after, _ = segment(machine, one, arm)
    assert seen.spared is None and "spare on" not in machine.asked and "estimate" not in after
    assert one.probes("ledger") == PROBES["ledger"] and not one.skips("calls")
    assert moved(after, "send", "calls") == machine.sends


@pytest.mark.parametrize("spared", [{"rate": 500_000}], indirect=True)
def test_what_tcp_does_not_count_ends_it(spared: tuple[Machine, Spared, Seen]) -> None:
    machine, one, seen = spared
    for arm in ("calls", "ledger"):
        segment(machine, one, arm)
    machine.datagrams = 3
    segment(machine, one, "calls")
    assert seen.spared_until is not None and seen.spared_until.startswith("udp")
    assert machine.open == {"watch", "volume"} and one.probes("ledger") == PROBES["ledger"]
    after, end = segment(machine, one, "unprobed")
    assert not end["estimated"]
    assert moved(after, "send", "bytes") == machine.sent
    # The hooks have not seen what a connection moved while they were away.
    assert one.look_around().ours == {"7": machine.sockets[7]}


@pytest.mark.parametrize("spared", [{"rate": 500_000}], indirect=True)
def test_nothing_is_read_twice_where_the_hooks_are_away(spared: tuple[Machine, Spared, Seen]) -> None:
    machine, one, _ = spared
    for arm in ("calls", "ledger"):
        segment(machine, one, arm)
    end = one.read()
    machine.step(0.01)
    machine.asked.clear()
    # Closing says what the hooks have counted; to ask TCP once more can wait until the next segment begins.
    assert one.read_after(machine.ask("close", "closed")["volume"]) is end
    assert one.read_before() is end
    assert machine.asked == ["close", "volume"]
    assert moved(one.read_now(), "send", "bytes") == machine.sent
    looked = one.look_around()
    assert looked.ours == {"7": machine.sockets[7]} and looked.earlier is looked.later
    assert "sockets" not in machine.asked
    # But where they have counted until now, the two must agree.
    counted = one.read_between(since=False)
    machine.step(0.01)
    after = one.read_after(machine.ask("close", "closed")["volume"])
    assert moved(counted, "send", "bytes") < moved(after, "send", "bytes") == machine.sent


def test_what_passes_no_hook_that_could_be_away() -> None:
    assert why_uncounted([row("send", 1, 64, "sendto"), row("copy_out", 1, 64, "other")]) is None
    assert why_uncounted([row("send", 1, 64, "write", "unix_stream")]) is not None
    assert why_uncounted([{**row("send", 1, 64, "sendto"), "zerocopy_calls": 1}]) is not None
    assert why_uncounted([row("peek", 1, 64, "recvfrom")]) is not None
    assert why_uncounted([row("receive", 1, 64, "splice from a socket")]) is not None


def test_one_segment_is_no_interval() -> None:
    begin = {"volume": [row("send", 10, SMALL, "sendto")], "t_ns": 0}
    end = {"volume": [row("send", 30, SMALL, "sendto")], "t_ns": 5}
    counted = counted_between(begin, end)
    assert (counted["sent_calls"], counted["sent_bytes"], counted["sent_inner_bytes"]) == (
        20,
        20 * SMALL,
        None,
    )
    assert calls_between([counted], "sent", 64_000) == (None, None)
    assert calls_between([counted, counted], "sent", 64_000) == (1000, 1000)
    assert calls_between([], "received", 0) == (0, 0)
