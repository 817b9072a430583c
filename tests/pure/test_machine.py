# SPDX-License-Identifier: GPL-2.0-only
"""The fingerprint of invented machines: a laptop, cloud machines, an ARM server, an empty file tree."""

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from copyscope.base.spelling import parse_cpu_list
from copyscope.machine import fingerprint
from copyscope.machine.fingerprint import MachineCpuTimes, read_tool_versions

LAPTOP = {
    "proc/sys/kernel/osrelease": "6.8.0-40-generic",
    "proc/sys/kernel/hostname": "lap",
    "proc/sys/kernel/perf_event_paranoid": "4",
    "proc/sys/kernel/kptr_restrict": "1",
    "proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304",
    "proc/sys/net/core/optmem_max": "131072",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: 12th Gen Intel(R) Core(TM) i7\nmicrocode\t: 0x430\n"
    "flags\t\t: fpu vme\n\nprocessor\t: 1\nmodel name\t: other\n",
    "proc/meminfo": "MemTotal:       16000000 kB\nMemFree: 1 kB\n",
    "proc/self/limits": "Limit   Soft   Hard   Units\nMax locked memory  8388608   8388608   bytes\n",
    "boot/config-6.8.0-40-generic": "CONFIG_X=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n",
    "proc/cmdline": "quiet splash",
    "sys/devices/system/cpu/online": "0-11",
    "sys/bus/event_source/devices/cpu_core/cpus": "0-7",
    "sys/bus/event_source/devices/cpu_atom/cpus": "8-11",
    "sys/bus/event_source/devices/software/type": "1",
    "sys/bus/event_source/devices/uncore_imc_0/cpumask": "0",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
    "sys/devices/system/cpu/cpu8/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
    "sys/devices/system/cpu/smt/active": "1",
    "sys/devices/system/cpu/vulnerabilities/meltdown": "Not affected",
    "sys/devices/system/cpu/vulnerabilities/spectre_v2": "Mitigation: Enhanced IBRS",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/kernel/security/lockdown": "none [integrity] confidentiality",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/class/dmi/id/sys_vendor": "LENOVO",
    "sys/devices/system/cpu/cpu0/cache/index0/level": "1",
    "sys/devices/system/cpu/cpu0/cache/index0/type": "Data",
    "sys/devices/system/cpu/cpu0/cache/index0/size": "48K",
    "sys/devices/system/cpu/cpu0/cache/index3/level": "3",
    "sys/devices/system/cpu/cpu0/cache/index3/type": "Unified",
    "sys/devices/system/cpu/cpu0/cache/index3/size": "24M",
    "sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list": "0-11",
}


def plant(root: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "read_tool_versions", dict)


def test_a_hybrid_laptop_has_the_facts_of_its_files(tmp_path: Path) -> None:
    machine = fingerprint.describe_machine(root=plant(tmp_path, LAPTOP))
    assert machine.cpu_model == "12th Gen Intel(R) Core(TM) i7"
    assert machine.cpus_online == 12
    assert machine.pmu == ["cpu_atom", "cpu_core"]
    assert machine.hybrid == {"cpu_core": "0-7", "cpu_atom": "8-11"}
    assert machine.governor == "performance, powersave"
    assert machine.turbo is True and machine.smt is True
    assert machine.mitigations == {"spectre_v2": "Mitigation: Enhanced IBRS"}
    assert machine.hypervisor is None and "hypervisor" in machine.reasons
    assert (machine.lockdown, machine.transparent_hugepages) == ("integrity", "madvise")
    assert machine.irq_time_accounting is True
    assert machine.limits == {"memlock_bytes": 8388608}
    assert machine.memory_bytes == 16_384_000_000
    assert machine.caches == {"l1d_bytes": 49152, "l3_bytes": 25165824, "last_level_shared_by_cpus": "0-11"}
    assert machine.sysctls["net.ipv4.tcp_wmem"] == "4096 16384 4194304"
    assert machine.sysctls["net.core.max_skb_frags"] is None
    json.dumps(asdict(machine))


def test_every_unknown_fact_has_its_reason(tmp_path: Path) -> None:
    machine = fingerprint.describe_machine(root=tmp_path)
    nulls = {key for key, value in vars(machine).items() if value is None}
    assert nulls == {key for key in machine.reasons if "." not in key}
    assert machine.reasons["limits.memlock_bytes"] == "unlimited"
    assert machine.cpu_model == "unknown" and machine.pmu == [] and machine.cpus_online == 1


def test_a_virtual_machine_is_named_by_its_firmware_and_bare_metal_has_no_hypervisor(tmp_path: Path) -> None:
    flags = {"proc/cpuinfo": "model name : Xeon\nflags : fpu hypervisor\n"}
    named = {
        **flags,
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": "c5.large",
    }
    metal = {
        "proc/cpuinfo": "flags : fpu",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": "c5.metal",
    }
    assert (
        fingerprint.describe_machine(root=plant(tmp_path / "a", flags)).hypervisor
        == "the firmware does not name it"
    )
    assert fingerprint.describe_machine(root=plant(tmp_path / "b", named)).hypervisor == "Amazon EC2 c5.large"
    assert fingerprint.describe_machine(root=plant(tmp_path / "c", metal)).hypervisor is None
    assert (
        fingerprint.describe_machine(root=plant(tmp_path / "d", {"sys/hypervisor/type": "xen"})).hypervisor
        == "xen"
    )


