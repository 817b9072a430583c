# SPDX-License-Identifier: GPL-2.0-only
"""Turn the output of a simulated machine into the section `simulated` of a record."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from msgspec import Struct, convert

from copyscope.base import stats
from copyscope.record.derived import Judged
from copyscope.record.simulated import (
    COUNTED,
    Check,
    Measurement,
    Model,
    SideSum,
    SimulatedFunction,
    SimulatedRow,
)
from copyscope.run.simulate.caches import CacheModel
from copyscope.run.simulate.counted_stacks import (
    UNKNOWN_ROOT,
    CountedStack,
    Counts,
    MeasuredStacks,
    name_stack,
)
from copyscope.run.simulate.job import GuestMeasurement
from copyscope.taxonomy.accounts import ACCOUNTS, RECEIVE_COPIES, SEND_COPIES, STAGES
from copyscope.taxonomy.taxonomy import Taxonomy

# The first part computes rows of a ledger, per delivered KiB, from counted stacks. Pure.

METHOD = "modelled"
ALL = "all"
COMMAND = "command"
OTHER = "other"
SIDES = ("sender", "receiver", COMMAND, OTHER)
# Counts that are added up for a function.
LINES = ("read_lines", "written_lines")
L1D_MISSES = ("l1d_load_misses", "l1d_store_misses")
# Pattern of the names of copying functions in C libraries.
COPYING = re.compile(r"mem(p?cpy|move)|bcopy")
CONTEXTS = ("process", "softirq", "user")
# Name of a function without a known address.
USER_CODE = "[user]"
Key = tuple[str, str, str]  # account or stage, side, context
# Maximum number of boots of a simulation.
SEEDS_MAX = 10


@dataclass(frozen=True)
class PlacedStack:
    """Counts of a function for one call stack, with the function's category, process, context and name."""

    key: Key
    function: str
    counts: Counts


def place_by_side(
    stacks: Iterable[CountedStack], names: dict[str, str], taxonomy: Taxonomy, *, gathers: bool
) -> list[PlacedStack]:
    """Assign each stack of our own traffic to an account or stage.

    `names`: maps addresses to names. `gathers`: True if the strategy copies in user mode. All user code of
    the sender (the copy and the loop around it) then belongs to the account `gather`.
    """
    placed = []
    for stack in stacks:
        frames = name_stack(stack.frames, names) if stack.frames else ()
        place = taxonomy.classify(frames)
        category, context = place.category, str(place.context)
        if context == "user" and stack.side == "sender" and gathers:
            category, context = "gather", "process"
        function = frames[0] if frames else USER_CODE
        placed.append(PlacedStack((category, stack.side, context), function, stack.counts))
    return placed


def place_command(
    stacks: Iterable[CountedStack], names_by_address: dict[str, str], taxonomy: Taxonomy
) -> list[PlacedStack]:
    """Assign each stack of a command to an account or stage.

    No marker names a side, so every process that makes system calls belongs to the command. Idle CPUs and
    kernel threads started before the plugin. In user mode, every copying function belongs to the account
    `gather`.
    """
    placed = []
    for stack in stacks:
        in_user_mode = not stack.frames or not int(stack.frames[0], 16) >> 63
        names = name_stack(stack.frames, names_by_address)
        place = taxonomy.classify(() if in_user_mode else names)
        copies = in_user_mode and bool(names) and COPYING.search(names[0]) is not None
        side = stack.side if stack.frames[-1:] == (UNKNOWN_ROOT,) else COMMAND
        key = ("gather" if copies else place.category, side, str(place.context))
        placed.append(PlacedStack(key, names[0] if names else USER_CODE, stack.counts))
    return placed


def sum_by_key(placed: Iterable[PlacedStack]) -> dict[Key, Counts]:
    """Return the sums of counts by category, side and context."""
    return _sum_parts((stack.key, stack.counts) for stack in placed)


def by_account(sums: Mapping[Key, Counts]) -> dict[Key, Counts]:
    """Return each account's sums over sides and contexts, because late copies run in any process."""
    return _sum_parts(((key[0], ALL, ALL), counts) for key, counts in sums.items() if key[0] in ACCOUNTS)


def by_side(sums: Mapping[Key, Counts]) -> dict[Key, Counts]:
    """Return each side's sums of all counts."""
    return _sum_parts(((ALL, key[1], ALL), counts) for key, counts in sums.items())


def _sum_parts(parts: Iterable[tuple[Key, Counts]]) -> dict[Key, Counts]:
    """Add up the counts that have equal keys."""
    sums: dict[Key, Counts] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))
    for key, counts in parts:
        for name in COUNTED:
            sums[key][name] += counts[name]
    return dict(sums)


