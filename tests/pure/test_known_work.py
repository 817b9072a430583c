# SPDX-License-Identifier: GPL-2.0-only
"""Events of a PMU, judged by counts of known work, and what runs do with the verdicts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive
from copyscope.base import paths
from copyscope.commands import doctor
from copyscope.doctor.known_work import KnownCount, MeasuredEvent, judge, measure
from copyscope.machine import event_checks
from copyscope.machine.event_checks import EventCheck
from copyscope.machine.fingerprint import describe_machine
from copyscope.record.assemble import withhold_unusable
from copyscope.record.measured import Measured
from msgspec import convert, to_builtins
from test_first_screen import fits, screen

L1D, LLC = "L1-dcache-load-misses", "LLC-load-misses"
# Work, lines read, and known misses of L1D and of the last level.
WORKS = (
    ("random reads", 131_072, (131_072, 131_072)),
    ("random reads, cached", 65_536, (65_536, 0)),
    ("reads in order", 262_144, (262_144, 262_144)),
    ("copies of 64 KiB", 65_536, (65_536, 65_536)),
    ("copies of 1 KiB, cached", 16_384, (0, 0)),
)
EXACT = {work: 1.0 for work, _, _ in WORKS}


def misses(
    event: str, shares: dict[str, float], cached: float = 0.0, like: str | None = None
) -> MeasuredEvent:
    """Return counts of an event in all work.

    shares: counted part of the known misses of some work, by its name; all other work is counted exactly
    cached: counted misses per line that the cache has
    like: event whose misses are counted instead
    """
    column = (L1D, LLC).index(event)
    counts = []
    for work, lines, known in WORKS:
        counted = known[(L1D, LLC).index(like or event)] * shares.get(work, 1.0)
        counts.append(KnownCount(work, lines, known[column], round(counted or cached * lines)))
    return MeasuredEvent(event, counts)


ALIAS = "its counts are those of"


@pytest.mark.parametrize(
    ("event", "usable", "verdict"),
    [
        (misses(LLC, {}), True, "counts every line read"),
        # Interrupts and page walks add some misses; random replacement keeps some lines.
        (misses(LLC, dict.fromkeys(EXACT, 1.06), 0.03), True, "counts every line read"),
        (misses(LLC, {"random reads": 0.93}), True, "counts every line read"),
        # A prefetcher brings lines that are read in order.
        (
            misses(LLC, {"reads in order": 0.04, "copies of 64 KiB": 0.1}),
            True,
            "counts demand reads only",
        ),
        # Lines that are written count, too: L1D.REPLACEMENT of older Intel processors.
        (misses(L1D, {"copies of 64 KiB": 2.0}), True, "counts every line read or written"),
        (
            misses(LLC, {"reads in order": 0.04, "copies of 64 KiB": 1.05}),
            True,
            "counts demand reads and writes only",
        ),
        (
            misses(LLC, dict.fromkeys(EXACT, 2.0)),
            False,
            "not usable: counts 2.00 of known misses (random reads)",
        ),
        (
            misses(LLC, dict.fromkeys(EXACT, 0.5)),
            False,
            "not usable: counts 0.50 of known misses (random reads)",
        ),
        (misses(LLC, dict.fromkeys(EXACT, 0.0)), False, "not usable: stays at 0"),
        (
            misses(LLC, {}, cached=0.5),
            False,
            "not usable: counts 0.50 misses per line that the cache has",
        ),
    ],
)
def test_an_event_of_misses_is_judged_by_known_misses(
    event: MeasuredEvent, usable: bool, verdict: str
) -> None:
    check = judge(event, [event])
    assert (check.usable, check.verdict) == (usable, verdict)
    assert check.known_share == event.ratio("random reads")


@pytest.mark.parametrize(
    ("event", "other", "verdict"),
    [
        (
            misses(LLC, {}, like=L1D),
            misses(L1D, {}),
            f"not usable: counts 1.00 misses per line that the cache has; {ALIAS} {L1D}",
        ),
        (
            misses(L1D, {}, like=LLC),
            misses(LLC, {}),
            f"not usable: counts 0.00 of known misses (random reads, cached); {ALIAS} {LLC}",
        ),
    ],
)
def test_the_event_that_is_another_one_is_found_and_the_other_stays_usable(
    event: MeasuredEvent, other: MeasuredEvent, verdict: str
) -> None:
    events = [event, other]
    assert judge(event, events).verdict == verdict
    assert judge(other, events).usable is True


def test_stray_misses_of_cached_work_do_not_hide_an_alias() -> None:
    """Counts of a guest: an interrupt caused 107 misses in one of two runs of the same work."""
    event, other = misses(LLC, {}, like=L1D), misses(L1D, {})
    event.counts[-1].counted, other.counts[-1].counted = 107, 5
    assert judge(event, [event, other]).verdict.endswith(f"; {ALIAS} {L1D}")


@pytest.mark.parametrize(
    ("name", "counted", "verdict"),
    [
        ("instructions", 1_000_000, "counts instructions"),
        ("instructions", 1_000_999, "counts instructions"),
        ("instructions", 1_002_000, "not usable: counts 1.002 of known instructions"),
        ("instructions", 0, "not usable: counts 0 of known instructions"),
        ("cycles", 1_020_000, "counts cycles"),
        ("cycles", 500_000, "not usable: counts 0.5 of known cycles"),
    ],
)
def test_instructions_are_exact_to_1_in_1000_and_cycles_to_5_percent(
    name: str, counted: int, verdict: str
) -> None:
    event = MeasuredEvent(name, [KnownCount("loop", 0, 1_000_000, counted)])
    assert judge(event, [event]).verdict == verdict


def test_an_event_that_could_not_be_counted_is_not_called_wrong() -> None:
    event = MeasuredEvent(LLC, [], "other programs use the counters of the PMU")
    assert judge(event, [event], "cpu_atom") == EventCheck(
        LLC, None, "n/a: other programs use the counters of the PMU", pmu="cpu_atom"
    )


def plant_collector(monkeypatch: pytest.MonkeyPatch, folder: Path, *events: MeasuredEvent) -> None:
    """Replace the collector by a script that reports these events, and the cache by a folder."""
    message = json.dumps({"event": "measured", "cpu": 0, "events": to_builtins(events)})
    collector = folder / "collector"
    collector.write_text(f"#!/bin/sh\ncat <<'END'\n{message}\nEND\n")
    collector.chmod(0o755)
    monkeypatch.setattr(paths, "COLLECTOR", collector)
    monkeypatch.setenv("COPYSCOPE_CACHE", str(folder / "cache"))


def test_doctor_prints_saves_and_returns_the_verdicts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = misses(L1D, {}), misses(LLC, dict.fromkeys(EXACT, 2.0))
    plant_collector(monkeypatch, tmp_path, *events)
    assert doctor.main(["--measure"]) == 0
    out = capsys.readouterr().out
    assert f"{L1D}  counts every line read\n" in out
    assert f"{LLC}  not usable: counts 2.00 of known misses (random reads)\n" in out
    assert re.search(r"\n  random reads +131,072 +262,144 +2\.000 *\n", out)
    machine = describe_machine(tools={})
    saved = event_checks.load(machine.cpu_model, machine.microcode)
    assert saved is not None and [check.usable for check in saved] == [True, False]
    # Another microcode may count differently.
    assert event_checks.load(machine.cpu_model, "0x7f") is None
    assert doctor.main(["--measure", "--json", "-"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured[1]["check"]["usable"] is False and len(measured[1]["counts"]) == len(WORKS)


def test_without_a_pmu_doctor_says_so_in_one_sentence_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_collector(monkeypatch, tmp_path, MeasuredEvent(LLC, [], "this machine has no PMU"))
    machine = describe_machine(tools={})
    machine.pmu = []
    monkeypatch.setattr(doctor, "describe_machine", lambda **_: machine)
    assert doctor.main(["--measure"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "copyscope doctor: no event can be measured: this machine has no PMU;"
        " use bare metal, or a VM with a virtual PMU\n",
    )
    assert not (tmp_path / "cache").exists()


def test_each_type_of_core_is_measured_on_its_own_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant_collector(monkeypatch, tmp_path, misses(LLC, {}))
    machine = describe_machine(tools={})
    machine.hybrid = {"cpu_core": "0", "cpu_atom": "0-3", "elsewhere": "4000"}
    assert [event.check.pmu for event in measure(machine)] == ["cpu_core", "cpu_atom"]


@pytest.mark.parametrize("text", ["", "{}", '[{"event": 1}]', "\xff"])
def test_a_damaged_file_counts_as_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("COPYSCOPE_CACHE", str(tmp_path))
    event_checks.save("Xeon / 7", None, [EventCheck(LLC, True, "counts every line read")])
    [file] = (tmp_path / "pmu").iterdir()
    assert event_checks.load("Xeon / 7", None) is not None
    file.write_text(text, encoding="latin-1")
    assert event_checks.load("Xeon / 7", None) is None


def with_check(check: EventCheck) -> Measured:
    raw: dict[str, Any] = raw_record("one_copy", pmu=True)
    raw["machine"]["pmu_checks"] = [to_builtins(check)]
    return withhold_unusable(convert(raw, Measured))


def test_misses_of_an_unusable_event_are_unknown_with_the_reason() -> None:
    why = "not usable: counts 2.00 of known misses (random reads)"
    full = derive(to_builtins(with_check(EventCheck(LLC, False, why, 2.0, 2.0))))
    rows = [row for row in full["ledger"] if row["cpu_ns"]]
    assert rows and all(row["llc_misses"] is None and row["l1d_misses"] is not None for row in rows)
    assert rows[0]["reasons"]["llc_misses"] == f"{LLC}: {why} (copyscope doctor --measure)"


def test_misses_of_a_usable_event_stay() -> None:
    raw = with_check(EventCheck(LLC, True, "counts demand reads only", 0.98, 0.31))
    assert raw.counters["sender"][LLC].value is not None


@pytest.mark.parametrize(
    ("check", "note"),
    [
        (EventCheck(LLC, True, "counts every line read", 0.98, 1.01), "count 0.98 of known misses"),
        (
            EventCheck(LLC, True, "counts demand reads only", 0.98, 0.31),
            "count 0.98 of known misses, 0.31 in copies",
        ),
        (EventCheck(LLC, False, "not usable: stays at 0", 0.0, 0.0), ": not usable: stays at 0"),
        (EventCheck(LLC, None, "n/a: no such event"), None),
        (EventCheck("cycles", False, "not usable: counts 0.5 of known cycles"), None),
    ],
)
def test_the_first_screen_says_below_its_misses_what_the_event_counts(
    check: EventCheck, note: str | None
) -> None:
    shown = screen(derive(to_builtins(with_check(check))), 160)
    assert ("of this PMU" in shown) == (note is not None)
    if note is not None:
        assert f"{LLC} of this PMU{'' if note[0] == ':' else ' '}{note}\n" in shown
    # A screen of 80x24 has room for this line, too.
    fits(derive(to_builtins(with_check(check))), 80, 24, None)
