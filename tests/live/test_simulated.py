# SPDX-License-Identifier: GPL-2.0-only
"""Boots of a simulated machine: a copy moves known bytes, and the same seed gives the same bits."""

import json
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.plan.arguments import parser
from copyscope.run.simulate import boot, counted_stacks, kernels, qemu
from copyscope.run.simulate.counted_stacks import name_stack
from copyscope.run.simulate.request import read
from copyscope.taxonomy.taxonomy import Taxonomy
from programs import busy_cpus

pytestmark = [pytest.mark.all, pytest.mark.timeout(300)]
NEEDS_QEMU = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed"
)


def simulate(*words: str) -> dict[str, Any]:
    argv = [str(paths.ROOT / "bin" / "copyscope"), "simulate", "--quiet", "--json", "-", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=290, check=False)
    # A kernel is downloaded unless an earlier boot kept it.
    if "check the network" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    simulated: dict[str, Any] = json.loads(done.stdout)["simulated"]
    return simulated


WORDS = ("--impl", "one_copy,two_copy,zero_copy", "--messages", "32")
KIB = 32 * 64


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    """Two boots at the same time, with seeds 1 and 2."""
    return simulate(*WORDS, "--seeds", "2")


@pytest.fixture(scope="module")
def beside_busy_loops(first: dict[str, Any]) -> tuple[boot.BootCounts, str]:
    """Counts of the boot with seed 2 beside busy loops on all CPUs, and the kernel's symbols."""
    request = read(parser().parse_args(["--simulate", *WORDS, "--seeds", "1", "--seed", "2"]))
    kernel = kernels.get_kernel(first["kernel"]["name"], lambda _: None)
    installed_qemu = qemu.find_qemu()
    programs = boot.build(installed_qemu)
    symbols = boot.kernel_symbols(kernel, installed_qemu, programs, lambda _: None)
    with busy_cpus():
        (counted,) = boot.count(
            boot.Plan(kernel, installed_qemu, programs, symbols, request), lambda *_: None
        )
    return counted, Path(symbols).read_text()


@NEEDS_QEMU
def test_a_simulated_copy_moves_its_bytes_and_cache_lines(first: dict[str, Any]) -> None:
    by_name = {
        (measurement["impl"], row["category"], row["side"]): row
        for measurement in first["measurements"]
        for row in measurement["rows"]
    }
    copy_in = by_name["one_copy", "copy_in", "sender"]
    assert first["kernel"]["name"] == kernels.DEFAULT
    # 1 KiB is 16 lines of 64 bytes, read and written. Lines that stay in the L1 cache of 32 KiB miss less
    # often.
    assert 16 <= copy_in["l1d_load_misses_per_kib"] <= 17
    assert 15 <= copy_in["l1d_store_misses_per_kib"] <= 17
    for key in ("read_bytes_per_kib", "written_bytes_per_kib"):
        assert copy_in[key] == pytest.approx(1024, rel=0.02)
        assert by_name["one_copy", "copy_out", "receiver"][key] == pytest.approx(1024, rel=0.02)
        # The account gather includes the program's loop, which one_copy has as well.
        loop = by_name["one_copy", "user", "sender"][key]
        assert by_name["two_copy", "gather", "sender"][key] - loop == pytest.approx(1024, rel=0.02)
    # The second copy reads 64 KiB that the first copy wrote, and finds them in L2.
    assert by_name["two_copy", "copy_in", "sender"]["l2_load_misses_per_kib"] < 0.1
    assert by_name["two_copy", "gather", "sender"]["l2_load_misses_per_kib"] > 15


@NEEDS_QEMU
def test_a_seed_gives_the_same_bits_on_a_busy_machine(
    first: dict[str, Any], beside_busy_loops: tuple[boot.BootCounts, str]
) -> None:
    pairs = zip(first["measurements"], beside_busy_loops[0].measurements, strict=True)
    assert all(both["digests"][1] == alone.digest for both, alone in pairs)


@NEEDS_QEMU
def test_a_simulated_late_copy_copies_and_zeroes_pages(
    beside_busy_loops: tuple[boot.BootCounts, str],
) -> None:
    """Functions are distinguished by name: init_on_alloc of Debian zeroes each page before the copy."""
    counted, kernel_symbols = beside_busy_loops
    taxonomy = Taxonomy.load()
    names_by_address = counted_stacks.name_symbols([kernel_symbols, counted.symbols], taxonomy)
    written, read_by = Counter[str](), Counter[str]()
    for stack in counted.measurements[2].stacks:
        names = name_stack(stack.frames, names_by_address)
        if taxonomy.classify(names).category == "deferred":
            written[names[0]] += stack.counts["written_bytes"]
            read_by[names[0]] += stack.counts["read_bytes"]
    copied, zeroed = ([name for name in written if part in name] for part in ("memcpy", "clear_page"))
    assert sum(written[name] for name in copied) / KIB == pytest.approx(1024, rel=0.02), written
    assert sum(read_by[name] for name in copied) / KIB == pytest.approx(1024, rel=0.02), read_by
    # Whole pages are zeroed: a field of 8 KiB that does not begin at a page needs three.
    assert 1024 <= sum(written[name] for name in zeroed) / KIB <= 1024 * 1.5, written
    # The remainder is bookkeeping of pages and fragments.
    assert sum(written.values()) - sum(written[name] for name in (*copied, *zeroed)) < 512 * KIB, written


@NEEDS_QEMU
def test_simulated_nics_have_no_late_copy_and_xdp_has_a_hidden_copy() -> None:
    words = ("--impl", "zero_copy", "--messages", "8", "--seeds", "1")
    kinds = ("nics", "veth-xdp")
    with ThreadPoolExecutor() as pool:
        measurements = list(
            pool.map(lambda kind: simulate(*words, "--topology", kind)["measurements"][0], kinds)
        )
    accounts = {
        kind: {row["category"]: row for row in measurement["rows"]}
        for kind, measurement in zip(kinds, measurements, strict=True)
    }
    assert "deferred" not in accounts["nics"] and "silent" not in accounts["nics"]
    assert accounts["nics"]["pin"]["l1d_load_misses_per_kib"] < 4
    # Softirq work of the sender or receiver may copy. None of it is attributed to the sender.
    assert "deferred" not in accounts["veth-xdp"] and accounts["veth-xdp"]["silent"]["read_bytes_per_kib"] > 0


@NEEDS_QEMU
def test_a_run_shows_the_model_beside_measured_values(tmp_path: Path) -> None:
    """Each copy of a run has its row of the model, and no measured value comes from the model."""
    path = tmp_path / "run.json"
    argv = [str(paths.ROOT / "bin" / "copyscope"), "run", "one_copy", "--duration", "1", "--quiet"]
    argv += ["--simulate", "--seeds", "1", "--json", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    if "check the network" in done.stderr:
        pytest.skip(done.stderr.strip())
    record = json.loads(path.read_text())
    (modelled,) = record["modelled"]["measurements"]
    assert (modelled["impl"], modelled["size_bytes"]) == ("one_copy", record["workload"]["size_bytes"])
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("copy into the kernel")]
    misses = [
        model_row
        for model_row in modelled["rows"]
        if (model_row["category"], model_row["side"]) == ("copy_in", "sender")
    ]
    spelled = f"{sum(model_row['l1d_load_misses_per_kib'] for model_row in misses):.2f}"
    assert "LLC sim" in done.stdout and spelled in row.split() and 15.5 <= float(spelled) <= 17
    if not record["machine"]["pmu"]:
        assert all(model_row["l1d_misses"] is None for model_row in record["ledger"])
