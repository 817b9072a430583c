"""What is said of shares of CPU time follows from their intervals, and too few samples say so."""

import io
import re
from typing import Any

import pytest
from builders import raw_record
from builders.watched import SAMPLE_NS, SEGMENT_NS, watched_record
from copyscope.judge import advice
from copyscope.ledger.derive import derive
from copyscope.ledger.share import Share
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.show import first_screen, live, watch
from rich.console import Console

Record = dict[str, Any]

FREQUENCY_HZ = 199
PERIOD_NS = 1e9 / FREQUENCY_HZ


def sampled(counts: dict[str, int], period_ns: float = SAMPLE_NS, **options: Any) -> Record:
    """A watched program of which so many samples fell into each category, and whose clock says as much.

    It sends little: no row has more bytes than its time can have copied.
    """
    raw = watched_record(**{"size": 1024} | options)
    rows = {row["category"]: row for row in raw["samples"]}
    assert set(counts) <= set(rows), set(rows)
    raw["samples"] = [
        {
            **rows[name],
            "samples": count,
            "weight": count * period_ns,
            "weight_squared": count * period_ns**2,
        }
        for name, count in counts.items()
        if count
    ]
    code = raw["user_code"][0] | {"samples": counts.get("user", 0), "copy_samples": 0}
    raw["user_code"] = [code] if counts.get("user") else []
    return with_cpu_ns(raw, sum(counts.values()) * period_ns)


def with_cpu_ns(raw: Record, cpu_ns: float) -> Record:
    """It used so much in all of its ledger segments, and as much in others."""
    ledger = [row for row in raw["run"]["segments"] if "ledger" in row["phase"]]
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = round(cpu_ns / len(ledger))
    raw["counters"]["target"]["task-clock"]["value"] = round(cpu_ns)
    return raw


def sentence(raw: Record) -> str:
    full = derive(raw)
    assert store.validate(full) == [] and full["verdict"]["valid"], full["verdict"]["reasons"]
    return str(full["verdict"]["sentence"]).removeprefix("server[4711]: ")


def sleeper(samples: int, cpu_share: float = 0.01, size: int = 20_000) -> Record:
    """One that uses so much of a CPU, and of which so many samples were taken, all of them in the copy."""
    raw = sampled({"copy_in": samples}, PERIOD_NS, size=size)
    return with_cpu_ns(raw, cpu_share * 3 * SEGMENT_NS)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_one_sample_makes_no_finding_but_says_for_how_long_to_watch(samples: int) -> None:
    """1 % of a CPU for 0.9 s at 199 Hz: 1.8 samples are to be expected, 100 of them in 151 s."""
    said = sentence(sleeper(samples))
    assert re.match(
        rf"what its copies cost is not known: {samples} samples? in 2.7 s, in which it used 1 % of a CPU: "
        r"watch longer \(--duration 3m\), or look more often \(--frequency 999 --duration 35s\)",
        said,
    ), said
    assert "takes" not in said


def test_without_a_sample_it_is_the_same() -> None:
    raw = sleeper(1)
    raw["samples"] = []
    said = sentence(raw)
    assert said.startswith("what its copies cost is not known: no sample in 2.7 s, in which it used 1 %")
    assert "--duration 3m" in said


def test_a_command_cannot_be_watched_longer_than_it_runs() -> None:
    raw = sleeper(2)
    raw["target"]["how"] = "command"
    said = sentence(raw)
    assert "let it run for 3m, or look more often (--frequency 999)" in said and "--duration" not in said


