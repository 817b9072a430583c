# SPDX-License-Identifier: GPL-2.0-only
"""Differences of two simulated machines, and kernels that the user has built, with planted truths."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from builders.simulated import simulated_record
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import diff
from copyscope.judge.simulated_difference import (
    INSTRUCTIONS,
    L1D,
    LINES,
    SimulatedDifference,
    compare_simulated,
)
from copyscope.record import store
from copyscope.record.run import SimulatedRun
from copyscope.run.simulate import built_kernel

ADDED_LINES = 32.0
ADDED_INSTRUCTIONS = 64.0


def typed(record: dict[str, Any]) -> SimulatedRun:
    run = store.as_record(record)
    assert isinstance(run, SimulatedRun)
    return run


def compared(before: dict[str, Any], after: dict[str, Any]) -> SimulatedDifference:
    return compare_simulated(typed(before).simulated, typed(after).simulated)


def with_added_copy(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with a further copy in the sender, as a patch with skb_linearize() would add it."""
    changed = copy.deepcopy(record)
    (measurement,) = changed["simulated"]["measurements"]
    sender = next(row for row in measurement["sides"] if row["side"] == "sender")
    stage = copy.deepcopy(next(row for row in measurement["rows"] if row["category"] == "copy_in"))
    stage |= {"kind": "stage", "category": "tcp_ip", "context": "softirq"}
    for row, base in ((sender, sender), (stage, dict.fromkeys(sender, 0.0))):
        row["instructions_per_kib"] = base["instructions_per_kib"] + ADDED_INSTRUCTIONS
        row["read_lines_per_kib"] = base["read_lines_per_kib"] + ADDED_LINES / 2
        row["written_lines_per_kib"] = base["written_lines_per_kib"] + ADDED_LINES / 2
    measurement["rows"].append(stage)
    added = {"name": "skb_copy_bits.isra.0", "category": "tcp_ip", "l1d_misses_per_kib": 0.0}
    counts = {"instructions_per_kib": ADDED_INSTRUCTIONS, "lines_per_kib": ADDED_LINES}
    measurement["functions"].append(added | counts)
    return changed


def test_equal_machines_differ_in_nothing() -> None:
    difference = compared(simulated_record(), simulated_record())
    assert difference.verdict == "no difference"
    (setting,) = difference.settings
    assert setting.functions == ()
    assert {change.verdict for row in setting.rows for change in row.changes} == {"no difference"}


def test_an_added_copy_is_worse_and_its_function_is_named() -> None:
    record = simulated_record()
    difference = compared(record, with_added_copy(record))
    (setting,) = difference.settings
    assert (difference.verdict, setting.verdict) == ("worse", "worse")
    assert setting.total.change(LINES).difference == pytest.approx(ADDED_LINES)
    assert setting.total.change(INSTRUCTIONS).difference == pytest.approx(ADDED_INSTRUCTIONS)
    worse = [row.category for row in setting.rows if row.change(LINES).verdict == "worse"]
    assert worse == ["tcp_ip"]
    assert setting.functions is not None
    (function,) = setting.functions
    assert (function.name, function.lines_before, function.lines_after) == ("skb_copy_bits", 0.0, ADDED_LINES)
    assert not any(row.is_new_copy for row in setting.rows)  # only a stage grew
    # The copy removed again is better.
    assert compared(with_added_copy(record), record).verdict == "better"


def test_a_new_account_is_a_copy_that_appeared() -> None:
    record = simulated_record()
    changed = copy.deepcopy(record)
    (measurement,) = changed["simulated"]["measurements"]
    copy_in = next(row for row in measurement["rows"] if row["category"] == "copy_in")
    measurement["rows"].append(copy_in | {"category": "silent", "context": "softirq"})
    (setting,) = compared(record, changed).settings
    assert [row.category for row in setting.rows if row.is_new_copy] == ["silent"]


def test_misses_within_the_spread_of_the_seeds_are_no_difference() -> None:
    """Seed 1 misses 17 lines, the others 16, so the half width of the interval is 1.43 lines."""
    record = simulated_record()
    for added, verdict in ((2.0, "no difference"), (4.0, "worse")):
        changed = copy.deepcopy(record)
        for row in changed["simulated"]["measurements"][0]["rows"]:
            if row["category"] == "copy_in":
                row["l1d_load_misses_per_kib"] += added
        (setting,) = compared(record, changed).settings
        (copy_in,) = (row for row in setting.rows if row.category == "copy_in")
        assert copy_in.change(L1D).verdict == verdict


def test_functions_of_an_older_record_are_unknown() -> None:
    record = simulated_record()
    older = copy.deepcopy(record)
    del older["simulated"]["measurements"][0]["functions"]
    (setting,) = compared(older, record).settings
    assert setting.functions is None


def test_other_caches_are_refused() -> None:
    record = simulated_record()
    other = copy.deepcopy(record)
    other["simulated"]["model"]["l2_bytes"] *= 2
    with pytest.raises(UsageError, match="the caches of the two machines differ"):
        compared(record, other)


def test_diff_of_two_machines_prints_the_verdict_and_returns_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = simulated_record()
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, each in zip(paths, (record, with_added_copy(record)), strict=True):
        path.write_text(json.dumps(each))
    answer = tmp_path / "answer.json"
    assert diff.main([*map(str, paths), "--json", str(answer)]) == 1
    screen = " ".join(capsys.readouterr().out.split())
    assert "one_copy, 1 KiB: worse: " in screen and "skb_copy_bits" in screen
    assert json.loads(answer.read_text())["verdict"] == "worse"
    assert diff.main([str(paths[0]), str(paths[0])]) == 0


def bzimage(release: bytes) -> bytes:
    """Return the header of a bzImage (Documentation/arch/x86/boot.rst): version 2.15, release at 0x400."""
    image = bytearray(5 * 512 + 64)
    image[0x1F1] = 4
    image[0x202:0x208] = b"HdrS\x0f\x02"
    image[0x20E:0x210] = (0x200).to_bytes(2, "little")
    image[0x400 : 0x400 + len(release)] = release
    return bytes(image)


def test_a_build_tree_gives_image_release_and_modules(tmp_path: Path) -> None:
    tree, cache = tmp_path / "linux", tmp_path / "cache"
    image_path = tree / built_kernel.IMAGE_IN_TREE
    image_path.parent.mkdir(parents=True)
    image_path.write_bytes(bzimage(b"6.12.99-patched (me@here) #1 SMP"))
    module = tree / "drivers/net/veth.ko"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"module")
    options = [f"CONFIG_{name}=y" for name in built_kernel.NEEDED if name != "VETH"]
    (tree / ".config").write_text("\n".join([*options, "CONFIG_VETH=m"]))
    for path in (tree, image_path):
        kernel = built_kernel.read(path, cache)
        assert (kernel.release, kernel.modules) == ("6.12.99-patched", {"veth": b"module"})
    (tree / ".config").write_text("\n".join(options[1:]) + "\nCONFIG_VETH=m\n")
    with pytest.raises(RunError, match=r"its configuration lacks CONFIG_64BIT=y: the programs of the guest"):
        built_kernel.read(tree, cache)


def test_a_file_that_is_no_kernel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(b"no kernel")
    with pytest.raises(RunError, match=r"not a bzImage; build one with `make bzImage`"):
        built_kernel.read(path, tmp_path)
    with pytest.raises(RunError, match="No such file or directory"):
        built_kernel.read(tmp_path / "missing", tmp_path)
