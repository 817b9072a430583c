"""One boot of a simulated machine, twice: what a copy must move, and the same bits for the same seed."""

import json
import shutil
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from copyscope.plan.arguments import parser
from copyscope.simulate import boot, document, kernels, qemu
from copyscope.simulate.request import read
from copyscope.simulate.symbols import frames
from copyscope.taxonomy.taxonomy import Taxonomy
from programs import busy_cpus

pytestmark = [pytest.mark.all, pytest.mark.timeout(300)]
NEEDS_QEMU = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed"
)


def simulate(*words: str) -> dict[str, Any]:
    argv = [str(paths.ROOT / "bin" / "copyscope"), "simulate", "--quiet", "--json", "-", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=290, check=False)
    # Kept kernels need no network; without either there is nothing to boot.
    if "is there a network?" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["simulated"]
    return found


WORDS = ("--impl", "one_copy,two_copy,zero_copy", "--messages", "32")
KIB = 32 * 64


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    """Two boots beside each other."""
    return simulate(*WORDS, "--seeds", "2")


@pytest.fixture(scope="module")
def beside_busy_loops(first: dict[str, Any]) -> tuple[boot.Counted, str]:
    """The second of them again, where nothing leaves it a CPU of its own; and the kernel's symbols."""
    request = read(parser().parse_args(["--simulate", *WORDS, "--seeds", "1", "--seed", "2"]))
    kernel = kernels.take(first["kernel"]["name"], lambda _: None)
    found = qemu.find()
    programs = boot.build(found)
    symbols = boot.kernel_symbols(kernel, found, programs, lambda _: None)
    with busy_cpus():
        (counted,) = boot.count(boot.Plan(kernel, found, programs, symbols, request), lambda *_: None)
    return counted, Path(symbols).read_text()


@NEEDS_QEMU
def test_a_copy_moves_its_lines(first: dict[str, Any]) -> None:
    by_name = {
        (one["impl"], row["category"], row["side"]): row
        for one in first["measurements"]
        for row in one["rows"]
    }
    copy_in = by_name["one_copy", "copy_in", "sender"]
    assert first["kernel"]["name"] == kernels.DEFAULT
    # 1 KiB is 16 lines of 64 bytes, read and written; what is left in the cache of 32 KiB is missed less.
    assert 16 <= copy_in["l1d_load_misses_per_kib"] <= 17
    assert 15 <= copy_in["l1d_store_misses_per_kib"] <= 17
    for key in ("read_bytes_per_kib", "written_bytes_per_kib"):
        assert copy_in[key] == pytest.approx(1024, rel=0.02)
        assert by_name["one_copy", "copy_out", "receiver"][key] == pytest.approx(1024, rel=0.02)
        # The account gather has the program's loop in it, which one_copy has as well.
        loop = by_name["one_copy", "user", "sender"][key]
        assert by_name["two_copy", "gather", "sender"][key] - loop == pytest.approx(1024, rel=0.02)
    # The second copy reads what the first has just written: 64 KiB lie in L2.
    assert by_name["two_copy", "copy_in", "sender"]["l2_load_misses_per_kib"] < 0.1
    assert by_name["two_copy", "gather", "sender"]["l2_load_misses_per_kib"] > 15


@NEEDS_QEMU
def test_a_seed_gives_the_same_bits_on_a_busy_machine(
    first: dict[str, Any], beside_busy_loops: tuple[boot.Counted, str]
) -> None:
    pairs = zip(first["measurements"], beside_busy_loops[0].measurements, strict=True)
    assert all(both["digests"][1] == alone.digest for both, alone in pairs)


@NEEDS_QEMU
def test_a_late_copy_is_a_copy_and_fresh_pages(beside_busy_loops: tuple[boot.Counted, str]) -> None:
    """By the name of the function: Debian's init_on_alloc zeroes each page that is copied into."""
    counted, kernel_symbols = beside_busy_loops
    taxonomy = Taxonomy.load()
    known = document.known_symbols([kernel_symbols, counted.symbols], taxonomy)
    written, read_by = Counter[str](), Counter[str]()
    for stack in counted.measurements[2].stacks:
        names = frames(stack.frames, known)
        if taxonomy.classify(names).category == "deferred":
            written[names[0]] += stack.counts["written_bytes"]
            read_by[names[0]] += stack.counts["read_bytes"]
    copied, zeroed = ([name for name in written if part in name] for part in ("memcpy", "clear_page"))
    assert sum(written[name] for name in copied) / KIB == pytest.approx(1024, rel=0.02), written
    assert sum(read_by[name] for name in copied) / KIB == pytest.approx(1024, rel=0.02), read_by
    # Whole pages: a field of 8 KiB that does not begin at a page takes three.
    assert 1024 <= sum(written[name] for name in zeroed) / KIB <= 1024 * 1.5, written
    # What is left is bookkeeping of pages and fragments.
    assert sum(written.values()) - sum(written[name] for name in (*copied, *zeroed)) < 512 * KIB, written


@NEEDS_QEMU
def test_network_cards_have_no_late_copy_and_xdp_a_silent_one() -> None:
    words = ("--impl", "zero_copy", "--messages", "8", "--seeds", "1")
    kinds = ("nics", "veth-xdp")
    with ThreadPoolExecutor() as pool:
        booted = list(pool.map(lambda kind: simulate(*words, "--topology", kind)["measurements"][0], kinds))
    accounts = {
        kind: {row["category"]: row for row in one["rows"]} for kind, one in zip(kinds, booted, strict=True)
    }
    assert "deferred" not in accounts["nics"] and "silent" not in accounts["nics"]
    assert accounts["nics"]["pin"]["l1d_load_misses_per_kib"] < 4
    # Both sides' softirq may copy; none of it is known to the sender.
    assert "deferred" not in accounts["veth-xdp"] and accounts["veth-xdp"]["silent"]["read_bytes_per_kib"] > 0


@NEEDS_QEMU
def test_a_run_shows_the_model_beside_what_was_measured(tmp_path: Path) -> None:
    """Each copy of a run has its own row of the model, and no measured number comes from there."""
    kept = tmp_path / "run.json"
    argv = [str(paths.ROOT / "bin" / "copyscope"), "run", "one_copy", "--duration", "1", "--quiet"]
    argv += ["--simulate", "--seeds", "1", "--json", str(kept)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    if "is there a network?" in done.stderr:
        pytest.skip(done.stderr.strip())
    record = json.loads(kept.read_text())
    (modelled,) = record["modelled"]["measurements"]
    assert (modelled["impl"], modelled["size_bytes"]) == ("one_copy", record["workload"]["size_bytes"])
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("copy into the kernel")]
    misses = [one for one in modelled["rows"] if (one["category"], one["side"]) == ("copy_in", "sender")]
    spelled = f"{sum(one['l1d_load_misses_per_kib'] for one in misses):.2f}"
    assert "LLC sim" in done.stdout and spelled in row.split() and 15.5 <= float(spelled) <= 17
    if not record["machine"]["pmu"]:
        assert all(one["l1d_misses"] is None for one in record["ledger"])
