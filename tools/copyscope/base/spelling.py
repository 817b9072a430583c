# SPDX-License-Identifier: GPL-2.0-only
"""Format numbers, sizes and times, and make text of other programs safe to print."""

import difflib
import html
import re
import threading
from collections.abc import Iterable, Sequence
from typing import IO

# Only this file chooses units, rounds numbers and formats them.
#
# Numbers are plain ASCII, so that they read well in a terminal, a log file and a mail. A positive value is
# never shown as zero ("<0.1"), and an unknown value never as a number ("n/a").

NOT_AVAILABLE = "n/a"

# Bytes of a unit, by the suffix of a size in options and in /sys.
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_BINARY_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
# Characters of increasing height for format_history(), for terminals with and without Unicode.
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_HEIGHTS = "_.:-=+*#"
# Number of characters of a misspelled word that are compared with names.
MISSPELLED_MAX_CHARACTERS = 32
# Minimum similarity of a misspelled word and a name that is suggested for it (ratio of difflib, 0..1).
NAME_SIMILARITY_MIN = 0.7
_TIME_STEPS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def three_digits(value: float) -> str:
    """Format a number with three significant digits and without an exponent: 1.23, 12.3, 123, 1,230."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def format_count(value: float | None) -> str:
    """Format an exact integer with thousands separators. A fractional (scaled) count is rounded."""
    return NOT_AVAILABLE if value is None else f"{value:,.0f}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural: `1 thread`, `4 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_with_and(items: Sequence[str]) -> str:
    """Join items as in a sentence: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def alternatives(names: Sequence[str]) -> str:
    """Return names as a choice in a sentence: `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def closest_name(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a misspelled or abbreviated word means, or None. Leading dashes are ignored."""
    bare_names = {name.lstrip("-"): name for name in names}
    bare_word = word.lstrip("-")[:MISSPELLED_MAX_CHARACTERS]
    longer = [name for name in bare_names if bare_word and name.startswith(bare_word)]
    similar = difflib.get_close_matches(bare_word, bare_names, n=1, cutoff=NAME_SIMILARITY_MIN)
    best = longer if len(longer) == 1 else similar
    return bare_names[best[0]] if best else None


def format_bytes(value: float | None, *, exact: bool = False) -> str:
    """Format a number of bytes in binary units: 64 KiB, 14.2 KiB. With `exact`, format it as 65,536 B."""
    if value is None:
        return NOT_AVAILABLE
    if exact:
        return f"{value:,.0f} B"
    for unit, step in _BINARY_STEPS:
        if value >= step:
            steps, rest = divmod(value, step)
            return f"{steps:,.0f} {unit}" if rest == 0 else f"{three_digits(value / step)} {unit}"
    return f"{value:.0f} B"


def format_size(size_bytes: float | None) -> str:
    """Format a size with at most three digits: 14.2 KiB, 64 KiB. None (beyond the scale) is `outside`."""
    if size_bytes is None:
        return "outside"
    for unit, step in _BINARY_STEPS:
        if size_bytes >= step * 0.9995:
            value = size_bytes / step
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def format_whole_size(size_bytes: int) -> str:
    """Format an exact size in the largest unit that needs no fraction: 64 KiB, 1500 B."""
    for unit, step in _BINARY_STEPS:
        if size_bytes >= step and size_bytes % step == 0:
            return f"{size_bytes // step} {unit}"
    return f"{size_bytes} B"


def option_size(size_bytes: int) -> str:
    """Format an exact size as --size and other options accept it: 64K, 1500."""
    number, unit = format_whole_size(size_bytes).split()
    return number + unit.rstrip("iB")


def format_ns(value: float | None) -> str:
    """Format a duration with three digits, in the largest unit that gives at least 1: 1.23 s, 12.3 ms."""
    if value is None:
        return NOT_AVAILABLE
    for unit, step in _TIME_STEPS:
        if abs(value) >= step:
            return f"{three_digits(value / step)} {unit}"
    return f"{value:.0f} ns"


def format_seconds(value: float | None) -> str:
    """Format a duration in seconds with two digits after the point: 3.00 s."""
    return NOT_AVAILABLE if value is None else f"{value:.2f} s"


