"""Where the lines go, drawn: lines that were put into a record come out, from the level they came from."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from builders import write
from builders.sweep import kept
from copyscope import paths
from copyscope.commands import draw as command
from copyscope.exports.lines_drawing import LINE_PX, draw
from copyscope.record.check import typed_boot
from test_modelled import KIB, ONE, TWO, ZERO, boot

pytestmark = pytest.mark.timeout(20)
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def bars(drawn: str) -> list[tuple[str, float]]:
    """(class, lines) of each part of each bar, without the legend."""
    rects = [
        rect.attrib for rect in ElementTree.fromstring(drawn).iter(f"{SVG}rect") if rect.get("class") != "box"
    ]
    return [(rect["class"], round(float(rect["width"]) / LINE_PX, 1)) for rect in rects[:-3]]


def test_each_copy_has_its_lines_and_they_have_their_level() -> None:
    drawn = draw(
        typed_boot(boot({("two_copy", KIB): TWO, ("zero_copy", KIB): ZERO, ("one_copy", 64 * KIB): ONE})), KIB
    )
    said = texts(drawn)
    # 32 lines and a tenth for the seed are not in L1D; 16 of them not in L2 either.
    assert [
        said[said.index(name) + 1]
        for name in ("own memcpy", "copy to kernel", "copy to receiver", "late copy")
    ] == [*("32.1 + 0.0", "16.1 + 0.0", "17.1 + 0.0", "45.1 + 0.0")]
    assert bars(drawn) == [
        *(("l2", 16.1), ("llc", 16.0)),  # gather
        *(("l2", 16.1),),  # copy_in: what gather has just written
        *(("l2", 18.1),),  # pages
        *(("l2", 1.1), ("llc", 16.0)),  # copy_out
        *(("l2", 12.1), ("llc", 24.0), ("memory", 9.0)),  # the late copy
        *(("l2", 1.1), ("llc", 16.0)),
    ]
    assert "one_copy" not in said and "the same pages" in said


def test_an_invalid_boot_says_so_and_foreign_names_are_text() -> None:
    record = boot({("one_copy", KIB): ONE})
    record["verdict"] = {"valid": False, "reasons": ["bytes"]}
    record["simulated"]["measurements"][0]["impl"] = "<script>alert(1)</script>\x1b[2J"
    drawn = draw(typed_boot(record), KIB)
    assert "INVALID BOOT: do not use its figures" in texts(drawn)
    assert "<script>" not in drawn and "\x1b" not in drawn


def test_the_size_is_chosen_or_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = boot({("one_copy", KIB): ONE, ("one_copy", 64 * KIB): ONE, ("one_copy", 1 << 20): ONE})
    write(record, tmp_path / "run.json")
    assert command.main([str(tmp_path / "run.json")]) == 0
    assert capsys.readouterr().out == draw(typed_boot(record), 64 * KIB)
    assert command.main([str(tmp_path / "run.json"), "--size", "1M"]) == 0
    assert capsys.readouterr().out == draw(typed_boot(record), 1 << 20)
    assert command.main([str(tmp_path / "run.json"), "--size", "4K"]) == 2
    assert "--size: 4K: not in this record: it has 1 KiB, 64 KiB, 1 MiB" in capsys.readouterr().err


def test_the_drawing_in_the_docs_is_that_of_a_boot_that_came_with_the_tree() -> None:
    """`draw results/vm/simulated/records.jsonl.gz --run ID --out docs/lines.svg` makes it again."""
    wanted = {"topology": "veth", "cache": "generic", "working_set": 4}
    records = [one for one in kept(paths.RESULTS / "vm" / "simulated") if one["run"]["repeat"] == 0]
    (record,) = [record for record in records if record["run"]["factors"] == wanted]
    assert (paths.ROOT / "docs" / "lines.svg").read_text() == draw(typed_boot(record), 64 * KIB)
