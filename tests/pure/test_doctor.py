# SPDX-License-Identifier: GPL-2.0-only
"""Rows of `copyscope doctor` from invented facts, and the table of these rows."""

import ast
import io
import json
import platform
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.commands import doctor
from copyscope.commands.doctor import print_diagnosis
from copyscope.commands.verbs import VERBS
from copyscope.doctor import diagnose, kernel, network
from copyscope.doctor.diagnose import check_counters, check_programs, check_user, read_probe
from copyscope.doctor.findings import Diagnosis, DoctorFinding
from copyscope.run.counters import CounterRow, Part
from copyscope.show.layout import make_console
from hypothesis import given
from hypothesis import strategies as st

HOOK = {"id": "copy_out", "symbol": "skb_copy", "instrument": "bytes", "how": None, "reason": None}
MACHINE: dict[str, Any] = {
    "pmu": ["cpu"],
    "hybrid": None,
    "governor": "performance",
    "turbo": False,
    "smt": False,
    "cpus_online": 8,
    "hypervisor": None,
    "transparent_hugepages": "madvise",
    "clocksource": "tsc",
    "kptr_restrict": 0,
    "perf_event_paranoid": 2,
    "lockdown": None,
    "limits": {"memlock_bytes": 8 << 20},
    "sysctls": {
        "net.core.bpf_jit_enable": "1",
        "net.core.optmem_max": "131072",
        "net.ipv4.tcp_congestion_control": "cubic",
        "kernel.nmi_watchdog": "0",
    },
}


def facts(machine: dict[str, Any]) -> Any:
    """Return facts about a machine as an object with the attributes of MachineFacts."""
    return SimpleNamespace(**machine)


def probe(*hooks: dict[str, Any], events: list[dict[str, Any]] | None = None) -> list[DoctorFinding]:
    sampled = [{"name": "cpu-clock", "unit": "ns", "status": "sampled", "reason": None}]
    return read_probe(
        json.dumps({"hooks": hooks, "sampler": {"events": sampled if events is None else events}})
    )


def by_name(findings: Any) -> dict[str, DoctorFinding]:
    return {row.name: row for row in findings}


def plant(root: Path, **files: str) -> Path:
    for path, text in files.items():
        target = root / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def test_hooks_and_sampler_have_rows_with_their_status() -> None:
    rows = by_name(
        probe(
            {**HOOK, "state": "attached", "how": "tp_btf", "required": True},
            {**HOOK, "id": "spare", "state": "unused", "reason": "another is better", "required": False},
            {**HOOK, "id": "nice", "state": "missing", "reason": "not in this kernel", "required": False},
            {**HOOK, "id": "must", "state": "refused", "reason": "EPERM", "required": True},
        )
    )
    assert (rows["copy_out (skb_copy)"].status, rows["copy_out (skb_copy)"].fact) == (
        "ok",
        "attaches by tp_btf",
    )
    assert rows["spare (skb_copy)"].status == "ok"
    assert rows["nice (skb_copy)"].status == "limited" and not rows["nice (skb_copy)"].essential
    must = rows["must (skb_copy)"]
    assert (must.status, must.fact, must.essential) == ("limited", "refused: EPERM", False)
    assert rows["cpu-clock"].fact == "can be sampled, in ns"


def test_hybrid_machine_shows_which_cores_lack_an_event() -> None:
    """ref-cycles measure time, so cpu-clock is not missed. The row of L1D misses names its cores."""
    sampled = {"unit": "cycles", "status": "sampled", "reason": None}
    lacking = "only on CPUs 0-11: cpu_atom has no such event"
    instead = {"status": "unsupported", "reason": "ref-cycles are sampled instead"}
    events: list[dict[str, Any]] = [
        {"name": "cpu-clock", "unit": "ns", **instead},
        {"name": "cycles", **sampled},
        {"name": "ref-cycles", **sampled},
        {"name": "L1-dcache-load-misses", "unit": "misses", "status": "partial", "reason": lacking},
    ]
    rows = by_name(probe(events=events))
    assert (rows["cpu-clock"].status, rows["cpu-clock"].fact[:31]) == (
        "ok",
        "not needed, ref-cycles is used:",
    )
    partial = rows["L1-dcache-load-misses"]
    assert (partial.status, partial.fact) == ("limited", lacking) and "--sender-cpus" in str(partial.advice)
    assert Diagnosis(tuple(rows.values())).works


