# SPDX-License-Identifier: GPL-2.0-only
"""Sentences about shares of CPU time follow from their intervals, and mention if samples are too few."""

import io
import re
from typing import Any

import pytest
from builders import raw_record
from builders.advised import with_advice
from builders.documents import advise, derive, typed_whole, validate
from builders.samples import sampled, with_cpu_ns
from builders.watched import SAMPLE_NS, SEGMENT_NS, watched_record
from copyscope.ledger.share import Share
from copyscope.show import first_screen, live, watch
from rich.console import Console

Record = dict[str, Any]

FREQUENCY_HZ = 199
PERIOD_NS = 1e9 / FREQUENCY_HZ


def sentence(raw: Record) -> str:
    full = derive(raw)
    assert validate(full) == [] and full["verdict"]["valid"], full["verdict"]["reasons"]
    return str(full["verdict"]["sentence"]).removeprefix("server[4711]: ")


def sleeper(samples: int, cpu_share: float = 0.01, size: int = 20_000) -> Record:
    """Return a program that uses little CPU time and has a few samples, all of them in the copy."""
    raw = sampled({"copy_in": samples}, PERIOD_NS, size=size)
    return with_cpu_ns(raw, cpu_share * 3 * SEGMENT_NS)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_few_samples_give_advice_to_watch_longer(samples: int) -> None:
    """1 % of a CPU for 0.9 s at 199 Hz gives 1.8 samples; 100 samples take 151 s."""
    verdict = sentence(sleeper(samples))
    assert re.match(
        rf"what its copies cost is not known: {samples} samples? in 2.7 s, in which it used 1 % of a CPU: "
        r"watch longer \(--duration 3m\), or sample more often \(--frequency 999 --duration 35s\)",
        verdict,
    ), verdict
    assert "takes" not in verdict


def test_no_sample_gives_advice_to_watch_longer() -> None:
    raw = sleeper(1)
    raw["samples"] = []
    verdict = sentence(raw)
    assert verdict.startswith("what its copies cost is not known: no sample in 2.7 s, in which it used 1 %")
    assert "--duration 3m" in verdict


def test_a_command_with_few_samples_should_run_longer() -> None:
    raw = sleeper(2)
    raw["target"]["how"] = "command"
    verdict = sentence(raw)
    assert (
        "let it run for 3m, or sample more often (--frequency 999)" in verdict and "--duration" not in verdict
    )


def test_some_samples_give_bounds_and_many_samples_a_number() -> None:
    """15 of 60 samples are 16 to 37 % (Wilson), 2,500 of 10,000 are 24 to 26 %."""
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
def test_a_run_without_copy_samples_has_an_upper_bound(others: int, words: str) -> None:
    assert words in sentence(sampled({"copy_in": 0, "tcp_ip": others}, 600 * SAMPLE_NS / others))


def test_an_uncertain_small_copy_is_not_mentioned() -> None:
    """1 of 600 samples is 0.03 to 0.94 %."""
    verdict = sentence(sampled({"copy_in": 300, "user": 299, "tcp_ip": 1}))
    assert verdict.startswith("the copy into the kernel takes 46 to 54 % of its CPU time")
    assert "no copy takes more than 1 %" in sentence(sampled({"copy_in": 1, "tcp_ip": 599}))


def test_advise_with_too_few_samples_asks_for_a_longer_watch() -> None:
    full = with_advice(sleeper(2))
    assert validate(full) == []
    advice = full["advice"]
    remedies = {remedy["name"]: (remedy["answer"], remedy["why"]) for remedy in advice["remedies"]}
    for name in ("MSG_ZEROCOPY", "sendfile", "io_uring", "fewer user copies"):
        assert remedies[name] == ("n/a", "too few samples"), name
    assert advice["most_to_save"] is None and advice["measure"] is None
    # Its CPU time predicts about 2 samples in 2.7 s, so 385 samples take 10 minutes.
    assert advice["answer"].startswith(
        "server: 2 samples in 2.7 s: too few to judge any change: watch longer (--duration 10m), or"
    )
    assert not re.search(r"takes? \d+ %", advice["text"])


def test_the_first_screen_hides_shares_of_too_few_samples() -> None:
    console = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(sleeper(2))), console)
    shown = console.export_text()
    assert "\nn/a: 2 samples: too few for shares\n" in shown and "100.0 %" not in shown


def test_tables_hide_shares_of_too_few_samples() -> None:
    """The wide interval of a row is still shown."""
    console = Console(width=100, color_system=None, record=True)
    watch.render(typed_whole(derive(sleeper(2))), verbose=False, console=console)
    shown = console.export_text()
    assert shown.count("n/a: 2 samples: too few for shares") == 1 and "95 % interval" in shown
    assert "n/a: ns/KiB, share: 2 samples: too few for shares" in shown
    assert "target: rows add up to 9.00 ms of 9.00 ms CPU time" in shown
    assert not re.search(r"^(sum|user|syscall)  ", shown, re.MULTILINE)


def test_the_live_view_hides_shares_of_too_few_samples() -> None:
    assert "2 samples: too few for shares" in live.log_line(typed_whole(derive(sleeper(2))))
    assert "copy into the kernel 25 %" in live.log_line(typed_whole(derive(watched_record())))


