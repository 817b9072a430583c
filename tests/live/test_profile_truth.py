"""Known work, exact ledger: what was sent is what is counted, to the call and to the byte."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from profiling import SHARED_MESSAGES, SHARED_SIZE, SLOW, broken_identities, is_root, record_of, recorded

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

Record = dict[str, Any]

SIZE = 40_000
MESSAGES = 23


COPIES = {"gather", "copy_in", "pin", "deferred", "silent", "completion"}


@dataclass(frozen=True)
class Way:
    """What each message of a strategy does."""

    accounts: tuple[str, ...]  # in which its bytes are, each of them once
    calls: tuple[tuple[str, int], ...]
    sampled: str | None = None  # the account that certainly takes time
    to_relay: int | None = None  # of a relay, how often each byte is copied to it


WAYS = {
    "per_field": Way(("copy_in",), (("sendto", 8),), "copy_in"),
    "two_copy": Way(("gather", "copy_in"), (("sendto", 1),), "copy_in"),
    "one_copy": Way(("copy_in",), (("sendmsg", 1),), "copy_in"),
    "zero_copy": Way(("pin", "deferred"), (("sendmsg", 1),), "deferred"),
    "sendfile": Way(("pin",), (("sendfile", 1),)),
    "vmsplice": Way(("pin",), (("splice", 1), ("vmsplice", 1))),
    # As many calls as there were pieces to take.
    "relay_copy": Way(("copy_in",), (), "copy_in", to_relay=1),
    "relay_splice": Way(("pin",), (), to_relay=0),
    "uring_send": Way(("copy_in",), (), "copy_in"),
    "uring_zc": Way(("pin", "deferred"), (), "deferred"),
    "sendfile --via splice": Way(("pin",), (("splice", 2),)),
    "one_copy --call writev": Way(("copy_in",), (("writev", 1),), "copy_in"),
    "per_field --batch 3": Way(("copy_in",), (("sendmmsg", 3),), "copy_in"),
}
STRATEGIES = [words for words in WAYS if "--" not in words]
# Each strategy on each path, each other way on one; XDP makes a silent copy of pages that are lent.
RUNS = [
    *((words, path) for path in ("veth", "loopback") for words in STRATEGIES),
    *((words, "loopback") for words in WAYS if words not in STRATEGIES),
    *((words, "veth-xdp") for words in ("one_copy", "zero_copy")),
]
each_run = pytest.mark.parametrize(("words", "path"), RUNS, ids=["-".join(run) for run in RUNS])


def way_of(words: str, path: str) -> Way:
    if (words, path) == ("zero_copy", "veth-xdp"):
        return Way(("pin", "silent"), WAYS[words].calls, "silent")
    return WAYS[words]


def unsure(way: Way) -> set[str]:
    """Silent copies are judged by their time: on an emulated processor one header's covers all bytes."""
    return {"silent"} - set(way.accounts) if SLOW > 1 else set()


def hook(record: Record, name: str) -> Record:
    side = "sender" if name == "send_bytes" else "receiver"
    found: list[Record] = record["bytes"]
    return next(row for row in found if row["hook"] == name and row["side"] == side)


def rows(record: Record, account: str) -> list[Record]:
    return [row for row in record["ledger"] if row["account"] == account]


def bytes_of(record: Record, account: str) -> int:
    return sum(row["bytes"] or 0 for row in rows(record, account))


def bytes_at(record: Record, account: str, side: str) -> int:
    return sum(row["bytes"] or 0 for row in rows(record, account) if row["side"] == side)


def enough_for_samples(duration_s: float) -> str:
    """Where little is sent in a second, a stage that takes a tenth of the time gets its samples later."""
    return f"{duration_s * SLOW:g}"


def test_both_sides_run_where_the_record_says() -> None:
    """The programs say on which CPUs their threads are; the kernel, which of them are one core."""
    record = recorded("one_copy", "veth").record
    sides = ("sender", "receiver")
    said = {side: record["traffic"][side]["options"]["cpus"] for side in sides}
    placed = record["placement"]
    assert said == {side: [one["cpu"] for one in placed[side]] for side in sides}
    assert said == {side: record["sides"][side]["cpus"] for side in sides}
    for one in (*placed["sender"], *placed["receiver"]):
        siblings = Path(f"/sys/devices/system/cpu/cpu{one['cpu']}/topology/thread_siblings_list")
        assert one["core_cpus"] == siblings.read_text().strip()
    apart = said["sender"] != said["receiver"] or len(os.sched_getaffinity(0)) == 1
    assert apart and placed["sentence"].startswith("sender ")


