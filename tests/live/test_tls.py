# SPDX-License-Identifier: GPL-2.0-only
"""Kernel TLS in our own traffic: every byte is encrypted, and only parts of TLS records are copied first."""

import json
import subprocess
from typing import Any

import pytest
from copyscope.base import paths
from profiling import SLOW, broken_identities, is_root, profile

# A record of TLS 1.3 has at most 16 KiB of plaintext, and 22 bytes of overhead (RFC 8446, 5).
RECORD_BYTES, OVERHEAD_BYTES = 16_384, 22
BY_WHOLE_RECORDS = ("one_copy", "sendfile", "sendfile --via splice", "vmsplice")
IN_RING = ("uring_send", "uring_send --issue async")
# Identities that fail in an emulated guest because its timer interrupts come late.
FAIL_IN_GUESTS = ("sender_time", "receiver_time")


def why_no_tls() -> str | None:
    """Return why kernel TLS cannot be used, or None. The module may be absent, and only root can load it."""
    argv = [str(paths.TRAFFIC), "send", "--impl", "one_copy", "--tls", "1.3", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else None


pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to make namespaces"),
    pytest.mark.skipif(why_no_tls() is not None, reason=why_no_tls() or ""),
]


def record_of(*options: str) -> dict[str, Any]:
    done = profile(
        "--json", "-", "--tls", "--duration", "2", "--instruments", "sampler", *options, check=None
    )
    assert done.stdout, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    broken = [
        line for line in broken_identities(record) if not (SLOW > 1 and line.startswith(FAIL_IN_GUESTS))
    ]
    assert broken == [] and record["run"]["errors"] == []
    return record


def samples_of(record: dict[str, Any], account: str) -> int:
    return sum(row["samples"] or 0 for row in record["ledger"] if row["account"] == account)


def rows_of(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows by account. Every sent byte was encrypted and decrypted."""
    rows = {row["account"]: row for row in record["ledger"] if row["bytes"] is not None}
    sent = sum(
        segment["sides"]["sender"]["bytes"]
        for segment in record["run"]["segments"]
        if segment["phase"] == "ledger"
    )
    assert (rows["encrypt"]["bytes"], rows["decrypt"]["bytes"]) == (sent, sent)
    assert samples_of(record, "encrypt") > 0 and samples_of(record, "decrypt") > 0
    return rows


@pytest.mark.parametrize("words", BY_WHOLE_RECORDS)
def test_whole_tls_records_are_encrypted_without_a_copy(words: str) -> None:
    record = record_of("--impl", *words.split(), "--size", "64K")
    rows = rows_of(record)
    assert rows["encrypt"]["calls"] == rows["encrypt"]["bytes"] / RECORD_BYTES
    assert samples_of(record, "copy_in") == 0
    sender = record["traffic"]["sender"]
    acked = sum(thread["tcp_info"]["bytes_acked"] for thread in sender["threads"])
    assert acked == sender["bytes"] + sender["messages"] * 4 * OVERHEAD_BYTES
    assert (sender["tls"]["software_connections"], sender["tls"]["device_connections"]) == (1, 0)


def test_io_uring_sends_every_byte_over_tls_without_known_record_count() -> None:
    """Kernel TLS refuses MSG_WAITALL. Without it a request ends short if the socket buffer is full."""
    record = record_of("--impl", "uring_send", "--size", "64K")
    rows = rows_of(record)
    if record["traffic"]["sender"]["short_sends"]:
        assert rows["encrypt"]["calls"] is None and rows["encrypt"]["reasons"]["calls"]


def test_parts_of_a_tls_record_are_copied_first() -> None:
    record = record_of("--impl", "per_field", "--push", "more", "--size", "8K")
    assert samples_of(record, "copy_in") > 0


@pytest.mark.parametrize("impl", ["zero_copy", "uring_zc"])
def test_zero_copy_over_tls_is_refused_by_name(impl: str) -> None:
    done = profile("--impl", impl, "--tls", "--duration", "1", check=2)
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert (
        f"not together with {impl}: a kTLS socket refuses MSG_ZEROCOPY and SEND_ZC (EOPNOTSUPP)"
        in done.stderr
    )


def send_twenty_messages(words: str, version: str, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send twenty messages and verify every byte. Return the reports of sender and receiver."""
    options = ["--verify", "--tls", version, "--size", str(size)]
    send = [str(paths.TRAFFIC), "send", "--impl", *words.split(), "--messages", "20", *options]
    with subprocess.Popen(send, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sender:
        assert sender.stderr is not None
        port = sender.stderr.readline().rpartition(":")[2].strip()
        receive = [str(paths.TRAFFIC), "recv", "--port", port, *options]
        received = subprocess.run(receive, capture_output=True, text=True, check=False, timeout=30 * SLOW)
        sent, errors = sender.communicate(timeout=30 * SLOW)
    assert (sender.returncode, received.returncode) == (0, 0), errors + received.stderr
    return json.loads(sent), json.loads(received.stdout)


@pytest.mark.parametrize("words", ["per_field", *BY_WHOLE_RECORDS, *IN_RING])
def test_every_byte_over_tls_arrives_unchanged(words: str) -> None:
    """Messages are whole TLS records in version 1.2, and end with a part of a record in 1.3."""
    for version, size, overhead_bytes in (("1.2", 65_536, 29), ("1.3", 40_001, OVERHEAD_BYTES)):
        sent, received = send_twenty_messages(words, version, size)
        verified = {"checked_bytes": 20 * size, "wrong_bytes": 0, "first_wrong_offset": None}
        assert received["verify"] == verified
        acked = sum(thread["tcp_info"]["bytes_acked"] for thread in sent["threads"])
        if sent["short_sends"]:
            assert words in IN_RING and sent["tls_records"] is None
        else:
            assert acked == 20 * size + sent["tls_records"] * overhead_bytes
        if words in BY_WHOLE_RECORDS:
            assert sent["tls_records"] == 20 * -(-size // RECORD_BYTES)
