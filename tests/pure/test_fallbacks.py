"""Why a program that reads files and sends them does so without sendfile: by what is recorded of it."""

import errno
from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.judge import advice
from copyscope.ledger.derive import derive
from copyscope.record import store

Record = dict[str, Any]


def served(comm: str = "server", *, cipher: float = 0.0, **changes: Any) -> Record:
    """A program that reads files and sends them by write(); of its own code so much is a cipher."""
    raw = watched_record(size=16_384)
    raw["topology"]["packet_sockets"] = []
    raw["target"] |= {"pids": [{"pid": 4711, "comm": comm}], "comm": comm}
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    raw["samples"].append({**copy, "symbol": "filemap_read", "category": "file_read", "kind": "account"})
    for row in raw["user_code"]:
        row |= {"cipher_samples": 0, **changes}
    if cipher:
        taken = {key: copy[key] * cipher for key in ("weight", "weight_squared")}
        taken["samples"] = round(copy["samples"] * cipher)
        of_user = {"kind": "account", "category": "user_encrypt", "context": "user"}
        raw["samples"].append({**copy, **taken, **of_user, "symbol": "AES in libcrypto.so.3"})
    return raw


def advised(raw: Record) -> tuple[Record, dict[str, Record]]:
    full = derive(raw)
    made = advice.advise(full, None)
    assert store.validate(full | {"advice": made}) == []
    return made, {one["name"]: one for one in made["remedies"]}


def test_tls_in_the_program_is_why_and_ktls_is_the_way_out() -> None:
    made, found = advised(served(cipher=1.5))
    assert found["sendfile"]["answer"] == "no"
    assert found["sendfile"]["why"].startswith("TLS in the program: its cipher takes 23 %")
    assert found["MSG_ZEROCOPY"]["answer"] == "no" and "cipher" in found["MSG_ZEROCOPY"]["why"]
    assert found["larger sends"]["answer"] == "no"
    why = found["kTLS"]["why"]
    assert found["kTLS"]["answer"] == "maybe" and "both copies" in why
    assert "the cipher is the only copy then" in why and "needs the kernel's tls module" in why
    assert "may save all copies but the cipher" in made["answer"] and "tls module" in made["answer"]
    assert "TLS in the program keeps it from sendfile" in made["text"]
    assert "crossover" not in made["text"] and "zero-copy saves" not in made["text"]


@pytest.mark.parametrize(
    ("comm", "says", "ktls"),
    [
        ("python3", "`loop.sendfile()` and `SSLSocket.sendfile()` fall back to reads and writes", "no"),
        ("nginx", "without kTLS nginx reads files", "maybe"),
    ],
)
def test_what_known_programs_do_over_tls(comm: str, says: str, ktls: str) -> None:
    made, found = advised(served(comm, cipher=1.5))
    assert says in made["text"] and found["kTLS"]["answer"] == ktls


def test_a_little_encryption_beside_many_copies_is_no_reason() -> None:
    """Of a password, or of one connection in ten."""
    _, found = advised(served(cipher=0.1))
    assert found["sendfile"]["answer"] == "maybe" and "kTLS" not in found


def test_sendfile_that_moved_nothing_was_refused() -> None:
    raw = served()
    (call,) = (row for row in raw["calls"] if row["syscall"] == "write")
    raw["calls"].append({**call, "syscall": "sendfile", "calls": 3, "bytes": 0, "last_errno": None})
    made, found = advised(raw)
    assert found["sendfile"]["why"] == "3 calls of sendfile moved nothing: refused"
    assert "3 calls of sendfile moved nothing: refused, and what it sent went by calls" in made["text"]
    raw["calls"][-1] |= {"failed_calls": 3, "last_errno": errno.EINVAL}
    assert advised(raw)[1]["sendfile"]["why"] == "3 calls of sendfile moved nothing: EINVAL"
    raw["calls"][-1]["bytes"] = 1
    assert advised(raw)[1]["sendfile"]["answer"] == "maybe"


def test_splice_that_copies_is_said() -> None:
    raw = served()
    row = next(row for row in raw["samples"] if row["category"] == "file_read")
    raw["samples"].append({**row, "symbol": "copy_splice_read", "category": "silent"})
    made, found = advised(raw)
    assert found["sendfile"]["answer"] == "no" and "(copy_splice_read)" in made["text"]


def test_what_is_a_guess_is_a_may() -> None:
    made, found = advised(served("any", made_with="Go"))
    assert found["sendfile"]["answer"] == "maybe"
    assert "Sendfile is not in use: a wrapper around the file or the connection" in made["text"]
    assert "may hide it from `io.Copy()`" in made["text"]
    assert "is not in use" not in advised(served())[0]["text"]  # of an unknown program nothing is guessed


def test_by_reference_nothing_falls_back() -> None:
    assert "not in use" not in advised(watched_record(call="sendfile"))[0]["text"]
