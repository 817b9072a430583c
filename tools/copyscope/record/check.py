"""A record as Structs, and what is wrong with one, in msgspec's own words, which name the key. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec import ValidationError, convert

from copyscope.escaping import one_line
from copyscope.record.derived import Derived, SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.portrait import Portrait
from copyscope.record.sections import Section
from copyscope.record.store import Record, RecordError

Half = TypeVar("Half", bound=Section)


class Whole(NamedTuple):
    """A whole record: what was measured, and what follows from it."""

    raw: Measured
    derived: Derived

    @property
    def is_partial(self) -> bool:
        """Whether nothing is held against it but that it was stopped: what it has measured is good."""
        return self.raw.run.interrupted and len(self.derived.verdict.reasons) == 1

    @property
    def portrait(self) -> Portrait:
        """Of a watched program."""
        if self.derived.portrait is None:
            raise RecordError("record: of copyscope's own traffic: expected one of a watched program")
        return self.derived.portrait


def typed(record: Mapping[str, Any]) -> Measured:
    """What was measured. Raises RecordError: the first key that is not as its Struct says."""
    return _half(record, Measured)


def typed_whole(record: Mapping[str, Any]) -> Whole:
    """Both halves of a whole record. Raises RecordError, as typed() does."""
    return Whole(typed(record), _half(record, Derived))


def typed_boot(record: Record) -> SimulatedRun:
    """All of a record of a simulated machine. Raises RecordError, as typed() does."""
    return _half(record, SimulatedRun)


def _half(record: Mapping[str, Any], half: type[Half]) -> Half:
    try:
        return convert(record, half)
    # Half of a surrogate pair, which JSON can write, is no key.
    except (ValidationError, UnicodeEncodeError) as error:
        raise RecordError(f"not a whole record: {one_line(str(error))}: measure again") from error


def find_problems(record: Mapping[str, Any], *, raw: bool) -> list[str]:
    """One line for each half that is not as its Struct says; with `raw` of what was measured only."""
    halves: list[type[Section]] = [Measured] if raw else [Measured, Derived]
    if "simulated" in record:
        halves = [SimulatedRun]
    problems = []
    for half in halves:
        try:
            convert(record, half)
        except (ValidationError, UnicodeEncodeError) as error:
            problems.append(one_line(str(error)))
    return list(dict.fromkeys(problems))
