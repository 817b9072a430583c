# SPDX-License-Identifier: GPL-2.0-only
"""Walks over memory in a simulated machine miss caches as theory and cachegrind say."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run.simulate import boot, counted_stacks, kernels, qemu
from copyscope.run.simulate.boot import Guest
from copyscope.run.simulate.kernel_image import save_startable

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which(qemu.PROGRAM) is None, reason=f"{qemu.PROGRAM} is not installed"),
]

SOURCES = ("tests/simulator/walks.c", "src/guest/channel.c")
L1D = ("32768", "8", "64")
# Cases of walks.c, in its order.
WORDS_8K, WORDS_128K, WORDS_4M, LINES_256K, PAGES_64K, SSE_8K, SSE_1M = range(7)
MOVSB_8K, MOVSB_1M, MOVSB_4M, FRESH_4M, SMALL_4M, HUGE_4M, DROP_16, DROP_64 = range(7, 15)
# Load and store misses of an L1D of 32 KiB with 8 ways, by case.
LINES = {
    WORDS_8K: (0, 0),
    WORDS_128K: (4 * 2048, 0),
    WORDS_4M: (2 * 65536, 0),
    # The walk reads every second of 4,096 lines.
    LINES_256K: (4 * 2048, 0),
    SSE_8K: (0, 0),
    SSE_1M: (4 * 16384, 4 * 16384),
    MOVSB_8K: (0, 0),
    MOVSB_1M: (4 * 16384, 4 * 16384),
    MOVSB_4M: (2 * 65536, 2 * 65536),
}
# Bytes read and written, by case.
BYTES = {
    WORDS_8K: (4 * 8192, 0),
    WORDS_128K: (4 << 17, 0),
    WORDS_4M: (8 << 20, 0),
    LINES_256K: (4 * 2048 * 8, 0),
    SSE_8K: (4 << 13, 4 << 13),
    SSE_1M: (4 << 20, 4 << 20),
    MOVSB_8K: (4 << 13, 4 << 13),
    MOVSB_1M: (4 << 20, 4 << 20),
    MOVSB_4M: (8 << 20, 8 << 20),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    executable: Path = tmp_path_factory.mktemp("walks") / "walks"
    options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-static"]
    subprocess.run(["cc", *options, "-o", executable, *SOURCES], cwd=paths.ROOT, check=True, timeout=60)
    return executable


@pytest.fixture(scope="module")
def counted(program: Path) -> list[counted_stacks.MeasuredStacks]:
    """Counts of each case, all from one boot. User mode is the stack without frames."""
    installed_qemu = qemu.find_qemu()
    programs = boot.build(installed_qemu)
    try:
        kernel = kernels.get_kernel(kernels.DEFAULT, lambda _: None)
    except RunError as error:
        pytest.skip(str(error))
    symbols = boot.kernel_symbols(kernel, installed_qemu, programs, lambda _: None)
    with Guest(save_startable(kernel), boot.build_cpio({"init": program.read_bytes()})) as guest:
        plugin = qemu.plugin_argument(
            programs.plugin, [("out", guest.counted.path), ("symbols", symbols), ("vcpus", "1")]
        )
        # `exact`, because on a busy host more interrupts would evict cache lines.
        machine = qemu.BootSettings(vcpus=1, seed=1, exact=True, plugin=plugin)
        guest.run(
            qemu.command(installed_qemu, machine, guest.files), kernel.directory / "console", lambda _: None
        )
        measured = counted_stacks.parse(guest.counted.text())
    assert len(measured) == DROP_64 + 1
    return measured


def of_user_mode(measured: counted_stacks.MeasuredStacks) -> dict[str, int]:
    rows = [stack for stack in measured.stacks if stack.side == "sender" and not stack.frames]
    assert len(rows) == 1
    return rows[0].counts


def test_walks_miss_the_cache_as_theory_says(counted: list[counted_stacks.MeasuredStacks]) -> None:
    for case, (read, written) in LINES.items():
        user = of_user_mode(counted[case])
        assert user["l1d_load_misses"] == pytest.approx(read, rel=0.01, abs=20), case
        assert user["l1d_store_misses"] == pytest.approx(written, rel=0.01, abs=20), case
    # 16 lines at a distance of a page share one set of 8 ways.
    assert 64 <= of_user_mode(counted[PAGES_64K])["l1d_load_misses"] < 84


def test_bytes_of_walks_are_exact_for_every_instruction(counted: list[counted_stacks.MeasuredStacks]) -> None:
    for case, (read, written) in BYTES.items():
        user = of_user_mode(counted[case])
        assert user["read_bytes"] == pytest.approx(read, abs=1000), case
        assert user["written_bytes"] == pytest.approx(written, abs=1000), case
    # `rep movsb` counts as one instruction, and the walk runs it four times.
    assert of_user_mode(counted[MOVSB_1M])["instructions"] < 200


def test_the_kernel_zeroes_each_fresh_page(counted: list[counted_stacks.MeasuredStacks]) -> None:
    """The kernel zeroes 1,024 pages of 4 KiB, and at most three for their page table."""
    counts = max(
        (stack.counts for stack in counted[FRESH_4M].stacks if stack.side == "sender"),
        key=lambda counts: counts["written_bytes"],
    )
    assert 1024 <= counts["calls"] <= 1027
    assert counts["written_bytes"] == pytest.approx(4 << 20, rel=0.01)
    assert counts["written_lines"] == pytest.approx(65536, rel=0.01)
    assert counts["l1d_store_misses"] == pytest.approx(65536, rel=0.01)


def test_tlb_misses_depend_on_the_page_size(counted: list[counted_stacks.MeasuredStacks]) -> None:
    """A walk visits 1,024 small pages four times, or two huge ones. The TLBs have 64 and 2,048 entries."""
    small, huge = (of_user_mode(counted[case]) for case in (SMALL_4M, HUGE_4M))
    assert small["tlb_l1_misses"] == pytest.approx(4 * 1024, rel=0.01)
    assert small["tlb_l2_misses"] < 20 and huge["tlb_l1_misses"] < 20
    # Both walks read the same lines. Each line is one of 1,024 in a set of 8 ways.
    assert small["l1d_load_misses"] == pytest.approx(4 * 1024, rel=0.01, abs=20)


def test_tlb_flushes_are_counted_and_drop_entries(counted: list[counted_stacks.MeasuredStacks]) -> None:
    """The kernel flushes 16 pages one by one, or all pages for 64, ten times each."""
    by_page, by_all = (
        sum(stack.counts["tlb_flushes"] for stack in counted[case].stacks if stack.side == "sender")
        for case in (DROP_16, DROP_64)
    )
    assert (by_page, by_all) == (10 * 16, 10)
    few_misses, many_misses = (of_user_mode(counted[case])["tlb_l1_misses"] for case in (DROP_16, DROP_64))
    # QEMU 9.0 and newer reports the flushed page. Page faults in between evict a few more entries.
    flushes_are_visible = qemu.find_qemu().api > 1
    assert 10 * 16 * flushes_are_visible <= few_misses < 10 * (16 + 8) and 10 * (
        64 + 16
    ) <= many_misses < 10 * (64 + 16 + 8)


def cachegrind(program: Path, case: int, rounds: int) -> tuple[int, int, int]:
    """Return (instructions, read misses, write misses) of the L1D by cachegrind."""
    options = [
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--cachegrind-out-file=/dev/null",
        f"--D1={','.join(L1D)}",
    ]
    argv = ["valgrind", *options, str(program), str(case), str(rounds)]
    output = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=True).stderr.replace(
        ",", ""
    )
    instructions = re.search(r"I +refs: +(\d+)", output)
    misses = re.search(r"D1 +misses: +\d+ +\( *(\d+) rd +\+ +(\d+) wr", output)
    assert instructions and misses
    return int(instructions[1]), int(misses[1]), int(misses[2])


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("case", [WORDS_128K, SSE_1M])
def test_cachegrind_counts_the_same_misses(
    program: Path, counted: list[counted_stacks.MeasuredStacks], case: int
) -> None:
    user = of_user_mode(counted[case])
    start_only, with_rounds = cachegrind(program, case, 0), cachegrind(program, case, 4)
    instructions, read, written = (more - less for more, less in zip(with_rounds, start_only, strict=True))
    assert user["instructions"] == pytest.approx(instructions, rel=0.01)
    assert user["l1d_load_misses"] == pytest.approx(read, rel=0.01)
    assert user["l1d_store_misses"] == pytest.approx(written, rel=0.01, abs=20)
