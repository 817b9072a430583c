"""C1, C2, C3, C18: who is faster, and from which size on."""

from collections.abc import Callable

from copyscope.compare.estimates import LESS, MORE
from copyscope.crossover.crossover import Crossover, crossovers_of
from copyscope.crossover.document import as_json
from copyscope.study.claims.comparing import always, compare
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED, Finding, Row, Runs, together
from copyscope.units import counted, format_size

KIB = 1024


def one_zero_per_field(runs: Runs) -> Finding:
    """C1: one_copy > zero_copy > per_field in goodput."""
    return always(
        compare(runs, "one_copy", "zero_copy", "goodput_gbps", MORE)
        + compare(runs, "zero_copy", "per_field", "goodput_gbps", MORE)
    )


def zero_never_beats_two(runs: Runs) -> Finding:
    """C3: zero_copy < two_copy in goodput at every size."""
    return always(compare(runs, "zero_copy", "two_copy", "goodput_gbps", LESS))


def two_one_crossover(runs: Runs) -> Finding:
    """C2: one_copy overtakes two_copy in goodput between 4 and 64 KiB."""
    found = _of(runs, ("two_copy", "one_copy"), "goodput_gbps")
    return _each(found, lambda at: _between(at, 4 * KIB, 64 * KIB))


def zero_wins_on_a_nic(runs: Runs) -> Finding:
    """C18: over two real interfaces zero_copy costs less CPU time from 64 KiB on, or from less."""
    found = _of(runs, ("one_copy", "zero_copy"), "system_cpu_ns_per_kib")
    return _each(found, lambda at: _from(at, 64 * KIB))


def _of(runs: Runs, pair: tuple[str, str], quantity: str) -> list[Crossover]:
    settled = [{**r, "run": {**r["run"], "factors": None}} for r in runs.records]
    found = crossovers_of(settled, (quantity,))
    return [at for at in found if at.pair == pair]


def _each(found: list[Crossover], judge: Callable[[Crossover], Finding]) -> Finding:
    if not found:
        return Finding(UNDETERMINED, "the two strategies were not measured at the same sizes")
    return together([(counted(at.threads, "thread"), judge(at)) for at in found])


def _between(at: Crossover, low: int, high: int) -> Finding:
    rows = [_row(at)]
    text = at.evidence.removeprefix("undetermined: ")
    # a fixed number of messages has no segment without instruments, and so no goodput at any size
    sizes = [one.size_bytes for one in at.measured]
    covered = bool(sizes) and sizes[0] <= low and sizes[-1] >= high
    if at.verdict in ("never", "always"):
        return Finding(REFUTED if covered else UNDETERMINED, text, rows)
    if at.verdict == "undetermined" or at.low is None or at.high is None:
        return Finding(UNDETERMINED, text, rows)
    if at.above != at.pair[1]:
        return Finding(REFUTED, f"the other way round: {text}", rows)
    if at.high < low or at.low > high:
        return Finding(REFUTED, f"{text}: outside of {format_size(low)} to {format_size(high)}", rows)
    inside = low <= at.low and at.high <= high
    return Finding(HOLDS if inside else UNDETERMINED, text, rows)


def _from(at: Crossover, size: int) -> Finding:
    rows = [_row(at)]
    text = at.evidence.removeprefix("undetermined: ")
    if at.verdict == "always":
        return Finding(HOLDS, text, rows)
    if at.verdict == "never":
        reached = at.measured[-1].size_bytes >= size
        return Finding(REFUTED if reached else UNDETERMINED, text, rows)
    if at.verdict == "crosses" and at.low is not None and at.high is not None:
        if at.above != at.pair[1] or at.low > size:
            return Finding(REFUTED, text, rows)
        if at.high <= size:
            return Finding(HOLDS, text, rows)
    return Finding(UNDETERMINED, text, rows)


def _row(at: Crossover) -> Row:
    kept = ("pair", "threads", "quantity", "verdict", "size_bytes", "low_bytes", "high_bytes", "measured")
    return {"what": "crossover", **{key: value for key, value in as_json(at).items() if key in kept}}
