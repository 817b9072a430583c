"""The section `simulated`: what was modelled, and the rows and checks of each measurement. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from copyscope.simulate import rows, symbols
from copyscope.simulate.caches import LEVELS, Model
from copyscope.simulate.job import Measured
from copyscope.simulate.output import Counts, Measurement
from copyscope.taxonomy.taxonomy import Taxonomy

# A copy of 1 KiB reads 1,024 bytes and writes as many.
COPY_BYTES_PER_KIB = 1024
TOLERANCE_SHARE = 0.02
# What else a copying function reads and writes (its stack, what describes the memory): by message, by page
# where each is a fragment, and by packet where network cards deliver each on its own.
OTHER_BYTES_PER_MESSAGE = 2048
OTHER_BYTES_PER_PAGE = 160
OTHER_BYTES_PER_PACKET = 256
PACKET_BYTES = 1448
UNROOTED_SHARE_MAX = 0.005
UNATTRIBUTED_SHARE_MAX = 0.005
# What nobody says of a command.
UNSAID = (
    *("impl", "size_bytes", "fields", "threads", "working_set_messages", "warm_messages", "messages"),
    *("receiver", "align", "pages", "touch", "nodelay"),
    *("congestion_control", "sndbuf_bytes", "rcvbuf_bytes"),
)
Section = dict[str, Any]
Reports = Mapping[str, Mapping[str, Any]]


def measurement_section(
    one: Measured,
    counted: Sequence[Measurement],
    reports: Sequence[Reports],
    known: Sequence[dict[str, str]],
    taxonomy: Taxonomy,
    *,
    packets: bool = False,
) -> Section:
    """One measurement: its rows over the seeds (one element of each list), and what must hold of them.

    `packets`: the path delivers packet by packet.
    """
    sums = [
        rows.add_up(each.stacks, names, taxonomy, gathers=said["sender"]["claim"]["user_copies"] > 0)
        for each, names, said in zip(counted, known, reports, strict=True)
    ]
    tables = _tables(sums, one.delivered_bytes / 1024)
    return {
        **{key: getattr(one, key) for key in ("impl", "size_bytes", "fields", "threads")},
        "working_set_messages": one.working_set_messages,
        "warm_messages": one.warm,
        "messages": one.messages,
        **one.how,
        "delivered_bytes": one.delivered_bytes,
        **tables,
        "checks": _checks(one, tables["rows"], counted, reports, _copy_bytes_max(one, packets=packets)),
        "lost": _lost(counted),
        "digests": [each.digest for each in counted],
    }


def command_section(
    words: Sequence[str], counted: Sequence[Measurement], known: Sequence[dict[str, str]], taxonomy: Taxonomy
) -> Section:
    """The same for a program of the user's, which says nothing, per KiB that was copied out of sockets."""
    sums = [rows.of_command(each.stacks, names, taxonomy) for each, names in zip(counted, known, strict=True)]
    delivered = fmean(_copied(each, "copy_out", "written_bytes") for each in sums)
    arrived = _check("bytes that were copied out of sockets, at least one", min(delivered, 1), 1, 0)
    tables = _tables(sums, max(delivered, 1) / 1024)
    return {
        **dict.fromkeys(UNSAID),
        "command": list(words),
        "delivered_bytes": round(delivered),
        **tables,
        "checks": [arrived, _attributed(tables["rows"])],
        "lost": _lost(counted),
        "digests": [each.digest for each in counted],
    }


def _copied(sums: Mapping[rows.Key, Counts], account: str, column: str) -> int:
    return sum(counts[column] for key, counts in sums.items() if key[0] == account)


def _tables(sums: Sequence[dict[rows.Key, Counts]], kib: float) -> Section:
    return {
        "rows": rows.per_kib(sums, kib),
        "accounts": rows.per_kib([rows.by_account(each) for each in sums], kib),
        "sides": rows.per_kib([rows.by_side(each) for each in sums], kib),
    }


def known_symbols(texts: Iterable[str], taxonomy: Taxonomy) -> dict[str, str]:
    """Address -> name, of the kernel and of one boot's modules."""
    return symbols.names("\n".join(texts), lambda name: taxonomy.find(name)[1] is not None)