def test_pmu_without_interrupts_is_reported_and_replaced() -> None:
    dead = "it opens, but this PMU did not interrupt in 10 ms of work"
    events: list[dict[str, Any]] = [
        {"name": "cpu-clock", "unit": "ns", "status": "sampled", "reason": None},
        {"name": "cycles", "unit": "cycles", "status": "unsupported", "reason": dead},
    ]
    rows = by_name(probe(events=events))
    assert (rows["cycles"].status, rows["cycles"].fact) == ("limited", dead)
    assert rows["cycles"].advice == "no action needed: cpu-clock is used"


def test_profiling_does_not_work_without_any_sampling_event() -> None:
    none = [{"name": "cycles", "unit": "cycles", "status": "unsupported", "reason": "no PMU"}]
    rows = by_name(probe(events=none))
    assert rows["cycles"].status == "limited" and rows["samples"].status == "missing"
    assert not Diagnosis(tuple(rows.values())).works


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"hooks": 3}', '{"hooks": [{}], "sampler": {"events": []}}']
)
def test_an_unreadable_probe_is_one_row(text: str) -> None:
    (row,) = read_probe(text, "libbpf: no such\nprogram")
    assert row.status == "missing" and row.essential and row.fact == "libbpf: no such program"


@given(st.text())
def test_probe_never_crashes(text: str) -> None:
    assert read_probe(text)


