"""Colours that colour-blind people can tell apart, and marks that grey paper keeps.

Nothing here imports matplotlib: a page has the same colours without it.
The colours are those of Okabe and Ito (Color Universal Design, 2008). Colour is never the only difference:
lines have markers and dashes of their own, bars have hatches.
"""

from dataclasses import dataclass
from typing import Literal

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
OLIVE = "#8C8C00"  # yellow, for a line on white
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"


@dataclass(frozen=True)
class Mark:
    """How one strategy is drawn."""

    colour: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"]


KNOWN = {
    "null": Mark(FAINT, "x", ":"),
    "per_field": Mark(PURPLE, "v", ":"),
    "two_copy": Mark(VERMILLION, "s", "--"),
    "one_copy": Mark(BLUE, "o", "-"),
    "zero_copy": Mark(GREEN, "^", "-."),
    "sendfile": Mark(ORANGE, "D", "-"),
    "uring_send": Mark(SKY, "P", "--"),
    "uring_zc": Mark(BLACK, "h", ":"),
    "vmsplice": Mark(OLIVE, "X", "-."),
    "relay_copy": Mark(INK, "*", "-"),
    "relay_splice": Mark(INK, "H", "--"),
}
SPARE = (Mark(INK, "<", "-"), Mark(FAINT, ">", "--"), Mark(INK, "d", ":"), Mark(FAINT, "p", "-."))


def mark_of(impl: str, others: list[str]) -> Mark:
    """The mark of a strategy; one that the table does not know gets a spare one by its place in `others`."""
    return KNOWN.get(impl) or SPARE[others.index(impl) % len(SPARE)]


@dataclass(frozen=True)
class Fill:
    """How one account or stage is drawn in a bar."""

    colour: str
    hatch: str


# Copies have colours; everything else is a shade of grey with a hatch of its own. The shades differ in their
# upper four bits, which is what the 256 colours of the PNG files tell apart.
FILLS = {
    "file_read": Fill(GREEN, ".."),
    "gather": Fill(PURPLE, "//"),
    "user_encrypt": Fill(ORANGE, "//"),
    "copy_in": Fill(BLUE, ""),
    "pin": Fill(YELLOW, "xx"),
    "encrypt": Fill(YELLOW, ".."),
    "deferred": Fill(VERMILLION, "\\\\"),
    "silent": Fill(BLACK, ""),
    "completion": Fill(ORANGE, ".."),
    "decrypt": Fill(SKY, "xx"),
    "copy_out": Fill(SKY, "--"),
    "mapped": Fill(GREEN, "||"),
    "tun": Fill(ORANGE, "xx"),
    "syscall": Fill("#4D4D4D", ""),
    "skb_alloc": Fill("#B3B3B3", "//"),
    "tcp_ip": Fill("#D9D9D9", ""),
    "device": Fill("#8C8C8C", ""),
    "softirq": Fill("#C6C6C6", "\\\\"),
    "wakeup_sched": Fill("#EDEDED", ".."),
    "lock": Fill("#737373", "xx"),
    "memory": Fill("#A6A6A6", "--"),
    "irq": Fill("#999999", "||"),
    "user": Fill("#FFFFFF", ""),
    "instruments": Fill("#595959", ".."),
    "unattributed": Fill("#FFFFFF", "xx"),
}
