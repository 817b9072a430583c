"""The path of a byte as an SVG: what the drawing of a known record says, and where each copy stands."""

import copy
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from builders import raw_record, write
from builders.watched import watched_record
from copyscope.commands import draw as command
from copyscope.exports.path_drawing import LEFT, MIDDLE, RIGHT, draw
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole

Record = dict[str, Any]
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def priced(drawn: str, title: str) -> list[str]:
    """The lines below the name of an account."""
    lines = texts(drawn)
    first = lines.index(title) + 1
    return lines[first : first + 2]


def arrows(drawn: str, look: str) -> list[tuple[float, float]]:
    """Where the arrows of one look begin, without the three of the legend."""
    found = re.findall(rf'<path class="{look}" d="M([\d.]+) ([\d.]+)', drawn)
    return [(float(x), float(y)) for x, y in found[:-1]]


def known(impl: str = "zero_copy", **options: Any) -> Record:
    """A record whose ledger has numbers that are set here, one row an account."""
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


def test_each_copy_has_its_bytes_its_price_and_its_share() -> None:
    drawn = draw(typed_whole(known()))
    assert priced(drawn, "late copy") == [
        "3 GiB, 186.2 ns/KiB",
        "67.1 % of all CPU time, in softirq",
    ]
    assert priced(drawn, "copy to the receiver") == [
        "3 GiB, 88.4 ns/KiB",
        "50.7 % of all CPU time",
    ]
    assert priced(drawn, "completion notices")[0] == "8.8 ns/KiB"  # two rows
    assert any("local delivery over veth" in line for line in texts(drawn))
    assert not any(line.startswith(("copy into", "program's own memcpy")) for line in texts(drawn))


@pytest.mark.parametrize(
    ("options", "look", "begins"),
    [
        ({}, "late", MIDDLE),  # local delivery: behind the device
        ({"kind": "veth-xdp"}, "late", MIDDLE),  # the receiving driver copies
        ({"scatter_gather": False}, "late", LEFT),  # the send call copies
    ],
)
def test_a_late_copy_stands_where_it_happens(options: dict[str, Any], look: str, begins: int) -> None:
    assert [x for x, _ in arrows(draw(typed_whole(known(**options))), look)] == [begins + 180]


def test_a_gather_copy_is_drawn_above_the_border_of_the_kernel() -> None:
    drawn = draw(typed_whole(derive(raw_record("two_copy"))))
    border = float(re.search(r'class="edge" d="M\d+ ([\d.]+)', drawn)[1])  # type: ignore[index]
    left = sorted(y for x, y in arrows(drawn, "copy") if x < MIDDLE)
    assert len(left) == 2 and left[0] + 56 < border
    assert arrows(drawn, "late") == []
    assert max(x for x, _ in arrows(drawn, "copy")) > RIGHT


def test_what_is_not_known_is_not_a_number() -> None:
    record = known()
    for row in record["ledger"]:
        row |= {"ns_per_kib": None, "share": None}
    assert priced(draw(typed_whole(record)), "late copy")[0] == "3 GiB, n/a ns/KiB"


def test_a_watched_program_and_an_invalid_run_say_so() -> None:
    record = derive(watched_record(zerocopy=True, copied=100, receives=4096))
    assert {"the program's memory", "what it sends", "what it receives"} <= set(
        texts(draw(typed_whole(record)))
    )
    record["verdict"] |= {"valid": False, "reasons": ["sent_bytes: broken"]}
    assert "INVALID RUN: do not use its figures" in texts(draw(typed_whole(record)))


def test_foreign_names_are_text_and_nothing_else() -> None:
    record = copy.deepcopy(known())
    evil = "</text><script>alert(1)</script>&\x1b[2J\u202e"
    record["workload"]["impl"] = evil
    record["machine"]["cpu_model"] = evil
    record["topology"]["kind"] = evil * 50
    record["topology"]["devices"][0]["name"] = evil
    record["zerocopy"]["cause"]["sentence"] = evil
    root = ElementTree.fromstring(draw(typed_whole(record)))
    found = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert found == {"svg", "title", "style", "path", "rect", "text"}
    assert not re.search("[\x00-\x08\x1b\u202e]", draw(typed_whole(record)))


def test_the_same_record_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, drawn = tmp_path / "run.json.gz", tmp_path / "path.svg"
    write(derive(raw_record("zero_copy")), kept)
    assert command.main([str(kept)]) == 0
    printed = capsys.readouterr().out
    assert command.main([str(kept), "--out", str(drawn)]) == 0
    assert drawn.read_text() == printed == draw(typed_whole(derive(raw_record("zero_copy"))))
    assert "prefers-color-scheme:dark" in printed


def test_a_run_that_sent_nothing_has_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = derive(raw_record("zero_copy")) | {"rx_bytes": 0, "tx_bytes": 0}
    write(record, tmp_path / "run.json")
    assert command.main([str(tmp_path / "run.json")]) == 1
    assert "nothing was sent in this run" in capsys.readouterr().err


def test_half_a_record_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = raw_record("zero_copy")
    write(raw, tmp_path / "raw.json")
    assert command.main([str(tmp_path / "raw.json")]) == 0
    assert capsys.readouterr().out == draw(typed_whole(derive(raw)))
    del raw["samples"]
    write(raw, tmp_path / "half.json")
    assert command.main([str(tmp_path / "half.json")]) == 1
    assert "half.json: not a whole record: Object missing required field `samples`" in capsys.readouterr().err
