"""The Structs of a record, by the JSON Schema that is made from them: docs/reference/record.schema.json."""

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import builders
import jsonschema_rs
import pytest
from builders.complete import full_records
from copyscope.ledger.derive import derive
from copyscope.paths import RESULTS, ROOT
from copyscope.record import records_file, store
from copyscope.sweep import results
from test_made_pages import record_page

RECORDS = full_records()
FILE = ROOT / "docs" / "reference" / "record.schema.json"
COMMITTED = results.find(RESULTS)
Schema = dict[str, Any]
Path = tuple[Any, ...]
# endings that say what a number counts or is measured in
UNITS = (
    *("_ns", "_us", "_ms", "_s", "_bytes", "_gbps", "_hz", "_percent", "_share", "_messages", "_calls"),
    *("_kib", "_samples", "_misses", "_share_of_wall", "_switches", "_reads", "_sends", "_segments", "_used"),
    *("_faults", "_connections", "_per_message", "_per_send", "_squared", "_aligned", "_flight"),
    *("_half_width", "_ways", "_online", "_copies", "_calls_low", "_calls_high"),
)  # fmt: skip
# names that are themselves a count of things, a share, a ratio, an index, or have their unit beside them
PLAIN = frozenset((
    "schema", "bytes", "messages", "calls", "cycles", "instructions", "samples", "share", "level", "count",
    "of", "repeat", "order", "seed", "index", "block", "fields", "threads", "perf_event_paranoid",
    "kptr_restrict", "value", "running", "left", "right", "tolerance", "ratio", "low", "high", "effect",
    "pairs", "sends", "completions", "copied", "notifications", "enobufs", "eagain", "unprobed", "probed",
    "weight", "pid", "replies", "first_wrong_offset", "time_every", "zerocopied", "before_return", "reads",
    "events", "gate", "cpus", "bytes_sent", "bytes_copied", "bytes_received", "bytes_silent",
    "bytes_zero_copy", "processes", "unseen", "untold", "unregistered", "mixed", "forks", "exits",
    "status", "packets", "last_errno",
    "segments", "unreadable", "repeated", "buffers", "looked", "rounds", "snapshots", "connections", "pages",
    "api", "vcpus", "requests", "enters", "tls_records", "cpu", "node", "llc_level", "throttles", "waits",
    "readings", "tid", "user_copies", "kernel_copies", "min", "max", "mean", "p50", "p90", "p99", "p999",
))  # fmt: skip


SCHEMA = record_page.schema()
PARTS: dict[str, Schema] = SCHEMA["$defs"]


@pytest.fixture(scope="module")
def check() -> jsonschema_rs.Draft202012Validator:
    """A validator that is not ours."""
    document = json.loads(FILE.read_bytes())
    jsonschema_rs.meta.validate(document)
    return jsonschema_rs.Draft202012Validator(document)


# A sweep's order is random: its first runs have what the others have.
@pytest.mark.parametrize("of_each", [24, pytest.param(None, marks=pytest.mark.all)])
def test_every_record_has_the_schema(check: jsonschema_rs.Draft202012Validator, of_each: int | None) -> None:
    files = [directory / records_file.NAME for directory in COMMITTED]
    committed = [line.record for file in files for line in islice(records_file.lines(file), of_each)]
    assert len(committed) == 24 * len(files) if of_each else len(committed) > 500
    known = [record for record in (*committed, *RECORDS) if record is not None]
    assert len(known) == len(committed) + len(RECORDS)
    assert [record["run"]["id"] for record in known if not check.is_valid(record)] == []


def test_what_it_finds_in_a_damaged_record_we_find_too(check: jsonschema_rs.Draft202012Validator) -> None:
    (*_, committed) = records_file.lines(COMMITTED[0] / records_file.NAME)
    assert committed.record is not None
    for record in (committed.record, RECORDS[-1]):
        for path in scalars(record):
            broken = copy.deepcopy(record)
            owner = broken
            for step in path[:-1]:
                owner = owner[step]
            owner[path[-1]] = {"not": "a scalar"}
            problems = store.validate(broken, raw="verdict" not in broken)
            assert check.is_valid(broken) == (problems == []), path


def scalars(record: dict[str, Any]) -> Iterator[list[Any]]:
    """A path to one value of each section, the deepest that its first keys lead to."""
    path: list[Any]
    for section, value in record.items():
        path = [section]
        while isinstance(value, (dict, list)) and value:
            step = next(iter(value)) if isinstance(value, dict) else 0
            path, value = [*path, step], value[step]  # noqa: PLW2901 (down into it)
        if len(path) > 1:
            yield path


def test_every_number_names_its_unit() -> None:
    numbers = {
        name
        for part in PARTS.values()
        for name, shape in part.get("properties", {}).items()
        if {"integer", "number"} & types(shape)
    }
    assert len(numbers) > 150
    assert {name for name in numbers if name not in PLAIN and not name.endswith(UNITS)} == set()


def types(shape: Schema) -> set[str]:
    """What a value may be: `integer`, `null`, ...; nothing of one that may be anything."""
    if "$ref" in shape:
        return types(PARTS[shape["$ref"].rpartition("/")[2]])
    return {shape["type"]} if "type" in shape else {t for one in shape.get("anyOf", ()) for t in types(one)}


