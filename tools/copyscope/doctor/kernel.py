# SPDX-License-Identifier: GPL-2.0-only
"""Findings about the kernel, installed tools, and confounders (settings and load that distort results)."""

import os
import platform
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from copyscope.base import paths
from copyscope.doctor.findings import DoctorFinding, confounder_finding
from copyscope.machine.fingerprint import MachineFacts, read_kernel_config
from copyscope.machine.processors import ROOT, read_integer, read_text

kernel_finding = partial(DoctorFinding, "kernel")
# Purpose of tools that an installed copy does not need, because nothing is built there.
BUILD = "building the BPF programs"
# Purpose, Debian package, and True if essential, by name of the tool. tools/deps.sh has packages of other
# distributions.
TOOLS = {
    "ip": ("links and addresses", "iproute2", True),
    "ethtool": ("offloads", "ethtool", True),
    "nsenter": ("entering namespaces", "util-linux", True),
    "unshare": ("making namespaces", "util-linux", True),
    "setpriv": ("running the traffic without privileges", "util-linux", True),
    "perf": ("counters", "linux-perf (Ubuntu: linux-tools-$(uname -r))", False),
    "addr2line": ("source lines of the callers of a program's own copies", "binutils", False),
    "clang": (BUILD, "clang", False),
    "bpftool": (BUILD, "bpftool (Ubuntu: linux-tools-common)", False),
}
# Bit number (include/uapi/linux/capability.h) and purpose of each capability.
CAPABILITIES = {
    "CAP_BPF": (39, "loading BPF programs"),
    "CAP_PERFMON": (38, "tracing and counters"),
    "CAP_NET_ADMIN": (12, "making links"),
    "CAP_SYS_ADMIN": (21, "making namespaces"),
    "CAP_SYS_RESOURCE": (24, "raising limits"),
}
# Clock sources that are fast to read.
STEADY_CLOCKS = (None, "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
# Maximum stolen CPU time in percent, and maximum number of runnable tasks per CPU, of an undisturbed machine.
LOW_STEAL_PERCENT = 1.0
BUSY_LOAD_PER_CPU = 0.25


def check_tools(
    versions: Mapping[str, str | None], search_path: str | None = None
) -> Iterable[DoctorFinding]:
    """Yield a finding for each tool.

    `versions`: maps each tool to its version, or to None if it printed none. `search_path`: replaces PATH.
    """
    folders = (os.environ.get("PATH", "") if search_path is None else search_path).split(os.pathsep)
    for tool, (purpose, package, essential) in TOOLS.items():
        if paths.INSTALLED and purpose == BUILD:
            continue
        if not any(os.access(Path(folder) / tool, os.X_OK) for folder in folders if folder):
            advice = f"install {package}" + ("" if paths.INSTALLED else ", or run tools/deps.sh run")
            status: Any = "missing" if essential else "limited"
            yield DoctorFinding("tools", tool, status, f"not installed ({purpose})", advice, essential)
        elif tool in versions and versions[tool] is None:
            advice = f"install {package}"
            yield DoctorFinding("tools", tool, "limited", f"does not run ({purpose})", advice, essential)
        else:
            yield DoctorFinding("tools", tool, "ok", versions.get(tool) or "installed", essential=essential)


def check_kernel(machine: MachineFacts, root: Path = ROOT) -> Iterable[DoctorFinding]:
    """Yield findings about the kernel: BTF, symbols, JIT, lockdown, rights, perf events, mounts, PMU."""
    if (root / "sys/kernel/btf/vmlinux").exists():
        yield kernel_finding("BTF", "ok", "/sys/kernel/btf/vmlinux")
    else:
        fact = "missing: no hooks, and no other program can be watched; sampling works"
        advice = "use a kernel with CONFIG_DEBUG_INFO_BTF=y"
        yield kernel_finding("BTF", "limited", f"/sys/kernel/btf/vmlinux: {fact}", advice)
    yield _symbols(machine, root)
    bpf_jit_enable = machine.sysctls.get("net.core.bpf_jit_enable")
    if bpf_jit_enable in ("1", "2"):
        yield kernel_finding("BPF JIT", "ok", "on")
    else:
        fact = f"bpf_jit_enable is {bpf_jit_enable}"
        yield kernel_finding("BPF JIT", "limited", fact, "sysctl net.core.bpf_jit_enable=1")
    if machine.lockdown == "confidentiality":
        fact = "confidentiality: kprobes, tracefs and BPF programs that read kernel memory are refused"
        advice = "boot without lockdown=confidentiality (secure boot policy)"
        yield kernel_finding("lockdown", "limited", fact, advice)
    else:
        fact = machine.lockdown or "unknown; each hook is tried anyway"
        yield kernel_finding("lockdown", "ok", fact)
    yield from _capabilities(root)
    level = machine.perf_event_paranoid
    if level is None:
        yield kernel_finding("perf events", "missing", "not in this kernel", "use another kernel", True)
    else:
        fact = f"perf_event_paranoid {level}" + (" (does not apply to root)" if level > 1 else "")
        yield kernel_finding("perf events", "ok", fact)
    yield mount_finding(
        root, "tracefs", "tracefs", "bpftrace scripts and tracepoints of perf need it", TRACEFS_ADVICE
    )
    yield mount_finding(
        root, "containers", "cgroup2", "--cgroup, --unit and --container find nothing", CGROUP2_ADVICE
    )
    if machine.pmu:
        yield kernel_finding("PMU", "ok", ", ".join(machine.pmu))
    else:
        advice = (
            "no action needed; for cycles and misses use bare metal, or a VM with a virtual PMU;"
            " copyscope simulate models the misses of each copy"
        )
        fact = "none: cycles, instructions and cache misses are neither counted nor sampled"
        yield kernel_finding("PMU", "limited", fact, advice)


TRACEFS_ADVICE = "mount -t tracefs nodev /sys/kernel/tracing"
CGROUP2_ADVICE = "--pid and --comm work; boot with systemd.unified_cgroup_hierarchy=1 for the rest"


def mount_finding(root: Path, name: str, kind: str, effect: str, advice: str) -> DoctorFinding:
    """Return the finding about a file system: mounted or not.

    name: name of the finding
    kind: type of the file system
    effect: consequence if the file system is missing, as a clause
    """
    rows = [line.split() for line in (read_text(root, "proc/mounts") or "").splitlines()]
    mount_points = [row[1] for row in rows if len(row) > 2 and row[2] == kind]
    if mount_points:
        return kernel_finding(name, "ok", f"{kind} at {mount_points[0]}")
    return kernel_finding(name, "limited", f"{kind} is not mounted: {effect}", advice)


def _symbols(machine: MachineFacts, root: Path) -> DoctorFinding:
    """Return the finding about /proc/kallsyms: whether it shows or hides addresses."""
    try:
        with (root / "proc/kallsyms").open(encoding="utf-8", errors="replace") as lines:
            # On x86-64 before 6.15 the first symbols are per-CPU variables, whose addresses begin at 0.
            has_addresses = any(line.partition(" ")[0].strip("0") for line in lines)
    except OSError as error:
        fact = error.strerror or "cannot be read"
        return kernel_finding("symbols", "missing", f"/proc/kallsyms: {fact}", "run as root", essential=True)
    if has_addresses:
        return kernel_finding("symbols", "ok", "/proc/kallsyms shows addresses", essential=True)
    fact = f"/proc/kallsyms hides addresses (kptr_restrict {machine.kptr_restrict})"
    return kernel_finding("symbols", "missing", fact, "run as root, or sysctl kernel.kptr_restrict=1", True)


def _capabilities(root: Path) -> Iterable[DoctorFinding]:
    """Yield a finding for each capability that copyscope needs."""
    status = read_text(root, "proc/self/status") or ""
    line = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    effective = int(line, 16)
    sys_admin = bool(effective >> CAPABILITIES["CAP_SYS_ADMIN"][0] & 1)
    for name, (bit, purpose) in CAPABILITIES.items():
        if effective >> bit & 1:
            yield kernel_finding(name, "ok", purpose)
        elif name in ("CAP_BPF", "CAP_PERFMON") and sys_admin:
            yield kernel_finding(name, "ok", f"{purpose}: through CAP_SYS_ADMIN")
        elif name == "CAP_SYS_RESOURCE":
            advice = "no action needed on Linux 5.11 and newer; older kernels need a larger `ulimit -l`"
            yield kernel_finding(name, "limited", f"missing ({purpose})", advice)
        else:
            advice = "run as root, outside of an unprivileged container"
            yield kernel_finding(name, "missing", f"missing ({purpose})", advice, essential=True)


def check_disturbances(
    machine: MachineFacts, steal: float | None, root: Path = ROOT
) -> Iterable[DoctorFinding]:
    """Yield findings about settings and load that distort results: frequency, SMT, hypervisor, memory, ...

    `steal`: percentage of CPU time that the hypervisor gave to other guests, or None.
    """
    governor = machine.governor
    if governor in (None, "performance"):
        yield confounder_finding("frequency", "ok", governor or "not controlled by this kernel")
    else:
        advice = "cpupower frequency-set -g performance"
        yield confounder_finding("frequency", "confounder", f"governor {governor}", advice)
    if machine.turbo:
        advice = (
            "for steady cycles switch it off: /sys/devices/system/cpu/intel_pstate/no_turbo or cpufreq/boost"
        )
        yield confounder_finding("turbo", "confounder", "on: the clock follows temperature", advice)
    if machine.smt:
        advice = (
            "no action needed: copyscope run --placement split (the default) gives each side cores of its own"
        )
        yield confounder_finding("SMT", "confounder", "on: two threads share a core", advice)
    if machine.hybrid:
        cores = ", ".join(f"{kind} {cpus}" for kind, cpus in machine.hybrid.items())
        advice = "no action needed: copyscope run --placement split (the default) uses cores of one type"
        yield confounder_finding("hybrid cores", "confounder", cores, advice)
    if machine.cpus_online < 2:
        fact = "1: sender, receiver and softirq take turns"
        yield confounder_finding("CPUs", "confounder", fact, "use a machine with two or more CPUs")
    yield _load(machine, root)
    yield _steal(machine, steal)
    yield from _memory(machine, root)
    if machine.clocksource not in STEADY_CLOCKS:
        fact = f"{machine.clocksource}: reading the time is slow"
        yield confounder_finding(
            "clocksource", "confounder", fact, "boot with clocksource=tsc if the TSC is stable"
        )
    if machine.sysctls.get("kernel.nmi_watchdog") == "1" and machine.pmu and not _watched_by_buddy(root):
        fact = "takes one hardware counter of each CPU"
        yield confounder_finding("NMI watchdog", "confounder", fact, "sysctl kernel.nmi_watchdog=0")


def _watched_by_buddy(root: Path) -> bool:
    """Return True if CPUs watch each other for lockups (since Linux 6.5), so no hardware counter is used."""
    config = read_kernel_config(root, platform.release()) or ""
    return "CONFIG_HARDLOCKUP_DETECTOR_BUDDY=y" in config.splitlines()


def _load(machine: MachineFacts, root: Path) -> DoctorFinding:
    """Return the finding about the CPU load from other programs."""
    averages = (read_text(root, "proc/loadavg") or "").split()
    if not averages:
        return confounder_finding("load", "ok", "unknown")
    load, cpus = float(averages[0]), machine.cpus_online
    fact = f"{load:.2f} runnable tasks on {cpus} CPUs in the last minute"
    if load > BUSY_LOAD_PER_CPU * cpus:
        return confounder_finding("load", "confounder", fact, "stop other programs, or wait")
    return confounder_finding("load", "ok", fact)


def _steal(machine: MachineFacts, steal: float | None) -> DoctorFinding:
    """Return the finding about the hypervisor and how much CPU time it gave to other guests."""
    if machine.hypervisor is None:
        return confounder_finding("hypervisor", "ok", "none detected")
    fact = f"{machine.hypervisor}: copies on the host are invisible"
    if steal is not None and steal > LOW_STEAL_PERCENT:
        fact = f"{fact}; the hypervisor stole {steal:.1f} % of the CPU time just now"
        return confounder_finding(
            "hypervisor", "confounder", fact, "measure at another time, or on bare metal"
        )
    advice = "no action needed; the steal time of each run is recorded"
    return confounder_finding("hypervisor", "confounder", fact, advice)


def _memory(machine: MachineFacts, root: Path) -> Iterable[DoctorFinding]:
    """Yield findings about transparent and reserved huge pages."""
    thp_mode = machine.transparent_hugepages
    advice = "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"
    if thp_mode == "always":
        fact = "always: heap buffers may be huge pages although 4 KiB pages were requested"
        yield confounder_finding("huge pages (THP)", "confounder", fact, advice)
    elif thp_mode == "never":
        yield confounder_finding("huge pages (THP)", "limited", "never: --pages thp cannot work", advice)
    else:
        yield confounder_finding("huge pages (THP)", "ok", str(thp_mode))
    reserved_pages = read_integer(root, "proc/sys/vm/nr_hugepages") or 0
    if reserved_pages:
        yield confounder_finding("huge pages (reserved)", "ok", f"{reserved_pages} pages")
    else:
        advice = "only for --pages hugetlb: sysctl vm.nr_hugepages=64"
        yield confounder_finding("huge pages (reserved)", "limited", "none reserved", advice)
