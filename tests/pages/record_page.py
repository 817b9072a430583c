"""docs/reference/record.md and record.schema.json, made of the Structs of a record. Pure.

A Struct's docstring says what it is and, below, what a key means that its name does not say: `key: meaning`.
"""

import inspect
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
from copyscope.record.derived import Derived, SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.sections import Section
from msgspec import inspect as shapes

ROOTS = (Measured, Derived, SimulatedRun)
HEAD = """# The record (schema 2)

<!-- Made by `make pages` from the Structs in tools/copyscope/record/. -->

One run is one JSON file, or the same compressed (`.json.gz`). Everything that is printed, plotted or
compared is read from such files. A record has two halves: what was measured (Measured), and what
follows from it by arithmetic (Derived). The second half can be made again from the first, without root and
on another machine; a record without `verdict` has the first half only. Traffic of copyscope's own has
`workload` and `traffic`, a watched program `target`.

- The unit is in the name: `_ns`, `_us`, `_s`, `_bytes`, `_gbps`, `_hz`, `_percent`, `_share` (0 to 1).
  Counts of things have no suffix.
- `t_ns`, `begin_ns` and `end_ns` are CLOCK_MONOTONIC of one machine, on two hosts the sender's.
- Unknown is `null`, never 0. The reason stands in `reason`, or under the same key in `reasons`.
- A key is a number or a string where nothing else is said. "optional": it may be missing. `name[]` is a
  list, `name.<key>` an object whose keys are not fixed.
- A reader refuses another schema and leaves unknown keys alone. No key is ever given a new meaning.

[record.schema.json](record.schema.json) says the same to a program: JSON Schema 2020-12. The
[method](../method.md) explains what the numbers mean."""
SCALARS = {
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.StrType: "string",
    shapes.BoolType: "boolean",
    shapes.NoneType: "null",
    shapes.AnyType: "any",
}
# Of what stands at many places the first ones are named.
PLACES_MAX = 3
PLAIN = {"integer", "number", "string"}
_MEANING = re.compile(r"(\w+): (.*)", re.DOTALL)


def schema() -> dict[str, Any]:
    """The Structs as one JSON Schema."""
    halves, parts = msgspec.json.schema_components(ROOTS, ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])  # as Python 3.13 keeps it
    measured, derived, simulated = halves
    # What follows from a record may be left out.
    whole = {"allOf": [measured, {"if": {"required": ["verdict"]}, "then": derived}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of copyscope, schema 2",
        "if": {"required": ["simulated"]},
        "then": simulated,
        "else": whole,
        "$defs": parts,
    }


def page() -> str:
    """The whole page: a section for each Struct, in the order in which a reader meets them."""
    found = places()
    return "\n\n".join([HEAD, *(_section(struct, where) for struct, where in found.items())]) + "\n"


def places() -> dict[type[Section], list[str]]:
    """Each Struct, and each base with keys of its own, with the paths at which it stands."""
    found: dict[type[Section], list[str]] = {}
    queue: deque[tuple[type[Section], str]] = deque((root, "") for root in ROOTS)
    while queue:
        struct, where = queue.popleft()
        paths = found.setdefault(struct, [])
        if where in paths:
            continue
        paths.append(where)
        for base in _bases(struct):
            found.setdefault(base, [])
        for field in _fields(struct):
            path = f"{where}.{field.encode_name}".lstrip(".")
            queue += [(inner, path + step) for inner, step in _structs(field.type)]
    return found


def meanings(struct: type[Section]) -> dict[str, str]:
    """What its docstring says of its keys."""
    _, _, body = (inspect.cleandoc(struct.__dict__.get("__doc__") or "")).partition("\n\n")
    lines = re.split(r"\n(?! )", body) if body else []
    said = [_MEANING.fullmatch(line) for line in lines]
    return {one[1]: " ".join(one[2].split()) for one in said if one is not None}


def _section(struct: type[Section], where: list[str]) -> str:
    summary = inspect.cleandoc(struct.__dict__.get("__doc__") or "").partition("\n")[0]
    paths = [f"`{path}`" for path in where[:PLACES_MAX]] + ["..."] * (len(where) > PLACES_MAX)
    at = f"At {', '.join(paths)}." if any(where) else ""
    bases = [f"[{base.__name__}](#{base.__name__.lower()})" for base in _bases(struct)]
    also = f"It has the keys of {' and '.join(bases)}, too." if bases else ""
    head = " ".join(part for part in (summary, at, also) if part)
    return "\n\n".join(part for part in (f"## {struct.__name__}", head, "\n".join(_keys(struct))) if part)


def _keys(struct: type[Section]) -> Iterator[str]:
    """A line for each key that is explained, and one for all that their names explain."""
    said, plain = meanings(struct), []
    inherited = {name for base in _bases(struct) for name in base.__struct_fields__}
    for field in _fields(struct):
        if field.name in inherited and field.name not in inspect.get_annotations(struct):
            continue
        shape = _type(field)
        key = f"`{field.encode_name}` ({shape})" if shape else f"`{field.encode_name}`"
        if field.name in said:
            yield f"- {key}: {said[field.name]}"
        else:
            plain.append(key)
    if plain:
        yield f"- {', '.join(plain)}"


def _bases(struct: type[Section]) -> list[type[Section]]:
    """The Struct that it extends, where that has keys that are explained."""
    bases = [base for base in struct.__mro__[1:] if issubclass(base, Section) and base is not Section]
    return [base for base in bases if meanings(base)][:1]


def _fields(struct: type[Section]) -> tuple[shapes.Field, ...]:
    made = shapes.type_info(struct)
    assert isinstance(made, shapes.StructType)
    return made.fields


def _structs(shape: shapes.Type) -> Iterator[tuple[type[Section], str]]:
    """The Structs in a key's value, with the steps that lead to each."""
    match shape:
        case shapes.StructType():
            assert issubclass(shape.cls, Section)
            yield shape.cls, ""
        case shapes.UnionType():
            for one in shape.types:
                yield from _structs(one)
        case shapes.ListType() | shapes.CollectionType():
            yield from ((inner, f"[]{step}") for inner, step in _structs(shape.item_type))
        case shapes.DictType():
            yield from ((inner, f".<key>{step}") for inner, step in _structs(shape.value_type))


def _type(field: shapes.Field) -> str:
    """What it holds besides a number or a word, which its name and meaning tell."""
    names = [name for name in _names(field.type) if name not in PLAIN]
    return ", ".join([*names, *([] if field.required else ["optional"])])


def _names(shape: shapes.Type) -> list[str]:
    names: list[str]
    match shape:
        case shapes.Metadata():
            names = _names(shape.type)
        case shapes.UnionType():
            names = list(dict.fromkeys(name for one in shape.types for name in _names(one)))
        case shapes.StructType(cls=cls) if cls is Section:
            names = ["object"]
        case shapes.StructType():
            names = [f"[{shape.cls.__name__}](#{shape.cls.__name__.lower()})"]
        case shapes.ListType() | shapes.CollectionType():
            names = [f"list of {' or '.join(_names(shape.item_type))}"]
        case shapes.DictType():
            names = [f"object of {' or '.join(_names(shape.value_type))}"]
        case shapes.LiteralType():
            names = [f"`{value}`" for value in shape.values]
        case _:
            names = [SCALARS[type(shape)]]
    return names
