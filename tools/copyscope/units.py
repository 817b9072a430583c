"""Numbers as text: the only place where a unit is chosen, rounded and spelled.

Plain ASCII on purpose: the same bytes must read well in a terminal, a log file and a mail.
A positive value is never shown as zero ("<0.1"), an unknown one never as a number ("n/a").
"""

from collections.abc import Iterable

NOT_AVAILABLE = "n/a"

# What options and /sys write behind a number of bytes.
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_BINARY_STEPS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
# The one exception: heights of a history, where the terminal has them.
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_HEIGHTS = "_.:-=+*#"
_TIME_STEPS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: 1.23, 12.3, 123, 1,230."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


def format_count(value: float | None) -> str:
    """An exact integer with thousands separators; a fractional (scaled) count is rounded."""
    return NOT_AVAILABLE if value is None else f"{value:,.0f}"


def counted(count: int, noun: str) -> str:
    """`1 thread`, `4 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_bytes(value: float | None, *, exact: bool = False) -> str:
    """Bytes in binary units; `exact` spells every byte. Whole multiples lose no digits: 64 KiB."""
    if value is None:
        return NOT_AVAILABLE
    if exact:
        return f"{value:,.0f} B"
    for unit, step in _BINARY_STEPS:
        if value >= step:
            whole, rest = divmod(value, step)
            return f"{whole:,.0f} {unit}" if rest == 0 else f"{three_digits(value / step)} {unit}"
    return f"{value:.0f} B"


def format_size(size_bytes: float | None) -> str:
    """A size on a scale, of three digits at most: 14.2 KiB, 64 KiB; None: `outside` of the scale."""
    if size_bytes is None:
        return "outside"
    for unit, step in _BINARY_STEPS:
        if size_bytes >= step * 0.9995:
            value = size_bytes / step
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def format_whole_size(size_bytes: int) -> str:
    """A size to the byte, in the largest unit that keeps it whole: 64 KiB, 1500 B."""
    for unit, step in _BINARY_STEPS:
        if size_bytes >= step and size_bytes % step == 0:
            return f"{size_bytes // step} {unit}"
    return f"{size_bytes} B"


def option_size(size_bytes: int) -> str:
    """The same as options take it: 64K, 1500."""
    number, unit = format_whole_size(size_bytes).split()
    return number + unit.rstrip("iB")


def format_ns(value: float | None) -> str:
    """A duration given in nanoseconds, in the unit a reader would say it in."""
    if value is None:
        return NOT_AVAILABLE
    for unit, step in _TIME_STEPS:
        if abs(value) >= step:
            return f"{three_digits(value / step)} {unit}"
    return f"{value:.0f} ns"


def format_seconds(value: float | None) -> str:
    """Seconds with two digits after the point: 3.00 s."""
    return NOT_AVAILABLE if value is None else f"{value:.2f} s"


def format_minutes(seconds: float) -> str:
    """How long something will take, as people plan: `45 s`, `12 min`, `1 h 05 min`."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_gbps(value: float | None) -> str:
    """Goodput in gigabits (10^9 bit) of payload per second."""
    return NOT_AVAILABLE if value is None else f"{three_digits(value)} Gb/s"


def format_tenths(value: float | None, digits: int = 1) -> str | None:
    """One digit after the point, so that a column lines up; None stays None (the table decides)."""
    if value is None:
        return None
    least = 10.0**-digits
    return f"<{least:.{digits}f}" if 0 < value < least / 2 else f"{value:,.{digits}f}"


def format_hundredths(value: float | None) -> str | None:
    """Two digits after the point, for cycles per byte and misses per KiB."""
    return format_tenths(value, 2)


def format_percent(share: float | None) -> str | None:
    """A share (0..1) as a percentage with one digit after the point."""
    return None if share is None else f"{format_tenths(share * 100)} %"


def format_interval(low: float | None, high: float | None, digits: int = 1) -> str | None:
    """low..high with as many digits after the point each; unknown when either end is."""
    if low is None or high is None:
        return None
    return f"{low:,.{digits}f}..{high:,.{digits}f}"


def format_bar(share: float | None, longest: float, width: int) -> str:
    """A bar of '#' that needs no colour; `longest` is the share that fills `width`."""
    return "#" * round(share / longest * width) if share and longest else ""


def format_clock(seconds: float) -> str:
    """Time that passes: `0:07`, `12:30`, `1:00:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_history(values: Iterable[float | None], width: int, *, blocks: bool) -> str:
    """The last values as one line of heights from 0 to the largest; a gap where there is none.

    `blocks`: of the eight block characters; else of ASCII.
    """
    shown = list(values)[-width:] if width > 0 else []
    largest = max((value for value in shown if value is not None), default=0.0)
    heights = _BLOCKS if blocks else _ASCII_HEIGHTS
    return "".join(
        " " if value is None else heights[round(value / largest * (len(heights) - 1)) if largest else 0]
        for value in shown
    )