def per_kib(seeds: Sequence[Mapping[Key, Counts]], kib: float) -> list[SimulatedRow]:
    """Return a row per category, side and context: means over the seeds, and half widths of intervals.

    `seeds`: sums of each boot. `kib`: delivered KiB of a boot.
    """
    rows = []
    for key in sorted({key for seed in seeds for key in seed}, key=_order):
        kind = "account" if key[0] in ACCOUNTS else "stage"
        names = {"side": key[1], "method": METHOD, "kind": kind, "category": key[0], "context": key[2]}
        rows.append(convert({**names, **_counts_per_kib(key, seeds, kib)}, SimulatedRow))
    return rows


def sides_per_kib(seeds: Sequence[Mapping[Key, Counts]], kib: float) -> list[SideSum]:
    """Return a row for each side, like per_kib(), from sums that by_side() returned."""
    keys = sorted({key for seed in seeds for key in seed}, key=_order)
    return [
        convert({"side": key[1], "method": METHOD, **_counts_per_kib(key, seeds, kib)}, SideSum)
        for key in keys
    ]


# Minimum per KiB of a function in a record: fewer instructions and cache lines change no visible number.
INSTRUCTIONS_PER_KIB_MIN, LINES_PER_KIB_MIN = 0.5, 0.05


def functions_per_kib(boots: Sequence[Sequence[PlacedStack]], kib: float) -> list[SimulatedFunction]:
    """Return the counts of each function in the workload's processes, most instructions first.

    `boots`: stacks of each boot. `kib`: delivered KiB of a boot.
    """
    parts = [
        ((stack.function, stack.key[0], ALL), stack.counts)
        for boot in boots
        for stack in boot
        if stack.key[1] != OTHER
    ]
    rows = []
    for (name, category, _), counts in _sum_parts(parts).items():
        instructions, lines, misses = (
            round(sum(counts[count] for count in counts_added) / kib / len(boots), 4)
            for counts_added in (("instructions",), LINES, L1D_MISSES)
        )
        if instructions >= INSTRUCTIONS_PER_KIB_MIN or lines >= LINES_PER_KIB_MIN:
            rows.append(SimulatedFunction(name, category, instructions, lines, misses))
    return sorted(rows, key=lambda row: (-row.instructions_per_kib, row.name, row.category))


def _counts_per_kib(key: Key, seeds: Sequence[Mapping[Key, Counts]], kib: float) -> dict[str, float | None]:
    """Return each count's mean over the seeds, and the half width of the mean's interval, per KiB."""
    values: dict[str, float | None] = {}
    for name in COUNTED:
        counts = [seed[key][name] / kib if key in seed else 0.0 for seed in seeds]
        mean = stats.difference_of([0.0] * len(counts), counts, paired=True)
        values[f"{name}_per_kib"] = round(mean.value, 4)
        # A single seed gives no interval.
        values[f"{name}_per_kib_half_width"] = mean.high and round(mean.high - mean.value, 4)
    return values


def _order(key: Key) -> tuple[int, int, int]:
    """Return the sort key of a row: accounts before stages, sender before receiver."""
    return (
        _index_of((*ACCOUNTS, *STAGES), key[0]),
        _index_of(SIDES, key[1]),
        _index_of(CONTEXTS, key[2]),
    )


