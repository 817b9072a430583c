"""What is wrong with a record, in lines that name the key, its value and what was expected. Pure.

msgspec stops at the first thing in a section and does not say in which key of an object with free keys it is,
nor what stands there: both are looked up here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import ValidationError, convert
from msgspec.structs import FieldInfo, fields

from copyscope.escaping import one_line
from copyscope.record.derived import Derived
from copyscope.record.program.derived import DerivedProgram
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import RawRun
from copyscope.record.sections import Section
from copyscope.record.simulated_run import SimulatedRun
from copyscope.record.store import RecordError

VALUE_MAX = 40
_WORDS = {"Expected ": "expected ", "`": "", " | ": " or ", "array": "list", "float": "number"}


def typed(record: Mapping[str, Any]) -> RawRun | RawProgramRun:
    """What was measured, as Structs. Raises RecordError: the first key that is not as its Struct says."""
    kind: type[RawRun | RawProgramRun] = RawRun if record.get("target") is None else RawProgramRun
    try:
        return convert(record, kind)
    except (ValidationError, UnicodeEncodeError) as error:
        raise RecordError(f"record: {find_problems(record, raw=True)[0]}: measure again") from error


class WatchedRun(NamedTuple):
    """A whole record of a watched program: what was measured, and what follows from it."""

    raw: RawProgramRun
    derived: DerivedProgram


def typed_watched(record: Mapping[str, Any]) -> WatchedRun:
    """Both halves of a whole record as Structs. Raises RecordError, as typed() does."""
    raw = typed(record)
    if not isinstance(raw, RawProgramRun):
        raise RecordError("record: of traffic of our own: expected one of a watched program")
    try:
        return WatchedRun(raw, convert(record, DerivedProgram))
    except ValidationError as error:
        raise RecordError(f"record: {find_problems(record, raw=False)[0]}: measure again") from error


def find_problems(record: Mapping[str, Any], *, raw: bool) -> list[str]:
    """One line for each section that is not as its Struct says; with `raw` of the measured sections only."""
    watched = record.get("target") is not None
    halves: list[type[Section]] = [RawProgramRun if watched else RawRun]
    if not raw:
        halves.append(DerivedProgram if watched else Derived)
    if "simulated" in record:
        halves = [SimulatedRun]
    return list(dict.fromkeys(problem for half in halves for problem in _problems_of(record, half)))


def _problems_of(record: Mapping[str, Any], half: type[Section]) -> Iterator[str]:
    try:
        convert(record, half)
    except (ValidationError, UnicodeEncodeError) as error:
        found = [problem for field in fields(half) for problem in _problems_in(record, field)]
        yield from found or [one_line(str(error))]


def _problems_in(record: Mapping[str, Any], field: FieldInfo) -> Iterator[str]:
    if field.name not in record:
        if field.required:
            yield f"{field.name}: missing"
        return
    try:
        convert(record[field.name], field.type)
    except ValidationError as error:
        yield one_line(_sentence(record[field.name], field, str(error)))
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can write
        yield one_line(f"{field.name}: {error.object!a}: expected a key of whole characters")


def _sentence(section: Any, field: FieldInfo, said: str) -> str:
    """`run.seed: "x": expected int` from msgspec's "Expected `int`, got `str` - at `$.seed`"."""
    cause, _, place = said.partition(" - at ")
    steps: list[str | int] = []
    for key, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place):
        steps.append(_failing_key(section, steps, field, said) if index == "..." else key or int(index))
    where = field.name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    if missing := re.match(r"Object missing required field `(\w+)`", cause):
        return f"{where}.{missing[1]}: missing"
    if re.match(r"\w+: ", cause):  # a rule of ours (sections.py)
        return f"{where}.{cause}"
    expected = cause.partition(", got")[0]
    for word, plain in _WORDS.items():
        expected = expected.replace(word, plain)
    return f"{where}: {_shown(_at(section, steps))}: {expected}"


def _at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _failing_key(section: Any, steps: list[str | int], field: FieldInfo, said: str) -> str:
    """Which key of the object at `steps` it is: the one with which alone msgspec says the same."""
    found = _at(section, steps)
    for key in found:
        try:
            convert(_replaced(section, steps, {key: found[key]}), field.type)
        except ValidationError as error:
            if str(error) == said:
                return str(key)
    return "..."


def _replaced(value: Any, steps: list[str | int], new: Any) -> Any:
    """A copy of it with something else at `steps`."""
    if not steps:
        return new
    made = value.copy()
    made[steps[0]] = _replaced(value[steps[0]], steps[1:], new)
    return made


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"
