"""A line for each name of a thread of a watched program: its part of the CPU time, and of the copies."""

from rich.text import Text

from copyscope import units
from copyscope.escaping import one_line
from copyscope.ledger.attribution import side_times
from copyscope.ledger.threads import ThreadShare, by_thread
from copyscope.record.check import Whole
from copyscope.show.account_words import called
from copyscope.show.layout import Table, heading, wrap

NOTE = "shares of the program's own CPU time"
# Of one that takes less a share is not said to a tenth of a percent.
LEAST_SHARE = 0.0005
# Above a column: shorter than what the account is called.
TITLES = {
    "file_read": "cache read",
    "gather": "memcpy",
    "user_encrypt": "cipher",
    "copy_in": "copy in",
    "copy_out": "copy out",
    "deferred": "late copy",
    "silent": "hidden copy",
    "encrypt": "kTLS",
    "decrypt": "kTLS in",
}
# Always a column: a zero there is a finding.
ALWAYS = ("copy_in", "copy_out")


def thread_lines(run: Whole, width: int, room: int | None = None) -> list[Text]:
    """`room`: so many lines in all; the rest are one row."""
    lines = heading("BY THREAD", NOTE, width)
    rows = by_thread(run.raw, side_times(run.raw)["target"])
    if not rows:
        why = "nothing was sampled" if run.raw.threads is not None else "not in this record: measure again"
        return lines + wrap(f"n/a: {why}", width, indent=2)
    most = len(rows) if room is None else max(1, room - len(lines) - 3)
    shown = rows if len(rows) <= most else rows[: most - 1]
    accounts = [
        account
        for account in TITLES
        if account in ALWAYS or any((one.copies[account] or 0.0) >= LEAST_SHARE for one in rows)
    ]
    table = Table(
        ("thread",), "share", "95 % interval", *(TITLES[account] for account in accounts), "samples"
    )
    for one in shown:
        table.add(*_cells(one, accounts))
    if len(shown) < len(rows):
        table.add(*_rest(rows[len(shown) :], accounts))
    lines += table.lines(width)
    unknown = [account for account in ("gather", "user_encrypt") if rows[0].copies.get(account, 0) is None]
    if unknown and run.derived.ledger:
        names = " and ".join(called(account, watched=True) for account in unknown)
        lines += wrap(f"{names}: only bounds are known of the whole program", width, indent=2, style="dim")
    return lines


def _cells(one: ThreadShare, accounts: list[str]) -> list[str | None]:
    low, high = one.share.low * 100, one.share.high * 100
    return [
        one_line(one.name) or "others",
        units.format_percent(one.share.share),
        f"{low:.1f}..{high:.1f} %",
        *(_part(one.copies[account]) for account in accounts),
        units.format_count(one.samples),
    ]


def _part(share: float | None) -> str | None:
    if share is None:
        return None
    return "-" if share < LEAST_SHARE else units.format_percent(share)


def _rest(rows: list[ThreadShare], accounts: list[str]) -> list[str | None]:
    parts = ([one.copies[account] for one in rows] for account in accounts)
    sums = [None if None in some else sum(part or 0.0 for part in some) for some in parts]
    return [
        units.counted(len(rows), "more name"),
        units.format_percent(sum(one.share.share or 0.0 for one in rows)),
        "",
        *(_part(one) for one in sums),
        units.format_count(sum(one.samples for one in rows)),
    ]
