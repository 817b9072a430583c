"""What it costs to be watched at all: against the time before and after, and when it cannot be known."""

import re
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from builders.watched import CALLS, EDGE_CALLS, SEGMENT_NS, SIZE, seen_of, watched_record
from copyscope import stats
from copyscope.ledger.derive import derive
from copyscope.ledger.program.attached_effect import attached_effect, without_empty
from copyscope.ledger.program.headline import cost_of_watching
from copyscope.record.program.derived import Attached
from copyscope.record.program.pace import pace_section
from copyscope.record.program.raw import PaceSlice, RawProgramRun
from copyscope.render.evidence import attached_text
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins

LENGTH_NS = 100_000_000


def readings(begin_ns: int, rates: list[float], inode: int = 7) -> list[SimpleNamespace]:
    """Looks at one connection that moves `rates` bytes per ns, slice by slice."""
    made = [SimpleNamespace(t_ns=begin_ns, moved_bytes={inode: 1000})]
    for rate in rates:
        last = made[-1]
        moved = {inode: last.moved_bytes[inode] + round(rate * LENGTH_NS)}
        made.append(SimpleNamespace(t_ns=last.t_ns + LENGTH_NS, moved_bytes=moved))
    return made


def volume(t_ns: int, tcp: int, udp: int = 0) -> dict[str, Any]:
    row = {"direction": "send", "syscall": "write"}
    rows = [{**row, "protocol": "tcp", "bytes": tcp}, {**row, "protocol": "udp", "bytes": udp}]
    return {"t_ns": t_ns, "volume": [*rows, {**row, "protocol": "tcp", "direction": "copy_out", "bytes": 9}]}


def segments(rates: list[float], per_block: int = 2) -> list[dict[str, Any]]:
    """Blocks of equal segments at these rates; a tenth of the time passes between two segments."""
    made, moved, now = [], 0.0, 10**12
    for block, rate in enumerate(rates):
        for _ in range(per_block):
            first = volume(now, round(moved), 5)
            now, moved = now + LENGTH_NS, moved + rate * LENGTH_NS
            last = volume(now, round(moved), 77)
            made.append(
                {
                    "block": block,
                    "marks": tuple({"target": reading} for reading in (first, first, last, last)),
                }
            )
            now, moved = now + LENGTH_NS // 10, moved + rate * LENGTH_NS // 10
    return made


SPLICED = {
    **{"arm": "ledger", "protocol": "tcp", "direction": "receive", "syscall": "splice from a socket"},
    **dict.fromkeys(("calls", "bytes", "zerocopy_calls", "zerocopy_bytes"), 1),
    **{"nodelay_calls": 0, "cork_calls": 0, "largest_bytes": 1, "sizes": [[1, 1]]},
}


def effect_of(
    rates: list[float], before: list[float], after: list[float], sockets: Any = None, **changed: Any
) -> Any:
    pace = pace_section(
        segments(rates), readings(0, before), readings(10**13, after), sockets or {"7": [90, 10]}, 10**7
    )
    return watched_pace(pace, **changed)


def watched_pace(pace: Any, target: Any = MappingProxyType({}), volume: Any = ()) -> Any:
    """The effect in a record with this pace: of a program that was there before the run."""
    raw = watched_record() | {"pace": pace, "volume": list(volume)}
    raw["target"] = {**raw["target"], "how": "pid", **target}
    return to_builtins(attached_effect(convert(raw, RawProgramRun)))


def test_half_the_goodput_is_half() -> None:
    effect = effect_of([1.0] * 4, [2.0] * 4, [2.0] * 4)
    assert effect["ratio"] == pytest.approx(0.5) and effect["effect"] == pytest.approx(0.5)
    assert (effect["low"], effect["high"]) == pytest.approx((0.5, 0.5))
    assert effect["slices"] == {"before": 4, "attached": 4, "after": 4}
    assert effect["reason"] is None and effect["level"] == 0.95
    # 4 blocks of two segments and the tenths between them, but for the last
    assert effect["own_cpu_share"] == pytest.approx(10**7 / (7.9 * 10**8 + 0.8 * 10**7), rel=0.2)


def test_time_between_segments_counts() -> None:
    """Whoever stands still while hooks come and go loses that, too."""
    rows = segments([1.0] * 3)
    for number, segment in enumerate(rows):
        late = number * LENGTH_NS // 10
        readings_of = [mark["target"] for mark in segment["marks"]]
        segment["marks"] = tuple({"target": {**v, "t_ns": v["t_ns"] + late}} for v in readings_of)
    pace = pace_section(rows, readings(0, [1.0] * 4), readings(10**13, [1.0] * 4), {"7": [1, 0]}, None)
    effect = watched_pace(pace)
    assert 0.85 < effect["ratio"] < 0.95 and effect["own_cpu_share"] is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"target": {"how": "command"}}, "started by this run"),
        ({"volume": [SPLICED]}, r"splice\(2\)"),
    ],
)
def test_what_cannot_be_known_says_why(changed: Any, said: str) -> None:
    effect = effect_of([1.0] * 4, [1.0] * 4, [1.0] * 4, **changed)
    assert effect["ratio"] is None
    assert re.search(said, effect["reason"])


