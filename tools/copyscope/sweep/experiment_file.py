"""Reading an experiment's TOML: every mistake is `file: key: reason`, and nothing is guessed."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from copyscope import paths
from copyscope.arguments import DIGITS_MAX
from copyscope.asking import ask
from copyscope.errors import RunError, UsageError
from copyscope.escaping import one_line
from copyscope.files import regular_file
from copyscope.plan.arguments import of_run
from copyscope.plan.instruments import parse_time_s
from copyscope.plan.options import check_usage
from copyscope.plan.schedule import DURATION_MIN_S
from copyscope.simulate import request
from copyscope.units import SIZE_UNITS

KeyPath = tuple[str | int, ...]
FILE_BYTES_MAX = 1 << 20
# A day has 86,400 seconds: more is a mistake, and would be found out only when the memory is full.
POINTS_MAX = 100_000
VALUES_MAX = 1000
SHOWN_MAX = 60

Scalar = str | int | float | bool

# Options of copyscope run that say how it is used and not what is measured.
NOT_MEASURED = ("out", "json", "explain", "verbose", "quiet", "keep")
# Of a simulated machine the repeats are boots with other seeds.
AT_THE_TOP = {"duration": "duration_s", "repeat": "repeats", "seed": "seed", "seeds": "repeats"}
# Others are texts, or switches where the option takes no value.
BYTES = ("size", "header", "buffer", "sndbuf", "rcvbuf")
COUNTS = (
    *("fields", "threads", "working_set", "time_every", "mtu", "messages", "frequency", "gate", "coalesce"),
)
SECONDS = ("warmup",)
HOSTS = ("sender_at", "receiver_at")
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([KMG]?)(?:i?B)?", re.IGNORECASE)
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Tables(Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written; what is in `factors`, `fixed` and `exclude` are options of `run`."""

    name: str
    question: str
    expected: str
    repeats: Annotated[int, Meta(ge=1, le=1000)]
    seed: Annotated[int, Meta(ge=0)]
    factors: dict[str, Any]
    fixed: dict[str, Any] = {}
    exclude: list[dict[str, Any]] = []
    duration_s: Annotated[float, Meta(ge=DURATION_MIN_S, le=3600)] | None = None


@dataclass
class Source:
    """The file, so that an error can say where."""

    path: Path
    # Of [fixed]: without these other settings mean nothing.
    beside: dict[str, Scalar] = field(default_factory=dict)

    def error(self, where: KeyPath, reason: str) -> UsageError:
        key = ".".join(str(part) for part in where)
        return UsageError(f"{self.path}: {one_line(key)}: {one_line(reason)}")


def read_source(path: Path) -> tuple[Source, Tables]:
    """The file and its tables. Raises UsageError when it cannot be read or is not TOML."""
    try:
        text = regular_file.read(path, FILE_BYTES_MAX).decode()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: experiments/README.md lists those that exist") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}: not an experiment") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\s*\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = (found and found[1]) or len(text.splitlines())
        reason = str(error)[: found.start()] if found else str(error)
        raise UsageError(f"{path}:{line}: not TOML: {reason}") from error
    except (ValueError, RecursionError) as error:
        # Numbers that Python refuses to read, such as those of 5,000 digits; a list in a list in a list.
        raise UsageError(f"{path}: not an experiment: {shown(str(error))}") from error
    check_values(path, tables)
    try:
        made = convert(tables, Tables)
    except ValidationError as error:
        raise UsageError(f"{path}: {_where_and_why(error)}") from error
    beside: dict[str, Scalar] = {
        key: made.fixed[key] for key in HOSTS if isinstance(made.fixed.get(key), str)
    }
    beside |= {"simulate": True} if made.fixed.get("simulate") is True else {}
    source = Source(path, beside)
    if not NAME.fullmatch(made.name):
        raise source.error(("name",), f"{shown(made.name)}: expected small letters, digits and -")
    try:
        parse_time_s(made.expected, "expected")
    except UsageError as error:
        raise source.error(("expected",), str(error).removeprefix("expected: ")) from None
    return source, made


def _where_and_why(error: ValidationError) -> str:
    """`key: reason` from `reason - at `$.key``, and what was meant."""
    reason, _, key = str(error).partition(" - at `$.")
    unknown = re.search(r"unknown field `(.*)`", reason, re.DOTALL)
    hint = _nearest(unknown[1], Tables.__struct_fields__) if unknown else ""
    return one_line(f"{key.rstrip('`')}: {reason}" if key else f"{reason}{hint}")


