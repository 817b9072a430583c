# SPDX-License-Identifier: GPL-2.0-only
"""The row `gather` agrees with a program that reports its time in copies of its own memory (copies.c).

The row `user_encrypt` agrees with a program that reports its time in ciphers (encrypts.c).
"""

import json
import platform
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.run.code_file import LIBC, File, parse_mapping
from copyscope.run.elf import TableBudget
from profiling import SLOW, broken_identities, in_all, is_root
from programs import SAMPLED, watch

Record = dict[str, Any]

PROGRAMS = paths.OUTPUT / "tests"
SECONDS = str(2 if SLOW == 1 else 3 * SLOW)
UNSUPPORTED_STATUS = 77

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(not (PROGRAMS / "copies").exists(), reason="needs copies: make .output/tests/copies"),
]


def gather_of(program: str, how: str, directory: Path) -> tuple[Record, Record, float]:
    return row_of("gather", program, how, directory)


def row_of(account: str, program: str, how: str, directory: Path) -> tuple[Record, Record, float]:
    """Watch a program.

    Return (record, its row of the account, share of copies or ciphers by the program's report).
    """
    report = directory / how
    how_often = (*SAMPLED, "--whole", "--frequency", "997")
    record = watch(*how_often, "--", str(PROGRAMS / program), how, SECONDS, str(report), check=None)
    if record["target"]["status"] == UNSUPPORTED_STATUS:
        pytest.skip(f"this processor cannot do {how}")
    assert broken_identities(record) == []
    (row,) = (row for row in record["ledger"] if row["account"] == account)
    truth = json.loads(report.read_text())
    return record, row, truth["copy_ns"] / (truth["copy_ns"] + truth["other_ns"])


@pytest.mark.quiet
@pytest.mark.parametrize("program", ["copies", in_all("copies-static")])
@pytest.mark.parametrize("how", ["memcpy", in_all("rep")])
def test_the_share_of_copies_in_user_memory_is_measured(program: str, how: str, tmp_path: Path) -> None:
    """libc's memcpy() has no symbol in a stripped libc, and a static program has its own memcpy()."""
    record, row, truth = gather_of(program, how, tmp_path)
    assert 0.45 < truth < 0.55
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(code["samples"] for code in record["user_code"])
    # Four standard errors of a share of one half with this number of samples.
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=max(0.04, 2 / samples**0.5))
    assert row["share"] > 0.3  # the kernel takes the rest: clocks, sends, interrupts
    # Other functions copy little: libc does at start and when the program writes its report.
    copies = Counter[str]()
    for sample in record["samples"]:
        copies[sample["symbol"]] += sample["samples"] * (sample["category"] == "gather")
    expected_symbols = [name for name in copies if ("mem" in name if how == "memcpy" else name == "rep movs")]
    assert sum(copies[name] for name in expected_symbols) > 0.95 * copies.total(), copies
    callers = {caller["caller"]: caller["samples"] for caller in record["user_callers"]}
    copier = "copy_by_libc" if how == "memcpy" else "copy_by_instruction"
    assert callers[copier] > 0.95 * sum(callers.values())


@pytest.mark.all
@pytest.mark.quiet
@pytest.mark.skipif(platform.machine() != "x86_64", reason="ChaCha20 has special instructions on x86-64 only")
@pytest.mark.parametrize("how", ["EVP_aes_128_gcm", "EVP_chacha20_poly1305", "EVP_sha256"])
def test_the_share_of_a_cipher_in_user_code_is_measured(how: str, tmp_path: Path) -> None:
    """libcrypto is stripped: known ciphers are recognised, and the share of other functions stays unknown."""
    record, row, truth = row_of("user_encrypt", "encrypts", how, tmp_path)
    assert 0.4 < truth < 0.6
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(code["samples"] for code in record["user_code"])
    tolerance = max(0.04, 2 / samples**0.5)
    if how == "EVP_sha256":
        low, high = (row["ci"][end] / record["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns"))
        assert row["share"] is None and low == 0 and high == pytest.approx(truth * user, abs=tolerance)
        assert "libcrypto.so.3 as a whole: stripped" in row["reasons"]["share"]
        return
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=tolerance)
    samples_by_symbol = {
        row["symbol"]: row["samples"] for row in record["samples"] if row["category"] == "user_encrypt"
    }
    name = "AES" if "aes" in how else "ChaCha20"
    main_symbol = max(samples_by_symbol, key=lambda symbol: samples_by_symbol[symbol])
    assert main_symbol in (f"{name} in libcrypto.so.3", "aesni_gcm_encrypt", "ChaCha20_8x"), samples_by_symbol


@pytest.mark.all
@pytest.mark.quiet
@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_ciphers_of_go_are_recognised_by_name(tmp_path: Path) -> None:
    program = tmp_path / "encrypts-go"
    argv = ["go", "build", "-o", str(program), str(Path(__file__).parent / "encrypts.go")]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60 * SLOW)
    record, row, truth = row_of("user_encrypt", str(program), "gcm", tmp_path)
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(code["samples"] for code in record["user_code"])
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=max(0.04, 2 / samples**0.5))


@pytest.mark.all
def test_a_program_without_copies_has_a_share_of_zero(tmp_path: Path) -> None:
    _, row, truth = gather_of("copies", "none", tmp_path)
    assert truth == 0 and row["share"] == pytest.approx(0, abs=0.01)


@pytest.mark.all
def test_symbols_are_read_after_the_program_exited() -> None:
    """While the program runs, only its mappings and the resolved variants of libc are read."""
    libc = None
    with subprocess.Popen(["sleep", "60"]) as program:
        while libc is None:
            mapped = map(parse_mapping, Path(f"/proc/{program.pid}/maps").read_text().splitlines())
            libc = next(
                (mapping for mapping in mapped if mapping and LIBC.match(Path(mapping.path).name)), None
            )
        file = File.of(program.pid, libc, TableBudget())
        assert not file.is_read and file.resolved
        program.kill()
    file.read()
    assert file.why is None
    assert {"memcpy", "memmove"} <= {name.partition("@")[0] for _, name in file.copies}


@pytest.mark.all
def test_copies_of_a_stripped_static_program_are_unknown_and_never_zero(tmp_path: Path) -> None:
    record, row, _ = gather_of("copies-stripped", "memcpy", tmp_path)
    assert row["share"] is None and row["cpu_ns"] is None
    assert "copies-stripped: static and stripped" in row["reasons"]["share"]
    # Unknown copies count as other user work, so that all rows add up.
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    assert user > 0.6
