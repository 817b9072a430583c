# SPDX-License-Identifier: GPL-2.0-only
"""Hide BTF or kprobes: without BTF the sampler works, and everything else gives a reason."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import RUN, SLOW, WATCH, broken_identities, is_root

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

DOCTOR = [str(paths.ROOT / "bin" / "copyscope"), "doctor"]
BTF = Path("/sys/kernel/btf")
KPROBES = Path("/sys/bus/event_source/devices/kprobe")
NO_BTF = "/sys/kernel/btf/vmlinux: missing: this kernel has no BTF"
# Identities that only hooks can check.
HOOKED = ("sent_bytes", "referenced_bytes", "received_bytes", "received_split", "sent_calls", "timed_calls")


def without(hidden: Path, *argv: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace in which the directory `hidden` is empty."""
    mount = 'mount -t tmpfs hidden "$0" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, str(hidden.resolve()), *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * SLOW,
    )
    assert done.returncode == status, f"{argv}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def sampled(*options: str) -> dict[str, Any]:
    """Run copyscope without BTF. The run is valid, and hooks are missing for this reason."""
    record: dict[str, Any] = json.loads(without(BTF, *RUN, "--quiet", "--json", "-", *options).stdout)
    assert record["verdict"]["valid"] and broken_identities(record) == []
    assert {hook["state"] for hook in record["hooks"]} <= {"missing", "unused"}
    assert all(NO_BTF in hook["reason"] for hook in record["hooks"] if hook["state"] == "missing")
    return record


def refused(verb: list[str], *options: str) -> str:
    """Return the one line with which copyscope refuses a run that needs BTF."""
    error = without(BTF, *verb, "--quiet", *options, status=1).stderr
    assert error.count("\n") == 1 and NO_BTF in error
    return error


@pytest.mark.parametrize(("impl", "instruments"), [("one_copy", "sampler"), ("zero_copy", "auto")])
def test_without_btf_the_ledger_is_sampled(impl: str, instruments: str) -> None:
    record = sampled("--impl", impl, "--instruments", instruments, "--duration", f"{SLOW:g}")
    assert record["run"]["tier"] == "sampled"
    assert NO_BTF in record["run"]["tier_reason"] or instruments != "auto"
    copies = {"one_copy": ("copy_in", "copy_out"), "zero_copy": ("pin", "deferred", "copy_out")}[impl]
    for account in copies:
        row = next(row for row in record["ledger"] if row["account"] == account and row["bytes"])
        assert row["method"] == "sampled"
    assert sum(row["cpu_ns"] or 0 for row in record["ledger"]) > 0
    identities = {row["name"]: row for row in record["identities"]}
    for name in HOOKED:
        assert identities[name]["holds"] is None and NO_BTF in identities[name]["reason"]
    # These counts do not come from BPF programs.
    assert identities["acked_bytes"]["holds"] and identities["delivered"]["holds"]


def test_without_btf_a_fixed_count_is_sampled() -> None:
    record = sampled("--impl", "one_copy", "--messages", "20000")
    assert [segment["phase"] for segment in record["run"]["segments"]] == ["ledger"]


@pytest.mark.parametrize("options", [["--instruments", "functions"], ["--instruments", "calls"]])
def test_without_btf_requested_hooks_are_refused(options: list[str]) -> None:
    assert "--instruments auto" in refused(RUN, "--impl", "one_copy", *options)


@pytest.mark.parametrize("options", [["--pid", "1", "--duration", "1"], ["--", "sleep", "1"]])
def test_without_btf_no_program_can_be_watched(options: list[str]) -> None:
    assert "cannot be watched on this kernel" in refused(WATCH, *options)


def test_without_btf_doctor_says_what_still_works() -> None:
    report = json.loads(without(BTF, *DOCTOR, "--json", "-").stdout)
    assert report["works"], report["sentence"]
    rows = {row["name"]: row for row in report["findings"]}
    assert rows["BTF"]["status"] == "limited" and "sampling works" in rows["BTF"]["fact"]
    assert rows["syscall_enter (sys_enter)"]["status"] == "limited"
    assert NO_BTF in rows["functions"]["fact"] and rows["cpu-clock"]["status"] == "ok"


def test_without_kprobes_functions_are_hooked_by_fentry_or_not_at_all() -> None:
    if not KPROBES.exists():
        pytest.skip("this kernel has no kprobes to hide")
    argv = [*RUN, "--quiet", "--impl", "one_copy", "--duration", f"{SLOW:g}"]
    error = without(KPROBES, *argv, "--instruments", "functions", "--attach", "kprobe", status=1).stderr
    assert error.count("\n") == 1 and "this kernel has no kprobes" in error and "--instruments auto" in error
    record = json.loads(without(KPROBES, *argv, "--json", "-").stdout)
    assert {hook["how"] for hook in record["hooks"]} <= {"tp_btf", "fentry", None}