def check_values(path: Path, tables: dict[str, Any]) -> None:
    """No number that cannot be printed, no text that no program can be given."""
    waiting: list[Any] = [tables]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and abs(value) >= 10**DIGITS_MAX:
            raise UsageError(f"{path}: a number of more than {DIGITS_MAX} digits: not an experiment")
        elif isinstance(value, str) and "\0" in value:
            raise UsageError(f"{path}: {shown(value)}: holds a NUL character: remove it")


def too_many(factors: Mapping[str, Any]) -> tuple[str, str] | None:
    """(factor, reason), before anything is made of them: the points are every value with every other."""
    points = 1
    for key, values in factors.items():
        count = len(values) if isinstance(values, list) else 1
        points *= max(1, count)
        if count > VALUES_MAX:
            return key, f"{count} values: at most {VALUES_MAX}"
        if points > POINTS_MAX:
            return key, f"with this one there are more than {POINTS_MAX:,} points"
    return None


def shown(value: object) -> str:
    """As the file has it, or the beginning of that."""
    if isinstance(value, str):
        text = f'"{value}"' if len(value) <= SHOWN_MAX else f'"{value[:SHOWN_MAX]}…"'
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= SHOWN_MAX + 3 else f"{text[:SHOWN_MAX]}…"


def check_duration(source: Source, duration_s: float | None, keys: Iterable[str]) -> None:
    """A run ends by time or by count."""
    if "simulate" in source.beside:
        if duration_s is not None:
            raise source.error(("duration_s",), "a simulated machine counts messages: remove it")
    elif "messages" in keys:
        if duration_s is not None:
            raise source.error(
                ("duration_s",), "a run that ends after `messages` has no duration: remove one"
            )
    elif duration_s is None:
        raise source.error(("duration_s",), "missing: a number of seconds, or fixed.messages")


def read_factors(source: Source, given: Mapping[str, Any]) -> dict[str, tuple[Scalar, ...]]:
    """[factors]: name -> its values in their canonical form."""
    if not given:
        raise source.error(("factors",), 'no factor: at least one, such as impl = ["one_copy"]')
    if (found := too_many(given)) is not None:
        raise source.error(("factors", found[0]), found[1])
    factors: dict[str, tuple[Scalar, ...]] = {}
    for key, values in given.items():
        where = ("factors", key)
        _check_key(source, where)
        if not isinstance(values, list):
            raise source.error(
                where, f"{shown(values)}: expected a list of values; one value belongs in [fixed]"
            )
        if not values:
            raise source.error(where, "a factor without values: name at least one")
        factors[key] = tuple(_canonical(source, where, value) for value in values)
        for at, value in enumerate(factors[key]):
            if value in factors[key][:at]:
                raise source.error(where, f"{value}: named twice")
    return factors


def read_fixed(
    source: Source, given: Mapping[str, Any], factors: Mapping[str, tuple[Scalar, ...]]
) -> dict[str, Scalar]:
    """[fixed]: settings that are the same in all runs."""
    fixed: dict[str, Scalar] = {}
    for key, value in given.items():
        where = ("fixed", key)
        _check_key(source, where)
        if key in factors:
            raise source.error(where, "is a factor, too: remove one")
        fixed[key] = _canonical(source, where, value)
    return fixed


def read_exclude(
    source: Source, given: Iterable[Mapping[str, Any]], factors: Mapping[str, tuple[Scalar, ...]]
) -> tuple[dict[str, tuple[Scalar, ...]], ...]:
    """[[exclude]]: a combination is left out when each of a table's factors has one of the values there."""
    rules: list[dict[str, tuple[Scalar, ...]]] = []
    for index, table in enumerate(given):
        if not table:
            raise source.error(("exclude", index), "expected a table of factors and their values")
        rule: dict[str, tuple[Scalar, ...]] = {}
        for key, one in table.items():
            where = ("exclude", index, key)
            if key not in factors:
                raise source.error(where, f"not a factor of this experiment{_nearest(key, factors)}")
            values = one if isinstance(one, list) else [one]
            rule[key] = tuple(_canonical(source, where, value) for value in values)
            for value in rule[key]:
                if value not in factors[key]:
                    raise source.error(where, f"{value}: not a value of this factor")
            if not values:
                raise source.error(where, "no value: it would exclude nothing")
        rules.append(rule)
    return tuple(rules)