def test_some_samples_give_bounds_and_many_a_number() -> None:
    """15 of 60 are 16 to 37 % (Wilson), 2,500 of 10,000 are 24 to 26 %."""
    assert "the copy into the kernel takes 16 to 37 % of its CPU time" in sentence(
        sampled({"copy_in": 15, "tcp_ip": 30, "user": 15})
    )
    assert "the copy into the kernel takes 25 % of its CPU time" in sentence(
        sampled({"copy_in": 2500, "tcp_ip": 5000, "user": 2500}, 60_000)
    )


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (60, "no copy takes more than 7 % of its CPU time"),  # 0 of 60: up to 6.02 %
        (600, "no copy takes more than 1 % of its CPU time"),
        (6000, "no copy takes as much as 0.5 % of its CPU time"),
    ],
)
def test_that_nothing_is_copied_needs_the_upper_bound(others: int, words: str) -> None:
    assert words in sentence(sampled({"copy_in": 0, "tcp_ip": others}, 600 * SAMPLE_NS / others))


def test_a_copy_that_may_be_nothing_is_no_finding() -> None:
    """1 of 600: 0.03 to 0.94 %. The other one is certain."""
    said = sentence(sampled({"copy_in": 300, "user": 299, "tcp_ip": 1}))
    assert said.startswith("the copy into the kernel takes 46 to 54 % of its CPU time")
    assert "no copy takes more than 1 %" in sentence(sampled({"copy_in": 1, "tcp_ip": 599}))


def test_advice_from_too_few_samples_is_for_how_long_to_watch() -> None:
    raw = sleeper(2)
    raw["topology"]["packet_sockets"] = []
    full = derive(raw)
    made = advice.advise(full, None)
    assert store.validate(full | {"advice": made}) == []
    found = {one["name"]: (one["answer"], one["why"]) for one in made["remedies"]}
    for name in ("MSG_ZEROCOPY", "sendfile", "io_uring", "fewer user copies"):
        assert found[name] == ("n/a", "too few samples"), name
    assert made["most_to_save"] is None and made["measure"] is None
    # Its CPU time says how often it would be sampled: about 2 in 2.7 s; 385 take 10 minutes.
    assert made["answer"].startswith(
        "server: 2 samples in 2.7 s: too few for shares to ±5 points: watch longer (--duration 10m), or look"
    )
    assert not re.search(r"takes? \d+ %", made["text"])


def test_the_first_screen_shows_no_shares_of_a_few_samples() -> None:
    console = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(sleeper(2))), console)
    shown = console.export_text()
    assert "\nn/a: 2 samples of its CPU time: too few for shares\n" in shown and "100.0 %" not in shown


def test_all_tables_show_no_shares_of_a_few_samples() -> None:
    """The interval of a row stays: it is right, and wide."""
    console = Console(width=100, color_system=None, record=True)
    watch.render(typed_whole(derive(sleeper(2))), verbose=False, console=console)
    shown = console.export_text()
    assert shown.count("n/a: 2 samples: too few for shares") == 1 and "95 % interval" in shown
    assert "n/a: ns/KiB, share: 2 samples: too few for shares" in shown
    assert not re.search(r"^(sum|user|syscall)  ", shown, re.MULTILINE)


def test_the_live_view_shows_no_shares_of_a_few_samples() -> None:
    assert "2 samples: too few for shares" in live.line_of(typed_whole(derive(sleeper(2))))
    assert "copy into the kernel 25 %" in live.line_of(typed_whole(derive(watched_record())))


def test_a_run_of_our_own_with_too_few_samples_says_so() -> None:
    raw = raw_record("one_copy", fixed_messages=23)
    whole = sum(row["samples"] for row in raw["samples"])
    for row in raw["samples"]:
        part = max(1, round(row["samples"] * 10 / whole))
        row |= {"samples": part, "weight_squared": row["weight"] ** 2 / part}
    said = derive(raw)["verdict"]["sentence"]
    assert "the copy into the kernel takes an unknown part and the copy to the receiver an unknown" in said
    assert re.search(r"; \d+ samples of CPU time: too few to say more, run longer", said)
    assert "samples" not in derive(raw_record("one_copy"))["verdict"]["sentence"]


