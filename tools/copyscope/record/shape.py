"""The walk that compares a record with its shape (schema.py) and names every difference.

A report checks hundreds of records, and nearly all of them are whole. So a shape is first made into functions
that only say yes or no (`fitting`); the walk that names things is for a record that did not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from copyscope.record.schema import PLAIN, UNITS, Each, Maybe, Shape

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "num": (int, float),
    "str": (str,),
    "bool": (bool,),
    "object": (dict,),
    "list": (list,),
}


def find_problems(record: dict[str, Any], shape: Shape) -> list[str]:
    """Every difference between a record and a shape, one line each: where it is and what is wrong."""
    problems = _walk(record, shape, "")
    return problems + [
        f"{where}: {value}: not a finite number"
        for where, value in _numbers(record, "")
        if not math.isfinite(value)
    ]


def names_unit(key: str) -> bool:
    """Whether a numeric key says its unit, or is one of the plain counts."""
    return key in PLAIN or key.endswith(UNITS) or key.startswith("bytes_") or key == "zerocopy_calls"


def _numbers(value: Any, where: str) -> list[tuple[str, float]]:
    if isinstance(value, float):
        return [(where, value)]
    if isinstance(value, dict):
        return [n for key, item in value.items() for n in _numbers(item, f"{where}.{key}".lstrip("."))]
    if isinstance(value, list):
        return [n for index, item in enumerate(value) for n in _numbers(item, f"{where}[{index}]")]
    return []


Check = Callable[[Any], bool]


def fitting(shape: Shape) -> Check:
    """Whether a value has a shape, as a function of the value: no more than `find_problems` lets pass."""
    if isinstance(shape, str):
        return _CHECKS[shape]
    if isinstance(shape, Maybe):
        return _or_null(fitting(shape.shape))
    if isinstance(shape, list):
        item = fitting(shape[0])
        return lambda value: isinstance(value, list) and all(map(item, value))
    if isinstance(shape, Each):
        each = fitting(shape.shape)
        # one that explains its nulls is looked at in detail
        return lambda value: (
            isinstance(value, dict)
            and all(map(each, value.values()))
            and not ("reason" in value or "reasons" in value)
        )
    return _object_fits(shape)


def _object_fits(shape: dict[str, Shape]) -> Check:
    checks = {key: fitting(inner) for key, inner in shape.items()}
    keys = checks.keys()
    explains = "reasons" in shape or "reason" in shape

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not keys <= value.keys():
            return False
        for key, item in value.items():
            check = checks.get(key)
            if check is None:
                if item.__class__ in (int, float) and not names_unit(key):
                    return False
                check = _is_finite
            if not check(item):
                return False
        return not (explains and _unexplained(value, shape))

    return fits


def _walk(value: Any, shape: Shape, where: str) -> list[str]:
    if isinstance(shape, Maybe):
        return [] if value is None else _walk(value, shape.shape, where)
    if isinstance(shape, str):
        return _check_type(value, shape, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{where}: {_type(value)}: expected a list"]
        return [p for index, item in enumerate(value) for p in _walk(item, shape[0], f"{where}[{index}]")]
    if not isinstance(value, dict):
        return [f"{where or 'record'}: {_type(value)}: expected an object"]
    if isinstance(shape, Each):
        shape = dict.fromkeys(value, shape.shape)
    return _walk_object(value, shape, where)


def _walk_object(value: dict[str, Any], shape: dict[str, Shape], where: str) -> list[str]:
    problems = [f"{_join(where, key)}: missing" for key in shape if key not in value]
    for key, item in value.items():
        if key in shape:
            problems += _walk(item, shape[key], _join(where, key))
        elif isinstance(item, (int, float)) and not isinstance(item, bool) and not names_unit(key):
            problems.append(f"{_join(where, key)}: a number whose name does not say its unit")
    return problems + [f"{_join(where, key)}: null without a reason" for key in _unexplained(value, shape)]


def _unexplained(value: dict[str, Any], shape: dict[str, Shape]) -> list[str]:
    """Keys that are null without a word why.

    An object with `reasons` owes one for each of its nulls; one with a single `reason` for its main number
    (value, holds or ratio).
    """
    if "reasons" in shape:
        reasons = value.get("reasons")
        given = reasons if isinstance(reasons, dict) else {}
        return [key for key in shape if key in value and value[key] is None and not given.get(key)]
    if "reason" in shape and not value.get("reason"):
        return [key for key in ("value", "holds", "ratio") if key in value and value[key] is None]
    return []


def _check_type(value: Any, shape: str, where: str) -> list[str]:
    if shape == "any" or (value is None and shape.endswith("?")):
        return []
    name = shape.removesuffix("?")
    fits = isinstance(value, _TYPES[name]) and (name == "bool" or not isinstance(value, bool))
    return [] if fits else [f"{where}: {_type(value)}: expected {name}"]


def _is_finite(value: Any) -> bool:
    """Whether every float in it is."""
    if value.__class__ is float:
        return math.isfinite(value)
    if value.__class__ is dict:
        return all(map(_is_finite, value.values()))
    return value.__class__ is not list or all(map(_is_finite, value))


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


# By its class and not by isinstance: a bool would be an int, and JSON makes no other classes.
_CHECKS: dict[str, Check] = {
    "int": lambda value: value.__class__ is int,
    "num": lambda value: value.__class__ is int or (value.__class__ is float and math.isfinite(value)),
    "str": lambda value: value.__class__ is str,
    "bool": lambda value: value.__class__ is bool,
    "object": lambda value: value.__class__ is dict and _is_finite(value),
    "list": lambda value: value.__class__ is list and _is_finite(value),
    "any": _is_finite,
}
_CHECKS |= {f"{name}?": _or_null(check) for name, check in _CHECKS.items()}


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
