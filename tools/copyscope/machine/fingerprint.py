"""The fingerprint of the machine: the record's `machine` section, read from /proc and /sys only.

Everything unknown is None, with its reason in `reasons`. The root directory can be replaced, so all of it is
tested on made-up trees. The kernel command line is left out on purpose: records are published, and it may
hold what should not be.
"""

import contextlib
import gzip
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from copyscope.errors import RunError
from copyscope.machine.cpu import (
    find_pmus,
    parse_cpu_list,
    read_caches,
    read_cpu_model,
    read_cpuinfo,
    read_hybrid,
    read_hypervisor,
    read_mitigations,
    read_of_cpus,
    read_turbo,
)
from copyscope.machine.files import ROOT, chosen, read_integer, read_text
from copyscope.machine.tool_versions import read_tool_versions

INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h

# What decides about buffers, copies and instruments. Network ones are per namespace: see describe().
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
    """What describe() needs of a topology."""

    def sysctls(
        self, side: Literal["sender", "receiver"], names: Sequence[str]
    ) -> Mapping[str, str | None]: ...


def check_pid_namespace() -> None:
    """BPF sees the pids of the whole machine; in a container ours are others: it would find nothing."""
    if Path("/proc/self/ns/pid").stat().st_ino != INITIAL_PID_NAMESPACE:
        raise RunError(
            "pid namespace: copyscope runs inside a container, where pids are not the kernel's: run it on "
            "the host (from there --cgroup watches a container)"
        )


