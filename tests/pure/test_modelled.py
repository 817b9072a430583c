"""What a report says of simulated machines: misses that were put in come out, and are called modelled."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from builders import raw_record
from builders.simulated import simulated_record
from builders.sweep import store
from copyscope import paths
from copyscope.commands import report
from copyscope.ledger.derive import derive
from copyscope.record.check import find_problems, typed_boot
from copyscope.report.plots.draw import Drawing, Subject, figure_of
from copyscope.simulate import caches, document
from copyscope.stats import Missing
from copyscope.study import modelled
from copyscope.study.claims.judge import HOLDS, REFUTED, UNDETERMINED, judge_all, judge_one
from copyscope.study.claims.table import CLAIMS
from copyscope.study.modelled import ModelPoint, line_waterfall, pairs
from copyscope.study.modelled_answers import beside, modelled_answers
from copyscope.study.questions import Answer
from copyscope.sweep import results
from matplotlib.axes import Axes
from matplotlib.figure import Figure

pytestmark = pytest.mark.timeout(60)

KIB = 1024
Record = dict[str, Any]
CHECK = {"name": "bytes", "left": 1, "right": 2, "tolerance": 0}
# category, side -> load misses per KiB in L1D, L2, LLC
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
    """The record of one boot; each seed has a tenth of a line more in each row than the last."""
    made = simulated_record(seeds=(seed,))
    (pattern,) = made["simulated"]["measurements"]
    blank = {key: 0.0 if key.endswith("_per_kib") else value for key, value in pattern["rows"][0].items()}
    measurements = []
    for (impl, size), rows in points.items():
        found = []
        for (category, side), misses in rows.items():
            counts = {
                f"{name}_load_misses_per_kib": float(n) for name, n in zip(caches.LEVELS, misses, strict=True)
            }
            counts["l1d_load_misses_per_kib"] += seed / 10
            found.append({**blank, "category": category, "side": side, **counts})
        shape = {"impl": impl, "size_bytes": size, "working_set_messages": ring, "threads": threads}
        measurements.append({**pattern, **shape, "rows": found})
    made["simulated"] |= {
        "measurements": measurements,
        "model": document.model_section(caches.PRESETS[cache]),
    }
    made["simulated"]["path"] = {**made["simulated"]["path"], "kind": path}
    made["run"] |= {
        "id": f"simulated-{cache}-{path}-{ring}-{seed}",
        "experiment": "simulated",
        "repeat": seed,
    }
    made["run"]["factors"] = {"cache": cache, "topology": path, "working_set": ring}
    return made


def usual(**of: Any) -> list[Record]:
    sizes = (KIB, 4 * KIB, 64 * KIB)
    every = {
        (i, size): r for i, r in (("two_copy", TWO), ("one_copy", ONE), ("zero_copy", ZERO)) for size in sizes
    }
    return [boot(every, seed, **of) for seed in (1, 2, 3)]


def points_of(records: Iterable[Record]) -> list[ModelPoint]:
    return modelled.points_of(map(typed_boot, records))


def test_boots_are_put_together_by_setting_and_invalid_ones_left_out() -> None:
    records = [*usual(), *usual(cache="laptop"), *usual(ring=64)]
    bad = boot({("one_copy", KIB): {("copy_in", "sender"): (999, 0, 0)}}, 4)
    bad["simulated"]["measurements"][0]["checks"] = [{**CHECK, "holds": False}]
    assert find_problems(bad, raw=False) == []
    points = points_of([bad, *reversed(records)])
    assert len(points) == 27 and {len(point.boots) for point in points} == {3}
    first = points[0]
    assert (first.setting.cache, first.size, first.impl) == ("generic", KIB, "two_copy")
    # 16 + 17 + 18 + 2 + 32, and a tenth of a line for each of five rows and each number of a seed
    assert first.misses("l1d") == pytest.approx([85.5, 86.0, 86.5])
    assert first.misses("l2", side="sender") == [16, 16, 16]


def test_the_steps_lead_from_one_sum_to_the_other() -> None:
    ((one, zero),) = [p for p in pairs(points_of(usual()), "one_copy", "zero_copy") if p[0].size == KIB]
    found = line_waterfall(one, zero)
    assert [found.start, found.end] == pytest.approx([53.8, 67.6])
    steps = {step.name: step.change.value for step in found.steps}
    assert steps == pytest.approx(
        {"copy into the kernel": -16.2, "late copy": 45.2, "pages": -18.2, "rest": 3.0}
    )
    assert found.start + sum(steps.values()) == pytest.approx(found.end)


@pytest.fixture
def points() -> list[ModelPoint]:
    return points_of([*usual(), *usual(cache="laptop"), *usual(ring=1024), *usual(path="nics")])


def figure(name: str, points: list[ModelPoint]) -> Figure:
    made = figure_of(name, Subject((), (), "Where.", points))
    assert not isinstance(made, Missing)
    return made


def dashed(axes: Axes) -> list[float]:
    """Where the lines of the caches are."""
    return [float(np.asarray(line.get_xdata())[0]) for line in axes.lines]


def test_bars_are_as_high_as_their_misses_and_caches_stand_at_their_sizes(points: list[ModelPoint]) -> None:
    misses = figure("modelled_misses", points)
    titles = [axes.get_title(loc="left") for axes in misses.axes]
    assert titles == [
        f"{cache}: {level}" for level in ("L1D", "L2", "LLC") for cache in ("generic", "laptop")
    ]
    l1d = misses.axes[0]
    paths = [np.asarray(patch.get_path().vertices) for patch in l1d.patches]
    tops = [float(path[:, 1].max()) for path in paths if path.size]
    assert max(tops) == pytest.approx(86.0)  # two_copy: the mean of three boots
    # 4 KiB to 64 KiB were sent: of the caches only 32 KiB lie between.
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
    """Of each strategy so many misses in one level, of the sender, at every size over every path."""
    rows: dict[str, Rows] = {
        impl: {("copy_in", "sender"): tuple(n if i == level else 0.0 for i in range(3))}
        for impl, n in of.items()
    }
    every = {(impl, size): rows[impl] for impl in rows for size in (KIB, 4 * KIB, 64 * KIB)}
    return [boot(every, seed, path=path) for seed in (1, 2, 3) for path in ("veth", "nics")]


def with_flushes(pinned: float, plain: float) -> list[Record]:
    """So many in each KiB, and a message is one; some more by a side and a stage that do not count."""
    made = usual()
    for one in (m for record in made for m in record["simulated"]["measurements"]):
        for row in one["rows"]:
            row["tlb_flushes_per_kib"] = 0.0
        one["rows"][0]["tlb_flushes_per_kib"] = pinned if one["impl"] == "zero_copy" else plain
        for side, category in (("receiver", "copy_out"), ("sender", "wakeup_sched")):
            extra = {"side": side, "category": category, "tlb_flushes_per_kib": 9.0}
            one["rows"].append({**one["rows"][0], **extra})
    return made


VERDICTS: list[tuple[str, str, str, Callable[[], list[Record]]]] = [
    ("C10", HOLDS, "0.30", lambda: with_misses(2, two_copy=10, one_copy=3)),
    ("C10", REFUTED, "0.40", lambda: with_misses(2, two_copy=10, one_copy=4)),
    # Neither misses it: nothing drops.
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


@pytest.mark.parametrize(("name", "verdict", "words", "make"), VERDICTS, ids=lambda value: str(value)[:20])
def test_verdict_in_the_model(name: str, verdict: str, words: str, make: Callable[[], list[Record]]) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.id == name)
    judged = judge_one(claim, (), points_of(make()))
    found = judged.modelled
    assert found is not None and judged.verdict == UNDETERMINED
    assert (found.verdict, words in found.evidence) == (verdict, True), found.evidence
    assert judge_one(claim, (), ()).modelled is None
    # One boot tells nothing of chance; what is counted needs no second one.
    single = judge_one(claim, (), points_of(one for one in make() if one["run"]["seed"] == 1)).modelled
    assert single is not None and (single.verdict == UNDETERMINED or name == "C8")


def test_answers_of_a_model_stand_behind_those_of_the_machine(points: list[ModelPoint]) -> None:
    level, threads = modelled_answers(points)
    assert level.text.startswith("In the model (generic, veth, Linux 6.12")
    # two_copy: 32 lines and a tenth of its gather more in L1D; in L2 16 by gather, and 16 fewer by copy_in
    assert level.bullets[0] == "1 KiB: L1D -32.2, L2 +0.0, LLC +0.0 lines per KiB: most in L1D."
    assert "256 KiB 0.0, 64 MiB 0.0 lines per KiB" in threads.text
    assert "32 MiB hold 128 rings of 256 KiB" in threads.text and "was not simulated" in threads.text
    asked = Answer(level.question, "Not answered on this machine: no PMU.")
    other = Answer("Another?", "Yes.")
    both = beside([asked, other], points)
    assert both[0].text == f"{asked.text} {level.text}" and both[0].bullets == level.bullets
    assert both[1] is other and beside([asked], []) == [asked]


def test_more_threads_are_compared_where_they_were_simulated(points: list[ModelPoint]) -> None:
    crowded = {**ONE, ("copy_in", "sender"): (16, 16, 10)}
    records = [boot({("one_copy", 64 * KIB): crowded}, seed, ring=64, threads=2) for seed in (1, 2, 3)]
    found = points_of([*usual(), *usual(ring=64), *records])
    level, threads = modelled_answers(found)
    # Those of one thread are what the other answer is about, whatever else there is.
    assert level == modelled_answers(points)[0]
    assert "2 threads instead of 1 share the last level of 32 MiB" in threads.text
    assert threads.bullets == (
        "one_copy, misses of its copies in lines per KiB:"
        " L1D 33.4 -> 33.4, L2 32.0 -> 32.0, LLC 0.0 -> 10.0: LLC clearly.",
    )


def draw_nothing(subject: Subject) -> tuple[dict[str, Drawing], dict[str, str]]:
    """What is drawn is looked at above, and takes five seconds."""
    return {plot.name: Drawing(b"<svg/>", b"") for plot in subject.plots}, {}


def test_a_report_of_a_simulated_experiment(
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
    # In the model 67.6 of 86 lines are left.
    assert "Claims, judged in the model" in text and "C12" in text


def test_boots_that_came_with_the_tree_say_what_a_copy_must_move() -> None:
    """1 KiB is 16 lines; what was written a moment ago is where it fits; devices read without a CPU."""
    points = modelled.points_of(results.load(paths.RESULTS / "vm" / "simulated").modelled)
    at = {
        (p.setting.cache, p.setting.path, p.setting.working_set_messages, p.impl, p.size): p for p in points
    }

    def missed(level: str, category: str, *key: Any) -> float:
        return fmean(at[key].values((f"{level}_load_misses",), lambda row: row.category == category))

    one, two = ("generic", "veth", 4, "one_copy"), ("generic", "veth", 4, "two_copy")
    for size in (16 * KIB, 64 * KIB, KIB * KIB):
        for copy in ("copy_in", "copy_out"):
            assert 16 <= missed("l1d", copy, *one, size) <= 17
    assert missed("l2", "copy_in", *two, 64 * KIB) < 0.5
    assert 15 <= missed("l2", "copy_in", *two, KIB * KIB) <= 17
    for ring, least, most in ((4, 0.0, 0.1), (64, 0.0, 0.1), (1024, 4.0, 17.0)):
        assert least <= missed("llc", "copy_in", "generic", "veth", ring, "one_copy", 64 * KIB) <= most
    assert missed("l1d", "deferred", "generic", "nics", 4, "zero_copy", 64 * KIB) == 0
    assert missed("l1d", "deferred", "generic", "veth", 4, "zero_copy", 64 * KIB) > 16
    verdicts = {one.claim.id: one.modelled.verdict for one in judge_all((), points) if one.modelled}
    assert verdicts == {**dict.fromkeys(("C8", "C10", "C11", "C12"), REFUTED), "C18": HOLDS}