def format_minutes(seconds: float) -> str:
    """Format an expected duration, rounded to minutes from 90 s on: `45 s`, `12 min`, `1 h 05 min`."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_gbps(value: float | None) -> str:
    """Format goodput in gigabits (10^9 bit) of payload per second."""
    return NOT_AVAILABLE if value is None else f"{three_digits(value)} Gb/s"


def format_tenths(value: float | None, digits: int = 1) -> str | None:
    """Format a value with `digits` digits after the point, so that a column lines up.

    A positive value that would round to zero is `<0.1`. None stays None, because each table has its own text
    for an unknown value.
    """
    if value is None:
        return None
    smallest = 10.0**-digits
    return f"<{smallest:.{digits}f}" if 0 < value < smallest / 2 else f"{value:,.{digits}f}"


def format_hundredths(value: float | None) -> str | None:
    """Format a value with two digits after the point, for cycles per byte and misses per KiB."""
    return format_tenths(value, 2)


def format_percent(share: float | None) -> str | None:
    """Format a share (0..1) as a percentage with one digit after the point."""
    return None if share is None else f"{format_tenths(share * 100)} %"


def format_interval(low: float | None, high: float | None, digits: int = 1) -> str | None:
    """Format `low..high` with `digits` digits after the point; return None if either end is unknown."""
    if low is None or high is None:
        return None
    return f"{low:,.{digits}f}..{high:,.{digits}f}"


def format_bar(share: float | None, longest: float, width: int) -> str:
    """Return a bar of `#` characters. A share of `longest` fills `width` characters."""
    return "#" * round(share / longest * width) if share and longest else ""


def format_clock(seconds: float) -> str:
    """Format elapsed time as a clock shows it: `0:07`, `12:30`, `1:00:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_history(values: Iterable[float | None], width: int, *, blocks: bool) -> str:
    """Return the last `width` values as a one-line bar chart, scaled from 0 to the largest value.

    None becomes a blank. `blocks`: use the eight block characters of Unicode instead of ASCII characters.
    """
    shown = list(values)[-width:] if width > 0 else []
    largest = max((value for value in shown if value is not None), default=0.0)
    heights = _BLOCKS if blocks else _ASCII_HEIGHTS
    return "".join(
        " " if value is None else heights[round(value / largest * (len(heights) - 1)) if largest else 0]
        for value in shown
    )


def parse_cpu_list(text: str) -> list[int]:
    """Parse a CPU list in the kernel's format: `0-3,8` -> [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


# Text of other programs, such as names of processes, files and experiments, is made harmless before copyscope
# prints or writes it.
#
# Such text may contain an escape sequence that rewrites the terminal, a newline that forges a line of
# copyscope, characters that reverse the writing direction, bytes that are not UTF-8, or a spreadsheet
# formula.

# Control characters, characters that change the writing direction, line separators, surrogates (undecodable
# bytes), and characters that XML forbids.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_HARMFUL_BUT_LINES = re.compile(_HARMFUL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
# First characters that make a spreadsheet read a cell as a formula.
_FORMULA_STARTS = tuple("=+-@\t\r")
LINE_MAX_CHARACTERS = 200
# Minimum length in characters of a shortened word, so that a reader still recognises the word.
WORD_MIN_CHARACTERS = 24


def visible(text: str, *, lines: bool = False) -> str:
    """Replace each harmful character with a visible character. With `lines`, newlines stay."""
    return (_HARMFUL_BUT_LINES if lines else _HARMFUL).sub(lambda match: _picture(match[0]), text)


def _picture(character: str) -> str:
    """Return the Unicode control picture of a control character, otherwise the replacement character."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def one_line(text: str, limit: int = LINE_MAX_CHARACTERS) -> str:
    """Return a message as one line of at most `limit` characters. The longest words are cut in the middle."""
    line = visible(" ".join(text.split()) if "\n" in text else text)
    while len(line) > limit:
        longest = max(re.findall(r"\S+", line), key=len, default="")
        if len(longest) <= WORD_MIN_CHARACTERS:
            return f"{line[: limit - 1]}…"
        keep = max(WORD_MIN_CHARACTERS, len(longest) - (len(line) - limit)) - 1
        line = line.replace(longest, f"{longest[: keep - keep // 3]}…{longest[len(longest) - keep // 3 :]}")
    return line


def for_html(text: str) -> str:
    """Escape text for an HTML page or an attribute value."""
    return html.escape(visible(text, lines=True))


def for_csv(text: str) -> str:
    """Make text safe for a CSV cell: an apostrophe keeps a spreadsheet from evaluating a formula."""
    return f"'{visible(text)}" if text.startswith(_FORMULA_STARTS) else visible(text)


# Number of bytes that StderrReader keeps of the start, and also of the end, of the output.
KEPT_MAX_BYTES = 32 << 10
# Seconds to wait for the end of the output after a program has exited: its children may keep the pipe open.
READ_S = 1.0


class StderrReader:
    """Thread that reads a program's standard error and keeps the start and the end of the text.

    The program never blocks on a full pipe, and its output fills neither a disk nor our memory.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._first, self._last, self._left_out_bytes = b"", b"", 0
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        """Read the stream to its end and keep the first and the last KEPT_MAX_BYTES."""
        with stream:
            while chunk := stream.read(1 << 16):
                room = KEPT_MAX_BYTES - len(self._first)
                self._first += chunk[:room]
                end = self._last + chunk[room:]
                self._last = end[-KEPT_MAX_BYTES:]
                self._left_out_bytes += len(end) - len(self._last)

    def lines(self) -> list[str]:
        """Return the lines that were read so far: all lines if the program has exited.

        If bytes were left out in the middle, the last line states their number.
        """
        self._reader.join(READ_S)
        cut_bytes = self._left_out_bytes
        kept = self._first + b"\n" * bool(cut_bytes) + self._last
        lines = kept.decode(errors="replace").strip().splitlines()
        if cut_bytes:
            last = lines.pop() if lines else ""
            lines.append(f"({format_bytes(cut_bytes)} of earlier output left out) {last}")
        return lines
