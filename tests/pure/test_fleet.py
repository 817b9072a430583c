# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope fleet`: the row of each host, and hosts that differ from the others."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive
from copyscope.base import files
from copyscope.commands import fleet as command
from copyscope.fleet import ansible, answers
from copyscope.fleet.answers import HostAnswer, HostRow, copied_share, judge
from copyscope.record import store
from copyscope.record.derived import Zerocopy
from msgspec.structs import replace

FACTS = {"kernel": "6.12.1", "arch": "x86_64", "nics": ["mlx5_core"]}


def answer(
    status: int | None, output: bytes = b"", errors: bytes = b"", *, facts: Any = FACTS, reached: bool = True
) -> HostAnswer:
    return HostAnswer(status, output, errors, 2.0, facts, reached)


def json_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


# The messages of ssh and sudo are those of OpenSSH 9.2 and sudo 1.9.13.
@pytest.mark.parametrize(
    ("answered", "state", "cause"),
    [
        (
            answer(
                None,
                errors=b'Task failed: Data could not be sent to remote host "h". Make sure this host can be'
                b" reached over ssh: root@h: Permission denied (publickey).\n",
                facts=None,
                reached=False,
            ),
            "unreachable",
            "root@h: Permission denied (publickey); make `ansible -m ping h` work first",
        ),
        (answer(None), "timed out", "did not end within 2 s: --timeout waits longer"),
        (
            answer(1, errors=b"sudo: a password is required\n", facts=None),
            "failed",
            "without a password, or log in as root",
        ),
        (
            answer(1, errors=b"/bin/sh: 1: python3: not found\n", facts=None),
            "failed",
            "install Python 3 there",
        ),
        (
            answer(127, errors=b"setpriv: failed to execute /opt/x/bin/copyscope: No such file\n"),
            "failed",
            "/opt/x/bin/copyscope: No such file; install copyscope there, or give its directory with --tree",
        ),
        (answer(0), "failed", "not an answer of doctor"),
        (answer(0, facts={"kernel": 6}), "failed", "the facts about the host cannot be read"),
        (answer(0, b"[" * 100_000), "failed", "not an answer of doctor"),
        (answer(0, json_bytes({"works": 1})), "failed", "not an answer of doctor"),
        (answer(1, errors=b"doctor: \x1b]0;owned\x07\n"), "failed", "doctor: ␛]0;owned␇"),
    ],
)
def test_failed_host_is_a_row_with_the_cause(answered: HostAnswer, state: str, cause: str) -> None:
    row = judge("h", "doctor", answered)
    assert row.state == state and row.cause is not None and cause in row.cause
    assert "\n" not in row.cause and "\x1b" not in row.cause and row.document is None


GOOD = b'{"host": "good", "ended": "ok", "status": 0, "output": "", "errors": "", "seconds": 1.0}\n'
ODD = {
    "surrogate": b'{"host": "odd", "ended": "ok", "status": 0, "facts": {"kernel": "\\ud800"}}\n',
    "infinite": b'{"host": "odd", "ended": "ok", "status": 0, "seconds": Infinity}\n',
    "huge": b'{"host": "odd", "ended": "ok", "status": 0, "seconds": 1e999}\n',
    "text for a number": b'{"host": "odd", "ended": "ok", "status": "0"}\n',
    "nothing for a text": b'{"host": "odd", "ended": "ok", "status": 0, "output": null}\n',
    "nested": b'{"host": "odd", "facts": ' + b"[" * 3000 + b"\n",
    "long": b'{"host": "odd", "ended": "ok", "output": "' + b"x" * 5000 + b'"}\n',
    "not base64": b'{"host": "odd", "ended": "ok", "status": 0, "output": "%"}\n',
    "cut": b'{"host": "odd", "ended": "ok"',
}


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_unreadable_answer_affects_only_its_host(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ansible, "LINE_MAX_BYTES", 4000)
    text = GOOD + line if line == ODD["cut"] else GOOD + line + GOOD
    read = list(ansible._read_lines(io.BytesIO(text)))
    assert [answered.host for answered in read] == ["good", "odd", "good"][: 2 + (line != ODD["cut"])]
    row = judge("odd", "doctor", ansible._answer(read[1]))
    assert row.state == "failed" and row.cause is not None
    assert "cannot be read" in row.cause and len(row.cause) <= 240
    assert judge("good", "doctor", ansible._answer(read[0])).cause != row.cause


def test_output_without_a_host_is_ignored() -> None:
    lines = b"[WARNING]: x\n\xff\n{}\n" + GOOD
    assert [answered.host for answered in ansible._read_lines(io.BytesIO(lines))] == ["good"]


