"""What the instruments lost, as a share of what they should have seen."""

from collections.abc import Callable
from typing import Any

from copyscope.record.derived import Loss
from copyscope.record.hooks import find
from copyscope.record.instruments import Functions, Hook
from copyscope.record.measured import Measured
from copyscope.record.segments import total
from copyscope.record.volume import MAPPED_IN, SPLICED_IN, TAKEN, added


def _calls(*directions: str) -> Callable[[Measured], int]:
    return lambda raw: added([row for row in raw.volume if row.direction in directions], "calls")


def _taken(raw: Measured) -> int:
    return added([row for row in raw.volume if row.syscall in TAKEN], "calls")


def _notifications(raw: Measured) -> int:
    return total(raw.run.segments, "target", "notifications")


def _rounds(raw: Measured) -> int:
    return added(raw.shapes or [], "sends")


# How much each hook on a watched program saw of it, and of what another loss of it is a part.
SEEN_BY_WATCHING: dict[str, Callable[[Measured], int]] = {
    # Each call of a socket that found no place, its first and the later ones.
    "watch_socket_map_full": lambda raw: raw.watched.send_calls + raw.watched.receive_calls,
    "volume_sent": _calls("send"),
    "volume_sent_at_exit": _calls("send"),
    "volume_received": _calls("receive", "peek"),
    "volume_copied_out": _calls("copy_out"),
    "volume_spliced": _taken,
    "splice_seen": _taken,
    "completion": _notifications,
    "uring_complete": _notifications,
    "process_fork": lambda raw: raw.watched.forks,
    "process_exit": lambda raw: raw.watched.exits,
    "thread_exit": lambda raw: raw.watched.exits,
    "packet": lambda raw: raw.packets.packets if raw.packets else 0,
    "shape": lambda raw: added(raw.shapes or [], "messages"),
    "round": _rounds,
    "round_end": _rounds,
}
# Calls of a socket that found no place are not counted by connection, but they are among all calls.
COUNTED_ALL_THE_SAME = ("watch_socket_map_full",)
# Looks at clock and counters that something stopped.
STOPPED = "functions_look_stopped"


def losses(raw: Measured) -> dict[str, Loss]:
    """The loss section: {name: {count, of, share}}; raw entries are plain counts or already of this form.

    The whole of which something was lost follows from the counter's name: samples_*, calls_*, functions_*;
    recursion_<hook> and missed_<hook> are of what that hook counts, of its instrument, or that function's own
    calls. The kernel counts what a hook missed of all programs together: of one, no more than that. It stays
    null for any other counter, and for one of which nothing was seen at all. A count that the kernel does not
    give is null, with the reason.
    """
    return {name: _loss(raw, name, given) for name, given in raw.loss.items()}


def lost(loss: dict[str, Any], name: str) -> int | None:
    """A count of the raw section; None where it is not known, or there is no such."""
    given = loss.get(name)
    count: int | None = given["count"] if isinstance(given, dict) else given
    return count


def stopped_looks(raw: Measured) -> tuple[int, int] | None:
    """How many timed copies were left out, as a look was stopped, and of how many; None: not known."""
    count = lost(raw.loss, STOPPED)
    if raw.functions is None or count is None:
        return None
    return count, added(raw.functions.cells, "timed_calls") + count


def _loss(raw: Measured, name: str, given: Any) -> Loss:
    count, of = lost(raw.loss, name), given.get("of") if isinstance(given, dict) else None
    if count is None:
        return Loss(None, None, None, given["reason"])
    if of is None:
        seen = _seen(raw, name)
        of = seen + (0 if name in COUNTED_ALL_THE_SAME else count) if seen else None
    if count == 0:
        return Loss(0, of, 0.0)
    return Loss(count, of, count / of if of else None)


def _seen(raw: Measured, name: str) -> int | None:
    skipped = name.removeprefix("recursion_").removeprefix("missed_")
    if raw.target is not None and skipped in SEEN_BY_WATCHING:
        return SEEN_BY_WATCHING[skipped](raw)
    hook = find(raw.hooks, skipped)
    instrument = hook.instrument if hook else name.split("_", maxsplit=1)[0]
    match instrument:
        case "samples":
            return added(raw.samples, "samples")
        case "splices":
            taken = ((SPLICED_IN, "receive"), (MAPPED_IN, "mapped"))
            rows = raw.volume if raw.target is not None else []
            counted = added([row for row in rows if (row.syscall, row.direction) in taken], "calls")
            # One at the end of a stream moves nothing: where no other was seen, of all that received.
            return counted or added([row for row in rows if row.direction == "receive"], "calls")
        case "bytes" | "calls":
            return added(raw.bytes if instrument == "bytes" else raw.calls, "calls")
        case "functions" if raw.functions is not None:
            return _seen_by(raw.functions, hook) if hook else _seen_in(raw.functions, name)
    return None


def _seen_in(functions: Functions, name: str) -> int:
    """The whole that a loss which the programs counted themselves is a part of."""
    match name:
        case "functions_look_stopped" | "functions_counter_unreadable":
            # Each timed call is read at least once.
            return added(functions.cells, "timed_calls")
        case "functions_zerocopy_map_full":
            return sum(row.copied + row.zerocopied for row in functions.completions or [])
    # What breaks or overflows a stack spoils one copy.
    return added(functions.cells, "calls")


def _seen_by(functions: Functions, hook: Hook) -> int:
    """Calls of one hooked function. What only delimits copies counts nothing: a lost call spoils one."""
    category = hook.category or None
    calls = added([cell for cell in functions.cells if cell.category == category], "calls")
    return calls or added(functions.cells, "calls")