def test_missing_programs_are_answered_with_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    for name in ("TRAFFIC", "COLLECTOR", "XDP_OBJECT"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
    rows = list(check_programs())
    assert {row.advice for row in rows} == {"run `make`"}
    assert [row.essential for row in rows] == [True, True, False]
    assert list(diagnose.check_collector(root=True)) == []


def test_each_counter_has_a_row_with_its_status() -> None:
    part = Part("cpu_core", 5, 1.0, 1.0)
    rows = by_name(
        check_counters(
            {
                "cycles": CounterRow(5, "cycles", "measured", 1.0, None, [part, part]),
                "instructions": CounterRow(5, "instructions", "scaled", 0.4, None),
                "LLC-load-misses": CounterRow(None, "misses", "unsupported", None, "not supported: no PMU"),
                "task-clock": CounterRow(None, "ns", "unsupported", None, "perf: not installed: x"),
            }
        )
    )
    assert rows["cycles"].fact == "counts, on cpu_core, cpu_core"
    assert rows["instructions"].fact == "multiplexed: 40% of the time"
    assert "PMU" in str(rows["LLC-load-misses"].advice)
    assert "reason" in str(rows["task-clock"].advice)
    assert list(check_counters({})) == []


def test_missing_pmu_is_reported_once(tmp_path: Path) -> None:
    absent = {"unit": "x", "status": "unsupported", "reason": "this machine has no PMU"}
    sampled = {"name": "cpu-clock", "unit": "ns", "status": "sampled", "reason": None}
    reason = "not supported: no PMU of this machine (or virtual machine) counts it"
    asked = [
        *probe(events=[sampled, {**absent, "name": "cycles"}]),
        *check_counters({"LLC-load-misses": CounterRow(None, "misses", "unsupported", None, reason)}),
    ]

    def diagnosis_with(pmu: list[str]) -> Diagnosis:
        kernel_rows = kernel.check_kernel(facts({**MACHINE, "pmu": pmu}), tmp_path)
        pmu_rows = [row for row in kernel_rows if row.name == "PMU"]
        return Diagnosis((*diagnose.attribute_to_missing_pmu(asked, pmu), *pmu_rows))

    without = diagnosis_with([])
    first_screen = shown(without)
    assert (
        first_screen.count("PMU") == 2
    )  # in the row of the PMU, and in the advice, which mentions virtual PMUs
    assert "cycles, instructions and cache misses are neither counted nor sampled" in " ".join(
        first_screen.split()
    )
    assert "LLC-load-misses" in shown(without, verbose=True)
    assert without.sentence.startswith("profiling works here: limits in kernel;")
    # On a machine with a PMU, the event is missing instead of the PMU.
    assert "limits in sampler, counters;" in diagnosis_with(["cpu"]).sentence


def test_locked_memory_limits_the_sends_in_flight() -> None:
    # (size >> 12) + 2 pages: 64 KiB needs 18 pages, 1 MiB needs 258.
    assert network.sends_in_flight(8 << 20, 64 << 10) == 2048 // 18
    assert network.sends_in_flight(64 << 10, 1 << 20) == 0
    small = network.memlock_finding(64 << 10)
    assert small.status == "limited" and "of 64 KiB and more fail" in str(small.advice)
    assert "5 of 4 KiB, 0 of 64 KiB" in small.fact
    assert network.memlock_finding(8 << 20).status == "ok"
    assert network.memlock_finding(1100 << 10).status == "limited"
    assert network.memlock_finding(None).fact == "unlimited"


def test_small_option_memory_and_pacing_are_reported() -> None:
    assert network.optmem_finding("20480").status == "limited"
    assert network.optmem_finding("131072").status == "ok"
    assert network.optmem_finding(None).status == "ok"
    paced = network.congestion_finding({"net.ipv4.tcp_congestion_control": "bbr"})
    assert paced.status == "confounder" and "paces" in paced.fact
    assert network.congestion_finding({"net.ipv4.tcp_congestion_control": "cubic"}).status == "ok"


def test_packet_sockets_name_their_owner(tmp_path: Path) -> None:
    packet = "sk RefCnt Type Proto Iface R Rmem User Inode\n1 3 3 0003 2 1 0 0 21758\n1 3 3 0003 0 1 0 0 9\n"
    plant(tmp_path, proc__net__packet=packet, proc__77__comm="lldpd\n", sys__class__net__eth0__ifindex="2\n")
    (tmp_path / "proc/77/fd").mkdir()
    (tmp_path / "proc/77/fd/5").symlink_to("socket:[21758]")
    first, second = network.packet_socket_findings(tmp_path)
    assert (
        first.fact == "lldpd (pid 77) taps every packet of device eth0: zero-copy sends there become copies"
    )
    assert second.fact.startswith("an unknown process taps every packet of all devices")
    (quiet,) = network.packet_socket_findings(tmp_path / "empty")
    assert quiet.status == "ok"


def test_zero_copy_checks_answer_on_this_kernel() -> None:
    rows = by_name(network.check_zero_copy(facts(MACHINE)))
    assert set(rows) == {"MSG_ZEROCOPY", "locked memory", "option memory", "io_uring", "tls"}


def test_kernel_that_allows_everything_is_ok(tmp_path: Path) -> None:
    plant(
        tmp_path,
        sys__kernel__btf__vmlinux="x",
        proc__kallsyms="0000000000000000 A fixed_percpu_data\nffffffff81000000 T _text\n",
        proc__self__status=f"CapEff:\t{1 << 21 | 1 << 12:016x}\n",
        proc__mounts="none /sys/fs/cgroup cgroup2 rw\nnone /sys/kernel/tracing tracefs rw",
    )
    rows = by_name(kernel.check_kernel(facts(MACHINE), tmp_path))
    assert {row.status for name, row in rows.items() if name != "CAP_SYS_RESOURCE"} == {"ok"}
    assert rows["CAP_BPF"].fact == "loading BPF programs: through CAP_SYS_ADMIN"
    assert rows["CAP_SYS_RESOURCE"].status == "limited"


def test_kernel_that_allows_nothing_has_advice_for_each_row(tmp_path: Path) -> None:
    plant(
        tmp_path,
        proc__kallsyms="0000000000000000 T _text\n",
        proc__self__status="CapEff:\t0000000000000000\n",
    )
    closed = {**MACHINE, "pmu": [], "lockdown": "confidentiality", "perf_event_paranoid": None}
    closed["sysctls"] = {"net.core.bpf_jit_enable": "0"}
    rows = by_name(kernel.check_kernel(facts(closed), tmp_path))
    assert rows["symbols"].status == rows["CAP_BPF"].status == "missing"
    assert rows["BTF"].status == "limited" and not rows["BTF"].essential
    assert rows["perf events"].status == "missing"
    assert rows["BPF JIT"].status == rows["lockdown"].status == rows["PMU"].status == "limited"
    assert all(row.advice for row in rows.values() if row.status != "ok")


def test_noisy_machine_has_its_disturbances_listed(tmp_path: Path) -> None:
    plant(tmp_path, proc__loadavg="0.10 0.1 0.1 1/2 3", proc__sys__vm__nr_hugepages="64\n")
    assert {row.status for row in kernel.check_disturbances(facts(MACHINE), 0.0, tmp_path)} == {"ok"}
    noisy = {
        **MACHINE,
        "governor": "powersave",
        "turbo": True,
        "smt": True,
        "hybrid": {"cpu_core": "0-7", "cpu_atom": "8-11"},
        "cpus_online": 1,
        "hypervisor": "KVM",
        "transparent_hugepages": "always",
        "clocksource": "hpet",
        "sysctls": {"kernel.nmi_watchdog": "1"},
    }
    plant(tmp_path, proc__loadavg="3.10 0.1 0.1 1/2 3", proc__sys__vm__nr_hugepages="0\n")
    rows = by_name(kernel.check_disturbances(facts(noisy), 7.25, tmp_path))
    confounders = [name for name, row in rows.items() if row.status == "confounder"]
    assert len(confounders) == 10 and all(rows[name].advice for name in confounders)
    assert "stole 7.2 % of the CPU time" in rows["hypervisor"].fact
    assert rows["huge pages (reserved)"].status == "limited"
    # A lockup detector without a hardware counter disturbs nothing.
    plant(tmp_path, **{f"boot/config-{platform.release()}": "CONFIG_HARDLOCKUP_DETECTOR_BUDDY=y\n"})
    assert "NMI watchdog" not in by_name(kernel.check_disturbances(facts(noisy), 7.25, tmp_path))


def test_texts_of_doctor_name_existing_options() -> None:
    """Each option that a text of doctor mentions is an option of a command."""
    words = {
        word
        for file in Path(diagnose.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value)
    }
    assert {"--placement", "--impl", "--pid"} <= words
    options = {
        option for verb in VERBS for action in verb.parser()._actions for option in action.option_strings
    }
    # --probe and --functions are options of the collector.
    assert words - options <= {"--probe", "--functions"}


def test_missing_or_broken_tools_are_reported(tmp_path: Path) -> None:
    (tmp_path / "perf").write_text("")
    (tmp_path / "perf").chmod(0o755)
    rows = by_name(kernel.check_tools({"perf": None}, str(tmp_path)))
    assert rows["perf"].status == "limited" and rows["perf"].fact.startswith("does not run")
    assert (rows["ip"].status, rows["ip"].essential) == ("missing", True)
    assert (rows["clang"].status, rows["clang"].essential) == ("limited", False)


def test_an_installed_copy_asks_for_nothing_that_only_a_build_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "INSTALLED", True)
    assert by_name(kernel.check_tools({}, str(tmp_path))).keys() == kernel.TOOLS.keys() - {"bpftool", "clang"}


