"""The walk that compares a record with its shape (record_keys.py) and names every difference."""

from __future__ import annotations

from typing import Any

from copyscope.record_keys import PLAIN, UNITS, Each, Maybe, Shape

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
    return _walk(record, shape, "")


def names_unit(key: str) -> bool:
    """Whether a numeric key says its unit, or is one of the plain counts."""
    return key in PLAIN or key.endswith(UNITS) or key.startswith("bytes_") or key == "zerocopy_calls"


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


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
