"""The record on disk: written whole or not at all, read back the same, refused in one line."""

import gzip
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import builders
import pytest
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.store import RecordError
from hypothesis import given
from hypothesis import strategies as st

FULL = derive(builders.raw_record("zero_copy"))
DATA = store.serialise(FULL)


@pytest.mark.parametrize("impl", sorted(builders.RATES))
@pytest.mark.parametrize("kind", ["veth", "veth-xdp", "loopback", "nics"])
def test_builders_are_valid(impl: str, kind: str) -> None:
    raw = builders.raw_record(impl, kind=kind)
    assert store.validate(raw, raw=True) == []
    assert store.validate(derive(raw)) == []


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    builders.write(FULL, path)
    assert store.read(path) == FULL


def test_a_compressed_record_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json.gz", "b.json.gz")]
    for path in paths:
        builders.write(FULL, path)
        assert store.read(path) == FULL
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    # RFC 1952: no flags (so no name inside), the time is 0
    assert data[3] == 0 and data[4:8] == bytes(4)
    assert len(data) < len(DATA) / 3


@given(st.floats(0, 1, exclude_max=True))
def test_refuses_every_truncated_compressed_record(share: float) -> None:
    whole = gzip.compress(DATA, mtime=0)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.json.gz"
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(RecordError, match=r"run\.json\.gz: (truncated|damaged|empty)"):
            store.read(path)


@pytest.mark.parametrize("data", [b"{}", b"\x1f\x8b\x08\x00" + bytes(40)])
def test_refuses_what_is_not_compressed(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=r"run\.json\.gz: (damaged|truncated)"):
        store.read(path)


def test_one_row_is_one_line() -> None:
    lines = DATA.decode().splitlines()
    assert sum(line.startswith('{"account"') for line in lines) == len(FULL["ledger"])
    assert lines[0] == "{" and lines[-1] == "}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_any_json_survives(value: dict[str, Any]) -> None:
    data = store.serialise(value)
    assert json.loads(data) == value
    assert store.serialise(_reordered(value)) == data


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in reversed(list(value))}
    return [_reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_refuses_to_write_what_is_no_number(number: float) -> None:
    with pytest.raises(RecordError, match=FULL["run"]["id"]):
        store.serialise({**FULL, "tx_bytes": number})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "json: empty: not a record"),
        (DATA[:-40], "truncated"),
        (b'{"schema": 1,}', "invalid JSON at line 1"),
        (b'{"schema": 1, "x": NaN}', "NaN is not a number"),
        (b"[1]", "a list at the top"),
        (b'{"schema": "1"}', "no schema number"),
        (b'{"schema": true}', "no schema number"),
        (b'{"a": 1}', "no schema number"),
        (b'{"schema": 3}', "schema 3, this copyscope reads up to 2"),
        (b'{"schema": 0}', "schema 0: copyscope 0.1 reads it, this one schema 2"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_refuses_in_one_line_that_names_the_file(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        store.read(path)
    text = str(caught.value)
    assert str(path) in text and message in text and "\n" not in text


@given(st.integers(0, len(DATA) - 3))
def test_no_beginning_of_a_record_is_json(length: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(DATA[:length])


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"gone\.json: cannot be read"):
        store.read(tmp_path / "gone.json")


def test_run_id_depends_on_factors_only() -> None:
    first = store.run_id("sizes", {"impl": "one_copy", "size_bytes": 4096}, 3)
    assert first == store.run_id("sizes", {"size_bytes": 4096, "impl": "one_copy"}, 3)
    assert first != store.run_id("sizes", {"impl": "one_copy", "size_bytes": 8192}, 3)
    assert first.startswith("sizes-") and first.endswith("-3")
    assert store.run_id(None, {}, 0).startswith("profile-")
