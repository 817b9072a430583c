# SPDX-License-Identifier: GPL-2.0-only
"""Fingerprint of the machine: the `machine` section of the record, read from /proc and /sys.

Unknown values are None, and `reasons` gives the reason. Tests use other trees as the root directory. The
kernel command line is left out, because records are published and the command line may contain secrets.
"""

import contextlib
import gzip
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from copyscope.base import files, paths
from copyscope.base.errors import RunError
from copyscope.base.programs import LimitError, StartedProgram
from copyscope.base.spelling import parse_cpu_list
from copyscope.machine import event_checks
from copyscope.machine.event_checks import EventCheck
from copyscope.machine.processors import (
    ROOT,
    bracketed_choice,
    find_pmus,
    read_caches,
    read_cpu_files,
    read_cpu_model,
    read_cpuinfo,
    read_hybrid,
    read_hypervisor,
    read_integer,
    read_mitigations,
    read_text,
    read_turbo,
)

# Inode of the initial pid namespace: PROC_PID_INIT_INO in include/linux/proc_ns.h.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC

# Sysctls that affect buffers, copies and instruments. Each network namespace has its own network sysctls.
NETWORK_SYSCTLS = (
    "net.core.busy_poll",
    "net.core.default_qdisc",
    "net.core.high_order_alloc_disable",
    "net.core.max_skb_frags",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.skb_defer_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_wmem",
)
HOST_SYSCTLS = (
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.perf_event_max_sample_rate",
    "net.core.bpf_jit_enable",
    "net.core.bpf_jit_harden",
    "vm.nr_hugepages",
)


class NamespaceSysctls(Protocol):
    """A topology that reads sysctls inside its network namespaces, for describe_machine()."""

    def sysctls(
        self, side: Literal["sender", "receiver"], names: Sequence[str]
    ) -> Mapping[str, str | None]: ...


def check_pid_namespace() -> None:
    """Raise RunError in a container, because its pids differ from the pids that BPF programs see."""
    if Path("/proc/self/ns/pid").stat().st_ino != INITIAL_PID_NAMESPACE:
        raise RunError(
            "pid namespace: copyscope runs inside a container, where pids differ from the kernel's; run "
            "copyscope on the host (from there --cgroup watches a container)"
        )


@dataclass
class MachineFacts:
    """The `machine` section of a record. The keys are explained in docs/reference/record.md."""

    hostname: str
    kernel: str
    arch: str
    cpu_model: str
    microcode: str | None
    cpus_online: int
    numa_nodes: str | None
    hypervisor: str | None
    pmu: list[str]
    hybrid: dict[str, str] | None
    governor: str | None
    idle_driver: str | None
    turbo: bool | None
    smt: bool | None
    mitigations: dict[str, str]
    clocksource: str | None
    perf_event_paranoid: int | None
    kptr_restrict: int | None
    lockdown: str | None
    transparent_hugepages: str | None
    irq_time_accounting: bool | None
    sysctls: dict[str, str | None]
    limits: dict[str, int | None]
    tools: dict[str, str | None]
    memory_bytes: int | None
    caches: dict[str, int | str | None]
    # Results of `doctor --measure` for this processor, if it was measured.
    pmu_checks: list[EventCheck] | None = None
    # Percentage of CPU time that the hypervisor gave to other guests during the run.
    steal_percent: float | None = None
    # Reason for each None, by its key.
    reasons: dict[str, str] = field(default_factory=dict)


