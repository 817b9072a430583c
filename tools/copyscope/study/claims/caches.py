"""C10, C11, C12, C17: what is said of cache misses; without a PMU nothing can be."""

from copyscope.compare.estimates import LESS, Estimate
from copyscope.record.segments import PROCESSES
from copyscope.study.claims.comparing import Comparison, always, compare
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED, Finding, Row, Runs

LLC_DROP = 0.35  # what is left of the misses after a drop of 65 %
L1_DROP = 0.755
EVENTS = ("LLC-load-misses", "L1-dcache-load-misses")


def llc_drop(runs: Runs) -> Finding:
    """C10: LLC misses of one_copy are at most 35 % of those of two_copy, per KiB, on the sender."""
    return _drop(compare(runs, "one_copy", "two_copy", "llc_misses_per_kib_sender", LESS), LLC_DROP)


def l1_drop(runs: Runs) -> Finding:
    """C12: L1 misses of zero_copy are 24.5 % fewer than those of two_copy; here per KiB, not per run.

    Of the receiver, which is what they counted.
    """
    return _drop(compare(runs, "zero_copy", "two_copy", "l1d_misses_per_kib_receiver", LESS), L1_DROP)


def zero_fewest_llc(runs: Runs) -> Finding:
    """C11: no strategy has fewer LLC misses per KiB than zero_copy, on either side."""
    return always(
        [
            comparison
            for side in PROCESSES
            for other in ("one_copy", "two_copy", "per_field")
            for comparison in compare(runs, "zero_copy", other, f"llc_misses_per_kib_{side}", LESS)
        ]
    )


def _drop(comparisons: list[Comparison], claimed: float) -> Finding:
    rows = [one.row for one in comparisons]
    known = [(one.text, one.ratio) for one in comparisons if isinstance(one.ratio, Estimate)]
    if not known:
        return always(comparisons)
    text = "; ".join(said for said, _ in known) + f" (claimed: {claimed:.2f})"
    ends = [(at.low, at.high) for _, at in known if at.low is not None and at.high is not None]
    if len(ends) < len(known):
        return Finding(UNDETERMINED, text, rows)
    if all(low <= claimed and high < 1 for low, high in ends):
        return Finding(HOLDS, text, rows)
    if all(low > claimed for low, _ in ends):
        return Finding(REFUTED, f"the drop is smaller, or there is none: {text}", rows)
    return Finding(UNDETERMINED, text, rows)


def zero_is_real(runs: Runs) -> Finding:
    """C17: whether a count of zero can be a real one on this machine: what the counters say of themselves."""
    rows: list[Row] = []
    for record in runs.records:
        for side in PROCESSES:
            for event in EVENTS:
                counter = record["counters"][side].get(event)
                if counter is not None:
                    kept = {key: counter[key] for key in ("value", "status", "reason")}
                    rows.append({"what": f"counters.{side}.{event}", "run": record["run"]["id"], **kept})
    if not rows:
        return Finding(UNDETERMINED, "no counter was opened in these runs", rows)
    counted = [row for row in rows if row["value"] is not None]
    if not counted:
        # one row for each counter: they all say the same
        alike = {row["what"]: {k: v for k, v in row.items() if k != "run"} for row in rows}
        text = f"all {len(rows)} readings are of events that nothing counts here ({rows[0]['reason']})"
        return Finding(
            REFUTED, f"{text}: a zero in a table of this machine is an unsupported event", [*alike.values()]
        )
    zeros = [row for row in counted if row["value"] == 0]
    said = f"{len(counted)} of {len(rows)} readings were counted, {len(zeros)} of them are zero"
    if zeros:
        return Finding(HOLDS, said, zeros + counted[:5])
    least = min(float(row["value"]) for row in counted)
    return Finding(REFUTED, f"{said}; the least is {least:,.0f}", rows)
