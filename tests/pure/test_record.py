# SPDX-License-Identifier: GPL-2.0-only
"""The record on disk: equal after a round trip, the same bytes each time; damaged files are refused."""

import gzip
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import builders
import pytest
from builders.documents import derive, validate
from builders.simulated import simulated_record
from builders.watched import watched_record
from copyscope.base.errors import RecordError
from copyscope.record import store
from copyscope.record.measured import Measured
from hypothesis import given
from hypothesis import strategies as st

FULL = derive(builders.raw_record("zero_copy"))
DATA = store.serialise(FULL)


@pytest.mark.parametrize("impl", sorted(builders.RATES))
@pytest.mark.parametrize("kind", ["veth", "veth-xdp", "loopback", "nics"])
def test_records_of_the_builders_are_valid(impl: str, kind: str) -> None:
    raw = builders.raw_record(impl, kind=kind)
    assert validate(raw, raw=True) == []
    assert validate(derive(raw)) == []


def test_a_record_is_read_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    builders.write(FULL, path)
    assert store.read_document(path) == FULL


def test_a_compressed_record_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json.gz", "b.json.gz")]
    for path in paths:
        builders.write(FULL, path)
        assert store.read_document(path) == FULL
    data = paths[0].read_bytes()
    assert data == paths[1].read_bytes()
    # RFC 1952: no flags (thus no file name inside), and the time is 0
    assert data[3] == 0 and data[4:8] == bytes(4)
    assert len(data) < len(DATA) / 3


@given(st.floats(0, 1, exclude_max=True))
def test_every_truncated_compressed_record_is_refused(share: float) -> None:
    compressed = gzip.compress(DATA, mtime=0)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.json.gz"
        path.write_bytes(compressed[: int(share * len(compressed))])
        with pytest.raises(RecordError, match=r"run\.json\.gz: (truncated|damaged|empty)"):
            store.read_document(path)


@pytest.mark.parametrize("data", [b"{}", b"\x1f\x8b\x08\x00" + bytes(40)])
def test_an_uncompressed_file_named_gz_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=r"run\.json\.gz: (damaged|truncated)"):
        store.read_document(path)


def test_each_row_of_the_ledger_is_one_line() -> None:
    lines = DATA.decode().splitlines()
    assert sum(line.startswith('{"account"') for line in lines) == len(FULL["ledger"])
    assert lines[0] == "{" and lines[-1] == "}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=6))
def test_any_json_object_is_read_back_unchanged(value: dict[str, Any]) -> None:
    data = store.serialise(value)
    assert json.loads(data) == value
    assert store.serialise(_reordered(value)) == data


def _reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reordered(value[key]) for key in reversed(list(value))}
    return [_reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_infinities_and_nan_are_not_written(number: float) -> None:
    with pytest.raises(RecordError, match=FULL["run"]["id"]):
        store.serialise({**FULL, "tx_bytes": number})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "json: empty; it is damaged"),
        (DATA[:-40], "truncated"),
        (b'{"schema": 1,}', "invalid JSON at line 1"),
        (b'{"schema": 1, "x": NaN}', "NaN: not a number"),
        (b"[1]", "a list at the top"),
        (b'{"schema": "1"}', "no schema number"),
        (b'{"schema": true}', "no schema number"),
        (b'{"a": 1}', "no schema number"),
        (b'{"schema": 3}', "schema 3, but this copyscope reads up to 2"),
        (b'{"schema": 0}', "schema 0 of copyscope 0.1, but this version reads schema 2"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_record_is_refused_in_one_line_that_names_the_file(
    data: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        store.read_document(path)
    text = str(caught.value)
    assert str(path) in text and message in text and "\n" not in text


def test_a_row_that_no_screen_can_show_is_refused() -> None:
    """The row is of an unknown account of a simulated machine, or a bucket of a histogram without a count."""
    boot = simulated_record()
    boot["simulated"]["measurements"][0]["accounts"][0]["category"] = "x"
    with pytest.raises(RecordError, match=r'measurements\[0\].accounts: "x": expected '):
        store.as_record(boot)
    watched = watched_record()
    row = next(call for call in watched["calls"] if call["histogram"])
    row["histogram"]["buckets"][0] = [1, 2]
    with pytest.raises(RecordError, match="of length >= 3"):
        store.as_record(watched)


@given(st.integers(0, len(DATA) - 3))
def test_a_truncated_record_is_never_valid_json(length: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(DATA[:length])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"gone\.json: cannot be read"):
        store.read_document(tmp_path / "gone.json")


def test_a_run_id_depends_only_on_experiment_factors_and_repeat() -> None:
    first = store.run_id("sizes", {"impl": "one_copy", "size_bytes": 4096}, 3)
    assert first == store.run_id("sizes", {"size_bytes": 4096, "impl": "one_copy"}, 3)
    assert first != store.run_id("sizes", {"impl": "one_copy", "size_bytes": 8192}, 3)
    assert first.startswith("sizes-") and first.endswith("-3")
    assert store.run_id(None, {}, 0).startswith("profile-")


def test_lists_of_a_watched_process_are_written_even_if_they_are_empty() -> None:
    """A reader such as `jq '.volume[]'` fails on a missing list."""
    lists = {"volume", "connections", "send_errors", "buffers"}
    document = {key: value for key, value in watched_record().items() if key not in lists}
    raw = store.convert_part(document, Measured)
    written = json.loads(store.serialise(raw))
    assert {key: written[key] for key in lists} == {key: [] for key in lists}
    assert written == {**json.loads(store.serialise(document)), **{key: [] for key in lists}}
    assert not lists & set(store.document_of(store.convert_part(FULL, Measured)))
