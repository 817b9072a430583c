# SPDX-License-Identifier: GPL-2.0-only
"""Advice for programs that read a file and send it (asyncio over TLS, io.Copy() in Go) without sendfile."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profiling import SLOW, broken_identities, is_root
from programs import SAMPLED, certificate, free_port, missing, receiving, running, wait_for_port, watch

HERE = Path(__file__).parent
Record = dict[str, Any]

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(missing("openssl") is not None, reason="needs openssl, which makes the certificate"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    (directory / "big").write_bytes(bytes(16 << 20))
    certificate(directory)
    return directory


def advised(argv: list[str], port: int, *, tls: bool) -> tuple[Record, dict[str, Record]]:
    """Watch a server that sends a file. Return the record and the remedies of its advice, by name."""
    with running(argv) as server:
        wait_for_port(port)
        with receiving(port, tls=tls):
            duration_s = str(3 if SLOW == 1 else 3 * SLOW)
            options = ("--duration", duration_s, "--frequency", "997", "--advise")
            record = watch(*SAMPLED, *options, "--pid", str(server.pid))
    assert broken_identities(record) == []
    return record, {remedy["name"]: remedy for remedy in record["advice"]["remedies"]}


def test_advice_for_asyncio_over_tls_names_tls_in_the_program(files: Path) -> None:
    port = free_port()
    program = [sys.executable, str(HERE / "files_over_tls.py"), str(port), str(files / "big")]
    record, remedies = advised([*program, str(files / "both.pem")], port, tls=True)
    ciphers = {row["symbol"] for row in record["samples"] if row["category"] == "user_encrypt"}
    assert any("libcrypto" in name or "aes" in name.lower() for name in ciphers), ciphers
    assert remedies["sendfile"]["why"].startswith("TLS in the program: its cipher takes ")
    assert remedies["kTLS"]["why"].startswith("Python has no such setting")
    assert "`loop.sendfile()` and `SSLSocket.sendfile()` fall back" in record["advice"]["text"]


def test_asyncio_without_tls_uses_sendfile(files: Path) -> None:
    port = free_port()
    program = [sys.executable, str(HERE / "files_over_tls.py"), str(port), str(files / "big"), "-"]
    record, remedies = advised(program, port, tls=False)
    assert remedies["sendfile"]["answer"] == "yes" and "not in use" not in record["advice"]["text"]
    assert not any(row["category"] == "user_encrypt" for row in record["samples"])


# Calls sendfile(2) for a file of procfs, which has no pages and fails, and then sends another file by read
# and send.
REFUSED = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    peer, file, odd = listener.accept()[0], open(sys.argv[2], "rb"), open("/proc/self/environ", "rb")
    try:
        while True:
            try:
                os.sendfile(peer.fileno(), odd.fileno(), 0, 100)
            except OSError:
                file.seek(file.tell() % (16 << 20))
                peer.sendall(file.read(65536))
    except ConnectionError:
        pass
"""


def test_advice_names_the_error_of_sendfile(files: Path) -> None:
    port = free_port()
    record, remedies = advised(
        [sys.executable, "-c", REFUSED, str(port), str(files / "big")], port, tls=False
    )
    (row,) = (row for row in record["calls"] if row["syscall"] == "sendfile")
    assert row["failed_calls"] == row["calls"] > 0 == row["bytes"] and row["last_errno"] == errno.EINVAL
    assert remedies["sendfile"]["why"].endswith("calls of sendfile moved nothing: EINVAL")
    assert not any(row["failed_calls"] for row in record["calls"] if row["syscall"] != "sendfile")


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_advice_for_go_names_tls_and_a_wrapped_connection(files: Path) -> None:
    program = files / "files-go"
    subprocess.run(
        ["go", "build", "-o", program, HERE / "files.go"], cwd=files, check=True, timeout=90 * SLOW
    )
    ways = {}
    for how in ("wrapped", "plain", str(files / "both.pem")):
        port = free_port()
        tls = how.startswith("/")
        argv = [str(program), str(port), str(files / "big"), how]
        ways["tls" if tls else how] = advised(argv, port, tls=tls)
    assert ways["plain"][1]["sendfile"]["answer"] == "yes"
    assert ways["wrapped"][1]["sendfile"]["answer"] == "maybe"
    assert "may hide the file or the connection from `io.Copy()`" in ways["wrapped"][0]["advice"]["text"]
    assert ways["tls"][1]["sendfile"]["why"].startswith("TLS in the program: its cipher takes ")
    assert "`io.Copy()` to a `tls.Conn` reads and writes" in ways["tls"][0]["advice"]["text"]
