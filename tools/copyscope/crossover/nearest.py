"""The measured crossover that is nearest to a watched program, and what it says of that program. Pure.

A row is one of crossover.json with `file`, where it stands, and `path`, over which it was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from copyscope.compare.estimates import Estimate
from copyscope.crossover.interpolation import at_size
from copyscope.record.check import Whole
from copyscope.record.segments import select, total
from copyscope.stats import LEVEL
from copyscope.units import counted, format_size

Row = dict[str, Any]
Strategy = Literal["zero_copy", "sendfile"]

# Paths that never leave the machine: crossover.json calls them as the driver of their device is called.
LOCAL_PATHS = ("loopback", "veth")
SENDER_CPU = "sender_cpu_ns_per_kib"
QUANTITIES = {
    SENDER_CPU: "the sender's CPU time",
    "system_cpu_ns_per_kib": "the CPU time of both sides",
    "receiver_cpu_ns_per_kib": "the receiver's CPU time",
    "goodput_gbps": "the goodput",
}
SAME_KIND, OTHER_KIND = 1, 2
# What it comes to, for a program that does not do it yet and for one that does.
PAYS = {False: "it would help on that path", True: "it helps on that path"}
LOSES = {False: "it would cost more than it saves", True: "it costs more than it saves"}


@dataclass(frozen=True)
class Question:
    """Whether `strategy` pays for sends of this size; `used`: most of the program's bytes already go so."""

    strategy: Strategy
    size_bytes: int
    used: bool

    @property
    def name(self) -> str:
        return self.strategy.replace("_", "-")


def nearest(rows: Sequence[Row], run: Whole, strategy: Strategy) -> Row | None:
    """The crossover of a strategy against a copying send that is nearest to this program.

    The path counts first, then the sender's CPU time, then the pair; of equal ones the newest file (they come
    in that order), and of one file the nearest number of threads.
    """
    threads = max((s.target.threads for s in run.raw.run.segments), default=1)
    files = list(dict.fromkeys(row["file"] for row in rows))
    quantities = list(QUANTITIES)
    return min(
        (row for row in rows if row["pair"][1] == strategy and row.get("by", "impl") == "impl"),
        key=lambda row: (
            distance(row, run),
            quantities.index(row["quantity"]) if row["quantity"] in quantities else len(quantities),
            "one_copy" not in row["pair"],
            files.index(row["file"]),
            abs(int(row["threads"]) - threads),
        ),
        default=None,
    )


def distance(row: Row, run: Whole) -> int:
    """How far the path that was measured is from the program's: 0 the same, 1 alike, 2 of another kind."""
    path = run.raw.topology
    drivers = {str(device.driver) for device in path.devices}
    if path.local_delivery and row["path"] in drivers.intersection(LOCAL_PATHS):
        return 0
    is_local = str(row["path"]).startswith(LOCAL_PATHS)
    return SAME_KIND if path.local_delivery == is_local else OTHER_KIND


def answer(row: Row, asked: Question, run: Whole) -> str:
    """Whether it pays by this crossover, and what it saves or costs this program."""
    if distance(row, run) == OTHER_KIND:
        return (
            f"{_cannot_tell(asked)}, because it was measured on this host over {row['path']} only "
            f"({row['file']}), and this program sends over {run.raw.topology.kind}: run "
            "copyscope crossover with an experiment over that path."
        )
    return " ".join([_verdict(row, asked, run), *_price(row, asked, run)])


def pays(row: Row, asked: Question, run: Whole) -> bool | None:
    """Whether it pays by this crossover; None: no difference was found, or it is of another kind of path."""
    if distance(row, run) == OTHER_KIND or row["verdict"] == "undetermined":
        return None
    if row["verdict"] != "crosses":
        return bool(row["verdict"] == "always")
    low, high = _ends(row)
    if low < 2 * asked.size_bytes and asked.size_bytes < high:
        return None
    return (asked.size_bytes >= high) == bool(row["above"] == row["pair"][1])


def _ends(row: Row) -> tuple[float, float]:
    """Of its interval; an end that is not known is as far off as can be."""
    low, high = row["low_bytes"], row["high_bytes"]
    return low if low is not None else 0, high if high is not None else math.inf


def _cannot_tell(asked: Question) -> str:
    return f"Cannot tell whether {asked.name} {'pays' if asked.used else 'would pay'}"


