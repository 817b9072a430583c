"""An ASCII picture of the way of one byte, with a box for every copy and its measured price."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from copyscope import units
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow
from copyscope.record.segments import relays
from copyscope.show.account_words import WORDS
from copyscope.show.layout import heading, wrap
from copyscope.show.ledger_table import deciding_symbols, flow_order, occurring, of_relay

BOX_WIDTH = 76
MARGIN = "   "


def path_lines(run: Whole, width: int) -> list[Text]:
    """The path from the sender's fields to the receiver's buffer, top to bottom."""
    lines = heading("THE PATH OF A BYTE", "measured CPU time of each step, per KiB delivered", width)
    if not run.derived.rx_bytes:
        return lines + wrap("nothing was sent: there is no path", width, indent=2)
    if width < BOX_WIDTH + len(MARGIN):
        return lines + wrap("the terminal is too narrow for the picture", width, indent=2)
    return lines + [Text(line) for line in _picture(run)]


def _picture(run: Whole) -> Iterable[str]:
    every = occurring(run.derived.ledger)
    taken = of_relay(run, every)
    rows = [row for row in every if row not in taken]
    present = {row.account for row in rows}
    workload, topology = run.raw.asked, run.raw.topology
    if relays(run.raw.run):
        yield from _to_relay(run, taken)
    else:
        yield _place(f"sender's memory: {workload.fields} fields, one message")
    if "file_read" in present:
        yield from _step(run, rows, "file_read")
    if "gather" in present:
        yield from _step(run, rows, "gather")
        yield _place("sender's memory: one buffer")
    yield _boundary("send call")
    for account in ("copy_in", "pin", "encrypt"):
        if account in present:
            yield from _step(run, rows, account)
    yield _place(f"sender's socket, then {topology.kind}")
    crossing = [account for account in ("deferred", "silent") if account in present]
    for account in crossing:
        yield from _step(run, rows, account)
    if not crossing:
        by = "by reference: the same pages" if topology.local_delivery else "by the devices (DMA)"
        yield f"{MARGIN}      |  no copy by the CPU: {by}"
        yield f"{MARGIN}      v"
    yield _place("receiver's socket")
    received = [account for account in ("decrypt", "mapped", "copy_out") if account in present]
    for account in received:
        yield from _step(run, rows, account)
    yield _boundary("receive call")
    left = "a pipe: the same pages" if workload.receiver == "splice" else "discarded without a copy"
    yield _place("receiver's memory" if received else left)
    if "completion" in present:
        yield MARGIN + "and back to the sender, later:"
        yield from _box(run, rows, "completion")


def _to_relay(run: Whole, rows: Sequence[AccountRow]) -> Iterable[str]:
    """From its first socket to where it sends from."""
    yield _place("relay's first socket: what the program before it sends")
    if rows:
        yield from _step(run, rows, "copy_out")
    yield _boundary("receive call")
    yield _place("relay's memory: one buffer" if rows else "a pipe: the same pages")


def _place(text: str) -> str:
    return f"{MARGIN}[ {text} ]"


def _boundary(text: str) -> str:
    return f"{MARGIN}{f'---- {text} '.ljust(BOX_WIDTH, '-')}"


def _step(run: Whole, rows: Iterable[AccountRow], account: str) -> Iterable[str]:
    yield f"{MARGIN}      |"
    yield from _box(run, rows, account)
    yield f"{MARGIN}      v"


def _box(run: Whole, rows: Iterable[AccountRow], account: str) -> Iterable[str]:
    caption = WORDS[account].caption
    mine = [row for row in rows if row.account == account]
    if account == "copy_out" and all(row.side == "sender" for row in mine):
        caption = caption.replace("to the receiver", "to the relay")
    edge = "=" if caption.startswith("COPY") else "-"
    rim = f"{MARGIN}+{edge * (BOX_WIDTH - 2)}+"
    yield rim
    yield _inside(caption)
    for row in sorted(mine, key=lambda row: flow_order(account, row.side, row.context)):
        price = units.format_tenths(row.ns_per_kib) or units.NOT_AVAILABLE
        place = f"{row.side}, {row.context}"
        # The function in which most samples of the row fell; nothing for a row that was not sampled.
        symbols = deciding_symbols(run, account, row.side, row.context)
        cost, doer = f"{price:>10} ns/KiB   {place:<18}", next((s for s, _ in symbols.most_common(1)), "")
        if len(cost) + len(doer) > BOX_WIDTH - 6:
            yield _inside(cost)
            yield _inside(doer.rjust(BOX_WIDTH - 4))
        else:
            yield _inside(f"{cost}  {doer}")
    yield rim


def _inside(text: str) -> str:
    return f"{MARGIN}| {text.ljust(BOX_WIDTH - 4)} |"
