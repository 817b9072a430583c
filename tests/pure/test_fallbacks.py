# SPDX-License-Identifier: GPL-2.0-only
"""Reasons why a program that sends files does not use sendfile."""

import errno
from typing import Any

import pytest
from builders.advised import named, with_advice
from builders.documents import validate
from builders.samples import with_file_reads
from builders.watched import watched_record

Record = dict[str, Any]


def served(comm: str = "server", *, cipher: float = 0.0, **changes: Any) -> Record:
    """Return a program that reads files and sends them by write(), with this part of its code in a cipher."""
    raw = with_file_reads(named(watched_record(size=16_384), comm))
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    for row in raw["user_code"]:
        row |= {"cipher_samples": 0, **changes}
    if cipher:
        taken = {key: copy[key] * cipher for key in ("weight", "weight_squared")}
        taken["samples"] = round(copy["samples"] * cipher)
        of_user = {"kind": "account", "category": "user_encrypt", "context": "user"}
        raw["samples"].append({**copy, **taken, **of_user, "symbol": "AES in libcrypto.so.3"})
    return raw


def advised(raw: Record) -> tuple[Record, dict[str, Record]]:
    full = with_advice(raw)
    assert validate(full) == []
    advice = full["advice"]
    return advice, {remedy["name"]: remedy for remedy in advice["remedies"]}


def test_tls_in_the_program_is_the_reason_and_ktls_the_remedy() -> None:
    advice, by_name = advised(served(cipher=1.5))
    assert by_name["sendfile"]["answer"] == "no"
    assert by_name["sendfile"]["why"].startswith("TLS in the program: its cipher takes 23 %")
    assert by_name["MSG_ZEROCOPY"]["answer"] == "no" and "cipher" in by_name["MSG_ZEROCOPY"]["why"]
    assert by_name["larger sends"]["answer"] == "no"
    why = by_name["kTLS"]["why"]
    assert by_name["kTLS"]["answer"] == "maybe" and "all but the cipher" in why
    assert "needs the kernel's tls module" in why
    assert "may save about" in advice["answer"] and "tls module" in advice["answer"]
    assert "TLS in the program prevents sendfile" in advice["text"]
    assert "crossover" not in advice["text"] and "zero-copy saves" not in advice["text"]


@pytest.mark.parametrize(
    ("comm", "says", "ktls"),
    [
        ("python3", "`loop.sendfile()` and `SSLSocket.sendfile()` fall back to reads and writes", "no"),
        ("nginx", "without kTLS, nginx reads the files", "maybe"),
    ],
)
def test_known_programs_without_sendfile_over_tls(comm: str, says: str, ktls: str) -> None:
    advice, by_name = advised(served(comm, cipher=1.5))
    assert says in advice["text"] and by_name["kTLS"]["answer"] == ktls


def test_little_encryption_is_no_reason() -> None:
    """A little encryption may be for a password, or for one connection in ten."""
    _, by_name = advised(served(cipher=0.1))
    assert by_name["sendfile"]["answer"] == "maybe" and "kTLS" not in by_name


def test_refused_sendfile_is_reported() -> None:
    raw = served()
    (call,) = (row for row in raw["calls"] if row["syscall"] == "write")
    raw["calls"].append({**call, "syscall": "sendfile", "calls": 3, "bytes": 0, "last_errno": None})
    advice, by_name = advised(raw)
    assert by_name["sendfile"]["why"] == "3 calls of sendfile moved nothing: refused"
    assert "3 calls of sendfile moved nothing (refused), so the program sent by calls" in advice["text"]
    raw["calls"][-1] |= {"failed_calls": 3, "last_errno": errno.EINVAL}
    assert advised(raw)[1]["sendfile"]["why"] == "3 calls of sendfile moved nothing: EINVAL"
    raw["calls"][-1]["bytes"] = 1
    assert advised(raw)[1]["sendfile"]["answer"] == "maybe"


def test_splice_that_copies_is_reported() -> None:
    raw = served()
    row = next(row for row in raw["samples"] if row["category"] == "file_read")
    raw["samples"].append({**row, "symbol": "copy_splice_read", "category": "silent"})
    advice, by_name = advised(raw)
    assert by_name["sendfile"]["answer"] == "no" and "(copy_splice_read)" in advice["text"]


def test_guessed_reason_uses_the_word_may() -> None:
    advice, by_name = advised(served("any", made_with="Go"))
    assert by_name["sendfile"]["answer"] == "maybe"
    assert "Sendfile is not in use: a wrapper (`bufio`, or a struct" in advice["text"]
    assert "may hide the file or the connection from `io.Copy()`" in advice["text"]
    assert "is not in use" not in advised(served())[0]["text"]  # no reason is guessed for an unknown program


def test_sends_by_reference_need_no_reason() -> None:
    assert "not in use" not in advised(watched_record(call="sendfile"))[0]["text"]
