"""May this run be believed, and what does it say: validity with reasons, and one sentence for people."""

from __future__ import annotations

from typing import Any

from copyscope.ledger.headline import find_sentence
from copyscope.ledger.limit import find_limit
from copyscope.ledger.next_step import next_step
from copyscope.record.hooks import absent, why_absent
from copyscope.record.segments import (
    SHORTEST_LEDGER_NS,
    Record,
    measured,
    select,
    used,
    wall_ns,
    zerocopy_total,
)

MOST_LOSS_SHARE = 0.001


def find_verdict(record: Record) -> dict[str, Any]:
    """The verdict section of a record whose other derived sections are filled in."""
    reasons = (
        interrupted(record)
        + broken_identities(record)
        + heavy_losses(record)
        + traffic_errors(record)
        + wrong_bytes(record)
        + undrained(record)
        + too_short(record)
        + missing_hooks(record)
    )
    return judged(record, reasons, find_sentence(record), find_limit(record))


def judged(record: Record, reasons: list[str], sentence: str, limit: dict[str, Any]) -> dict[str, Any]:
    """The section; a run with a reason against it says so before anything else."""
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        sentence = f"not valid: {reasons[0]}{more}; do not quote this run. {sentence}"
    step = next_step(record, reasons)
    return {"valid": not reasons, "reasons": reasons, "next": step, "sentence": sentence, "limit": limit}


def interrupted(record: Record) -> list[str]:
    """What went wrong with the run itself, in its own words: a program that died, an interruption."""
    errors = [f"run: {error}" for error in record["run"]["errors"]]
    if record["run"]["interrupted"] and not any("interrupted" in error for error in errors):
        return ["interrupted before its end", *errors]
    return errors


def broken_identities(record: Record) -> list[str]:
    """Each identity that was checked and does not hold."""
    return [
        f"identity {i['name']}: {i['what']}: {i['left']:,} is not {i['right']:,} {i['unit']}"
        for i in record["identities"]
        if i["holds"] is False
    ]


def heavy_losses(record: Record) -> list[str]:
    """What the instruments lost beyond 0.1 %, or of an unknown whole."""
    found = []
    for name, loss in record["loss"].items():
        if loss["share"] is None and loss["count"]:
            found.append(f"loss: {name}: {loss['count']:,} of an unknown number")
        elif loss["share"] is not None and loss["share"] > MOST_LOSS_SHARE:
            found.append(f"loss: {name}: {loss['count']:,} of {loss['of']:,}: more than 0.1 %")
    return found


def traffic_errors(record: Record) -> list[str]:
    """Errors that either program reported."""
    return [
        f"{side}: {error if isinstance(error, str) else error.get('message', error)}"
        for side, report in record["traffic"].items()
        for error in report["errors"]
    ]


def wrong_bytes(record: Record) -> list[str]:
    """Payload that arrived and was not what was sent."""
    verify = record["traffic"]["receiver"].get("verify")
    if verify is None or not verify["wrong_bytes"]:
        return []
    return [
        f"receiver: {verify['wrong_bytes']:,} wrong bytes of {verify['checked_bytes']:,} checked, "
        f"the first at offset {verify['first_wrong_offset']}"
    ]


def undrained(record: Record) -> list[str]:
    """Zero-copy sends whose buffers were never given back."""
    left = (record["traffic"]["sender"].get("zerocopy") or {}).get("in_flight", 0)
    return [f"sender: {left:,} zero-copy sends were never completed: the run ended undrained"] if left else []


def too_short(record: Record) -> list[str]:
    """No time with instruments, or too little to leave the socket buffers."""
    reported = record["traffic"]["sender"].get("too_short_reason")
    # the control strategy sends nothing, however long it runs
    if reported and record["tx_bytes"]:
        return [f"too short: {reported}"]
    return below_the_shortest(record, "to leave the socket buffers")


def below_the_shortest(record: Record, why: str) -> list[str]:
    """A run without the ledger's instruments (--instruments calls) is judged by those that it has."""
    probed = select(record, "ledger") or [s for s in measured(record) if s["arm"] != "unprobed"]
    elapsed_ns = wall_ns(probed)
    if elapsed_ns >= SHORTEST_LEDGER_NS:
        return []
    return [
        f"too short: {elapsed_ns / 1e6:.1f} ms with instruments, at least "
        f"{SHORTEST_LEDGER_NS // 1_000_000} ms are needed {why}"
    ]


def missing_hooks(record: Record) -> list[str]:
    """Hooks that an instrument of this run cannot do without and that did not attach."""
    return [
        f"hook {hook['id']}: {why_absent(hook)}"
        for hook in absent(record["hooks"])
        if used(record, hook["instrument"])
    ]


def zerocopy_section(
    record: Record, silent: int | None, zero_copy: int | None, cause: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The zerocopy section: totals of all measured segments; None for a strategy without zero-copy.

    `silent` and `zero_copy` are bytes of the ledger segments, from the ledger; None without such segments.
    """
    segments = measured(record)
    if zerocopy_total(segments, "sends") is None:
        return None
    section: dict[str, Any] = {
        key: zerocopy_total(segments, key)
        for key in (
            "sends",
            "completions",
            "copied",
            "bytes_sent",
            "bytes_copied",
            "enobufs",
            "notifications",
        )
    }
    deepest = max(int(s["sender"]["zerocopy"]["max_in_flight"]) for s in segments)
    return section | {
        "max_in_flight": deepest,
        "bytes_silent": silent,
        "bytes_zero_copy": zero_copy,
        "cause": cause,
    }