def test_an_arm_server_is_named_by_implementer_and_part(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n",
        "sys/bus/event_source/devices/armv8_pmuv3_0/cpus": "0-63",
        "sys/devices/system/cpu/cpufreq/boost": "0",
    }
    machine = fingerprint.describe_machine(root=plant(tmp_path, files))
    assert machine.cpu_model == "ARM implementer 0x41 part 0xd0c"
    assert machine.pmu == ["armv8_pmuv3_0"] and machine.turbo is False and machine.hybrid is None


def test_each_type_of_core_is_found_by_its_pmu(tmp_path: Path) -> None:
    """Arrow Lake-H has three types of cores. A PMU outside the cores has a `cpumask` instead of `cpus`."""
    pmus = {"cpu_core": "0-5", "cpu_atom": "6-13", "cpu_lowpower": "14-15"}
    files = {f"sys/bus/event_source/devices/{name}/cpus": cpus for name, cpus in pmus.items()}
    files["sys/bus/event_source/devices/uncore_imc_0/cpumask"] = "0"
    assert fingerprint.describe_machine(root=plant(tmp_path / "a", files)).hybrid == pmus
    hybrid = {"armv8_cortex_a55": "0-3", "armv8_cortex_a76": "4-7"}
    files = {f"sys/bus/event_source/devices/{name}/cpus": cpus for name, cpus in hybrid.items()}
    assert fingerprint.describe_machine(root=plant(tmp_path / "b", files)).hybrid == hybrid


def test_irq_time_accounting_is_read_from_proc_config(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/sys/kernel/osrelease": "6.1.0", "proc/cmdline": "tsc=noirqtime"})
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_IRQ_TIME_ACCOUNTING=y\n"))
    assert fingerprint.describe_machine(root=tmp_path).irq_time_accounting is False  # switched off at boot
    (tmp_path / "proc/cmdline").write_text("quiet")
    assert fingerprint.describe_machine(root=tmp_path).irq_time_accounting is True


def test_sysctls_of_the_senders_namespace_replace_those_of_the_host(tmp_path: Path) -> None:
    class SenderNamespace:
        def sysctls(self, side: str, names: Sequence[str]) -> dict[str, str | None]:
            assert side == "sender"
            return {**dict.fromkeys(names), "net.core.optmem_max": "20480"}

    values = fingerprint.describe_machine(SenderNamespace(), root=plant(tmp_path, LAPTOP)).sysctls
    assert values["net.core.optmem_max"] == "20480"
    assert values["net.ipv4.tcp_wmem"] == "4096 16384 4194304"


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", [0]), ("0-3,8", [0, 1, 2, 3, 8]), ("", []), ("2,5-6", [2, 5, 6])]
)
def test_a_cpu_list_is_parsed(text: str, cpus: list[int]) -> None:
    assert parse_cpu_list(text) == cpus


def test_steal_is_a_share_of_all_cpu_time(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/stat": "cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3"})
    before = fingerprint.read_cpu_times(tmp_path)
    assert before == MachineCpuTimes(
        total=1000, steal=35, busy=155, softirq=5
    )  # guest time is not added twice
    assert fingerprint.steal_percent(before, MachineCpuTimes(total=1200, steal=45)) == pytest.approx(5.0)
    assert fingerprint.steal_percent(before, before) is None


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ("perf version 6.1.192\n", "6.1.192"),
        ("perf version 6.8.12-g1234\n", "6.8.12-g1234"),
        ("ip utility, iproute2-6.1.0, libbpf 1.1.2\n", "6.1.0"),
        ("ip utility, iproute2-ss200127\n", None),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n", "14.0.6"),
        ("bpftool v7.1.0\nusing libbpf v1.1\n", "7.1.0"),
        ("setpriv from util-linux 2.38.1\n", "2.38.1"),
    ],
)
def test_the_version_is_found_in_the_output_of_a_tool(answer: str, version: str | None) -> None:
    assert fingerprint.parse_version(answer) == version


def test_a_tool_is_asked_for_its_version_once(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    queries = tmp_path / "queries"
    perf = tools / "perf"
    perf.write_text(f"#!/bin/sh\necho x >>{queries}\necho perf version 9.9.1\n")
    perf.chmod(0o755)
    cache = tmp_path / "memory.json"
    for _ in range(3):
        versions = read_tool_versions(cache, str(tools))
        assert versions["perf"] == "9.9.1" and versions["clang"] is None
    assert queries.read_text() == "x\n"
    os.utime(perf, ns=(1, 1))  # as if another version had been installed
    read_tool_versions(cache, str(tools))
    assert queries.read_text() == "x\nx\n"
    cache.write_text("{damaged")
    assert read_tool_versions(cache, str(tools))["perf"] == "9.9.1"


def test_a_tool_that_fails_has_no_version(tmp_path: Path) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho WARNING: perf not found for kernel 6.8.0-1021\nexit 2\n")
    perf.chmod(0o755)
    assert read_tool_versions(tmp_path / "m", str(tmp_path))["perf"] is None