def diagnosis() -> Diagnosis:
    pmu = (
        "counters",
        "not supported: no PMU of this machine (or virtual machine) counts it",
        "use another " * 12,
    )
    return Diagnosis(
        (
            DoctorFinding("programs", "user", "ok", "root", essential=True),
            *(DoctorFinding(pmu[0], name, "limited", pmu[1], pmu[2]) for name in ("cycles", "instructions")),
            DoctorFinding("counters", "task-clock", "ok", "counts"),
            DoctorFinding("confounders", "load", "confounder", "3.00 runnable tasks", "wait"),
        )
    )


def shown(to_print: Diagnosis, *, verbose: bool = False) -> str:
    out = io.StringIO()
    print_diagnosis(to_print, verbose=verbose, console=make_console(out))
    return out.getvalue()


def test_table_fits_the_width_and_merges_equal_rows() -> None:
    text = shown(diagnosis())
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text  # output that is not a terminal has no escape codes
    assert "cycles, instructions" in text and text.count("not supported") == 1
    assert "1 of 3" in text and "root" not in text
    assert "root" in shown(diagnosis(), verbose=True)


def test_sentence_and_json_agree_on_what_works() -> None:
    works = diagnosis()
    assert works.works and works.sentence == (
        "profiling works here: limits in counters; things that may disturb the numbers: 1"
    )
    stopped = Diagnosis((*works.findings, *check_user(root=False)))
    assert not stopped.works and stopped.sentence.startswith(
        "cannot profile here: user: not root: run copyscope with sudo"
    )
    data = json.loads(json.dumps(stopped.as_json()))
    assert data["works"] is False and data["findings"][0]["name"] == "user"


