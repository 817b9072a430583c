# SPDX-License-Identifier: GPL-2.0-only
"""Reader of an experiment's TOML file. Every mistake raises UsageError with `file: key: reason`."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from copyscope.base import files
from copyscope.base.arguments import DIGITS_MAX
from copyscope.base.errors import UsageError
from copyscope.base.spelling import SIZE_UNITS, alternatives, closest_name, one_line
from copyscope.plan.arguments import run_parser
from copyscope.plan.options import check_usage
from copyscope.plan.schedule import DURATION_MIN_S, parse_time_s
from copyscope.plan.traffic_options import STRATEGIES, type_of
from copyscope.run.simulate import request

# Path of a key in the file, such as ("factors", "size").
KeyPath = tuple[str | int, ...]
# Maximum size of the file in bytes.
FILE_BYTES_MAX = 1 << 20
# Maximum number of points. A day has 86,400 seconds, so more points are a mistake.
POINTS_MAX = 100_000
# Maximum number of values of a factor.
VALUES_MAX = 1000
# Maximum number of characters of a value in an error message.
QUOTED_MAX = 60

Scalar = str | int | float | bool

# Options of `copyscope run` that are not settings of a measurement.
NOT_SETTINGS = ("out", "json", "explain", "verbose", "quiet", "keep")
# Option of `copyscope run` -> key at the top of the file that replaces the option.
TOP_KEYS = {"duration": "duration_s", "repeat": "repeats", "seed": "seed", "seeds": "repeats"}
# Options with a whole number, a number of seconds, and a host, in addition to options of the traffic program.
COUNTS = ("mtu", "frequency", "gate")
SECONDS = ("warmup",)
HOSTS = ("sender_at", "receiver_at")
_SIZE_PATTERN = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([KMG]?)(?:i?B)?", re.IGNORECASE)
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class Tables(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of an experiment's file.

    The keys of `factors`, `fixed` and `exclude` are options of copyscope run.
    """

    name: str
    question: str
    expected: str
    repeats: Annotated[int, Meta(ge=1, le=1000)]
    seed: Annotated[int, Meta(ge=0)]
    factors: Mapping[str, Any]
    fixed: Mapping[str, Any] = {}
    exclude: list[Mapping[str, Any]] = []
    duration_s: Annotated[float, Meta(ge=DURATION_MIN_S, le=3600)] | None = None


@dataclass
class Source:
    """The file of an experiment, for error messages.

    path: the file
    context: settings of [fixed] that other settings depend on: hosts, `simulate`
    """

    path: Path
    context: dict[str, Scalar] = field(default_factory=dict)

    def error(self, key_path: KeyPath, reason: str) -> UsageError:
        """Return a UsageError with `file: key: reason`.

        key_path: path of the wrong key, such as ("factors", "size")
        """
        key = ".".join(map(str, key_path))
        return UsageError(f"{self.path}: {one_line(key)}: {one_line(reason)}")


def read_source(path: Path) -> tuple[Source, Tables]:
    """Read the file of an experiment, and return it with its tables. Raises UsageError."""
    try:
        text = files.read(path, FILE_BYTES_MAX).decode()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; experiments/README.md lists the experiments") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}: not an experiment") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"\s*\(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = (position and position[1]) or len(text.splitlines())
        reason = str(error)[: position.start()] if position else str(error)
        raise UsageError(f"{path}:{line}: not TOML: {reason}") from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits, or deeply nested lists.
        raise UsageError(f"{path}: not an experiment: {quoted(str(error))}") from error
    check_values(path, tables)
    try:
        experiment = convert(tables, Tables)
    except ValidationError as error:
        raise UsageError(f"{path}: {_key_and_reason(error)}") from error
    fixed = experiment.fixed
    context: dict[str, Scalar] = {key: fixed[key] for key in HOSTS if isinstance(fixed.get(key), str)}
    context |= {"simulate": True} if fixed.get("simulate") is True else {}
    source = Source(path, context)
    if not NAME.fullmatch(experiment.name):
        raise source.error(("name",), f"{quoted(experiment.name)}: expected small letters, digits and -")
    try:
        parse_time_s(experiment.expected, "expected")
    except UsageError as error:
        raise source.error(("expected",), str(error).removeprefix("expected: ")) from None
    return source, experiment


def _key_and_reason(error: ValidationError) -> str:
    """Turn msgspec's `reason - at `$.key`` into `key: reason`, and add the closest known key."""
    reason, _, key = str(error).partition(" - at `$.")
    unknown = re.search(r"unknown field `(.*)`", reason, re.DOTALL)
    hint = _hint(unknown[1], Tables.__struct_fields__) if unknown else ""
    return one_line(f"{key.rstrip('`')}: {reason}" if key else f"{reason}{hint}")