def _checks(
    one: Measured,
    made: Sequence[Mapping[str, Any]],
    counted: Sequence[Measurement],
    reports: Sequence[Reports],
    copy_bytes_max: float,
) -> list[Section]:
    """Two independent numbers each, that must agree."""
    sent = one.threads * (one.warm + one.messages) * one.size_bytes
    found = [
        _check(f"bytes of the {side}, warm-up included", said[side]["bytes"], sent, 0)
        for said in reports
        for side in ("sender", "receiver")
    ]
    least = COPY_BYTES_PER_KIB * (1 - TOLERANCE_SHARE)
    for account, key in (("copy_in", "read_bytes"), ("copy_out", "written_bytes")):
        copied = sum(row[f"{key}_per_kib"] for row in made if row["category"] == account)
        # A strategy that refers to its pages has none.
        if copied > COPY_BYTES_PER_KIB / 2:
            name = f"{key.replace('_', ' ')} of {account}, per KiB"
            check = _check(name, copied, COPY_BYTES_PER_KIB, copy_bytes_max - COPY_BYTES_PER_KIB)
            found.append({**check, "holds": least <= copied <= copy_bytes_max})
    # Each once, where the seeds say the same.
    distinct = {(check["name"], check["left"]): check for check in found}
    return [*distinct.values(), _attributed(made), _rooted(counted)]


def _copy_bytes_max(one: Measured, *, packets: bool) -> float:
    most = COPY_BYTES_PER_KIB * (1 + TOLERANCE_SHARE) + OTHER_BYTES_PER_PAGE / 4
    most += OTHER_BYTES_PER_MESSAGE * 1024 / one.size_bytes
    return most + (OTHER_BYTES_PER_PACKET * 1024 / PACKET_BYTES if packets else 0)


def _attributed(made: Sequence[Mapping[str, Any]]) -> Section:
    """Of both sides: these stacks are whole, so that what is left over is a gap in the taxonomy."""
    both = [row for row in made if row["side"] != "other"]
    total = sum(row["instructions_per_kib"] for row in both)
    left = sum(row["instructions_per_kib"] for row in both if row["category"] == "unattributed")
    name = "instructions that no row of the taxonomy knows, per KiB"
    return _check(name, round(left, 4), 0, round(total * UNATTRIBUTED_SHARE_MAX, 4))


def _rooted(counted: Iterable[Measurement]) -> Section:
    """Of both sides: idle CPUs and kernel threads began before anybody looked."""
    stacks = [stack for each in counted for stack in each.stacks if stack.side != "other"]
    total = sum(stack.counts["instructions"] for stack in stacks)
    lost = sum(
        stack.counts["instructions"] for stack in stacks if stack.frames[-1:] == (symbols.UNKNOWN_ROOT,)
    )
    return _check("instructions in stacks without a known root", lost, 0, round(total * UNROOTED_SHARE_MAX))


def _check(name: str, left: float, right: float, tolerance: float) -> Section:
    return {
        "name": name,
        "left": left,
        "right": right,
        "tolerance": tolerance,
        "holds": abs(left - right) <= tolerance,
    }


def verdict(measurements: Iterable[Mapping[str, Any]]) -> Section:
    """Whether every check holds, and which do not."""
    broken = [
        f"{_name(one)}: {check['name']}: {check['left']:g} instead of {check['right']:g}"
        for one in measurements
        for check in one["checks"]
        if not check["holds"]
    ]
    return {"valid": not broken, "reasons": broken}


def _name(one: Mapping[str, Any]) -> str:
    return " ".join(one.get("command") or (f"{one['impl']} at {one['size_bytes']} bytes",))


def _lost(measurements: Iterable[Measurement]) -> dict[str, int]:
    """What the plugin could not follow, over all seeds."""
    total: Counter[str] = Counter()
    for one in measurements:
        total.update(one.lost)
    return dict(total)


def model_section(model: Model) -> Section:
    """The machine that was modelled."""
    made = asdict(model)
    for name in LEVELS:
        level = made.pop(name)
        made[f"{name}_bytes"], made[f"{name}_ways"] = level["size_bytes"], level["ways"]
    made["tlb_entries_and_ways"] = made.pop("tlb")
    return made
