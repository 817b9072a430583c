# SPDX-License-Identifier: GPL-2.0-only
"""On a kernel in lockdown (confidentiality), allowed measurements work, and refused ones have a reason."""

import json
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths
from profiling import SLOW, WATCH, broken_identities, is_root, profile, record_of

LOCKDOWN = Path("/sys/kernel/security/lockdown")
MODE = LOCKDOWN.read_text() if LOCKDOWN.exists() else ""

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif("[confidentiality]" not in MODE, reason="this kernel is not locked down"),
]

DOCTOR = [str(paths.ROOT / "bin" / "copyscope"), "doctor"]
SECONDS = f"{2 * SLOW:g}"


def test_doctor_reports_lockdown_as_limited() -> None:
    argv = [*DOCTOR, "--json", "-"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["findings"]}
    assert rows["lockdown"]["status"] == "limited" and "kprobes" in rows["lockdown"]["fact"]


@pytest.mark.parametrize("impl", ["one_copy", "zero_copy"])
def test_the_ledger_is_balanced_and_refused_hooks_have_a_reason(impl: str) -> None:
    record = record_of("--impl", impl, "--duration", SECONDS)
    assert record["verdict"]["valid"] and broken_identities(record) == []
    refused = [hook for hook in record["hooks"] if hook["state"] in ("missing", "refused")]
    assert refused and all(hook["reason"] for hook in refused)
    assert record["run"]["tier_reason"].startswith("function hooks: ")


def test_requested_function_hooks_use_fentry() -> None:
    record = record_of("--impl", "one_copy", "--instruments", "functions", "--duration", SECONDS)
    assert record["run"]["tier"] == "exact" and broken_identities(record) == []
    assert "kprobe" not in {hook["how"] for hook in record["hooks"]}


def test_requested_kprobes_are_refused_in_one_line() -> None:
    options = ["--impl", "one_copy", "--instruments", "functions", "--attach", "kprobe", "--duration", "1"]
    error = profile(*options, check=1).stderr
    assert error.count("\n") == 1 and "tcp_sendmsg" in error and "--instruments auto" in error


def test_watching_a_program_is_refused_in_one_line() -> None:
    """The sockets of a watched program can only be found by reading kernel memory."""
    argv = [*WATCH, "--quiet", "--duration", "1", "--", "sleep", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "cannot be watched on this kernel" in done.stderr