def check_points(source: Source, points: Iterable[Mapping[str, Scalar]], fixed: Mapping[str, Scalar]) -> None:
    """What no single value can know: a message has at least one byte per field."""
    defaults = _defaults()
    for point in points:
        settings = {**defaults, **fixed, **point}
        size, fields = size_bytes(str(settings["size"])), int(settings["fields"])
        if size is not None and size < fields:
            key = next(k for k in ("size", "fields") if k in point or k in fixed)
            table = "factors" if key in point else "fixed"
            reason = f"{size}: smaller than {fields} fields of one byte: raise it or lower fields"
            raise source.error((table, key), reason)


def as_options(settings: Mapping[str, Scalar]) -> list[str]:
    """The words of the command line of copyscope run that mean these settings."""
    words = []
    for key, value in settings.items():
        option = f"--{key.replace('_', '-')}"
        if not isinstance(value, bool):
            words.append(f"{option}={value}")
        elif value:
            words.append(option)
    return words


def size_bytes(text: str) -> int | None:
    """`64K`, `64KB` -> 65536, `0.5M` -> 524288; None for what is no size."""
    found = _SIZE.fullmatch(text)
    size = Fraction(found[1]) * SIZE_UNITS[found[2].upper()] if found else None
    return int(size) if size is not None and size.denominator == 1 else None


def strategies() -> list[str]:
    """The strategies under their full names, from the file names: as the build finds them."""
    if paths.INSTALLED:
        said = ask([str(paths.TRAFFIC), "list"])
        if said.status != 0:
            raise RunError(f"{paths.TRAFFIC} list: ended with status {said.status}: install copyscope again")
        return sorted(row["name"] for row in json.loads(said.output))
    return sorted(path.stem for path in (paths.ROOT / "src" / "traffic" / "strategies").glob("*.c"))


def _check_key(source: Source, where: KeyPath) -> None:
    key = str(where[-1])
    known = _defaults()
    if key in AT_THE_TOP:
        raise source.error(where, f"belongs at the top of the file, as {AT_THE_TOP[key]}")
    if key in NOT_MEASURED:
        raise source.error(where, "not a setting of an experiment")
    if key not in known:
        raise source.error(where, f"no such option of copyscope run{_nearest(key, known)}")
    if key == "simulate" and where[0] != "fixed":
        raise source.error(where, "belongs in [fixed]: what is modelled and what is measured are not mixed")


def _canonical(source: Source, where: KeyPath, value: object) -> Scalar:
    """One value as it is recorded: sizes in bytes, strategies under their full name."""
    key = str(where[-1])
    takes_no_value = _defaults().get(key) is False
    made: Scalar | None = None
    expected = "a text"
    if takes_no_value:
        made, expected = value if isinstance(value, bool) else None, "true or false"
    elif key in BYTES:
        whole = isinstance(value, int) and not isinstance(value, bool)
        made, expected = (
            size_bytes(str(value)) if whole or isinstance(value, str) else None,
            'bytes, such as 512 or "64K"',
        )
    elif isinstance(value, bool):
        made = None
        expected = 'a value: for a switch "on" or "off"'
    elif key in COUNTS:
        made, expected = value if isinstance(value, int) else None, "a whole number"
    elif key in SECONDS:
        made, expected = value if isinstance(value, (int, float)) else None, "a number of seconds"
    elif isinstance(value, str):
        made = value
    if made is None:
        raise source.error(where, f"{shown(value)}: expected {expected}")
    if key == "impl" and made not in strategies():
        known = ", ".join(strategies())
        hint = _nearest(str(made), strategies())
        raise source.error(where, f"{made}: no such strategy{hint}; one of {known}")
    try:
        check = request.check if "simulate" in source.beside else check_usage
        check(of_run().parse_args(as_options({**source.beside, key: made})))
    except UsageError as error:
        reason = re.sub(r"^(argument )?--[\w-]+: | \([\w ]+ --help lists the options\)$", "", str(error))
        raise source.error(where, reason) from None
    return made


@cache
def _defaults() -> dict[str, Any]:
    """The options of copyscope run under their keys, with their defaults."""
    return vars(of_run().parse_args([]))


def _nearest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word[:SHOWN_MAX], list(known), n=1)
    return f": did you mean {close[0]}?" if close else ""