def opened(shape: Schema) -> list[Schema]:
    if "$ref" in shape:
        return opened(PARTS[shape["$ref"].rpartition("/")[2]])
    return [part for one in shape["anyOf"] for part in opened(one)] if "anyOf" in shape else [shape]


ROOTS = [PARTS[name] for name in ("Measured", "Derived", "SimulatedRun")]


def test_the_structs_name_every_key_that_is_written() -> None:
    unknown = {path for record in RECORDS for path in strange(record, roots_of(record))}
    assert unknown == set()


def roots_of(record: dict[str, Any]) -> list[Schema]:
    if "simulated" in record:
        return ROOTS[2:]
    return ROOTS[:2]


def strange(value: Any, shapes: list[Schema], where: str = "") -> Iterator[str]:
    """Keys of objects whose keys the Structs name, and that are not among them."""
    shapes = [one for shape in shapes for one in opened(shape)]
    if isinstance(value, list):
        items = [shape["items"] for shape in shapes if "items" in shape]
        for item in value if items else ():
            yield from strange(item, items, f"{where}[]")
    elif isinstance(value, dict) and any("properties" in shape for shape in shapes):
        for key, item in value.items():
            inner = [s["properties"][key] for s in shapes if key in s.get("properties", {})]
            if not inner:
                yield f"{where}.{key}"
            yield from strange(item, inner, f"{where}.{key}") if inner else ()


FULL = derive(builders.raw_record("zero_copy"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("workload.size_bytes", "64K", "Expected `int`, got `str` - at `$.workload.size_bytes`"),
        ("workload.size_bytes", 0, "Expected `int` >= 1 - at `$.workload.size_bytes`"),
        ("run.segments.3.sides.sender.bytes", "x", "got `str` - at `$.run.segments[3].sides[...].bytes`"),
        ("run.segments.3.sides.sender.role", "x", "value 'x' - at `$.run.segments[3].sides[...].role`"),
        ("ledger.0.cpu_ns", None, "cpu_ns: null without a reason - at `$.ledger[0]`"),
        ("overhead.ratio", None, "ratio: null without a reason - at `$.overhead`"),
        ("stages.1.side", "target", 'stages[1].side: "target": expected sender or receiver or other'),
        ("verdict", FULL["verdict"] | {"valid": False}, "reasons: empty, of an invalid run - at `$.verdict`"),
        ("machine.kernel", ["\x1b[2J\n"], "Expected `str`, got `array` - at `$.machine.kernel`"),
        ("schema", 9, "schema: 9: expected 2"),
    ],
)  # fmt: skip
def test_an_error_names_the_key_and_what_was_expected(path: str, value: Any, said: str) -> None:
    broken = copy.deepcopy(FULL)
    owner: Any = broken
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        owner = owner[step]
    owner[last] = value
    (problem,) = store.validate(broken)
    assert problem.endswith(said)


def test_a_record_is_of_traffic_of_ours_or_of_a_program() -> None:
    neither = {key: value for key, value in FULL.items() if key not in ("workload", "traffic")}
    assert store.validate(neither) == ["target: expected it, or workload and traffic"]


def test_what_cannot_be_derived_names_the_key_and_what_was_expected() -> None:
    raw = builders.raw_record("one_copy")
    raw["machine"]["kernel"] = 6
    with pytest.raises(
        store.RecordError,
        match=r"^not a whole record: Expected `str`, got `int` - at `\$\.machine\.kernel`: ",
    ):
        derive(raw)


def test_a_key_of_any_name_is_no_line_of_its_own() -> None:
    calls = {"sendmsg": 1, "\x1b[2J\n" + "k" * 300: "x"}
    raw = builders.raw_record("one_copy")
    raw["run"]["segments"][0]["sides"]["sender"]["send_syscalls"] = calls
    (said,) = store.validate(raw, raw=True)
    assert len(said) <= 200 and "\n" not in said and "\x1b" not in said


def test_a_key_that_is_no_text_is_refused_in_a_line() -> None:
    assert len(store.validate(FULL | {"machine": FULL["machine"] | {"\udcff": 1}})) == 1
    assert len(store.validate(FULL | {"\udcff": 1})) == 1


def test_keys_that_are_not_known_are_left_alone() -> None:
    more = {**FULL, "weather": {"rain": 3}, "workload": {**FULL["workload"], "depth": 3}}
    assert store.validate(more) == []


def required_paths(
    value: Any, shapes: list[Schema], where: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Every key that the schema demands; rows are looked at in their first one."""
    shapes = [one for shape in shapes for one in opened(shape)]
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


def test_misses_every_key() -> None:
    broken = copy.deepcopy(FULL)
    assert len(REQUIRED) > 300
    for path in REQUIRED:
        owner = broken
        for key in path[:-1]:
            owner = owner[key]
        value = owner.pop(path[-1])
        (problem, *_) = store.validate(broken)
        assert f"missing required field `{path[-1]}`" in problem or problem.startswith("target: ")
        owner[path[-1]] = value