def describe_machine(
    topology: NamespaceSysctls | None = None, root: Path = ROOT, tools: dict[str, str | None] | None = None
) -> MachineFacts:
    """Return the `machine` section of a record.

    With a topology, the network sysctls are those of the sender's namespace. `tools`: versions of tools, by
    default those of this machine.
    """
    sysctls = read_sysctls((*NETWORK_SYSCTLS, *HOST_SYSCTLS), root)
    if topology is not None:
        inside = topology.sysctls("sender", NETWORK_SYSCTLS)
        sysctls.update({name: value for name, value in inside.items() if value is not None})
    kernel = read_text(root, "proc/sys/kernel/osrelease") or os.uname().release
    smt = read_integer(root, "sys/devices/system/cpu/smt/active")
    # Soft RLIMIT_MEMLOCK of this process, which the workload inherits.
    memlock_bytes = read_number(root, "proc/self/limits", "Max locked memory")
    memory_kib = read_number(root, "proc/meminfo", "MemTotal:")
    machine = MachineFacts(
        hostname=read_text(root, "proc/sys/kernel/hostname") or os.uname().nodename,
        kernel=kernel,
        arch=read_text(root, "proc/sys/kernel/arch") or os.uname().machine,
        cpu_model=read_cpu_model(root),
        microcode=read_cpuinfo(root).get("microcode"),
        cpus_online=len(parse_cpu_list(read_text(root, "sys/devices/system/cpu/online") or "0")),
        numa_nodes=read_text(root, "sys/devices/system/node/online"),
        hypervisor=read_hypervisor(root),
        pmu=find_pmus(root),
        hybrid=read_hybrid(root),
        governor=read_cpu_files(root, "cpufreq/scaling_governor"),
        idle_driver=read_text(root, "sys/devices/system/cpu/cpuidle/current_driver"),
        turbo=read_turbo(root),
        smt=None if smt is None else smt != 0,
        mitigations=read_mitigations(root),
        clocksource=read_text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        perf_event_paranoid=read_integer(root, "proc/sys/kernel/perf_event_paranoid"),
        kptr_restrict=read_integer(root, "proc/sys/kernel/kptr_restrict"),
        lockdown=bracketed_choice(read_text(root, "sys/kernel/security/lockdown")),
        transparent_hugepages=bracketed_choice(read_text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        irq_time_accounting=read_irq_time_accounting(root, kernel),
        sysctls=sysctls,
        limits={"memlock_bytes": memlock_bytes},
        tools=read_tool_versions() if tools is None else tools,
        memory_bytes=None if memory_kib is None else memory_kib << 10,
        caches=read_caches(root),
    )
    if root == ROOT and machine.pmu:
        machine.pmu_checks = event_checks.load(machine.cpu_model, machine.microcode)
    values = vars(machine)
    machine.reasons = {name: why for name, why in REASONS_FOR_NONE.items() if values[name] is None}
    if memlock_bytes is None:
        machine.reasons["limits.memlock_bytes"] = "unlimited"
    return machine


# Usual reason why a value of the `machine` section is None, by its key.
REASONS_FOR_NONE = {
    "microcode": "this architecture or virtual machine does not show it",
    "numa_nodes": "the kernel was built without NUMA",
    "hypervisor": "no sign of one: bare metal, or a hypervisor that hides",
    "hybrid": "all cores are alike",
    "governor": "no cpufreq driver: a virtual machine, or the firmware decides",
    "idle_driver": "no cpuidle driver",
    "turbo": "no switch for it in /sys",
    "smt": "the kernel does not report it",
    "clocksource": "the kernel does not report it",
    "perf_event_paranoid": "the kernel was built without perf events",
    "kptr_restrict": "the kernel does not report it",
    "lockdown": "no lockdown module, or securityfs is not mounted",
    "transparent_hugepages": "the kernel was built without them",
    "irq_time_accounting": "no kernel configuration found (/proc/config.gz, /boot)",
    "pmu_checks": "not measured (copyscope doctor --measure)",
    "steal_percent": "no run was measured",
    "memory_bytes": "the kernel does not report it",
}


def read_sysctls(names: Sequence[str], root: Path) -> dict[str, str | None]:
    """Map each sysctl to its value, or to None if this kernel or namespace does not have it."""
    texts = {name: read_text(root, f"proc/sys/{name.replace('.', '/')}") for name in names}
    return {name: None if text is None else " ".join(text.split()) for name, text in texts.items()}


def read_irq_time_accounting(root: Path, kernel: str) -> bool | None:
    """Return True if the kernel excludes interrupt time from the CPU time of tasks, or None if unknown.

    The boot option tsc=noirqtime disables this accounting.
    """
    config = read_kernel_config(root, kernel)
    if config is None:
        return None
    if "CONFIG_IRQ_TIME_ACCOUNTING=y" not in config.splitlines():
        return False
    return "tsc=noirqtime" not in (read_text(root, "proc/cmdline") or "").split()


def read_kernel_config(root: Path, kernel: str) -> str | None:
    """Return the .config of the running kernel from one of the usual paths, or None."""
    modules = f"lib/modules/{kernel}"
    for path in (f"boot/config-{kernel}", f"{modules}/config", f"{modules}/build/.config"):
        if (text := read_text(root, path)) is not None:
            return text
    try:
        return gzip.decompress((root / "proc/config.gz").read_bytes()).decode("ascii", "replace")
    except OSError:
        return None


def read_number(root: Path, path: str, label: str) -> int | None:
    """Return the number that follows a label at the beginning of a line of a file, or None."""
    match = re.search(rf"^{label}\s+(\d+)", read_text(root, path) or "", re.MULTILINE)
    return int(match.group(1)) if match else None


@dataclass(frozen=True)
class MachineCpuTimes:
    """CPU times of all CPUs or a single CPU since boot, in clock ticks, from a line of /proc/stat."""

    total: int
    steal: int
    # Ticks in programs and in the kernel, and the part in interrupts and softirqs.
    busy: int = 0
    softirq: int = 0


def read_cpu_times(root: Path = ROOT) -> MachineCpuTimes:
    """Read the summed times of all CPUs. Raises OSError if /proc/stat is missing."""
    return _parse_times((root / "proc/stat").read_text().splitlines()[0])


def read_times_by_cpu(root: Path = ROOT) -> dict[int, MachineCpuTimes]:
    """Read the times of each CPU. Raises OSError, or ValueError or IndexError if /proc/stat is damaged."""
    text = (root / "proc/stat").read_text()
    lines = re.findall(r"^(cpu(\d+) .*)$", text, re.MULTILINE)
    return {int(cpu): _parse_times(line) for line, cpu in lines}


def _parse_times(line: str) -> MachineCpuTimes:
    """Parse a line of /proc/stat into CPU times."""
    # Fields: user nice system idle iowait irq softirq steal. Guest time follows; user time includes guest
    # time.
    ticks = [int(word) for word in line.split()[1:9]]
    return MachineCpuTimes(
        total=sum(ticks),
        steal=ticks[7] if len(ticks) > 7 else 0,
        busy=sum(ticks[:3]) + sum(ticks[5:7]),
        softirq=sum(ticks[5:7]),
    )


def usable_cpus(pids: Iterable[int]) -> frozenset[int]:
    """Return the CPUs on which at least one of the processes or threads may run. Skip exited processes."""
    cpus: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            cpus |= os.sched_getaffinity(pid)
    return frozenset(cpus)


@dataclass(frozen=True)
class CpuLoad:
    """CPU times of some CPUs since boot, in ns. None means unknown, for the reason in `reason`.

    `t_ns`: time of the reading. `own_ns`: CPU time of copyscope. `cpus`: number of CPUs that were read.
    `siblings`, `siblings_ns`: number of other hyper-threads of the same cores, and time of tasks on them.
    """

    t_ns: int
    own_ns: int | None
    cpus: int | None = None
    busy_ns: int | None = None
    softirq_ns: int | None = None
    steal_ns: int | None = None
    siblings: int | None = None
    siblings_ns: int | None = None
    reason: str | None = None


def read_load(
    own_ns: int,
    cpus: Collection[int] = (),
    siblings: Collection[int] | None = None,
    root: Path = ROOT,
) -> CpuLoad:
    """Return the CPU times since boot of `cpus`, or of all CPUs if it is empty.

    `own_ns`: CPU time of copyscope. `siblings`: other hyper-threads of the same cores, or None. The ledger
    uses the difference between the readings at the start and the end of a run.
    """
    t_ns = time.monotonic_ns()
    try:
        times_by_cpu = read_times_by_cpu(root)
    except (OSError, ValueError, IndexError) as error:
        return CpuLoad(t_ns, own_ns, reason=f"/proc/stat: {error}")
    selected = [times for cpu, times in times_by_cpu.items() if cpu in cpus]
    selected = selected or list(times_by_cpu.values())
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    beside = None if siblings is None else [times_by_cpu[cpu] for cpu in siblings if cpu in times_by_cpu]
    return CpuLoad(
        t_ns,
        own_ns,
        len(selected),
        busy_ns=sum(times.busy for times in selected) * tick_ns,
        softirq_ns=sum(times.softirq for times in selected) * tick_ns,
        steal_ns=sum(times.steal for times in selected) * tick_ns,
        siblings=None if beside is None else len(beside),
        siblings_ns=None if beside is None else sum(times.busy - times.softirq for times in beside) * tick_ns,
    )


def steal_percent(before: MachineCpuTimes, after: MachineCpuTimes) -> float | None:
    """Return the percentage of CPU time that the hypervisor gave to other guests between two readings.

    Return None if no clock tick passed in between.
    """
    elapsed = after.total - before.total
    return 100 * (after.steal - before.steal) / elapsed if elapsed > 0 else None


# Versions of installed tools, cached in .output, because `clang --version` alone can take 0.2 s.
#
# A key of the cache contains the path, size and time of the tool, and the kernel release, because Ubuntu's
# perf is a script that chooses a program by kernel. An installed copyscope has no cache, because an
# uninstaller would not remove the file.

# Option that prints the version of a tool, by the name of the tool.
VERSION_OPTIONS = dict.fromkeys(("perf", "ip", "ethtool", "bpftool", "clang", "setpriv"), "--version")
VERSION_OPTIONS |= {"ip": "-V", "bpftool": "version"}
VERSIONS_FILE = None if paths.INSTALLED else paths.OUTPUT / "tool-versions.json"


def read_tool_versions(
    cache_file: Path | None = VERSIONS_FILE, search_path: str | None = None
) -> dict[str, str | None]:
    """Map each tool to its version, or to None if the tool is not installed or prints no version.

    `cache_file`: versions of earlier calls. `search_path`: replaces PATH.
    """
    versions = {} if cache_file is None else _read_cache(cache_file)
    tool_paths = {tool: shutil.which(tool, path=search_path) for tool in VERSION_OPTIONS}
    keys = {tool: _cache_key(path) for tool, path in tool_paths.items() if path is not None}
    # All tools run at the same time.
    started = {
        tool: _start(str(tool_paths[tool]), VERSION_OPTIONS[tool])
        for tool, key in keys.items()
        if key not in versions
    }
    versions |= {keys[tool]: _read_version(program) for tool, program in started.items()}
    if started and cache_file is not None:
        # An unwritable cache only makes the next run slower.
        with contextlib.suppress(OSError):
            cache = {key: versions[key] for key in keys.values()}
            files.save(cache_file, json.dumps(cache, indent=1, sort_keys=True).encode())
    return {tool: versions[keys[tool]] if tool in keys else None for tool in VERSION_OPTIONS}


def parse_version(answer: str) -> str | None:
    """Return the first dotted number of a tool's output: `iproute2-6.1.0, libbpf 1.1.2` -> 6.1.0."""
    match = re.search(r"\d+(?:\.\d+)+(?:[-.][\w.]+)?", answer)
    return match.group().rstrip(".") if match else None


def _cache_key(path: str) -> str:
    """Return the key of a tool in the cache, which changes when the tool or the kernel is updated."""
    status = Path(path).stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {os.uname().release}"


def _start(path: str, option: str) -> StartedProgram | None:
    """Start a tool with the option that prints its version. Return None if it cannot be executed."""
    try:
        return StartedProgram((path, option))
    except OSError:
        return None


def _read_version(program: StartedProgram | None) -> str | None:
    """Return the version that a started tool prints, or None."""
    try:
        result = None if program is None else program.wait_for_output()
    except LimitError:
        return None
    if result is None or result.status != 0:
        return None
    return parse_version(result.text) or parse_version(result.complaint)


def _read_cache(file: Path) -> dict[str, str | None]:
    """Return the cached versions by key. A missing or damaged file counts as an empty cache."""
    try:
        versions = json.loads(files.read(file))
    except (OSError, ValueError, RecursionError):
        return {}
    return versions if isinstance(versions, dict) else {}