@each_run
def test_what_was_sent_is_counted_to_the_call_and_to_the_byte(words: str, path: str) -> None:
    record, way = recorded(words, path).record, way_of(words, path)
    assert broken_identities(record) == []
    messages, total = SHARED_MESSAGES, SHARED_MESSAGES * SHARED_SIZE
    counted = {name: bytes_of(record, name) for name in COPIES - unsure(way) if bytes_of(record, name)}
    assert counted == dict.fromkeys(way.accounts, total)
    copied_out = {side: bytes_at(record, "copy_out", side) for side in ("sender", "receiver")}
    assert copied_out == {"sender": total * (way.to_relay or 0), "receiver": total}
    assert hook(record, "receive_bytes")["bytes"] == total
    of_tcp, lent = hook(record, "send_bytes"), "deferred" in way.accounts or "silent" in way.accounts
    if "uring" in words:
        # The socket may take a request in parts; its end is counted once, and says whether it was zero-copy.
        ended = next(
            row for row in record["bytes"] if row["hook"] == "uring_bytes" and row["side"] == "sender"
        )
        assert (ended["calls"], ended["bytes"]) == (messages, total)
        assert ended["zerocopy_bytes"] == (total if lent else 0)
        entered = next(row for row in record["calls"] if row["syscall"] == "io_uring")
        assert entered["calls"] == record["traffic"]["sender"]["send_syscalls"]["io_uring"] >= messages
    else:
        assert of_tcp["bytes"] == total
        assert of_tcp["zerocopy_bytes"] == (total if lent else 0)
        assert of_tcp["spliced_bytes"] == (total if way.accounts == ("pin",) else 0)
        timed = {row["syscall"]: row["calls"] for row in record["calls"] if row["side"] == "sender"}
        assert {name: timed[name] for name, _ in way.calls} == {
            name: messages * each for name, each in way.calls
        }
    if way.to_relay is not None:
        taken = record["traffic"]["sender"]["taken"]
        assert (taken["bytes"], taken["spliced_bytes"]) == (total, total * (not way.to_relay))
        at_relay = {row["hook"]: row["bytes"] for row in record["bytes"] if row["side"] == "sender"}
        assert at_relay["receive_bytes"] == at_relay["copy_out_bytes"] == total * way.to_relay
    life = record["zerocopy"]
    if not lent:
        assert life is None
        return
    assert life["sends"] == life["completions"] == messages
    assert life["copied"] == (0 if "silent" in way.accounts else messages)
    assert path == "veth-xdp" or life["cause"]["code"] == "local_delivery"


@each_run
def test_its_time_is_in_its_account_and_its_screen_says_so(words: str, path: str) -> None:
    record, screen = recorded(words, path).record, recorded(words, path).screen
    way, strategy = way_of(words, path), words.split(maxsplit=1)[0]
    assert record["verdict"]["reasons"] == [] and record["verdict"]["valid"]
    for side in ("sender", "receiver"):
        parts = [row["cpu_ns"] or 0 for row in (*record["ledger"], *record["stages"]) if row["side"] == side]
        spent_ns = record["sides"][side]["cpu_ns"]
        assert sum(parts) >= spent_ns - len(parts)
        # A gather copy is timed, and may be more than the samples in user mode, within what chance allows:
        # this valid run's check `sender_rows`.
        assert "gather" in way.accounts or sum(parts) <= spent_ns + len(parts)
    # Two clocks: what the instruments attribute, and what the process says that it has used.
    used_ns = sum(segment["sides"]["sender"]["process_cpu_ns"] for segment in record["run"]["segments"])
    assert record["sides"]["sender"]["cpu_ns"] == pytest.approx(used_ns, rel=0.25)
    if way.sampled is not None:
        assert any(row["samples"] for row in rows(record, way.sampled))
    if strategy == "two_copy":
        assert rows(record, "gather")[0]["cpu_ns"] > 0
    assert strategy.replace("_", "-") in screen.replace("_", "-") and path in screen
    assert max(len(line) for line in screen.splitlines()) <= 100 and "\x1b" not in screen


@pytest.mark.parametrize(
    ("impl", "kind", "issue"),
    [
        pytest.param("uring_zc", "loopback", "inline", marks=pytest.mark.all),
        ("uring_zc", "veth", "async"),
        pytest.param("uring_zc", "loopback", "sqpoll", marks=pytest.mark.all),
    ],
)
def test_send_zc_over_a_local_path_is_copied_after_all(impl: str, kind: str, issue: str) -> None:
    asked = ("--topology", kind, "--issue", issue, "--duration", enough_for_samples(1))
    record = record_of("--impl", impl, *asked)
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] == zerocopy["sends"] == zerocopy["completions"] > 100
    assert bytes_of(record, "deferred") == bytes_of(record, "pin") > 0
    assert bytes_of(record, "copy_in") == bytes_of(record, "silent") == 0
    # The work of a worker is the process's, and is not in the thread that asked for it.
    worked_ns = sum(s["sides"]["sender"]["io_uring"]["worker_cpu_ns"] for s in record["run"]["segments"])
    spent_ns = sum(s["sides"]["sender"]["process_cpu_ns"] for s in record["run"]["segments"])
    assert worked_ns < spent_ns / 50 if issue == "inline" else spent_ns / 2 < worked_ns < spent_ns
    # perf has the workers, too: its clock is the process's less the latency of wake-ups, a tenth or two.
    ledger_ns = sum(
        s["sides"]["sender"]["process_cpu_ns"] for s in record["run"]["segments"] if s["phase"] == "ledger"
    )
    assert record["sides"]["sender"]["cpu_ns"] > 0.65 * ledger_ns


