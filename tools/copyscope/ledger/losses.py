# SPDX-License-Identifier: GPL-2.0-only
"""Events that the instruments lost, each with the total that the loss is a part of. Pure."""

from collections.abc import Callable, Mapping, Sequence

from copyscope.record.instruments import Call, Functions, Hook, HookBytes, Loss
from copyscope.record.measured import Measured
from copyscope.record.segments import find_hook, target_sum
from copyscope.record.watched import MAPPED_IN, SPLICED_IN, WITHOUT_RECEIVE_CALL, added

# Names of losses that the counted total includes. A call on a socket that had no room in the map is missing
# from the totals by connection, but not from the total of all calls. For every other loss, the total is the
# counted events plus the lost events.
WITHIN_TOTAL = ("watch_socket_map_full",)
# Name of the loss that counts interrupted readings of the clock and the counters.
STOPPED = "functions_look_stopped"


def _volume_calls(raw: Measured, *directions: str) -> int:
    return added([row for row in raw.volume if row.direction in directions], lambda row: row.calls)


def _calls_without_copy(raw: Measured) -> int:
    """Return the calls that received with splice(2) or by mapping."""
    return added([row for row in raw.volume if row.syscall in WITHOUT_RECEIVE_CALL], lambda row: row.calls)


def _notifications(raw: Measured) -> int:
    return target_sum(raw.run.segments, lambda target: target.notifications)


def _send_rounds(raw: Measured) -> int:
    return added(raw.shapes or [], lambda row: row.sends)


# Hook on a watched program -> function that returns the number of events that the hook counted.
COUNTED_BY_WATCHING: Mapping[str, Callable[[Measured], int]] = {
    # The total of all calls includes calls on sockets that had no room in the map.
    "watch_socket_map_full": lambda raw: raw.watched.send_calls + raw.watched.receive_calls,
    "volume_sent": lambda raw: _volume_calls(raw, "send"),
    "volume_sent_at_exit": lambda raw: _volume_calls(raw, "send"),
    "volume_received": lambda raw: _volume_calls(raw, "receive", "peek"),
    "volume_copied_out": lambda raw: _volume_calls(raw, "copy_out"),
    "volume_spliced": _calls_without_copy,
    "splice_seen": _calls_without_copy,
    "completion": _notifications,
    "uring_complete": _notifications,
    "process_fork": lambda raw: raw.watched.forks,
    "process_exit": lambda raw: raw.watched.exits,
    "thread_exit": lambda raw: raw.watched.exits,
    "packet": lambda raw: raw.packets.packets if raw.packets else 0,
    "shape": lambda raw: added(raw.shapes or [], lambda row: row.messages),
    "round": _send_rounds,
    "round_end": _send_rounds,
}


def losses(raw: Measured) -> dict[str, Loss]:
    """Return the section `loss`: {name: {count, of, share}}. `of` is the total that the loss is a part of.

    The name of a loss determines its total: samples_*, calls_* and functions_* refer to the events of an
    instrument, recursion_HOOK and missed_HOOK to the events of that hook. The total is None for any other
    name, and if the instrument counted nothing. For missed hooks the kernel counts all programs together, so
    the share is an upper bound. A count that this kernel does not provide is None, with a reason.
    """
    return {name: _loss(raw, name, entry) for name, entry in raw.loss.items()}


def lost_count(raw: Measured, name: str) -> int | None:
    """Return the count of a loss, or None if it is unknown or not in the record."""
    entry = raw.loss.get(name)
    return entry.count if isinstance(entry, Loss) else entry


def stopped_readings(raw: Measured) -> tuple[int, int] | None:
    """Return (timed calls dropped because a reading was interrupted, all timed calls), or None if unknown."""
    count = lost_count(raw, STOPPED)
    if raw.functions is None or count is None:
        return None
    return count, added(raw.functions.cells, lambda cell: cell.timed_calls) + count


def _loss(raw: Measured, name: str, entry: int | Loss) -> Loss:
    """Return a loss with its total and share.

    name: name of the loss
    entry: a plain count, or a loss with a count, a total and a reason
    """
    count, total = (entry.count, entry.of) if isinstance(entry, Loss) else (entry, None)
    if count is None:
        return Loss(None, reason=entry.reason if isinstance(entry, Loss) else None)
    if total is None:
        counted = _counted(raw, name)
        total = counted + (0 if name in WITHIN_TOTAL else count) if counted else None
    if count == 0:
        return Loss(0, total, 0.0)
    return Loss(count, total, count / total if total else None)


def _counted(raw: Measured, name: str) -> int | None:
    """Return how many events of the same kind as those lost were counted, or None if unknown.

    name: name of the loss
    """
    hook_name = name.removeprefix("recursion_").removeprefix("missed_")
    if raw.target is not None and hook_name in COUNTED_BY_WATCHING:
        return COUNTED_BY_WATCHING[hook_name](raw)
    hook = find_hook(raw.hooks, hook_name)
    instrument = hook.instrument if hook else name.split("_", maxsplit=1)[0]
    match instrument:
        case "samples":
            return added(raw.samples, lambda row: row.samples)
        case "splices":
            return _counted_splices(raw)
        case "bytes" | "calls":
            rows: Sequence[HookBytes | Call] = raw.bytes if instrument == "bytes" else raw.calls
            return added(rows, lambda row: row.calls)
        case "functions" if raw.functions is not None:
            return _function_calls(raw.functions, hook) if hook else _function_events(raw.functions, name)
    return None


def _counted_splices(raw: Measured) -> int:
    """Return the number of calls that received by splice(2) or mapping; if that is 0, of all receive calls.

    A hook may miss a splice at the end of a stream, which moves nothing. Such a loss may occur in a run with
    no counted splices, and is then compared with all receive calls.
    """
    without_copy = ((SPLICED_IN, "receive"), (MAPPED_IN, "mapped"))
    rows = raw.volume if raw.target is not None else []
    calls = added(
        [row for row in rows if (row.syscall, row.direction) in without_copy], lambda row: row.calls
    )
    return calls or added([row for row in rows if row.direction == "receive"], lambda row: row.calls)


def _function_events(functions: Functions, name: str) -> int:
    """Return the number of counted events to compare with a loss of the function hooks.

    name: name of the loss
    """
    match name:
        case "functions_look_stopped" | "functions_counter_unreadable":
            # The clock and the counters are read at least once in each timed call.
            return added(functions.cells, lambda cell: cell.timed_calls)
        case "functions_zerocopy_map_full":
            return sum(row.copied + row.zerocopied for row in functions.completions or [])
    # Each overflow or mismatch of the call stack loses the count of one copy.
    return added(functions.cells, lambda cell: cell.calls)


def _function_calls(functions: Functions, hook: Hook) -> int:
    """Return the number of counted calls to a hooked function.

    Hooks that only mark the start or the end of a copy count nothing. A call that such a hook missed may
    belong to any copy, so the result is then the number of all copies.
    """
    category = hook.category or None
    calls = added([cell for cell in functions.cells if cell.category == category], lambda cell: cell.calls)
    return calls or added(functions.cells, lambda cell: cell.calls)
