# SPDX-License-Identifier: GPL-2.0-only
"""Reports on simulated machines: the misses of the records appear, and they are called modelled."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from builders import raw_record
from builders.documents import derive, typed_boot, validate
from builders.simulated import simulated_record
from builders.sweep import store
from copyscope.base import paths
from copyscope.base.stats import Missing
from copyscope.commands import report
from copyscope.report import model_points as modelled
from copyscope.report.claim_judge import HOLDS, REFUTED, UNDETERMINED, judge_all, judge_one
from copyscope.report.claim_table import CLAIMS
from copyscope.report.model_points import ModelPoint, line_waterfall, pairs
from copyscope.report.modelled import add_modelled_answers, modelled_answers
from copyscope.report.plots.draw import Drawing, PlotSubject, figure_of
from copyscope.report.questions import QuestionAnswer
from copyscope.run.simulate import caches, document
from copyscope.sweep import results
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec import to_builtins

pytestmark = pytest.mark.timeout(60)

KIB = 1024
Record = dict[str, Any]
CHECK = {"name": "bytes", "left": 1, "right": 2, "tolerance": 0}
# (category, side) -> load misses per KiB in L1D, L2, LLC
Rows = Mapping[tuple[str, str], tuple[float, ...]]
ONE: Rows = {
    ("copy_in", "sender"): (16, 16, 0),
    ("copy_out", "receiver"): (17, 16, 0),
    ("memory", "sender"): (18, 0, 0),
    ("lock", "sender"): (2, 0, 0),
}
TWO: Rows = {**ONE, ("gather", "sender"): (32, 16, 0), ("copy_in", "sender"): (16, 0, 0)}
ZERO: Rows = {
    ("deferred", "sender"): (45, 33, 9),
    ("copy_out", "receiver"): (17, 16, 0),
    ("lock", "sender"): (5, 0, 0),
}


def boot(
    points: Mapping[tuple[str, int], Rows],
    seed: int = 1,
    cache: str = "generic",
    path: str = "veth",
    ring: int = 4,
    *,
    threads: int = 1,
) -> Record:
    """Return the record of one boot. `seed` adds a tenth of a cache line per KiB to each row."""
    record = simulated_record(seeds=(seed,))
    (pattern,) = record["simulated"]["measurements"]
    blank = {key: 0.0 if key.endswith("_per_kib") else value for key, value in pattern["rows"][0].items()}
    measurements = []
    for (impl, size), rows in points.items():
        filled = []
        for (category, side), misses in rows.items():
            counts = {
                f"{name}_load_misses_per_kib": float(n) for name, n in zip(caches.LEVELS, misses, strict=True)
            }
            counts["l1d_load_misses_per_kib"] += seed / 10
            filled.append({**blank, "category": category, "side": side, **counts})
        shape = {"impl": impl, "size_bytes": size, "working_set_messages": ring, "threads": threads}
        measurements.append({**pattern, **shape, "rows": filled})
    record["simulated"] |= {
        "measurements": measurements,
        "model": to_builtins(document.model_section(caches.PRESETS[cache])),
    }
    record["simulated"]["path"] = {**record["simulated"]["path"], "kind": path}
    record["run"] |= {
        "id": f"simulated-{cache}-{path}-{ring}-{seed}",
        "experiment": "simulated",
        "repeat": seed,
    }
    record["run"]["factors"] = {"cache": cache, "topology": path, "working_set": ring}
    return record


def usual(**of: Any) -> list[Record]:
    sizes = (KIB, 4 * KIB, 64 * KIB)
    rows_of_point = {
        (i, size): r for i, r in (("two_copy", TWO), ("one_copy", ONE), ("zero_copy", ZERO)) for size in sizes
    }
    return [boot(rows_of_point, seed, **of) for seed in (1, 2, 3)]


def points_of(records: Iterable[Record]) -> list[ModelPoint]:
    return modelled.points_of(map(typed_boot, records))


def test_boots_are_grouped_by_setting_without_invalid_boots() -> None:
    records = [*usual(), *usual(cache="laptop"), *usual(ring=64)]
    broken = boot({("one_copy", KIB): {("copy_in", "sender"): (999, 0, 0)}}, 4)
    broken["simulated"]["measurements"][0]["checks"] = [{**CHECK, "holds": False}]
    assert validate(broken) == []
    points = points_of([broken, *reversed(records)])
    assert len(points) == 27 and {len(point.boots) for point in points} == {3}
    first = points[0]
    assert (first.setting.cache, first.size, first.impl) == ("generic", KIB, "two_copy")
    # 16 + 17 + 18 + 2 + 32, and for each number of the seed a tenth of a line in each of the five rows
    assert first.misses("l1d") == pytest.approx([85.5, 86.0, 86.5])
    assert first.misses("l2", side="sender") == [16, 16, 16]


def test_the_steps_of_a_line_waterfall_add_up_to_the_difference() -> None:
    ((one_copy, zero_copy),) = [
        p for p in pairs(points_of(usual()), "one_copy", "zero_copy") if p[0].size == KIB
    ]
    waterfall = line_waterfall(one_copy, zero_copy)
    assert [waterfall.start, waterfall.end] == pytest.approx([53.8, 67.6])
    steps = {step.name: step.change.value for step in waterfall.steps}
    assert steps == pytest.approx(
        {"copy into the kernel": -16.2, "late copy": 45.2, "pages": -18.2, "rest": 3.0}
    )
    assert waterfall.start + sum(steps.values()) == pytest.approx(waterfall.end)


@pytest.fixture
def points() -> list[ModelPoint]:
    return points_of([*usual(), *usual(cache="laptop"), *usual(ring=1024), *usual(path="nics")])


def figure(name: str, points: list[ModelPoint]) -> Figure:
    drawing = figure_of(name, PlotSubject((), "Where.", points))
    assert not isinstance(drawing, Missing)
    return drawing


def dashed(axes: Axes) -> list[float]:
    """Return the positions of the dashed lines that show the sizes of the caches."""
    return [float(np.asarray(line.get_xdata())[0]) for line in axes.lines]


def test_bars_have_the_height_of_their_misses_and_caches_are_drawn_at_their_sizes(
    points: list[ModelPoint],
) -> None:
    misses = figure("modelled_misses", points)
    titles = [axes.get_title(loc="left") for axes in misses.axes]
    assert titles == [
        f"{cache}: {level}" for level in ("L1D", "L2", "LLC") for cache in ("generic", "laptop")
    ]
    l1d = misses.axes[0]
    paths = [np.asarray(patch.get_path().vertices) for patch in l1d.patches]
    tops = [float(path[:, 1].max()) for path in paths if path.size]
    assert max(tops) == pytest.approx(86.0)  # two_copy: the mean of three boots
    # 1 KiB to 64 KiB were sent: only the cache of 32 KiB lies between.
    assert dashed(l1d) == [math.log2(32 * KIB)]
    rings = figure("modelled_working_set", points)
    assert dashed(rings.axes[0]) == [15.0, 20.0, 25.0]
    waterfalls = figure("modelled_lines", points)
    assert [axes.get_title(loc="left") for axes in waterfalls.axes] == [
        *("veth, 4 KiB", "veth, 64 KiB", "nics, 4 KiB", "nics, 64 KiB")
    ]
    for drawn in (misses, rings, waterfalls):
        assert "modelled" in drawn.texts[0].get_text()


def with_misses(level: int, **of: float) -> list[Record]:
    """Return boots in which each strategy has the given misses per KiB: of the sender, in one cache level."""
    rows: dict[str, Rows] = {
        impl: {("copy_in", "sender"): tuple(n if i == level else 0.0 for i in range(3))}
        for impl, n in of.items()
    }
    every = {(impl, size): rows[impl] for impl in rows for size in (KIB, 4 * KIB, 64 * KIB)}
    return [boot(every, seed, path=path) for seed in (1, 2, 3) for path in ("veth", "nics")]


def with_flushes(pinned: float, plain: float) -> list[Record]:
    """Return boots with the given TLB flushes per KiB, and with flushes that the verdict must ignore."""
    records = usual()
    for measurement in (m for record in records for m in record["simulated"]["measurements"]):
        for row in measurement["rows"]:
            row["tlb_flushes_per_kib"] = 0.0
        measurement["rows"][0]["tlb_flushes_per_kib"] = (
            pinned if measurement["impl"] == "zero_copy" else plain
        )
        for side, category in (("receiver", "copy_out"), ("sender", "wakeup_sched")):
            extra = {"side": side, "category": category, "tlb_flushes_per_kib": 9.0}
            measurement["rows"].append({**measurement["rows"][0], **extra})
    return records


VERDICT_CASES: list[tuple[str, str, str, Callable[[], list[Record]]]] = [
    ("C10", HOLDS, "0.30", lambda: with_misses(2, two_copy=10, one_copy=3)),
    ("C10", REFUTED, "0.40", lambda: with_misses(2, two_copy=10, one_copy=4)),
    # Both strategies miss too rarely for a ratio.
    ("C10", REFUTED, "1.00 (1.00 to 1.00)", lambda: with_misses(2, two_copy=0.5, one_copy=0.1)),
    ("C12", REFUTED, "1.00", lambda: with_misses(0, two_copy=227, zero_copy=460)),
    ("C11", REFUTED, "3 the other way", lambda: with_misses(2, one_copy=0, zero_copy=9)),
    ("C11", UNDETERMINED, "0 the other way", lambda: with_misses(2, one_copy=1, zero_copy=1)),
    ("C18", HOLDS, "0.04", lambda: with_misses(0, one_copy=50, zero_copy=2)),
    ("C18", REFUTED, "22.82", lambda: with_misses(0, one_copy=2, zero_copy=50)),
    ("C18", UNDETERMINED, "not simulated", usual),
    ("C8", REFUTED, "zero_copy, 0 of 576", lambda: with_flushes(0, 0)),
    ("C8", HOLDS, "zero_copy, 576 of 576", lambda: with_flushes(1, 0)),
    ("C8", UNDETERMINED, "one_copy, 576 of 576", lambda: with_flushes(1, 1)),
]


@pytest.mark.parametrize(
    ("claim_id", "verdict", "evidence_part", "make_boots"), VERDICT_CASES, ids=lambda value: str(value)[:20]
)
def test_a_claim_is_judged_in_the_model(
    claim_id: str, verdict: str, evidence_part: str, make_boots: Callable[[], list[Record]]
) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.id == claim_id)
    judged = judge_one(claim, (), points_of(make_boots()))
    in_model = judged.modelled
    assert in_model is not None and judged.verdict == UNDETERMINED
    assert (in_model.verdict, evidence_part in in_model.evidence) == (verdict, True), in_model.evidence
    assert judge_one(claim, (), ()).modelled is None
    # A single boot has no interval. Claim C8 counts flushes and needs only one boot.
    single = judge_one(
        claim, (), points_of(boot_record for boot_record in make_boots() if boot_record["run"]["seed"] == 1)
    ).modelled
    assert single is not None and (single.verdict == UNDETERMINED or claim_id == "C8")


def test_answers_of_a_model_follow_those_of_the_machine(points: list[ModelPoint]) -> None:
    level, threads = modelled_answers(points)
    assert level.text.startswith("In the model (generic, veth, Linux 6.12")
    # L1D: the gather copy has 32 lines and two tenths. L2: gather has 16 more, copy_in 16 fewer.
    assert level.bullets[0] == "1 KiB: L1D -32.2, L2 +0.0, LLC +0.0 lines per KiB: most in L1D."
    assert "256 KiB 0.0, 64 MiB 0.0 lines per KiB" in threads.text
    assert "32 MiB hold 128 rings of 256 KiB" in threads.text
    assert "Only one thread was simulated" in threads.text
    unanswered = QuestionAnswer(level.question, "Not answered on this machine: no PMU.")
    answered = QuestionAnswer("Another?", "Yes.")
    answers = add_modelled_answers([unanswered, answered], points)
    assert answers[0].text == f"{unanswered.text} {level.text}" and answers[0].bullets == level.bullets
    assert answers[1] is answered and add_modelled_answers([unanswered], []) == [unanswered]


def test_more_threads_are_compared_if_they_were_simulated(points: list[ModelPoint]) -> None:
    crowded = {**ONE, ("copy_in", "sender"): (16, 16, 10)}
    records = [boot({("one_copy", 64 * KIB): crowded}, seed, ring=64, threads=2) for seed in (1, 2, 3)]
    with_threads = points_of([*usual(), *usual(ring=64), *records])
    level, threads = modelled_answers(with_threads)
    # Points of two threads do not change the answer about one thread.
    assert level == modelled_answers(points)[0]
    assert "2 threads instead of 1 share the last level of 32 MiB" in threads.text
    assert threads.bullets == (
        "one_copy, misses of its copies in lines per KiB:"
        " L1D 33.4 -> 33.4, L2 32.0 -> 32.0, LLC 0.0 -> 10.0: LLC clearly.",
    )


def draw_nothing(subject: PlotSubject) -> tuple[dict[str, Drawing], dict[str, str]]:
    """Return empty drawings, because real drawings take five seconds and have a test of their own."""
    svg = b'<svg viewBox="0 0 1 1" xmlns="http://www.w3.org/2000/svg"><g id="figure_1"></g></svg>'
    return {plot.name: Drawing(svg, b"") for plot in subject.plots}, {}


def test_a_report_of_a_simulated_experiment_says_that_it_is_modelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "draw_all", draw_nothing)
    host = tmp_path / "results" / "host"
    for name, records in (("simulated", usual()), ("measured", [derive(raw_record("one_copy"))])):
        store(records, host / name)
    assert report.main([str(host / "simulated")]) == 0
    assert capsys.readouterr().out.endswith("report.html: 9 points, 3 boots, 0 invalid\n")
    assert {path.name for path in (host / "simulated" / "plots").iterdir()} == {
        f"modelled_{name}.{kind}" for name in ("misses", "working_set", "lines") for kind in ("png", "svg")
    }
    text = (host / "simulated" / "report.html").read_text()
    assert "Modelled, not measured: Linux 6.12.107 in QEMU 7.2.22; means of 3 boots" in text
    with (host / "simulated" / "modelled.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    (gather,) = [r for r in rows if (r["category"], r["message_bytes"]) == ("gather", "4096")]
    assert (float(gather["l1d_load_misses_per_kib"]), gather["method"]) == (32.2, "modelled")
    # Claim C12: in the model 67.6 of 86 lines are left.
    assert "Claims, judged in the model" in text and "C12" in text


def test_committed_boots_have_the_misses_that_a_copy_must_cause() -> None:
    """1 KiB has 16 lines. New data is in each cache that it fits in. A device reads without a CPU."""
    points = modelled.points_of(results.load(paths.RESULTS / "vm" / "simulated").modelled)
    point_of = {
        (p.setting.cache, p.setting.path, p.setting.working_set_messages, p.impl, p.size): p for p in points
    }

    def missed(level: str, category: str, *setting: Any) -> float:
        return fmean(
            point_of[setting].values((f"{level}_load_misses",), lambda row: row.category == category)
        )

    one_copy, two_copy = ("generic", "veth", 4, "one_copy"), ("generic", "veth", 4, "two_copy")
    for size in (16 * KIB, 64 * KIB, KIB * KIB):
        for copy in ("copy_in", "copy_out"):
            assert 16 <= missed("l1d", copy, *one_copy, size) <= 17
    assert missed("l2", "copy_in", *two_copy, 64 * KIB) < 0.5
    assert 15 <= missed("l2", "copy_in", *two_copy, KIB * KIB) <= 17
    for ring, least, most in ((4, 0.0, 0.1), (64, 0.0, 0.1), (1024, 4.0, 17.0)):
        assert least <= missed("llc", "copy_in", "generic", "veth", ring, "one_copy", 64 * KIB) <= most
    assert missed("l1d", "deferred", "generic", "nics", 4, "zero_copy", 64 * KIB) == 0
    assert missed("l1d", "deferred", "generic", "veth", 4, "zero_copy", 64 * KIB) > 16
    verdicts = {
        judged.claim.id: judged.modelled.verdict for judged in judge_all((), points) if judged.modelled
    }
    assert verdicts == {**dict.fromkeys(("C8", "C10", "C11", "C12"), REFUTED), "C18": HOLDS}