def check_values(path: Path, tables: Mapping[str, Any]) -> None:
    """Raise UsageError for numbers that Python cannot print, and for strings with a NUL character.

    tables: the parsed TOML file
    """
    pending: list[Any] = [tables]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, int) and abs(value) >= 10**DIGITS_MAX:
            raise UsageError(f"{path}: a number of more than {DIGITS_MAX} digits: not an experiment")
        elif isinstance(value, str) and "\0" in value:
            raise UsageError(f"{path}: {quoted(value)}: contains a NUL character; remove it")


def _check_number_of_points(source: Source, factors: Mapping[str, Any]) -> None:
    """Raise UsageError if a factor has too many values, or if the factors have too many combinations."""
    points = 1
    for key, values in factors.items():
        count = len(values) if isinstance(values, list) else 1
        points *= max(1, count)
        if count > VALUES_MAX:
            raise source.error(("factors", key), f"{count} values: at most {VALUES_MAX}")
        if points > POINTS_MAX:
            raise source.error(("factors", key), f"this factor makes more than {POINTS_MAX:,} points")


def quoted(value: object) -> str:
    """Return a value as written in the file, cut to QUOTED_MAX characters."""
    if isinstance(value, str):
        text = f'"{value}"' if len(value) <= QUOTED_MAX else f'"{value[:QUOTED_MAX]}…"'
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= QUOTED_MAX + 3 else f"{text[:QUOTED_MAX]}…"


def check_duration(source: Source, duration_s: float | None, keys: Iterable[str]) -> None:
    """Raise UsageError unless a run ends after either a duration or a number of messages.

    keys: names of all factors and fixed settings
    """
    key_path = ("duration_s",)
    if "simulate" in source.context:
        if duration_s is not None:
            raise source.error(key_path, "a simulated machine counts messages; remove duration_s")
    elif "messages" in keys:
        if duration_s is not None:
            raise source.error(key_path, "a run that ends after `messages` has no duration; remove either")
    elif duration_s is None:
        raise source.error(key_path, "missing; give a number of seconds, or fixed.messages")


def read_factors(source: Source, table: Mapping[str, Any]) -> dict[str, tuple[Scalar, ...]]:
    """Return the factors in [factors], with their values in canonical form."""
    if not table:
        raise source.error(("factors",), 'no factor; give at least one factor, such as impl = ["one_copy"]')
    _check_number_of_points(source, table)
    factors: dict[str, tuple[Scalar, ...]] = {}
    for key, values in table.items():
        key_path = ("factors", key)
        _check_key(source, key_path)
        if not isinstance(values, list):
            raise source.error(
                key_path, f"{quoted(values)}: expected a list of values; put a single value in [fixed]"
            )
        if not values:
            raise source.error(key_path, "a factor without values; give at least one value")
        factors[key] = tuple(_canonical(source, key_path, value) for value in values)
        for index, value in enumerate(factors[key]):
            if value in factors[key][:index]:
                raise source.error(key_path, f"{value}: named twice")
    return factors


def read_fixed(
    source: Source, table: Mapping[str, Any], factors: Mapping[str, tuple[Scalar, ...]]
) -> dict[str, Scalar]:
    """Return the settings in [fixed], which all runs share."""
    fixed: dict[str, Scalar] = {}
    for key, value in table.items():
        key_path = ("fixed", key)
        _check_key(source, key_path)
        if key in factors:
            raise source.error(key_path, "is a factor, too; remove either")
        fixed[key] = _canonical(source, key_path, value)
    return fixed


def read_exclude(
    source: Source, tables: Iterable[Mapping[str, Any]], factors: Mapping[str, tuple[Scalar, ...]]
) -> tuple[dict[str, tuple[Scalar, ...]], ...]:
    """Return the rules in [[exclude]]. A rule excludes a point if all of the rule's factors match."""
    rules: list[dict[str, tuple[Scalar, ...]]] = []
    for index, table in enumerate(tables):
        if not table:
            raise source.error(("exclude", index), "expected a table of factors and their values")
        rule: dict[str, tuple[Scalar, ...]] = {}
        for key, value_or_values in table.items():
            key_path = ("exclude", index, key)
            if key not in factors:
                raise source.error(key_path, f"not a factor of this experiment{_hint(key, factors)}")
            values = value_or_values if isinstance(value_or_values, list) else [value_or_values]
            rule[key] = tuple(_canonical(source, key_path, value) for value in values)
            for value in rule[key]:
                if value not in factors[key]:
                    raise source.error(key_path, f"{value}: not a value of this factor")
            if not values:
                raise source.error(key_path, "no value: the rule would exclude nothing; give a value")
        rules.append(rule)
    return tuple(rules)


