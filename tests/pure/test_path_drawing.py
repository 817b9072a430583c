# SPDX-License-Identifier: GPL-2.0-only
"""The path of a byte as an SVG drawing: texts and positions of the copies of known records."""

import copy
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from builders import raw_record, write
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.commands import show
from copyscope.report.path_drawing import LEFT, MIDDLE, RIGHT, draw

Record = dict[str, Any]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def lines_below(svg: str, title: str) -> list[str]:
    """Return the two lines of text below the name of an account."""
    lines = texts(svg)
    first = lines.index(title) + 1
    return lines[first : first + 2]


def arrows(svg: str, style: str) -> list[tuple[float, float]]:
    """Return the starting points of the arrows of one style, without the arrow of the legend."""
    starts = re.findall(rf'<path class="{style}" d="M([\d.]+) ([\d.]+)', svg)
    return [(float(x), float(y)) for x, y in starts[:-1]]


def record_with_prices(impl: str = "zero_copy", **options: Any) -> Record:
    """Return a record with invented prices and shares: each row of an account has the same."""
    record = derive(raw_record(impl, **options))
    prices = {"pin": 16.7, "deferred": 186.2, "silent": 150.0, "completion": 4.4, "copy_out": 88.4}
    shares = {"pin": 0.06, "deferred": 0.671, "silent": 0.5, "completion": 0.016, "copy_out": 0.507}
    for row in record["ledger"]:
        account = row["account"]
        row |= {"ns_per_kib": prices.get(account), "share": shares.get(account)}
        row["reasons"] = dict.fromkeys(("ns_per_kib", "share"), "not set here") | row["reasons"]
        if row["bytes"]:
            row["bytes"] = 3 << 30
    return record


def test_each_copy_is_drawn_with_bytes_price_and_share() -> None:
    drawn = draw(typed_whole(record_with_prices()))
    assert lines_below(drawn, "late copy") == [
        "3 GiB, 186.2 ns/KiB",
        "67.1 % of all CPU time, in softirq",
    ]
    assert lines_below(drawn, "copy to the receiver") == [
        "3 GiB, 88.4 ns/KiB",
        "50.7 % of all CPU time",
    ]
    assert lines_below(drawn, "completion notices")[0] == "8.8 ns/KiB"  # two rows
    assert any("the receiver is on the same machine (veth)" in line for line in texts(drawn))
    assert not any(line.startswith(("copy into", "program's own memcpy")) for line in texts(drawn))


@pytest.mark.parametrize(
    ("options", "style", "start_x"),
    [
        ({}, "late", MIDDLE),  # local delivery: behind the device
        ({"kind": "veth-xdp"}, "late", MIDDLE),  # the receiving driver copies
        ({"scatter_gather": False}, "late", LEFT),  # the send call copies
    ],
)
def test_a_late_copy_is_drawn_where_it_happens(options: dict[str, Any], style: str, start_x: int) -> None:
    assert [x for x, _ in arrows(draw(typed_whole(record_with_prices(**options))), style)] == [start_x + 180]


def test_a_gather_copy_is_drawn_above_the_border_of_the_kernel() -> None:
    drawn = draw(typed_whole(derive(raw_record("two_copy"))))
    border = float(re.search(r'class="edge" d="M\d+ ([\d.]+)', drawn)[1])  # type: ignore[index]
    left = sorted(y for x, y in arrows(drawn, "copy") if x < MIDDLE)
    assert len(left) == 2 and left[0] + 56 < border
    assert arrows(drawn, "late") == []
    assert max(x for x, _ in arrows(drawn, "copy")) > RIGHT


def test_an_unknown_price_is_written_as_not_available() -> None:
    record = record_with_prices()
    for row in record["ledger"]:
        row |= {"ns_per_kib": None, "share": None}
    assert lines_below(draw(typed_whole(record)), "late copy")[0] == "3 GiB, n/a ns/KiB"


def test_a_watched_program_and_an_invalid_run_are_labelled() -> None:
    record = derive(watched_record(zerocopy=True, copied=100, receives=4096))
    assert {"the program's memory", "data to send", "received data"} <= set(texts(draw(typed_whole(record))))
    record["verdict"] |= {"valid": False, "reasons": ["sent_bytes: broken"]}
    assert "INVALID RUN: do not use its figures" in texts(draw(typed_whole(record)))


def test_a_copy_of_which_nothing_is_known_is_no_arrow() -> None:
    """Without samples, a program may or may not have read a file."""
    raw = watched_record()
    raw["samples"] = []
    lines = texts(draw(typed_whole(derive(raw))))
    assert "copy into the kernel" in lines and "the program's memory" in lines
    assert not {"copy from the page cache", "program's own memcpy", "a file"} & set(lines)
    _, _, unknown = " ".join(lines).partition("Not drawn, because nothing is known about them: ")
    assert "copy from the page cache" in unknown and "program's own memcpy" in unknown


def test_the_load_of_other_programs_is_a_note_below_the_drawing() -> None:
    record = derive(watched_record())
    record["machine_state"] |= {"disturbance": "busy", "others_share": 0.5, "sentence": "busy"}
    note = "The goodput was measured on a busy machine (other programs used 50 % of the CPUs)."
    assert note in texts(draw(typed_whole(record)))


def test_hostile_names_stay_text() -> None:
    record = copy.deepcopy(record_with_prices())
    evil = "</text><script>alert(1)</script>&\x1b[2J\u202e"
    record["workload"]["impl"] = evil
    record["machine"]["cpu_model"] = evil
    record["topology"]["kind"] = evil * 50
    record["topology"]["devices"][0]["name"] = evil
    record["zerocopy"]["cause"]["sentence"] = evil
    root = ElementTree.fromstring(draw(typed_whole(record)))
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "title", "style", "path", "rect", "text"}
    assert not re.search("[\x00-\x08\x1b\u202e]", draw(typed_whole(record)))


def test_the_same_record_gives_the_same_bytes(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    kept, drawn = tmp_path / "run.json.gz", tmp_path / "path.svg"
    write(derive(raw_record("zero_copy")), kept)
    assert show.main([str(kept), "--export", "drawing"]) == 0
    printed = capsysbinary.readouterr().out
    assert show.main([str(kept), "--export", "drawing", "--output", str(drawn)]) == 0
    assert drawn.read_bytes() == printed == draw(typed_whole(derive(raw_record("zero_copy")))).encode()
    assert b"prefers-color-scheme:dark" in printed


def test_a_run_that_sent_nothing_has_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = derive(raw_record("zero_copy")) | {"rx_bytes": 0, "tx_bytes": 0}
    write(record, tmp_path / "run.json")
    assert show.main([str(tmp_path / "run.json"), "--export", "drawing"]) == 1
    assert "nothing was sent in this run" in capsys.readouterr().err


def test_an_incomplete_record_is_refused_in_one_line(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    raw = raw_record("zero_copy")
    write(raw, tmp_path / "raw.json")
    assert show.main([str(tmp_path / "raw.json"), "--export", "drawing"]) == 0
    assert capsysbinary.readouterr().out == draw(typed_whole(derive(raw))).encode()
    del raw["samples"]
    write(raw, tmp_path / "half.json")
    assert show.main([str(tmp_path / "half.json"), "--export", "drawing"]) == 1
    refused = "half.json: incomplete record (Object missing required field `samples`"
    assert refused.encode() in capsysbinary.readouterr().err