def _index_of(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


# The second part makes the section `simulated`: the model, and the rows and checks of each measurement. Pure.

# Bytes that a copy of 1 KiB reads, and also writes.
COPY_BYTES_PER_KIB = 1024
TOLERANCE_SHARE = 0.02
# Upper bounds of other bytes that a copying function reads and writes (its stack, descriptions of memory):
# per message, per page if each page is a fragment, and per packet if network cards deliver single packets.
OTHER_BYTES_PER_MESSAGE = 2048
OTHER_BYTES_PER_PAGE = 160
OTHER_BYTES_PER_PACKET = 256
PACKET_BYTES = 1448
UNROOTED_SHARE_MAX = 0.005
UNATTRIBUTED_SHARE_MAX = 0.005
# Keys of a workload that are unknown for a command.
UNKNOWN_OF_COMMAND = (
    *("impl", "size_bytes", "fields", "threads", "working_set_messages", "warm_messages", "messages"),
    *("receiver", "align", "pages", "touch", "nodelay"),
    *("congestion_control", "sndbuf_bytes", "rcvbuf_bytes"),
)


class GuestClaim(Struct):
    """User-mode copies that a strategy makes by design."""

    user_copies: int


class GuestReport(Struct):
    """Report of a traffic program in the guest: only the keys that are used here."""

    bytes: int
    claim: GuestClaim | None = None


# Report of `sender` and of `receiver`, by side.
SideReports = Mapping[str, GuestReport]


def measurement_section(
    measurement: GuestMeasurement,
    boots: Sequence[MeasuredStacks],
    reports: Sequence[SideReports],
    names_by_boot: Sequence[dict[str, str]],
    taxonomy: Taxonomy,
    *,
    packets: bool = False,
) -> Measurement:
    """Return a measurement for the record: its rows over all boots, and its checks.

    `boots`, `reports`, `names_by_boot`: counts, reports and address names of each boot. `packets`: True if
    the path delivers packets one by one.
    """
    placed = [
        place_by_side(boot.stacks, names, taxonomy, gathers=_copies_in_user_mode(report["sender"]))
        for boot, names, report in zip(boots, names_by_boot, reports, strict=True)
    ]
    tables = _tables(placed, measurement.delivered_bytes / 1024)
    bytes_max = _copy_bytes_max(measurement, packets=packets)
    section = {
        "impl": measurement.impl,
        "size_bytes": measurement.size_bytes,
        "fields": measurement.fields,
        "threads": measurement.threads,
        "working_set_messages": measurement.working_set_messages,
        "warm_messages": measurement.warm,
        "messages": measurement.messages,
        **measurement.how,
        "delivered_bytes": measurement.delivered_bytes,
        "rows": tables.rows,
        "accounts": tables.accounts,
        "sides": tables.sides,
        "functions": tables.functions,
        "checks": _checks(measurement, tables.rows, boots, reports, bytes_max),
        "lost": _lost(boots),
        "digests": [boot.digest for boot in boots],
    }
    return convert(section, Measurement)


def _copies_in_user_mode(sender: GuestReport) -> bool:
    return sender.claim is not None and sender.claim.user_copies > 0


def command_section(
    words: Sequence[str],
    boots: Sequence[MeasuredStacks],
    names_by_boot: Sequence[dict[str, str]],
    taxonomy: Taxonomy,
) -> Measurement:
    """Return the measurement of a user's command, per KiB that was copied out of sockets.

    `words`: the command. `boots`, `names_by_boot`: counts and address names of each boot.
    """
    placed = [
        place_command(boot.stacks, names, taxonomy) for boot, names in zip(boots, names_by_boot, strict=True)
    ]
    delivered = fmean(map(_copied_out_bytes, placed))
    tables = _tables(placed, max(delivered, 1) / 1024)
    arrived = _check("bytes that were copied out of sockets, at least one", min(delivered, 1), 1, 0)
    section = {
        **dict.fromkeys(UNKNOWN_OF_COMMAND),
        "command": list(words),
        "delivered_bytes": round(delivered),
        "rows": tables.rows,
        "accounts": tables.accounts,
        "sides": tables.sides,
        "functions": tables.functions,
        "checks": [arrived, _attributed(tables.rows)],
        "lost": _lost(boots),
        "digests": [boot.digest for boot in boots],
    }
    return convert(section, Measurement)


@dataclass(frozen=True)
class KibTables:
    """Counts per KiB: by account or stage, by account over all sides, by side, and by function."""

    rows: list[SimulatedRow]
    accounts: list[SimulatedRow]
    sides: list[SideSum]
    functions: list[SimulatedFunction]


def _tables(placed: Sequence[Sequence[PlacedStack]], kib: float) -> KibTables:
    """Return a measurement's tables. `placed`: stacks of each boot. `kib`: delivered KiB of a boot."""
    sums = [sum_by_key(stacks) for stacks in placed]
    return KibTables(
        per_kib(sums, kib),
        per_kib([by_account(boot_sums) for boot_sums in sums], kib),
        sides_per_kib([by_side(boot_sums) for boot_sums in sums], kib),
        functions_per_kib(placed, kib),
    )


def _copied_out_bytes(placed: Iterable[PlacedStack]) -> int:
    """Return the number of bytes written by copies out of sockets."""
    return sum(stack.counts["written_bytes"] for stack in placed if stack.key[0] in RECEIVE_COPIES)


def _checks(
    measurement: GuestMeasurement,
    rows: Sequence[SimulatedRow],
    boots: Sequence[MeasuredStacks],
    reports: Sequence[SideReports],
    copy_bytes_max: float,
) -> list[Check]:
    """Return the checks of a measurement. Each check compares two independent numbers.

    `copy_bytes_max`: maximum number of bytes that copying 1 KiB may read or write.
    """
    sent = measurement.threads * (measurement.warm + measurement.messages) * measurement.size_bytes
    checks = [
        _check(f"bytes of the {side}, warm-up included", report[side].bytes, sent, 0)
        for report in reports
        for side in ("sender", "receiver")
    ]
    least = COPY_BYTES_PER_KIB * (1 - TOLERANCE_SHARE)
    for account in (*SEND_COPIES, *RECEIVE_COPIES):
        in_rows = [row for row in rows if row.category == account]
        if account in RECEIVE_COPIES:
            verb, copied = "written", sum(row.written_bytes_per_kib for row in in_rows)
        else:
            verb, copied = "read", sum(row.read_bytes_per_kib for row in in_rows)
        # A strategy without this copy reads or writes hardly any bytes here.
        if copied > COPY_BYTES_PER_KIB / 2:
            name = f"{verb} bytes of {account}, per KiB"
            check = _check(name, copied, COPY_BYTES_PER_KIB, copy_bytes_max - COPY_BYTES_PER_KIB)
            check.holds = least <= copied <= copy_bytes_max
            checks.append(check)
    # Several seeds usually give equal checks: keep one of them.
    distinct = {(check.name, check.left): check for check in checks}
    return [*distinct.values(), _attributed(rows), _rooted(boots)]


def _copy_bytes_max(measurement: GuestMeasurement, *, packets: bool) -> float:
    """Return the maximum number of bytes that copying 1 KiB may read or write, including overhead."""
    bytes_max = COPY_BYTES_PER_KIB * (1 + TOLERANCE_SHARE) + OTHER_BYTES_PER_PAGE / 4
    bytes_max += OTHER_BYTES_PER_MESSAGE * 1024 / measurement.size_bytes
    return bytes_max + (OTHER_BYTES_PER_PACKET * 1024 / PACKET_BYTES if packets else 0)


def _attributed(rows: Sequence[SimulatedRow]) -> Check:
    """Return the check that the taxonomy covers all code of sender and receiver."""
    both = [row for row in rows if row.side != OTHER]
    total = sum(row.instructions_per_kib for row in both)
    left = sum(row.instructions_per_kib for row in both if row.category == "unattributed")
    name = "instructions that match no row of the taxonomy, per KiB"
    return _check(name, round(left, 4), 0, round(total * UNATTRIBUTED_SHARE_MAX, 4))


def _rooted(boots: Iterable[MeasuredStacks]) -> Check:
    """Return the check that the sender's and receiver's stacks have a known root.

    Stacks of idle CPUs and kernel threads have none.
    """
    stacks = [stack for boot in boots for stack in boot.stacks if stack.side != OTHER]
    total = sum(stack.counts["instructions"] for stack in stacks)
    lost = sum(stack.counts["instructions"] for stack in stacks if stack.frames[-1:] == (UNKNOWN_ROOT,))
    return _check("instructions in stacks without a known root", lost, 0, round(total * UNROOTED_SHARE_MAX))


def _check(name: str, left: float, right: float, tolerance: float) -> Check:
    """Return the check that two numbers differ by at most `tolerance`."""
    return Check(name, left, right, tolerance, abs(left - right) <= tolerance)


def verdict(measurements: Iterable[Measurement]) -> Judged:
    """Return the verdict: valid if every check holds, otherwise the failed checks as reasons."""
    broken = [
        f"{_name(measurement)}: {check.name}: {check.left:g} instead of {check.right:g}"
        for measurement in measurements
        for check in measurement.checks
        if not check.holds
    ]
    return Judged(not broken, broken)


def _name(measurement: Measurement) -> str:
    """Return a measurement's name, for messages."""
    strategy = f"{measurement.impl} at {measurement.size_bytes} bytes"
    return " ".join(measurement.command or (strategy,))


def _lost(measurements: Iterable[MeasuredStacks]) -> dict[str, int]:
    """Return the number of events that the plugin could not trace, by kind of event, over all seeds."""
    total: Counter[str] = Counter()
    for measurement in measurements:
        total.update(measurement.lost)
    return dict(total)


def model_section(model: CacheModel) -> Model:
    """Return the cache model as a section of the record."""
    return Model(
        name=model.name,
        source=model.source,
        l1d_bytes=model.l1d.size_bytes,
        l1d_ways=model.l1d.ways,
        l2_bytes=model.l2.size_bytes,
        l2_ways=model.l2.ways,
        llc_bytes=model.llc.size_bytes,
        llc_ways=model.llc.ways,
        inclusion=model.inclusion,
        line_bytes=model.line_bytes,
        tlb_entries_and_ways=model.tlb,
        prefetch=model.prefetch,
        ddio=model.ddio,
        vcpus=model.vcpus,
    )