def check_points(source: Source, points: Iterable[Mapping[str, Scalar]], fixed: Mapping[str, Scalar]) -> None:
    """Raise UsageError unless each point's message has at least one byte per field."""
    defaults = _defaults()
    for point in points:
        settings = {**defaults, **fixed, **point}
        size, fields = size_bytes(str(settings["size"])), int(settings["fields"])
        if size is not None and size < fields:
            key = next(key for key in ("size", "fields") if key in point or key in fixed)
            table = "factors" if key in point else "fixed"
            reason = f"{size}: smaller than {fields} fields of one byte; raise size or lower fields"
            raise source.error((table, key), reason)


def as_options(settings: Mapping[str, Scalar]) -> list[str]:
    """Return the command-line arguments of `copyscope run` for these settings."""
    arguments = []
    for key, value in settings.items():
        option = f"--{key.replace('_', '-')}"
        if not isinstance(value, bool):
            arguments.append(f"{option}={value}")
        elif value:
            arguments.append(option)
    return arguments


def size_bytes(text: str) -> int | None:
    """Return the number of bytes in a size such as `64K` (65536) or `0.5M` (524288); None if not a size."""
    match = _SIZE_PATTERN.fullmatch(text)
    size = Fraction(match[1]) * SIZE_UNITS[match[2].upper()] if match else None
    return int(size) if size is not None and size.denominator == 1 else None


def _check_key(source: Source, key_path: KeyPath) -> None:
    """Raise UsageError unless the last key of the path is a setting of an experiment."""
    key = str(key_path[-1])
    options = _defaults()
    if key in TOP_KEYS:
        raise source.error(key_path, f"belongs at the top of the file, as {TOP_KEYS[key]}")
    if key in NOT_SETTINGS:
        raise source.error(key_path, "not a setting of an experiment")
    if key not in options:
        raise source.error(key_path, f"no such option of copyscope run{_hint(key, options)}")
    if key == "simulate" and key_path[0] != "fixed":
        raise source.error(key_path, "belongs in [fixed]: an experiment is either simulated or measured")


def _canonical(source: Source, key_path: KeyPath, value: object) -> Scalar:
    """Return a value as the record has it: sizes in bytes, and strategies by their full name."""
    key = str(key_path[-1])
    canonical, expected = _convert_value(key, value)
    if canonical is None:
        raise source.error(key_path, f"{quoted(value)}: expected {expected}")
    if key == "impl" and canonical not in STRATEGIES:
        step = _hint(str(canonical), STRATEGIES) or f"; choose {alternatives(tuple(STRATEGIES))}"
        raise source.error(key_path, f"{canonical}: no such strategy{step}")
    try:
        check = request.check_options if "simulate" in source.context else check_usage
        check(run_parser().parse_args(as_options({**source.context, key: canonical})))
    except UsageError as error:
        reason = re.sub(r"^--[\w-]+(: | )", "", str(error))
        raise source.error(key_path, reason) from None
    return canonical


def _convert_value(key: str, value: object) -> tuple[Scalar | None, str]:
    """Return the canonical value of an option (None: wrong type), and a description of its type."""
    kind = type_of(key)
    is_bool = isinstance(value, bool)
    if _defaults().get(key) is False:
        return value if isinstance(value, bool) else None, "true or false"
    if kind == "size":
        is_size = isinstance(value, int | str) and not is_bool
        return size_bytes(str(value)) if is_size else None, 'bytes, such as 512 or "64K"'
    if is_bool:
        return None, 'a value; a switch is "on" or "off"'
    if kind == "count" or key in COUNTS:
        return value if isinstance(value, int) else None, "a whole number"
    if key in SECONDS:
        return value if isinstance(value, int | float) else None, "a number of seconds"
    return value if isinstance(value, str) else None, "a text"


@cache
def _defaults() -> Mapping[str, Any]:
    """Return the options of `copyscope run` by key, with their defaults."""
    return vars(run_parser().parse_args([]))


def _hint(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean CHOICE?` for the closest choice, or '' if no choice is close to the word."""
    close = closest_name(word, choices)
    return f"; did you mean {close}?" if close else ""