def describe(
    topology: NamespaceSysctls | None = None, root: Path = ROOT, tools: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The `machine` section. With a topology, network sysctls are those of the sender's namespace.

    `tools`: versions, of this machine where they are not given.
    """
    sysctls = read_sysctls((*NETWORK_SYSCTLS, *HOST_SYSCTLS), root)
    if topology is not None:
        inside = topology.sysctls("sender", NETWORK_SYSCTLS)
        sysctls.update({name: value for name, value in inside.items() if value is not None})
    kernel = read_text(root, "proc/sys/kernel/osrelease") or os.uname().release
    smt = read_integer(root, "sys/devices/system/cpu/smt/active")
    # The soft RLIMIT_MEMLOCK that the workload inherits.
    memlock_bytes = read_number(root, "proc/self/limits", "Max locked memory")
    memory_kib = read_number(root, "proc/meminfo", "MemTotal:")
    known: dict[str, Any] = {
        "hostname": read_text(root, "proc/sys/kernel/hostname") or os.uname().nodename,
        "kernel": kernel,
        "arch": read_text(root, "proc/sys/kernel/arch") or os.uname().machine,
        "cpu_model": read_cpu_model(root),
        "microcode": read_cpuinfo(root).get("microcode"),
        "cpus_online": len(parse_cpu_list(read_text(root, "sys/devices/system/cpu/online") or "0")),
        "numa_nodes": read_text(root, "sys/devices/system/node/online"),
        "hypervisor": read_hypervisor(root),
        "pmu": find_pmus(root),
        "hybrid": read_hybrid(root),
        "governor": read_of_cpus(root, "cpufreq/scaling_governor"),
        "idle_driver": read_text(root, "sys/devices/system/cpu/cpuidle/current_driver"),
        "turbo": read_turbo(root),
        "smt": None if smt is None else smt != 0,
        "mitigations": read_mitigations(root),
        "clocksource": read_text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "perf_event_paranoid": read_integer(root, "proc/sys/kernel/perf_event_paranoid"),
        "kptr_restrict": read_integer(root, "proc/sys/kernel/kptr_restrict"),
        "lockdown": chosen(read_text(root, "sys/kernel/security/lockdown")),
        "transparent_hugepages": chosen(read_text(root, "sys/kernel/mm/transparent_hugepage/enabled")),
        "irq_time_accounting": read_irq_time_accounting(root, kernel),
        "sysctls": sysctls,
        "limits": {"memlock_bytes": memlock_bytes},
        "steal_percent": None,  # known at the end of a run only: steal_percent()
        "tools": read_tool_versions() if tools is None else tools,
        "memory_bytes": None if memory_kib is None else memory_kib << 10,
        "caches": read_caches(root),
    }
    reasons = {name: why for name, why in REASONS.items() if known[name] is None}
    if memlock_bytes is None:
        reasons["limits.memlock_bytes"] = "unlimited"
    return {**known, "reasons": reasons}


# Why a value is usually None.
REASONS = {
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
    "steal_percent": "no run was measured",
    "memory_bytes": "the kernel does not report it",
}


def read_sysctls(names: Sequence[str], root: Path) -> dict[str, str | None]:
    """Sysctl name -> its text with single spaces; None when this kernel (or namespace) has no such file."""
    texts = {name: read_text(root, f"proc/sys/{name.replace('.', '/')}") for name in names}
    return {name: None if text is None else " ".join(text.split()) for name, text in texts.items()}


def read_irq_time_accounting(root: Path, kernel: str) -> bool | None:
    """Whether interrupt time is kept out of task CPU time; tsc=noirqtime switches it off at boot."""
    config = read_kernel_config(root, kernel)
    if config is None:
        return None
    if "CONFIG_IRQ_TIME_ACCOUNTING=y" not in config.splitlines():
        return False
    return "tsc=noirqtime" not in (read_text(root, "proc/cmdline") or "").split()


def read_kernel_config(root: Path, kernel: str) -> str | None:
    """The text of the running kernel's .config, from wherever this distribution keeps it."""
    modules = f"lib/modules/{kernel}"
    for path in (f"boot/config-{kernel}", f"{modules}/config", f"{modules}/build/.config"):
        if (text := read_text(root, path)) is not None:
            return text
    try:
        return gzip.decompress((root / "proc/config.gz").read_bytes()).decode("ascii", "replace")
    except OSError:
        return None


def read_number(root: Path, path: str, before: str) -> int | None:
    """The number behind these words at the beginning of a line of a file; None where there is none."""
    match = re.search(rf"^{before}\s+(\d+)", read_text(root, path) or "", re.MULTILINE)
    return int(match.group(1)) if match else None


@dataclass(frozen=True)
class CpuTimes:
    """The first line of /proc/stat, in clock ticks since boot, over all CPUs."""

    total: int
    steal: int
    # Spent by programs and the kernel; of it in interrupts and softirqs.
    busy: int = 0
    softirq: int = 0


def cpu_times(root: Path = ROOT) -> CpuTimes:
    """Read before and after a run; steal_percent() compares. Raises OSError without /proc/stat."""
    return _parse_times((root / "proc/stat").read_text().splitlines()[0])


def times_of_cpus(root: Path = ROOT) -> dict[int, CpuTimes]:
    """The same of each CPU. Raises OSError without /proc/stat, ValueError or IndexError when it is none."""
    text = (root / "proc/stat").read_text()
    of_each = re.findall(r"^(cpu(\d+) .*)$", text, re.MULTILINE)
    return {int(cpu): _parse_times(line) for line, cpu in of_each}


def _parse_times(line: str) -> CpuTimes:
    # user nice system idle iowait irq softirq steal; guest time, which follows, is already part of user time
    ticks = [int(word) for word in line.split()[1:9]]
    return CpuTimes(
        total=sum(ticks),
        steal=ticks[7] if len(ticks) > 7 else 0,
        busy=sum(ticks[:3]) + sum(ticks[5:7]),
        softirq=sum(ticks[5:7]),
    )


def usable_cpus(pids: Iterable[int]) -> frozenset[int]:
    """The CPUs that one of these processes or threads may run on; none where not known, or all ended."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= os.sched_getaffinity(pid)
    return frozenset(found)


def read_load(own_ns: int, cpus: Collection[int] = (), root: Path = ROOT) -> dict[str, Any]:
    """What these CPUs (or all) have done since boot, and copyscope: one end of machine_state.py."""
    load: dict[str, Any] = {"t_ns": time.monotonic_ns(), "own_ns": own_ns, "cpus": None, "reason": None}
    try:
        of_each = times_of_cpus(root)
        times = [of_each[cpu] for cpu in of_each if cpu in cpus] or list(of_each.values())
    except (OSError, ValueError, IndexError) as error:
        return load | {"reason": f"/proc/stat: {error}"}
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    for name in ("busy", "softirq", "steal"):
        load[f"{name}_ns"] = sum(getattr(one, name) for one in times) * tick_ns
    return load | {"cpus": len(times)}


def steal_percent(before: CpuTimes, after: CpuTimes) -> float | None:
    """How much of all CPU time the hypervisor gave to others; None when no tick passed in between."""
    elapsed = after.total - before.total
    return 100 * (after.steal - before.steal) / elapsed if elapsed > 0 else None