@pytest.mark.parametrize("command", ["doctor", "drill", "crossover", "run"])
@pytest.mark.parametrize(
    "output",
    [
        b'{"works": true, "sentence": "", "findings": [], "more": 1e999}',
        b'{"kernel": "x", "ways": [], "more": NaN}',
        b'{"valid_runs": 1, "sentence": "", "crossovers": [], "more": %s}' % (b"9" * 5000),
        b'{"schema": 2, "more": Infinity}',
        b"\xff",
        b"[[]]",
        b"x" * 2000,
    ],
)
def test_impossible_numbers_fail_the_host(
    command: str, output: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copyscope.fleet.answers.OUTPUT_MAX_BYTES", 1000 if len(output) < 3000 else 10_000)
    row = judge("h", command, answer(0, output))
    assert (row.state, row.document) == ("failed", None) and row.cause


def test_invalid_run_without_a_reason_gets_a_cause() -> None:
    record = derive(raw_record("zero_copy"))
    record["verdict"] |= {"valid": False, "reasons": []}
    row = judge("h", "run", answer(0, store.serialise(record)))
    assert row.state in ("failed", "invalid") and row.cause


def test_answer_that_cannot_be_saved_fails_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"works": True, "sentence": "a\ud800", "findings": []}
    row = judge("h", "doctor", answer(0, json_bytes(document)))
    assert row.state == "ok"
    kept = command._save_document(tmp_path, row)
    (file,) = tmp_path.glob("host=h/date=*/*.json")
    assert json.loads(file.read_text()) == document and kept.document is None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(files, "save", full)
    failed = command._save_document(tmp_path, row)
    assert (failed.state, failed.document) == ("failed", None)
    assert failed.cause == f"{tmp_path}: the answer of the host cannot be saved: No space left on device"


def test_incomplete_record_of_a_host_is_refused() -> None:
    record = derive(raw_record("zero_copy"))
    row = judge("h", "run", answer(0, store.serialise(record)))
    assert (row.state, row.valid, row.copied) == ("ok", True, 1.0)
    assert row.facts is not None and (row.facts.kernel, row.facts.nics) == ("6.12.1", ["mlx5_core"])
    assert row.traits["zero-copy sends"].startswith("copied after all: ")
    del record["ledger"]
    row = judge("h", "run", answer(0, store.serialise(record)))
    assert (row.state, row.document) == ("failed", None)
    assert row.cause is not None and "incomplete record (" in row.cause and "`ledger`" in row.cause
    assert judge("h", "run", answer(0, b'{"schema": 99}')).state == "failed"


def test_hosts_are_compared_by_crossover_verdict_and_not_by_size() -> None:
    """A crossover without a valid run fails the host."""
    at = {"pair": ["one_copy", "zero_copy"], "quantity": "goodput_gbps", "threads": 1, "verdict": "crosses"}
    document = {
        "schema": 2,
        "kind": "crossover",
        "valid_runs": 6,
        "sentence": "above 32 KiB",
        "crossovers": [at],
    }
    row = judge("h", "crossover", answer(0, json_bytes(document)))
    assert (row.state, dict(row.traits)) == (
        "ok",
        {"one_copy and zero_copy, goodput_gbps, threads 1": "crosses"},
    )
    row = judge(
        "h", "crossover", answer(1, json_bytes(document | {"valid_runs": 0, "sentence": "undetermined"}))
    )
    assert (row.state, row.cause) == ("failed", "undetermined")
    assert judge("h", "crossover", answer(0, json_bytes(document | {"crossovers": 1}))).state == "failed"


def test_silent_copies_count_in_the_copied_share() -> None:
    silent = Zerocopy(10, 0, 10, 0, 0, None, bytes_silent=30, bytes_zero_copy=10)
    assert copied_share(silent) == 0.75
    assert copied_share(replace(silent, bytes_silent=0)) == 0.0
    assert copied_share(replace(silent, copied=5, bytes_silent=None)) == 0.5
    assert copied_share(replace(silent, copied=None)) is None


def test_summary_names_hosts_that_differ_from_the_majority() -> None:
    rows = [HostRow(f"h{n}", "ok", traits={"a": "works", "b": f"{n % 2}"}) for n in range(6)]
    rows += [HostRow("x", "ok", traits={"a": "mis\x1bsing"})]
    rows += [HostRow(n, "unreachable", cause=f"connect to {n}: refused") for n in ("p", "q")]
    summary = answers.summarise(rows)
    assert summary[0] == "2 of 9 unreachable: p, q: connect to p: refused"
    assert "1 of 7: a: mis␛sing: x; on the others works" in summary
    assert "3 of 6: b: 0: h0, h2, h4" in summary and "3 of 6: b: 1: h1, h3, h5" in summary
    assert len(summary) == 4
    assert answers.name_hosts(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(("uid", "sudo"), [(0, True), (1000, False)])
def test_only_root_is_refused_when_sudo_was_called(
    uid: int, sudo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SUDO_UID is also set by `sudo -u USER`, which is allowed: ssh then uses the keys of USER."""
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert command.main([str(tmp_path / "none"), "--", "doctor"]) == 2
    errors = capsys.readouterr().err
    assert ("called with sudo" in errors) == sudo and ("no such file" in errors) != sudo