def test_slices_that_say_nothing_are_not_compared() -> None:
    def reason(*arguments: Any) -> str:
        effect = effect_of(*arguments)
        assert effect["ratio"] is None and effect["low"] is None
        return str(effect["reason"])

    full = [1.0] * 4
    assert "after" not in reason(full, [], full) and "last hook" in reason(full, full, [])
    assert "2 blocks" in reason([1.0] * 2, full, full)
    assert "moved nothing before" in reason(full, [0.0] * 4, full)
    covered = reason(full, full, full, {"7": [50, 0], "8": [50, 0]})
    assert covered.startswith("50 % of its bytes went") and covered.endswith("and 95 % would have to")
    assert "still open at the end" in reason(full, full, full, {"7": [0, 0]})
    unasked = effect_of(full, [], [], target={"baseline": False})
    assert unasked["ratio"] is None and unasked["reason"] == "--no-baseline"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_an_empty_slice_is_time_of_its_neighbour(moved: list[int]) -> None:
    made = without_empty([PaceSlice("before", i, i + 1, n) for i, n in enumerate(moved)])
    assert sum(row.bytes for row in made) == sum(moved)
    assert sum(row.end_ns - row.begin_ns for row in made) == len(moved)
    assert not any(moved) or all(row.bytes > 0 for row in made)


def test_a_starved_slice_widens_the_interval_and_hides_nothing() -> None:
    even = effect_of([1.0] * 4, [1.0, 1.1, 1.0, 1.1], [1.0] * 4)
    starved = effect_of([1.0] * 4, [1.0, 0.0, 0.1, 1.1], [1.0] * 4)
    assert starved["reason"] is None and starved["slices"] == even["slices"]
    assert starved["high"] - starved["low"] > 2 * (even["high"] - even["low"])


def test_the_text_says_when_an_interval_is_wide() -> None:
    narrow = attached_text(effect_of([0.9, 0.91, 0.9, 0.91], [1.0] * 4, [1.01] * 4))
    assert "effect seen" in narrow and "wide" not in narrow and "4 slices against 8" in narrow
    noisy = attached_text(effect_of([0.5, 1.5, 0.9, 1.1], [1.0] * 4, [2.0] * 4))
    assert "too noisy to tell: run longer" in noisy and "of one CPU" in noisy
    wide = attached_text(effect_of([0.3, 0.5, 0.4, 0.6], [1.0] * 4, [1.0] * 4))
    assert "effect seen, by an interval that is wide: run longer" in wide
    unknown = attached_text(effect_of([1.0] * 4, [1.0] * 4, []))
    assert "n/a: it had ended" in unknown and "of one CPU" in unknown


def test_a_cost_that_is_certain_is_in_the_verdict() -> None:
    certain = convert(effect_of([0.8] * 4, [1.0] * 4, [1.0] * 4), Attached)
    assert "being watched cost it about 20 %" in cost_of_watching(certain)
    noisy = convert(effect_of([0.5, 1.5, 0.9, 1.1], [1.0] * 4, [1.0] * 4), Attached)
    assert cost_of_watching(noisy) == ""


def test_a_whole_record_has_it() -> None:
    """The program of the builder goes at twice the pace while nothing is attached."""
    blocks = seen_of().segments
    bytes_a_segment = (CALLS + 2 * EDGE_CALLS) * SIZE
    effect = derive(watched_record())["overhead"]["attached"]
    assert len(blocks) == 9 and effect["reason"] is None
    assert effect["ratio"] == pytest.approx(bytes_a_segment / SEGMENT_NS / (2 * CALLS * SIZE / SEGMENT_NS))


@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=12),
    st.lists(st.floats(0.1, 10), min_size=2, max_size=12),
)
def test_an_unpaired_ratio_is_symmetric(a: list[float], b: list[float]) -> None:
    one, other = stats.unpaired_ratio(a, b), stats.unpaired_ratio(b, a)
    assert one.interval is not None and other.interval is not None
    assert one.value * other.value == pytest.approx(1)
    assert one.interval.low * other.interval.high == pytest.approx(1)
    assert one.interval.low <= one.value <= one.interval.high


def test_an_unpaired_ratio_refuses_what_has_no_logarithm() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        stats.unpaired_ratio([], [1.0])
    with pytest.raises(ValueError, match="no logarithm"):
        stats.unpaired_ratio([0.0], [1.0])
    assert stats.unpaired_ratio([2.0], [1.0, 1.0]).interval is None
