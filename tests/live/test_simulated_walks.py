"""A simulated machine that does nothing but walk over memory: theory, and what cachegrind counts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.simulate import boot, initramfs, kernels, output, qemu
from copyscope.simulate.guest import Guest
from copyscope.simulate.unpacked import startable

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which(qemu.PROGRAM) is None, reason=f"{qemu.PROGRAM} is not installed"),
]

SOURCES = ("tests/simulator/walks.c", "src/guest/channel.c")
L1D = ("32768", "8", "64")
# The cases of walks.c in their order.
WORDS_8K, WORDS_128K, WORDS_4M, LINES_256K, PAGES_64K, SSE_8K, SSE_1M = range(7)
MOVSB_8K, MOVSB_1M, MOVSB_4M, FRESH_4M, SMALL_4M, HUGE_4M, DROP_16, DROP_64 = range(7, 15)
# Lines read and written that are not in an L1D of 32 KiB in 8 ways.
LINES = {
    WORDS_8K: (0, 0),
    WORDS_128K: (4 * 2048, 0),
    WORDS_4M: (2 * 65536, 0),
    # Every second of 4,096 lines.
    LINES_256K: (4 * 2048, 0),
    SSE_8K: (0, 0),
    SSE_1M: (4 * 16384, 4 * 16384),
    MOVSB_8K: (0, 0),
    MOVSB_1M: (4 * 16384, 4 * 16384),
    MOVSB_4M: (2 * 65536, 2 * 65536),
}
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
    made: Path = tmp_path_factory.mktemp("walks") / "walks"
    options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-static"]
    subprocess.run(["cc", *options, "-o", made, *SOURCES], cwd=paths.ROOT, check=True, timeout=60)
    return made


@pytest.fixture(scope="module")
def counted(program: Path) -> list[output.Measurement]:
    """Each case, counted in one boot; what user mode did is the row without frames."""
    found = qemu.find()
    programs = boot.build(found)
    try:
        kernel = kernels.take(kernels.DEFAULT, lambda _: None)
    except RunError as error:
        pytest.skip(str(error))
    symbols = boot.kernel_symbols(kernel, found, programs, lambda _: None)
    with Guest(startable(kernel), initramfs.cpio({"init": program.read_bytes()})) as guest:
        plugin = qemu.plugin_argument(
            programs.plugin, [("out", guest.counted.path), ("symbols", symbols), ("vcpus", "1")]
        )
        # On a busy host more interrupts would come between, and take lines.
        machine = qemu.Machine(vcpus=1, seed=1, exact=True, plugin=plugin)
        guest.run(qemu.command(found, machine, guest.files), kernel.place / "console", lambda _: None)
        measured = output.parse(guest.counted.text())
    assert len(measured) == DROP_64 + 1
    return measured


def of_user_mode(measured: output.Measurement) -> dict[str, int]:
    rows = [stack for stack in measured.stacks if stack.side == "sender" and not stack.frames]
    assert len(rows) == 1
    return rows[0].counts


def test_walks_miss_what_theory_says(counted: list[output.Measurement]) -> None:
    for case, (read, written) in LINES.items():
        user = of_user_mode(counted[case])
        assert user["l1d_load_misses"] == pytest.approx(read, rel=0.01, abs=20), case
        assert user["l1d_store_misses"] == pytest.approx(written, rel=0.01, abs=20), case
    # 16 lines a page apart share one set of 8 ways.
    assert 64 <= of_user_mode(counted[PAGES_64K])["l1d_load_misses"] < 84


def test_bytes_are_exact_however_they_are_moved(counted: list[output.Measurement]) -> None:
    for case, (read, written) in BYTES.items():
        user = of_user_mode(counted[case])
        assert user["read_bytes"] == pytest.approx(read, abs=1000), case
        assert user["written_bytes"] == pytest.approx(written, abs=1000), case
    # A `rep movsb` is one instruction, four times.
    assert of_user_mode(counted[MOVSB_1M])["instructions"] < 200


def test_the_kernel_zeroes_each_fresh_page(counted: list[output.Measurement]) -> None:
    """1,024 of 4 KiB, and three at most for their table."""
    counts = max(
        (one.counts for one in counted[FRESH_4M].stacks if one.side == "sender"),
        key=lambda c: c["written_bytes"],
    )
    assert 1024 <= counts["calls"] <= 1027
    assert counts["written_bytes"] == pytest.approx(4 << 20, rel=0.01)
    assert counts["written_lines"] == pytest.approx(65536, rel=0.01)
    assert counts["l1d_store_misses"] == pytest.approx(65536, rel=0.01)


def test_pages_miss_the_tlb_by_their_size(counted: list[output.Measurement]) -> None:
    """1,024 small pages four times: the first level has 64 entries, the second 2,048; or two huge ones."""
    small, huge = (of_user_mode(counted[case]) for case in (SMALL_4M, HUGE_4M))
    assert small["tlb_l1_misses"] == pytest.approx(4 * 1024, rel=0.01)
    assert small["tlb_l2_misses"] < 20 and huge["tlb_l1_misses"] < 20
    # The lines are the same: each is one of 1,024 that share a set of 8 ways.
    assert small["l1d_load_misses"] == pytest.approx(4 * 1024, rel=0.01, abs=20)


def test_flushes_are_counted_and_lose_their_translations(counted: list[output.Measurement]) -> None:
    """Ten times 16 pages one by one, or 64 at once, with which the 16 others go, too."""
    by_page, by_all = (
        sum(one.counts["tlb_flushes"] for one in counted[case].stacks if one.side == "sender")
        for case in (DROP_16, DROP_64)
    )
    assert (by_page, by_all) == (10 * 16, 10)
    few, many = (of_user_mode(counted[case])["tlb_l1_misses"] for case in (DROP_16, DROP_64))
    # Which page it was QEMU shows from 9.0 on. Page faults in between take some more entries.
    shown = qemu.find().api > 1
    assert 10 * 16 * shown <= few < 10 * (16 + 8) and 10 * (64 + 16) <= many < 10 * (64 + 16 + 8)


def cachegrind(program: Path, case: int, rounds: int) -> tuple[int, int, int]:
    """(instructions, read misses, write misses) of the L1D."""
    words = [
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--cachegrind-out-file=/dev/null",
        f"--D1={','.join(L1D)}",
    ]
    argv = ["valgrind", *words, str(program), str(case), str(rounds)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=True).stderr.replace(
        ",", ""
    )
    instructions = re.search(r"I +refs: +(\d+)", said)
    misses = re.search(r"D1 +misses: +\d+ +\( *(\d+) rd +\+ +(\d+) wr", said)
    assert instructions and misses
    return int(instructions[1]), int(misses[1]), int(misses[2])


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("case", [WORDS_128K, SSE_1M])
def test_cachegrind_counts_the_same(program: Path, counted: list[output.Measurement], case: int) -> None:
    user = of_user_mode(counted[case])
    none, all_of_it = cachegrind(program, case, 0), cachegrind(program, case, 4)
    instructions, read, written = (more - less for more, less in zip(all_of_it, none, strict=True))
    assert user["instructions"] == pytest.approx(instructions, rel=0.01)
    assert user["l1d_load_misses"] == pytest.approx(read, rel=0.01)
    assert user["l1d_store_misses"] == pytest.approx(written, rel=0.01, abs=20)