@pytest.mark.parametrize(
    ("share", "spoken", "shown"),
    [
        (Share(0.25, 0.24, 0.26), "25 %", "25 % (24 to 26)"),
        (Share(0.33, 0.2, 0.6), "20 to 60 %", "33 % (20 to 60)"),
        (Share(0.0, 0.0, 0.0602), "at most 7 %", "at most 7 %"),
        (Share(None, 0.31, 0.35), "31 to 35 %", "31 to 35 %"),
        (Share(None, 0.311, 0.312), "31 %", "31 %"),
        (Share(None, 0.0, 0.04), "at most 4 %", "at most 4 %"),
    ],
)
def test_how_a_share_is_spelled(share: Share, spoken: str, shown: str) -> None:
    assert (share.spoken(), share.shown()) == (spoken, shown)


def test_refused_sends_are_counted_and_said() -> None:
    """The socket took 90,000 calls."""
    raw = watched_record()
    raw["send_errors"] = [{"syscall": "write", "error": "EAGAIN", "calls": 4_000}]
    assert "refused" not in sentence(raw)
    for call, error, calls in (("sendto", "EAGAIN", 6_000), ("sendto", "ENOBUFS", 80_000)):
        raw["send_errors"].append({"syscall": call, "error": error, "calls": calls})
    assert "; 50 % of its send calls were refused (ENOBUFS 80,000, EAGAIN 10,000)" in sentence(raw)
    out = io.StringIO()
    watch.render(typed_whole(derive(raw)), verbose=True, console=Console(file=out, width=100))
    said = "send calls: 80,000 sendto with ENOBUFS, 6,000 sendto with EAGAIN, 4,000 write with EAGAIN"
    assert said in " ".join(out.getvalue().split())


def test_a_way_of_next_to_no_bytes_is_not_said() -> None:
    """Bytes of a loop that wakes itself by a UNIX socket: `0 % of its bytes went through UNIX sockets`."""
    raw = watched_record()
    few = {**raw["volume"][0], "protocol": "unix_stream", "bytes": 1, "calls": 1, "sizes": [[1, 1]]}
    raw["volume"].append(few)
    assert "UNIX" not in sentence(raw)


def test_what_was_written_into_a_pipe_is_not_said_to_be_without_a_copy() -> None:
    full = derive(watched_record(call="splice after write"))
    assert store.validate(full) == [] and full["verdict"]["valid"]
    said = full["verdict"]["sentence"]
    assert "; 100 % of its bytes it wrote into a pipe, which copied them once, and spliced them" in said
    assert "went out by reference" not in said and full["portrait"]["send"]["page_share"] == 0
    made = advice.advise(full, None)
    assert "all are copied into the kernel" in made["text"]


def test_short_lived_processes_are_valid_and_it_is_said_that_their_clocks_were_missed() -> None:
    """Samples of 0.6 s; the clocks of 20 senders had 0.45 s: each misses up to a tick. Without perf."""
    raw = watched_record()
    raw["counters"] = {"target": {}}
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = 450_000_000 // 3
    assert not derive(raw)["verdict"]["valid"]
    raw["target"] |= {"exits": 20, "forks": 20}
    said = sentence(raw)
    assert "; 20 of its processes ended before their CPU time was read: its CPU time is more than" in said
    assert "the copy into the kernel takes 22 to 29 % of its CPU time" in said


def test_a_sender_that_waits_for_each_notice_is_told_so() -> None:
    """Of each measured segment it waited for a quarter."""
    raw = raw_record(impl="zero_copy", kind="veth")
    for segment in raw["run"]["segments"]:
        wait_ns = (segment["end_ns"] - segment["begin_ns"]) // 4
        segment["sides"]["sender"]["zerocopy"] |= {"waits": 100, "wait_ns": wait_ns}
    full = derive(raw)
    threads = raw["workload"]["threads"]
    assert full["zerocopy"]["waiting_share"] == pytest.approx(0.25 / threads)
    said = f"; {round(25 / threads)} % of its time the sender waited for the kernel to release a buffer"
    assert said in full["verdict"]["sentence"]
