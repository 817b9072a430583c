# SPDX-License-Identifier: GPL-2.0-only
"""The Structs of a record and the JSON Schema made from them: docs/reference/record.schema.json."""

import copy
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import builders
import jsonschema_rs
import pytest
from builders.complete import full_records
from builders.documents import derive, validate
from copyscope.base.errors import RecordError
from copyscope.base.paths import RESULTS, ROOT
from copyscope.record import store
from copyscope.sweep import results
from test_made_pages import record_page

sys.path.append(str(ROOT / "tests"))
rederive: Any = importlib.import_module("rederive")
RECORDS = full_records()
FILE = ROOT / "docs" / "reference" / "record.schema.json"
COMMITTED = results.find(RESULTS)
SINGLE = sorted(RESULTS.glob("*/*/*.json.gz"))
Schema = dict[str, Any]
Path = tuple[Any, ...]
# endings of keys that name the unit of a number, or the things that it counts
UNITS = (
    *("_ns", "_us", "_ms", "_s", "_bytes", "_gbps", "_hz", "_percent", "_share", "_messages", "_calls"),
    *("_kib", "_samples", "_misses", "_share_of_wall", "_switches", "_reads", "_sends", "_segments", "_used"),
    *("_faults", "_connections", "_per_message", "_per_send", "_squared", "_aligned", "_flight"),
    *("_half_width", "_ways", "_online", "_copies", "_calls_low", "_calls_high"),
)  # fmt: skip
# keys that are a count, a share, a ratio or an index by name, or have their unit in a neighbouring key
KEYS_WITHOUT_ENDING = frozenset((
    "schema", "bytes", "messages", "calls", "cycles", "instructions", "samples", "share", "level", "count",
    "of", "repeat", "order", "seed", "index", "block", "fields", "threads", "perf_event_paranoid",
    "kptr_restrict", "value", "running", "left", "right", "tolerance", "ratio", "low", "high", "effect",
    "pairs", "sends", "completions", "copied", "notifications", "enobufs", "eagain", "unprobed", "probed",
    "weight", "pid", "replies", "first_wrong_offset", "time_every", "zerocopied", "before_return", "reads",
    "events", "gate", "cpus", "bytes_sent", "bytes_copied", "bytes_received", "bytes_silent",
    "bytes_zero_copy", "processes", "unseen", "untold", "unregistered", "mixed", "forks", "exits",
    "status", "packets", "last_errno", "arguments", "siblings", "stops",
    "segments", "unreadable", "repeated", "buffers", "looked", "rounds", "snapshots", "connections", "pages",
    "api", "vcpus", "requests", "enters", "tls_records", "cpu", "node", "llc_level", "throttles", "waits",
    "readings", "tid", "user_copies", "kernel_copies", "min", "max", "mean", "deviation", "p50", "p90", "p99",
    "p999",
))  # fmt: skip


SCHEMA = record_page.schema()
DEFINITIONS: dict[str, Schema] = SCHEMA["$defs"]


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    """Return an independent validator of the published JSON Schema."""
    document = json.loads(FILE.read_bytes())
    jsonschema_rs.meta.validate(document)
    return jsonschema_rs.Draft202012Validator(document)


# Runs of a sweep are in random order, so its first runs are representative.
@pytest.mark.parametrize("runs_of_each", [24, pytest.param(None, marks=pytest.mark.all)])
def test_every_record_fits_the_schema(
    validator: jsonschema_rs.Draft202012Validator, runs_of_each: int | None
) -> None:
    files = [directory / store.RECORDS_NAME for directory in COMMITTED]
    committed = [line.record for file in files for line in islice(store.iterate_lines(file), runs_of_each)]
    assert len(committed) == 24 * len(files) if runs_of_each else len(committed) == 288 + 72 + 24
    committed += map(store.read_document, SINGLE)
    records = [record for record in (*committed, *RECORDS) if record is not None]
    assert len(records) == len(committed) + len(RECORDS)
    assert [record["run"]["id"] for record in records if not validator.is_valid(record)] == []


