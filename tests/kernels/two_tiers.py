"""The two tiers of the surveys side by side, judged: tables of docs/dev/kernels.md, from what is kept."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copyscope.ledger.compare_tiers import REST
from outcome import Outcome

ACCOUNTS = ("copy_in", "pin", "deferred", "copy_out")
# A row that neither tier gives as much is a handful of samples.
LARGE = 0.05
# How far the time inside the roots may be from that of the calls.
TOLERANCE = 0.03

Rows = list[list[str]]
# What a cell of a table shows: one ratio for each side, or one of both together.
Ratios = Mapping[str, float]


class Survey:
    """One strategy on one kernel."""

    def __init__(self, kernel: str, impl: str, kept: Mapping[str, Any]) -> None:
        self.where = [kernel, impl]
        self.rows: list[dict[str, Any]] = kept["rows"]
        self.calls: list[dict[str, Any]] = kept["calls"]
        self._kept = kept
        # Samples of the same segments; where none were taken, those of the ledger.
        self.judge = "beside" if any(row.get("beside_share") is not None for row in self.rows) else "sampled"

    def inside(self, least: float = 0.0) -> tuple[int, int]:
        """How many exact shares lie in the interval of the sampled one, and of how many."""
        rows = [row for row in self.rows if max(row["exact_share"], row[f"{self.judge}_share"]) >= least]
        return sum(row["inside"] for row in rows), len(rows)

    def shares(self, account: str) -> Ratios:
        """The exact share over the sampled one, by side."""
        rows = [row for row in self.rows if row["name"] == account]
        exact, sampled = (
            {side: sum(row[key] for row in rows if row["side"] == side) for side in ("sender", "receiver")}
            for key in ("exact_share", f"{self.judge}_share")
        )
        return {side: exact[side] / share for side, share in sampled.items() if share}

    def seen(self) -> Ratios:
        """What the sampler saw of the exact time of the same segments, by side."""
        return dict(self._kept.get("seen", {}))

    def times(self, account: str) -> Ratios:
        """The same of the CPU time per KiB, both sides together."""
        exact, sampled = (self._kept[f"{tier}_ns_per_kib"].get(account) for tier in ("exact", "sampled"))
        return {"": exact / sampled} if exact is not None and sampled else {}

    def goodput(self) -> Ratios:
        return {"": self._kept["exact_goodput_gbps"] / self._kept["sampled_goodput_gbps"]}

    def stretch(self) -> Ratios:
        """How many times the median the longest segment of either tier took."""
        return {"": max(self._kept["exact_stretch"], self._kept["sampled_stretch"])}


def surveys_of(outcomes: Iterable[Outcome]) -> list[Survey]:
    return [Survey(one.name, impl, kept) for one in outcomes for impl, kept in one.tiers.items()]


def cell(ratios: Sequence[Ratios]) -> str:
    """The range of each side: `sender 0.61 to 0.84`."""
    said = []
    for side in dict.fromkeys(side for one in ratios for side in one):
        values = sorted(one[side] for one in ratios if side in one)
        ends = dict.fromkeys(f"{value:.2f}" for value in (values[0], values[-1]))
        said.append(f"{side} {' to '.join(ends)}".strip())
    return ", ".join(said) or "-"


def share_rows(surveys: Sequence[Survey]) -> Rows:
    def count(chosen: Sequence[Survey], least: float) -> str:
        found = [one.inside(least) for one in chosen]
        return f"{sum(inside for inside, _ in found)} of {sum(rows for _, rows in found)}"

    def row(where: list[str], chosen: Sequence[Survey]) -> list[str]:
        counts = [count(chosen, 0.0), count(chosen, LARGE)]
        shares = (cell([one.shares(name) for one in chosen]) for name in ACCOUNTS)
        return [*where, *counts, *shares, cell([one.seen() for one in chosen])]

    head = ["kernel", "strategy", "inside", f"of {LARGE * 100:.0f} % and more", *ACCOUNTS, "seen"]
    return [head, *(row(one.where, [one]) for one in surveys), row(["all", ""], surveys)]


def time_rows(surveys: Sequence[Survey]) -> Rows:
    def row(where: list[str], chosen: Sequence[Survey]) -> list[str]:
        names = (*ACCOUNTS, REST)
        times = [cell([one.times(name) for one in chosen]) for name in names]
        whole = [cell([one.goodput() for one in chosen]), cell([one.stretch() for one in chosen])]
        return [*where, *times, *whole]

    head = ["kernel", "strategy", *ACCOUNTS, REST, "goodput", "longest"]
    return [head, *(row(one.where, [one]) for one in surveys), row(["all", ""], surveys)]


def call_rows(surveys: Sequence[Survey]) -> Rows:
    rows = [["kernel", "strategy", "side", "calls", "us a call", "roots", "and calls around", "us left"]]
    for survey in surveys:
        for call in survey.calls:
            left_ns = (call["calls_ns"] - call["inside_ns"]) / call["calls"]
            rows.append(
                [
                    *(*survey.where, call["side"], f"{call['calls']:,}"),
                    f"{call['calls_ns'] / call['calls'] / 1000:,.0f}",
                    *(f"{call[key] / call['calls_ns']:.4f}" for key in ("roots_ns", "inside_ns")),
                    f"{left_ns / 1000:.1f}",
                ]
            )
    return rows


def judge_calls(surveys: Sequence[Survey]) -> str:
    """Which sides the time inside the roots does not account for."""
    ratios = {
        " ".join([*one.where, call["side"]]): call["inside_ns"] / call["calls_ns"]
        for one in surveys
        for call in one.calls
    }
    if not ratios:
        return "Nothing to judge: no survey has the calls and the functions in the same segments."
    outside = {name: ratio for name, ratio in ratios.items() if abs(1 - ratio) > TOLERANCE}
    within = f"{len(ratios) - len(outside)} of {len(ratios)}"
    named = ", ".join(f"{name} {ratio:.4f}" for name, ratio in outside.items()) or "none"
    return (
        f"Inclusive over the calls' time: {min(ratios.values()):.4f} to {max(ratios.values()):.4f};"
        f" within {TOLERANCE * 100:.0f} % in {within}; not within: {named}."
    )
