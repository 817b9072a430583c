# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/reference/record.md and record.schema.json from the Structs of a record. Pure.

The docstring of a Struct has a summary line, an empty line, and a line `key: meaning` for each key whose name
does not explain the key.
"""

import functools
import inspect
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec
import sentences
from copyscope.record.derived import Derived, SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.sections import Section
from msgspec import inspect as shapes

ROOTS = (Measured, Derived, SimulatedRun)
HEAD = """# The record (schema 2)

<!-- Made by `make pages` from the Structs in tools/copyscope/record/. -->

After reading this page you can find any number of a run with `jq`:

    $ zcat docs/path.json.gz | jq '.throughput_gbps.unprobed, .ledger[0].account'

A record is one run as one JSON file, which may be compressed (`.json.gz`).
Its first part ([Measured](#measured)) contains the measurements.
Its second part ([Derived](#derived)) contains results that are computed from the first part.
If a file lacks the second part (and so `verdict`), copyscope computes it on reading.

*Own traffic* is what `copyscope run` sends and receives; its record has `workload` and `traffic`.
The record of a *watched process* has `target`; that of `copyscope simulate` has `simulated`.

- **Units** are at the end of a key: `_ns`, `_us`, `_s`, `_bytes`, `_gbps`, `_hz`, `_percent`.
  A `_share` is between 0 and 1, and a key without a unit is a count.
- **Times** `t_ns`, `begin_ns` and `end_ns` are CLOCK_MONOTONIC (on two hosts: the sender's).
- **`key?`** may be null or missing.
  An unknown number is null, never 0; `reason`, or the same key in `reasons`, says why.
- **`key[]`** is a list. **`key.<name>`** is an object with any keys.
  **`key` (`a`, `b`)** is an object with the keys `a` and `b`.
- **`side`** names a process: `sender`, `receiver`, `target` (watched) or `other` (other tasks).
- A **dash** stands for keys that need no explanation, or have a section of their own.
- The meaning of a key never changes.
  Readers refuse records of other schemas, and ignore unknown keys.

[record.schema.json](record.schema.json) has the types (JSON Schema 2020-12).
[Method](../method.md) explains the numbers, and the [glossary](../2-ledger.md#glossary) the words."""
# A heading names at most so many places of a Struct.
PLACES_MAX = 2
# A Struct with at least this many keys of another Struct refers to that Struct for them.
SHARED_KEYS_MIN = 4
# A Struct with at most this many keys that need no explanation is listed with the key that holds it.
INLINE_KEYS_MAX = 9
HALF_WIDTH = "_half_width"
_MEANING = re.compile(r"(\w+(?:, \w+)*): (.*)", re.DOTALL)


def schema() -> dict[str, Any]:
    """Return the Structs as one JSON Schema."""
    roots, parts = msgspec.json.schema_components(ROOTS, ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])  # as Python 3.13 stores it
    measured, derived, simulated = roots
    # The derived part of a record may be missing.
    run = {"allOf": [measured, {"if": {"required": ["verdict"]}, "then": derived}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of copyscope, schema 2",
        "if": {"required": ["simulated"]},
        "then": simulated,
        "else": run,
        "$defs": parts,
    }


def page() -> str:
    """Return the page: a section for each Struct, breadth first from the roots."""
    sections = [
        _section(struct, paths)
        for struct, paths in places().items()
        if not _is_inline(struct) and struct not in _hidden()
    ]
    return "\n\n".join([HEAD, *sections]) + "\n"


@functools.cache
def places() -> dict[type[Section], list[str]]:
    """Map each Struct, and each base class that explains keys, to the paths at which it occurs."""
    paths_of: dict[type[Section], list[str]] = {}
    queue: deque[tuple[type[Section], str]] = deque((root, "") for root in ROOTS)
    while queue:
        struct, parent_path = queue.popleft()
        paths = paths_of.setdefault(struct, [])
        if parent_path in paths:
            continue
        paths.append(parent_path)
        for base in _bases(struct):
            paths_of.setdefault(base, [])
        for field in fields_of(struct):
            path = f"{parent_path}.{field.encode_name}".lstrip(".")
            queue += [(inner, path + step) for inner, step in _structs(field.type)]
    return paths_of


def meanings(struct: type[Section]) -> dict[tuple[str, ...], str]:
    """Map keys of a Struct to their meaning in its docstring; several keys may share a line."""
    _, _, body = _docstring(struct).partition("\n\n")
    lines = re.split(r"\n(?! )", body) if body else []
    matches = [_MEANING.fullmatch(line) for line in lines]
    return {tuple(match[1].split(", ")): " ".join(match[2].split()) for match in matches if match is not None}


def _section(struct: type[Section], paths: list[str]) -> str:
    """Return the heading of a Struct, its summary, and a table of its keys. Its last row needs no meaning."""
    rows = _rows(struct)
    in_rows = {name for names in rows for name in names}
    plain = [
        f"`{name_of(field)}`"
        for field in _own_fields(struct)
        if field.name not in in_rows and not is_half_width(field.name, struct)
    ]
    table = [
        f"|{', '.join(_key(field) for field in fields_of(struct) if field.name in names)}|{meaning}|"
        for names, meaning in rows.items()
    ]
    if plain:
        table.append(f"|{', '.join(plain)}|-|")
    others = _others(struct)
    others_text = f"Extends {' and '.join(map(_link, others))}." if others else ""
    parts = (
        f"## {_title(struct, paths)}",
        sentences.wrap(" ".join(filter(None, (_summary(struct), others_text)))),
        "\n".join(["|key|meaning|", "|-|-|", *table]) if table else "",
    )
    return "\n\n".join(filter(None, parts))


def _rows(struct: type[Section]) -> dict[tuple[str, ...], str]:
    """Map keys to their meaning in the docstring, or to the summary of a short Struct that is here first."""
    rows = {keys: text for part in (*_absorbed(struct), struct) for keys, text in meanings(part).items()}
    explained = {name for names in rows for name in names}
    for field in _own_fields(struct):
        for inner, _ in _structs(field.type):
            if field.name not in explained and _is_inline(inner) and _first_user(inner) is struct:
                rows[field.name,] = _in_lower_case(_summary(inner).removesuffix("."))
    return rows


@functools.cache
def _first_user(inner: type[Section]) -> type[Section] | None:
    """Return the first section of the page that lists a key with this Struct."""
    for struct in places():
        parts = (part for field in _own_fields(struct) for part, _ in _structs(field.type))
        if inner in parts and struct not in _hidden():
            return struct
    return None


def _own_fields(struct: type[Section]) -> list[shapes.Field]:
    """Return the fields that no other section lists for this Struct."""
    listed = {name for other in _others(struct) for name in other.__struct_fields__}
    return [field for field in fields_of(struct) if field.name not in listed]


@functools.cache
def _others(struct: type[Section]) -> list[type[Section]]:
    """Return the Structs that the section of this Struct refers to for shared keys."""
    return [base for base in (*_bases(struct), *_sharing(struct)) if base not in _absorbed(struct)]


@functools.cache
def _hidden() -> set[type[Section]]:
    """Return the Structs whose keys are listed in the section of a subclass."""
    return {base for struct in places() for base in _absorbed(struct)}


def _absorbed(struct: type[Section]) -> list[type[Section]]:
    """Return the base classes that occur only where this Struct occurs: their keys are listed with it."""
    paths = {path for path in places()[struct] if path}
    return [base for base in _bases(struct) if places()[base] and paths.issuperset(places()[base])]


def _title(struct: type[Section], paths: list[str]) -> str:
    """Return the places of a Struct in the record, or the name of a root or a base class."""
    named = [path for path in paths if path and not path.startswith("simulated.")]
    if not named:
        return struct.__name__
    if (tag := struct.__struct_config__.tag) is not None:
        named = [path.replace(".<name>", f".{tag}") for path in named]
    return ", ".join(f"`{path}`" for path in named[:PLACES_MAX])


def _link(struct: type[Section]) -> str:
    """Return a link to the section of a Struct."""
    title = _title(struct, places()[struct])
    return f"[{title}](#{anchor(title)})"


def anchor(heading: str) -> str:
    """Return the anchor that GitHub makes from a heading."""
    return re.sub(r"[^a-z0-9_-]", "", heading.lower().replace(" ", "-"))


def _in_lower_case(sentence: str) -> str:
    """Return a sentence as the text of a cell: an abbreviation at its beginning stays."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def is_half_width(name: str, struct: type[Section]) -> bool:
    return name.endswith(HALF_WIDTH) and name.removesuffix(HALF_WIDTH) in struct.__struct_fields__


def _is_inline(struct: type[Section]) -> bool:
    """Return True for a short Struct whose keys need no meaning: it is listed with the key that holds it."""
    fields = fields_of(struct)
    inner = {part for field in fields for part, _ in _structs(field.type)}
    is_flat = not inner or (len(inner) == 1 and not any(_structs(part.type) for part in fields_of(*inner)))
    return is_flat and len(fields) <= INLINE_KEYS_MAX and not meanings(struct) and struct not in ROOTS


def _key(field: shapes.Field) -> str:
    """Return a key as the page writes it, followed by the keys of a short Struct in its value."""
    inner = [struct for struct, _ in _structs(field.type) if _is_inline(struct)]
    keys = f" ({', '.join(map(_key, fields_of(inner[0])))})" if inner else ""
    return f"`{name_of(field)}`{keys}"


def name_of(field: shapes.Field) -> str:
    """Return the name of a key as `name?`, `name[]` or `name.<name>`."""
    kinds = field.type.types if isinstance(field.type, shapes.UnionType) else (field.type,)
    may_lack = not field.required or any(isinstance(kind, shapes.NoneType) for kind in kinds)
    steps = dict.fromkeys(step for kind in kinds for step in _steps(kind))
    return f"{field.encode_name}{''.join(steps)}{'?' * may_lack}"


def _steps(shape: shapes.Type) -> Iterator[str]:
    """Yield what follows the name of a key that is a list or an object with free keys."""
    match shape:
        case shapes.ListType() | shapes.CollectionType():
            yield "[]"
        case shapes.DictType():
            yield ".<name>" + "".join(_steps(shape.value_type))


def _summary(struct: type[Section]) -> str:
    return _docstring(struct).partition("\n")[0]


def _docstring(struct: type[Section]) -> str:
    return inspect.cleandoc(struct.__dict__.get("__doc__") or "")


def _bases(struct: type[Section]) -> list[type[Section]]:
    """Return the nearest base class that explains keys, if there is one."""
    bases = [base for base in struct.__mro__[1:] if issubclass(base, Section) and base is not Section]
    return [base for base in bases if meanings(base)][:1]


def _sharing(struct: type[Section]) -> list[type[Section]]:
    """Return the largest Struct whose keys this Struct repeats without inheriting from it, in a list."""
    types = {field.name: field.type for field in fields_of(struct)}
    shared = [
        other
        for other in places()
        if not _is_inline(other)
        and not issubclass(struct, other)
        and not issubclass(other, struct)
        and len(other.__struct_fields__) >= SHARED_KEYS_MIN
        and all(types.get(field.name) == field.type for field in fields_of(other))
    ]
    return sorted(shared, key=lambda other: len(other.__struct_fields__))[-1:]


def fields_of(struct: type[Section]) -> tuple[shapes.Field, ...]:
    info = shapes.type_info(struct)
    assert isinstance(info, shapes.StructType)
    return info.fields


def _structs(shape: shapes.Type) -> list[tuple[type[Section], str]]:
    """Return the Structs in the value of a key, with the steps that lead to each."""
    match shape:
        case shapes.StructType():
            assert issubclass(shape.cls, Section)
            return [(shape.cls, "")]
        case shapes.UnionType():
            return [pair for kind in shape.types for pair in _structs(kind)]
        case shapes.ListType() | shapes.CollectionType():
            return [(inner, f"[]{step}") for inner, step in _structs(shape.item_type)]
        case shapes.DictType():
            return [(inner, f".<name>{step}") for inner, step in _structs(shape.value_type)]
    return []