def test_own_traffic_with_too_few_samples_has_a_remark() -> None:
    raw = raw_record("one_copy", fixed_messages=23)
    total = sum(row["samples"] for row in raw["samples"])
    for row in raw["samples"]:
        part = max(1, round(row["samples"] * 10 / total))
        row |= {"samples": part, "weight_squared": row["weight"] ** 2 / part}
    verdict = derive(raw)["verdict"]["sentence"]
    assert "the copy into the kernel takes an unknown part and the copy to the receiver an unknown" in verdict
    assert re.search(r"; \d+ samples: too few for shares, run longer", verdict)
    assert "samples" not in derive(raw_record("one_copy"))["verdict"]["sentence"]


@pytest.mark.parametrize(
    ("share", "spoken", "shown"),
    [
        (Share(0.25, 0.24, 0.26), "25 %", "25 % (24 to 26)"),
        (Share(0.33, 0.2, 0.6), "20 to 60 %", "33 % (20 to 60)"),
        (Share(0.0, 0.0, 0.0602), "at most 7 %", "at most 7 %"),
        (Share(None, 0.31, 0.35), "31 to 35 %", "31 to 35 %"),
        (Share(None, 0.311, 0.312), "31 %", "31 %"),
        (Share(0.02, 0.006, 0.04), "1 to 4 %", "2 % (1 to 4)"),
        (Share(0.023, 0.021, 0.024), "2 %", "2 % (2 to 2)"),
        (Share(0.01, 0.001, 0.035), "at most 4 %", "at most 4 %"),
        (Share(None, 0.0, 0.04), "at most 4 %", "at most 4 %"),
    ],
)
def test_a_share_is_spelled_with_its_interval(share: Share, spoken: str, shown: str) -> None:
    assert (share.spoken(), share.shown()) == (spoken, shown)


def test_many_refused_sends_are_mentioned() -> None:
    """The socket accepted 90,000 calls."""
    raw = watched_record()
    raw["send_errors"] = [{"syscall": "write", "error": "EAGAIN", "calls": 4_000}]
    assert "refused" not in sentence(raw)
    for call, error, calls in (("sendto", "EAGAIN", 6_000), ("sendto", "ENOBUFS", 80_000)):
        raw["send_errors"].append({"syscall": call, "error": error, "calls": calls})
    assert "; 50 % of its send calls were refused (ENOBUFS 80,000, EAGAIN 10,000)" in sentence(raw)
    out = io.StringIO()
    watch.render(typed_whole(derive(raw)), verbose=True, console=Console(file=out, width=100))
    refusals = "send calls: 80,000 sendto with ENOBUFS, 6,000 sendto with EAGAIN, 4,000 write with EAGAIN"
    assert refusals in " ".join(out.getvalue().split())


def test_a_path_with_few_bytes_is_not_mentioned() -> None:
    """An event loop that wakes itself up by a UNIX socket moves a few bytes."""
    raw = watched_record()
    few = {**raw["volume"][0], "protocol": "unix_stream", "bytes": 1, "calls": 1, "sizes": [[1, 1]]}
    raw["volume"].append(few)
    assert "UNIX" not in sentence(raw)


def test_bytes_written_into_a_pipe_count_as_copied() -> None:
    full = derive(watched_record(call="splice after write"))
    assert validate(full) == [] and full["verdict"]["valid"]
    verdict = full["verdict"]["sentence"]
    assert "; 100 % of its bytes it wrote into a pipe, which copied them once, and spliced them" in verdict
    assert "went out by reference" not in verdict and full["portrait"]["send"]["page_share"] == 0
    advice = advise(full, None)
    assert "all are copied into the kernel" in advice["text"]


def test_unread_cpu_time_of_short_lived_processes_is_mentioned() -> None:
    """The samples show 0.6 s, the CPU clocks of 20 processes 0.45 s. Each clock may lack one tick."""
    raw = watched_record()
    raw["counters"] = {"target": {}}
    for segment in raw["run"]["segments"]:
        segment["sides"]["target"]["process_cpu_ns"] = 450_000_000 // 3
    assert not derive(raw)["verdict"]["valid"]
    raw["target"] |= {"exits": 20, "forks": 20}
    verdict = sentence(raw)
    assert "; 20 of its processes ended before their CPU time was read: its CPU time is more than" in verdict
    assert "the copy into the kernel takes 22 to 29 % of its CPU time" in verdict


def test_a_sender_that_waits_for_notifications_has_a_remark() -> None:
    """It waits for a quarter of each measured segment."""
    raw = raw_record(impl="zero_copy", kind="veth")
    for segment in raw["run"]["segments"]:
        wait_ns = (segment["end_ns"] - segment["begin_ns"]) // 4
        segment["sides"]["sender"]["zerocopy"] |= {"waits": 100, "wait_ns": wait_ns}
    full = derive(raw)
    threads = raw["workload"]["threads"]
    assert full["zerocopy"]["waiting_share"] == pytest.approx(0.25 / threads)
    remark = f"; {round(25 / threads)} % of its time the sender waited for the kernel to release a buffer"
    assert remark in full["verdict"]["sentence"]
