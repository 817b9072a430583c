# SPDX-License-Identifier: GPL-2.0-only
"""Drawing of cache lines: the numbers of a record appear, divided by the cache level that served them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from builders import write
from builders.documents import typed_boot
from builders.sweep import kept
from copyscope.base import paths
from copyscope.commands import show
from copyscope.report.lines_drawing import LINE_PX, draw
from test_modelled import KIB, ONE, TWO, ZERO, boot

pytestmark = pytest.mark.timeout(20)
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


def bars(drawn: str) -> list[tuple[str, float]]:
    """Return the parts of all bars, without the legend: tuples of CSS class and number of lines."""
    rects = [
        rect.attrib for rect in ElementTree.fromstring(drawn).iter(f"{SVG}rect") if rect.get("class") != "box"
    ]
    return [(rect["class"], round(float(rect["width"]) / LINE_PX, 1)) for rect in rects[:-3]]


def test_each_copy_is_drawn_with_its_lines_by_cache_level() -> None:
    drawn = draw(
        typed_boot(boot({("two_copy", 64 * KIB): TWO, ("zero_copy", 64 * KIB): ZERO, ("one_copy", KIB): ONE}))
    )
    words = texts(drawn)
    # 32 lines, and a tenth for the seed, miss L1D. 16 of these lines miss L2, too.
    assert [
        words[words.index(name) + 1]
        for name in ("own memcpy", "copy to kernel", "copy to receiver", "late copy")
    ] == [*("32.1 + 0.0", "16.1 + 0.0", "17.1 + 0.0", "45.1 + 0.0")]
    assert bars(drawn) == [
        *(("l2", 16.1), ("llc", 16.0)),  # gather
        *(("l2", 16.1),),  # copy_in reads the lines that gather wrote
        *(("l2", 18.1),),  # page pinning
        *(("l2", 1.1), ("llc", 16.0)),  # copy_out
        *(("l2", 12.1), ("llc", 24.0), ("memory", 9.0)),  # the late copy
        *(("l2", 1.1), ("llc", 16.0)),
    ]
    assert "one_copy" not in words and "the same pages" in words


def test_invalid_boot_is_marked_and_foreign_names_are_escaped() -> None:
    record = boot({("one_copy", KIB): ONE})
    record["verdict"] = {"valid": False, "reasons": ["bytes"]}
    record["simulated"]["measurements"][0]["impl"] = "<script>alert(1)</script>\x1b[2J"
    drawn = draw(typed_boot(record))
    assert "INVALID BOOT: do not use its figures" in texts(drawn)
    assert "<script>" not in drawn and "\x1b" not in drawn


@pytest.mark.parametrize(
    ("sizes_bytes", "drawn"), [((KIB, 64 * KIB, 1 << 20), "64 KiB"), ((KIB, 1 << 20), "1 MiB")]
)
def test_64_kib_messages_are_drawn_or_else_the_largest_size(
    sizes_bytes: tuple[int, ...], drawn: str, tmp_path: Path
) -> None:
    write(boot({("one_copy", size_bytes): ONE for size_bytes in sizes_bytes}), tmp_path / "run.json")
    svg = tmp_path / "lines.svg"
    assert show.main([str(tmp_path / "run.json"), "--export", "drawing", "--output", str(svg)]) == 0
    assert f"Cache lines of each copy: {drawn} messages over veth" in texts(svg.read_text())


def test_a_simulated_command_has_no_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = boot({("one_copy", KIB): ONE})
    record["simulated"]["measurements"][0] |= {"impl": None, "size_bytes": None}
    write(record, tmp_path / "run.json")
    assert show.main([str(tmp_path / "run.json"), "--export", "drawing"]) == 1
    assert "the path of a simulated command is unknown" in capsys.readouterr().err


def test_drawing_in_the_docs_matches_a_committed_boot() -> None:
    """`copyscope show results/vm/simulated/records.jsonl.gz --run ID --export drawing` prints it again."""
    wanted = {"topology": "veth", "cache": "generic", "working_set": 4}
    records = [record for record in kept(paths.RESULTS / "vm" / "simulated") if record["run"]["repeat"] == 0]
    (record,) = [record for record in records if record["run"]["factors"] == wanted]
    assert (paths.ROOT / "docs" / "lines.svg").read_text() == draw(typed_boot(record))