@pytest.mark.parametrize(
    ("receiver", "kind"),
    [("recvmsg", "veth"), ("trunc", "loopback"), ("splice", "loopback"), ("multishot", "veth")],
)
def test_receivers_get_23_messages_and_what_they_copy_is_counted(receiver: str, kind: str) -> None:
    asked = ("--messages", str(MESSAGES), "--size", "64K", "--topology", kind)
    record = record_of("--impl", "one_copy", "--receiver", receiver, *asked, check=None)
    assert broken_identities(record) == []
    sent, report = MESSAGES * 65536, record["traffic"]["receiver"]
    assert report["bytes"] == sent
    # splice(2) passes no hook of a receive call
    assert hook(record, "receive_bytes")["bytes"] == (0 if receiver == "splice" else sent)
    assert hook(record, "copy_out_bytes")["bytes"] == (0 if receiver in ("trunc", "splice") else sent)
    assert report["truncated_bytes"] == (sent if receiver == "trunc" else 0)
    assert (report["spliced"] or {}).get("bytes", 0) == (sent if receiver == "splice" else 0)


def test_pages_of_a_zero_copy_sender_are_mapped() -> None:
    """4148 less 52 bytes of headers is a page. A full window cuts packets anywhere: less is under way."""
    how = (
        "--mtu",
        "4148",
        "--fields",
        "1",
        "--sndbuf",
        "64K",
        "--duration",
        enough_for_samples(0.6),
        "--frequency",
        "1999",
    )
    record = record_of("--impl", "zero_copy", "--receiver", "map", *how, "--touch-received")
    assert broken_identities(record) == []
    report = record["traffic"]["receiver"]
    assert report["mapped"]["bytes"] == report["mapped"]["pages"] * 4096 > 0.99 * report["bytes"]
    assert bytes_of(record, "mapped") > 0.99 * (bytes_of(record, "mapped") + bytes_of(record, "copy_out"))
    # The kernel's own hook sees the rest, and nothing else.
    assert hook(record, "copy_out_bytes")["bytes"] < 0.01 * report["bytes"]
    assert any(row["samples"] for row in rows(record, "mapped"))


@pytest.mark.parametrize(
    ("impl", "more"), [("zero_copy", ()), pytest.param("sendfile", ("--file", "/tmp"), marks=pytest.mark.all)]
)
def test_one_thread_on_each_side_is_counted_to_the_byte_of_each_connection(
    impl: str, more: tuple[str, ...]
) -> None:
    form = ("--sender", "loop", "--receiver", "poll", "--coalesce", "20", "--threads", "4", *more)
    record = record_of("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE), *form, check=None)
    assert broken_identities(record) == []
    sent = hook(record, "send_bytes")
    assert (sent["calls"], sent["bytes"]) == (4 * MESSAGES, 4 * MESSAGES * SIZE)
    assert hook(record, "receive_bytes")["bytes"] == 4 * MESSAGES * SIZE
    for side in ("sender", "receiver"):
        threads = record["traffic"][side]["threads"]
        assert [thread["bytes"] for thread in threads] == [MESSAGES * SIZE] * 4
        assert [thread["cpu_ns"] is None for thread in threads] == [False, True, True, True]
    workload = record["workload"]
    assert (workload["sender"], workload["receiver"], workload["coalesce_us"]) == ("loop", "poll", 20)
    assert workload["file"] == ("/tmp" if more else None)


@pytest.mark.parametrize(
    ("impl", "threads"),
    [
        ("one_copy", "4"),
        *(
            pytest.param(*which, marks=pytest.mark.all)
            for which in (("one_copy", "1"), ("two_copy", "4"), ("null", "1"))
        ),
    ],
)
def test_identities_hold(impl: str, threads: str) -> None:
    record = record_of("--impl", impl, "--threads", threads, "--size", "16K", "--duration", "1")
    assert broken_identities(record) == []
    if impl != "null":
        assert bytes_of(record, "copy_in") == bytes_of(record, "copy_out") > 0
    if impl == "two_copy":
        assert rows(record, "gather")[0]["cpu_ns"] > 0


@pytest.mark.all
def test_touched_and_verified_bytes_arrive_right() -> None:
    record = record_of(
        "--impl", "zerocopy", "--size", "8K", "--working-set", "64", "--verify", "--touch", "--duration", "1"
    )
    verify = record["traffic"]["receiver"]["verify"]
    assert verify["wrong_bytes"] == 0 and verify["checked_bytes"] >= record["rx_bytes"] > 1 << 24
