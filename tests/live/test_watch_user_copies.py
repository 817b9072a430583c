"""A program that says for how long it copied in its own memory (copies.c): the row `gather` says the same.

One that encrypts there (encrypts.c): the row `user_encrypt`.
"""

import json
import platform
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from copyscope.run.code_file import LIBC, File, parse_mapping
from profiling import SLOW, broken_identities, in_all, is_root
from programs import SAMPLED, watch

Record = dict[str, Any]

PROGRAMS = paths.OUTPUT / "tests"
SECONDS = str(2 if SLOW == 1 else 3 * SLOW)
CANNOT = 77

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(not (PROGRAMS / "copies").exists(), reason="needs copies: make .output/tests/copies"),
]


def gather_of(program: str, how: str, directory: Path) -> tuple[Record, Record, float]:
    return row_of("gather", program, how, directory)


def row_of(account: str, program: str, how: str, directory: Path) -> tuple[Record, Record, float]:
    """The record, its row of this account, and the part of its time that the program says it copied."""
    report = directory / how
    how_often = (*SAMPLED, "--whole", "--frequency", "997")
    record = watch(*how_often, "--", str(PROGRAMS / program), how, SECONDS, str(report), check=None)
    if record["target"]["status"] == CANNOT:
        pytest.skip(f"this processor cannot do {how}")
    assert broken_identities(record) == []
    (row,) = (row for row in record["ledger"] if row["account"] == account)
    truth = json.loads(report.read_text())
    return record, row, truth["copy_ns"] / (truth["copy_ns"] + truth["other_ns"])


@pytest.mark.quiet
@pytest.mark.parametrize("program", ["copies", in_all("copies-static")])
@pytest.mark.parametrize("how", ["memcpy", in_all("rep")])
def test_half_of_its_time_is_copying(program: str, how: str, tmp_path: Path) -> None:
    """libc's memcpy() has no name in a libc without symbols, and another one in a static program."""
    record, row, truth = gather_of(program, how, tmp_path)
    assert 0.45 < truth < 0.55
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(one["samples"] for one in record["user_code"])
    # Four times the spread of so many samples of two things.
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=max(0.04, 2 / samples**0.5))
    assert row["share"] > 0.3  # the rest of its time is the kernel's: clocks, sends, interrupts
    # Nobody else copies there for long: libc does when the program begins and when it writes its report.
    copies = Counter[str]()
    for one in record["samples"]:
        copies[one["symbol"]] += one["samples"] * (one["category"] == "gather")
    of_its_own = [name for name in copies if ("mem" in name if how == "memcpy" else name == "rep movs")]
    assert sum(copies[name] for name in of_its_own) > 0.95 * copies.total(), copies
    callers = {one["caller"]: one["samples"] for one in record["user_callers"]}
    copier = "copy_by_libc" if how == "memcpy" else "copy_by_instruction"
    assert callers[copier] > 0.95 * sum(callers.values())


@pytest.mark.quiet
@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="elsewhere ChaCha20 has no instructions of its own"
)
@pytest.mark.parametrize("how", ["EVP_aes_128_gcm", in_all("EVP_chacha20_poly1305"), in_all("EVP_sha256")])
def test_half_of_its_time_is_a_cipher(how: str, tmp_path: Path) -> None:
    """Of a libcrypto without symbols; what is no cipher there may be one, and is not said to be."""
    record, row, truth = row_of("user_encrypt", "encrypts", how, tmp_path)
    assert 0.4 < truth < 0.6
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(one["samples"] for one in record["user_code"])
    near = max(0.04, 2 / samples**0.5)
    if how == "EVP_sha256":
        low, high = (row["ci"][end] / record["sides"]["target"]["cpu_ns"] for end in ("low_ns", "high_ns"))
        assert row["share"] is None and low == 0 and high == pytest.approx(truth * user, abs=near)
        assert "libcrypto.so.3 as a whole: stripped" in row["reasons"]["share"]
        return
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=near)
    found = {one["symbol"]: one["samples"] for one in record["samples"] if one["category"] == "user_encrypt"}
    name = "AES" if "aes" in how else "ChaCha20"
    most = max(found, key=lambda symbol: found[symbol])
    assert most in (f"{name} in libcrypto.so.3", "aesni_gcm_encrypt", "ChaCha20_8x"), found


@pytest.mark.all
@pytest.mark.quiet
@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_ciphers_of_go_are_known_by_their_names(tmp_path: Path) -> None:
    program = tmp_path / "encrypts-go"
    argv = ["go", "build", "-o", str(program), str(Path(__file__).parent / "encrypts.go")]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60 * SLOW)
    record, row, truth = row_of("user_encrypt", str(program), "gcm", tmp_path)
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    samples = sum(one["samples"] for one in record["user_code"])
    assert row["share"] / (row["share"] + user) == pytest.approx(truth, abs=max(0.04, 2 / samples**0.5))


@pytest.mark.all
def test_what_copies_nothing_is_zero(tmp_path: Path) -> None:
    _, row, truth = gather_of("copies", "none", tmp_path)
    assert truth == 0 and row["share"] == pytest.approx(0, abs=0.01)


@pytest.mark.all
def test_symbols_are_read_when_the_program_is_gone() -> None:
    """While it runs nothing is read but where its files are, and which variants its libc chose."""
    libc = None
    with subprocess.Popen(["sleep", "60"]) as program:
        while libc is None:
            mapped = map(parse_mapping, Path(f"/proc/{program.pid}/maps").read_text().splitlines())
            libc = next((one for one in mapped if one and LIBC.match(Path(one.path).name)), None)
        file = File.of(program.pid, libc)
        assert not file.is_read and file.chosen
        program.kill()
    file.read()
    assert file.why is None
    assert {"memcpy", "memmove"} <= {name.partition("@")[0] for _, name in file.copies}


@pytest.mark.all
def test_a_static_program_without_symbols_is_not_known_and_never_zero(tmp_path: Path) -> None:
    record, row, _ = gather_of("copies-stripped", "memcpy", tmp_path)
    assert row["share"] is None and row["cpu_ns"] is None
    assert "copies-stripped: static and stripped" in row["reasons"]["share"]
    # What is not known stands among its other work, and all of it adds up.
    user = sum(stage["share"] for stage in record["stages"] if stage["stage"] == "user")
    assert user > 0.6