def _verdict(row: Row, asked: Question, run: Whole) -> str:
    name = asked.name.capitalize()
    threads = counted(row["threads"], "thread")
    where = (
        f"against {row['pair'][0]}, {QUANTITIES.get(row['quantity'], row['quantity'])}, {threads}, "
        f"measured on this host over {row['path']}: {row['file']}"
    )
    gains, loses = PAYS[asked.used], LOSES[asked.used]
    if row["verdict"] == "undetermined":
        reason = str(row["evidence"]).removeprefix("undetermined: ")
        return f"{_cannot_tell(asked)}: {reason} ({where})."
    if row["verdict"] == "always":
        return f"{name} paid at every size ({where}): {gains}."
    if row["verdict"] == "never":
        return f"{name} never paid at any size ({where}): {loses}."
    low, high = _ends(row)
    ends = [format_size(end) if 0 < end < math.inf else "beyond what was measured" for end in (low, high)]
    rising = row["above"] == row["pair"][1]
    size = format_size(row["size_bytes"])
    text = f"{name} pays {f'from {size} on' if rising else f'below {size}'} ({' to '.join(ends)}; {where})"
    found = pays(row, asked, run)
    if found is None:
        return f"{text}, which is about where its calls are: no difference to expect."
    text += f", and its calls are {'larger' if asked.size_bytes >= high else 'smaller'}"
    return f"{text}: {gains if found else loses}."


def ratio_at(row: Row, size_bytes: int) -> tuple[int, Estimate] | None:
    """The ratio at this size, from the measured sizes around it; beyond them (size, ratio) of the nearest.

    None where no size has a ratio.
    """
    known = {
        int(at["size_bytes"]): Estimate(at["ratio"], at["low"], at["high"], LEVEL, 0)
        for at in row["measured"]
        if at["ratio"] is not None
    }
    if not known:
        return None
    size = min(max(size_bytes, min(known)), max(known))
    found = at_size(known, size)
    return None if found is None else (size, found)


def _price(row: Row, asked: Question, run: Whole) -> list[str]:
    """The ratio at the program's size, and what follows of it for its CPU time, with interval."""
    found = ratio_at(row, asked.size_bytes)
    if found is None:
        return []
    size, ratio = found
    quantity = QUANTITIES.get(row["quantity"], row["quantity"])
    text = f"At {format_size(size)} {asked.name} took {ratio.value:.2f} times"
    if ratio.low is None or ratio.high is None:
        return [f"{text} {quantity} of {row['pair'][0]} (one repeat: no interval)."]
    text += f" ({ratio.low:.2f} to {ratio.high:.2f}) {quantity} of {row['pair'][0]}"
    if row["quantity"] != SENDER_CPU:
        return [f"{text}."]
    ends = (ratio.low, ratio.value, ratio.high)
    changes = sorted(1 / end - 1 if asked.used else end - 1 for end in ends)
    share = sending_share(run)
    whose = "the CPU time that its sends take"
    if share is not None:
        changes = [change * share for change in changes]
        whose = f"its CPU time (its send calls take {share * 100:.0f} % of it)"
    low, change, high = (round(abs(value) * 100) for value in changes)
    who = "to turn it off" if asked.used else "it"
    if changes[2] < 0:
        effect = f"{who} would save {change} % ({high} to {low} %) of {whose}"
    elif changes[0] > 0:
        effect = f"{who} would cost {change} % ({low} to {high} %) more of {whose}"
    else:
        effect = f"no difference found, between {low} % saved and {high} % more of {whose}"
    return [f"{text}: {effect}."]


def sending_share(run: Whole) -> float | None:
    """The part of the program's CPU time in its send calls, softirq work inside of them included; None when
    no call was timed. The clock of a process is read beside a segment, not at its ends: at most all of it.
    """
    spent_ns = total(select(run.raw.run.segments, "calls"), "target", "process_cpu_ns")
    sent = run.portrait.send
    sends = {row.syscall for row in sent.by_call} if sent else set()
    took_ns = [
        row.on_cpu_ns + (row.softirq_ns or 0)
        for row in run.raw.calls
        if row.syscall in sends and row.on_cpu_ns is not None
    ]
    if not spent_ns or not took_ns:
        return None
    return min(1.0, sum(took_ns) / spent_ns)