def test_records_of_each_kind_are_committed() -> None:
    """`make check-records` needs records of each kind, because it compares their derived sections."""
    lines = rederive.lines_of(rederive.committed())
    kinds = Counter(rederive.kind_of(json.loads(line)) for line in lines)
    assert set(kinds) == {
        *("own traffic", "receivers", "simulated machines", "two hosts", "watched programs")
    }
    assert min(kinds.values()) >= 12


def test_the_schema_and_the_structs_find_the_same_errors(
    validator: jsonschema_rs.Draft202012Validator,
) -> None:
    (*_, committed) = store.iterate_lines(COMMITTED[0] / store.RECORDS_NAME)
    assert committed.record is not None
    for record in (committed.record, RECORDS[-1]):
        for path in scalars(record):
            broken = copy.deepcopy(record)
            owner = broken
            for step in path[:-1]:
                owner = owner[step]
            owner[path[-1]] = {"not": "a scalar"}
            problems = validate(broken, raw="verdict" not in broken)
            assert validator.is_valid(broken) == (problems == []), path


def scalars(record: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield a path to one scalar of each section: the first key at each level."""
    path: list[Any]
    for section, value in record.items():
        path = [section]
        while isinstance(value, (dict, list)) and value:
            step = next(iter(value)) if isinstance(value, dict) else 0
            path, value = [*path, step], value[step]  # noqa: PLW2901 (the loop descends)
        if len(path) > 1:
            yield path


def test_the_key_of_every_number_names_its_unit() -> None:
    numbers = {
        name
        for part in DEFINITIONS.values()
        for name, shape in part.get("properties", {}).items()
        if {"integer", "number"} & types(shape)
    }
    assert len(numbers) > 150
    assert {name for name in numbers if name not in KEYS_WITHOUT_ENDING and not name.endswith(UNITS)} == set()


def types(shape: Schema) -> set[str]:
    """Return the JSON types of a value (`integer`, `null`, ...): the empty set if any type is allowed."""
    if "$ref" in shape:
        return types(DEFINITIONS[shape["$ref"].rpartition("/")[2]])
    return (
        {shape["type"]}
        if "type" in shape
        else {name for choice in shape.get("anyOf", ()) for name in types(choice)}
    )


def alternatives(shape: Schema) -> list[Schema]:
    if "$ref" in shape:
        return alternatives(DEFINITIONS[shape["$ref"].rpartition("/")[2]])
    return (
        [part for choice in shape["anyOf"] for part in alternatives(choice)] if "anyOf" in shape else [shape]
    )


ROOTS = [DEFINITIONS[name] for name in ("Measured", "Derived", "SimulatedRun")]


def test_the_structs_name_every_written_key() -> None:
    unknown = {path for record in RECORDS for path in unknown_keys(record, roots_of(record))}
    assert unknown == set()


def roots_of(record: dict[str, Any]) -> list[Schema]:
    if "simulated" in record:
        return ROOTS[2:]
    return ROOTS[:2]


def unknown_keys(value: Any, shapes: list[Schema], where: str = "") -> Iterator[str]:
    """Yield the keys of a value that no Struct names. Objects with free keys are not checked."""
    shapes = [alternative for shape in shapes for alternative in alternatives(shape)]
    if isinstance(value, list):
        items = [shape["items"] for shape in shapes if "items" in shape]
        for item in value if items else ():
            yield from unknown_keys(item, items, f"{where}[]")
    elif isinstance(value, dict) and any("properties" in shape for shape in shapes):
        for key, item in value.items():
            inner = [s["properties"][key] for s in shapes if key in s.get("properties", {})]
            if not inner:
                yield f"{where}.{key}"
            yield from unknown_keys(item, inner, f"{where}.{key}") if inner else ()


FULL = derive(builders.raw_record("zero_copy"))


@pytest.mark.parametrize(
    ("path", "value", "expected_end"),
    [
        ("workload.size_bytes", "64K", "Expected `int`, got `str` - at `$.workload.size_bytes`"),
        ("workload.size_bytes", 0, "Expected `int` >= 1 - at `$.workload.size_bytes`"),
        ("run.segments.3.sides.sender.bytes", "x", "got `str` - at `$.run.segments[3].sides[...].bytes`"),
        ("run.segments.3.sides.sender.role", "x", "value 'x' - at `$.run.segments[3].sides[...].role`"),
        ("ledger.0.cpu_ns", None, "cpu_ns: null without a reason - at `$.ledger[0]`"),
        ("overhead.ratio", None, "ratio: null without a reason - at `$.overhead`"),
        ("stages.1.side", "target", 'stages[1].side: "target": expected sender or receiver or other'),
        ("verdict", FULL["verdict"] | {"valid": False}, "reasons: empty for an invalid run - at `$.verdict`"),
        ("machine.kernel", ["\x1b[2J\n"], "Expected `str`, got `array` - at `$.machine.kernel`"),
    ],
)  # fmt: skip
def test_an_error_names_the_key_and_the_expected_value(path: str, value: Any, expected_end: str) -> None:
    broken = copy.deepcopy(FULL)
    owner: Any = broken
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        owner = owner[step]
    owner[last] = value
    (problem,) = validate(broken)
    assert problem.endswith(expected_end)


def test_a_record_has_either_own_traffic_or_a_watched_program() -> None:
    neither = {key: value for key, value in FULL.items() if key not in ("workload", "traffic")}
    assert validate(neither) == ["expected either target, or workload and traffic"]


def test_an_error_of_derive_names_the_key_and_the_expected_value() -> None:
    raw = builders.raw_record("one_copy")
    raw["machine"]["kernel"] = 6
    with pytest.raises(
        RecordError,
        match=r"^incomplete record \(Expected `str`, got `int` - at `\$\.machine\.kernel`\); ",
    ):
        derive(raw)


def test_a_hostile_key_name_keeps_the_error_on_one_short_line() -> None:
    calls = {"sendmsg": 1, "\x1b[2J\n" + "k" * 300: "x"}
    raw = builders.raw_record("one_copy")
    raw["run"]["segments"][0]["sides"]["sender"]["send_syscalls"] = calls
    (problem,) = validate(raw, raw=True)
    assert len(problem) <= 200 and "\n" not in problem and "\x1b" not in problem


def test_a_key_with_invalid_unicode_is_refused() -> None:
    assert len(validate(FULL | {"machine": FULL["machine"] | {"\udcff": 1}})) == 1
    assert len(validate(FULL | {"\udcff": 1})) == 1


def test_unknown_keys_are_accepted() -> None:
    more = {**FULL, "weather": {"rain": 3}, "workload": {**FULL["workload"], "depth": 3}}
    assert validate(more) == []


def required_paths(
    value: Any, shapes: list[Schema], where: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every required key in a value. Only the first row of a list is searched."""
    shapes = [alternative for shape in shapes for alternative in alternatives(shape)]
    if isinstance(value, list) and value:
        items = [shape["items"] for shape in shapes if "items" in shape]
        yield from required_paths(value[0], items, (*where, 0))
    elif isinstance(value, dict):
        for key, item in value.items():
            if any(key in shape.get("required", ()) for shape in shapes):
                yield (*where, key)
            inner = [s["properties"][key] for s in shapes if key in s.get("properties", {})]
            yield from required_paths(item, inner, (*where, key))


REQUIRED = list(required_paths(FULL, ROOTS[:2]))


def test_every_missing_required_key_is_reported() -> None:
    broken = copy.deepcopy(FULL)
    assert len(REQUIRED) > 300
    for path in REQUIRED:
        owner = broken
        for key in path[:-1]:
            owner = owner[key]
        value = owner.pop(path[-1])
        (problem, *_) = validate(broken)
        assert f"missing required field `{path[-1]}`" in problem or problem.startswith("target: ")
        owner[path[-1]] = value