def test_command_writes_json_and_exits_with_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "diagnose", diagnosis)
    assert doctor.main(["--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["works"] is True
    assert doctor.main(["--json", str(tmp_path / "out.json"), "-v"]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == diagnosis().as_json()
    assert doctor.main(["--json", str(tmp_path / "no" / "out.json")]) == 1
    assert "No such file" in capsys.readouterr().err
    monkeypatch.setattr(doctor, "diagnose", lambda: Diagnosis(tuple(check_user(root=False))))
    assert doctor.main([]) == 1


def test_mounts_and_tls_module_are_checked(tmp_path: Path) -> None:
    without = kernel.mount_finding(tmp_path, "tracefs", "tracefs", "scripts need it", kernel.TRACEFS_ADVICE)
    assert without.status == "limited" and without.fact == "tracefs is not mounted: scripts need it"
    mounts = "none /sys/fs/cgroup/unified cgroup2 rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0"
    plant(tmp_path, proc__mounts=mounts)
    row = kernel.mount_finding(tmp_path, "tracefs", "tracefs", "", "")
    assert (row.status, row.fact) == ("ok", "tracefs at /sys/kernel/tracing")
    row = kernel.mount_finding(tmp_path, "containers", "cgroup2", "", "")
    assert (row.status, row.fact) == ("ok", "cgroup2 at /sys/fs/cgroup/unified")
    assert network.tls_finding("espintcp mptcp tls").status == "ok"
    assert network.tls_finding(None).status == network.tls_finding("mptcp").status == "limited"


def test_sentence_ends_with_nothing_to_do_if_no_action_is_needed() -> None:
    fine = DoctorFinding("kernel", "BTF", "ok", "there")
    no_pmu = DoctorFinding("kernel", "PMU", "limited", "none", "no action needed; use bare metal")
    assert Diagnosis((fine, no_pmu)).sentence.endswith("; nothing to do")
    todo = DoctorFinding("kernel", "tracefs", "limited", "not mounted", "mount it")
    assert "nothing to do" not in Diagnosis((fine, todo)).sentence
