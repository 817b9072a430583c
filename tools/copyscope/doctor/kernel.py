"""Doctor's rows about the kernel, the tools, and what disturbs measurements on this machine."""

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.doctor.findings import Finding, disturbing
from copyscope.machine.files import ROOT, read_integer, read_text

in_kernel = partial(Finding, "kernel")
# Tool -> what it is for, the package that has it (Debian's name; tools/deps.sh knows the others), essential.
TOOLS = {
    "ip": ("links and addresses", "iproute2", True),
    "ethtool": ("offloads", "ethtool", True),
    "nsenter": ("entering namespaces", "util-linux", True),
    "unshare": ("making namespaces", "util-linux", True),
    "setpriv": ("running the traffic without privileges", "util-linux", True),
    "perf": ("counters", "linux-perf (Ubuntu: linux-tools-$(uname -r))", False),
    "addr2line": ("lines of the callers of a program's own copies", "binutils", False),
    "clang": ("building the BPF programs", "clang", False),
    "bpftool": ("building the BPF programs", "bpftool (Ubuntu: linux-tools-common)", False),
}
# include/uapi/linux/capability.h: bit, what copyscope needs it for.
CAPABILITIES = {
    "CAP_BPF": (39, "loading BPF programs"),
    "CAP_PERFMON": (38, "tracing and counters"),
    "CAP_NET_ADMIN": (12, "making links"),
    "CAP_SYS_ADMIN": (21, "making namespaces"),
    "CAP_SYS_RESOURCE": (24, "raising limits"),
}
STEADY_CLOCKS = (None, "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
LOW_STEAL_PERCENT = 1.0
BUSY_LOAD_PER_CPU = 0.25


def check_tools(versions: Mapping[str, str | None], search_path: str | None = None) -> Iterable[Finding]:
    folders = (os.environ.get("PATH", "") if search_path is None else search_path).split(os.pathsep)
    for tool, (purpose, package, essential) in TOOLS.items():
        if tool == "clang" and paths.INSTALLED:  # nothing is built there
            continue
        if not any(os.access(Path(folder) / tool, os.X_OK) for folder in folders if folder):
            advice = f"install {package}" + ("" if paths.INSTALLED else ", or run tools/deps.sh run")
            status: Any = "missing" if essential else "limited"
            yield Finding("tools", tool, status, f"not installed ({purpose})", advice, essential)
        elif tool in versions and versions[tool] is None:
            advice = f"install {package}"
            yield Finding("tools", tool, "limited", f"does not run ({purpose})", advice, essential)
        else:
            yield Finding("tools", tool, "ok", versions.get(tool) or "installed", essential=essential)


def check_kernel(machine: Mapping[str, Any], root: Path = ROOT) -> Iterable[Finding]:
    """What the kernel offers and permits: type information, symbols, JIT, lockdown, capabilities, PMU."""
    if (root / "sys/kernel/btf/vmlinux").exists():
        yield in_kernel("BTF", "ok", "/sys/kernel/btf/vmlinux")
    else:
        fact = "missing: nothing can be hooked, no other program watched; samples work"
        advice = "use a kernel with CONFIG_DEBUG_INFO_BTF=y"
        yield in_kernel("BTF", "limited", f"/sys/kernel/btf/vmlinux: {fact}", advice)
    yield _symbols(machine, root)
    enabled = machine["sysctls"].get("net.core.bpf_jit_enable")
    if enabled in ("1", "2"):
        yield in_kernel("BPF JIT", "ok", "on")
    else:
        fact = f"bpf_jit_enable is {enabled}"
        yield in_kernel("BPF JIT", "limited", fact, "sysctl net.core.bpf_jit_enable=1")
    if machine["lockdown"] == "confidentiality":
        fact = "confidentiality: kprobes, tracefs and BPF programs that read kernel memory are refused"
        advice = "boot without lockdown=confidentiality (secure boot policy)"
        yield in_kernel("lockdown", "limited", fact, advice)
    else:
        fact = machine["lockdown"] or "not known to be on; each hook is tried"
        yield in_kernel("lockdown", "ok", fact)
    yield from _capabilities(root)
    level = machine["perf_event_paranoid"]
    if level is None:
        yield in_kernel("perf events", "missing", "not in this kernel", "use another kernel", True)
    else:
        fact = f"perf_event_paranoid {level}" + (" (does not bind root)" if level > 1 else "")
        yield in_kernel("perf events", "ok", fact)
    yield mount_finding(
        root, "tracefs", "tracefs", "bpftrace scripts and tracepoints of perf need it", TRACEFS
    )
    yield mount_finding(
        root, "containers", "cgroup2", "--cgroup, --unit and --container find nothing", CGROUP2
    )
    if machine["pmu"]:
        yield in_kernel("PMU", "ok", ", ".join(machine["pmu"]))
    else:
        advice = (
            "no action needed; for cycles and misses use bare metal, or a VM with a virtual PMU;"
            " copyscope simulate models the misses of each copy"
        )
        fact = "none: cycles, instructions and cache misses are neither counted nor sampled"
        yield in_kernel("PMU", "limited", fact, advice)


TRACEFS = "mount -t tracefs nodev /sys/kernel/tracing"
CGROUP2 = "--pid and --comm work; boot with systemd.unified_cgroup_hierarchy=1 for the rest"


def mount_finding(root: Path, name: str, kind: str, without: str, advice: str) -> Finding:
    """A file system of the kernel's that has to be mounted somewhere; nothing is mounted here."""
    rows = [line.split() for line in (read_text(root, "proc/mounts") or "").splitlines()]
    places = [row[1] for row in rows if len(row) > 2 and row[2] == kind]
    if places:
        return in_kernel(name, "ok", f"{kind} at {places[0]}")
    return in_kernel(name, "limited", f"{kind} is not mounted: {without}", advice)


def _symbols(machine: Mapping[str, Any], root: Path) -> Finding:
    try:
        with (root / "proc/kallsyms").open(encoding="utf-8", errors="replace") as lines:
            # Up to 6.14 x86-64 begins with its per-CPU variables, whose addresses really are 0 and up.
            shown = any(line.partition(" ")[0].strip("0") for line in lines)
    except OSError as error:
        fact = error.strerror or "cannot be read"
        return in_kernel("symbols", "missing", f"/proc/kallsyms: {fact}", "run as root", essential=True)
    if shown:
        return in_kernel("symbols", "ok", "/proc/kallsyms shows addresses", essential=True)
    fact = f"/proc/kallsyms hides addresses (kptr_restrict {machine['kptr_restrict']})"
    return in_kernel("symbols", "missing", fact, "run as root, or sysctl kernel.kptr_restrict=1", True)


def _capabilities(root: Path) -> Iterable[Finding]:
    status = read_text(root, "proc/self/status") or ""
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    held = int(effective, 16)
    sys_admin = bool(held >> CAPABILITIES["CAP_SYS_ADMIN"][0] & 1)
    for name, (bit, purpose) in CAPABILITIES.items():
        if held >> bit & 1:
            yield in_kernel(name, "ok", purpose)
        elif name in ("CAP_BPF", "CAP_PERFMON") and sys_admin:
            yield in_kernel(name, "ok", f"{purpose}: through CAP_SYS_ADMIN")
        elif name == "CAP_SYS_RESOURCE":
            advice = "no action needed on Linux 5.11 and newer; before, BPF maps need a larger `ulimit -l`"
            yield in_kernel(name, "limited", f"missing ({purpose})", advice)
        else:
            advice = "run as root, outside of an unprivileged container"
            yield in_kernel(name, "missing", f"missing ({purpose})", advice, essential=True)


def check_disturbances(
    machine: Mapping[str, Any], steal: float | None, root: Path = ROOT
) -> Iterable[Finding]:
    """What makes numbers vary or mean something else: frequency, SMT, other load, the hypervisor."""
    governor = machine["governor"]
    if governor in (None, "performance"):
        yield disturbing("frequency", "ok", governor or "not controlled by this kernel")
    else:
        advice = "cpupower frequency-set -g performance"
        yield disturbing("frequency", "confounder", f"governor {governor}", advice)
    if machine["turbo"]:
        advice = (
            "for steady cycles switch it off: /sys/devices/system/cpu/intel_pstate/no_turbo or cpufreq/boost"
        )
        yield disturbing("turbo", "confounder", "on: the clock follows temperature", advice)
    if machine["smt"]:
        advice = (
            "no action needed: copyscope run --placement split (the default) takes cores of their own for "
            "the two sides"
        )
        yield disturbing("SMT", "confounder", "on: two threads share a core", advice)
    if machine["hybrid"]:
        cores = ", ".join(f"{kind} {cpus}" for kind, cpus in machine["hybrid"].items())
        advice = "no action needed: copyscope run --placement split (the default) takes cores of one type"
        yield disturbing("hybrid cores", "confounder", cores, advice)
    if machine["cpus_online"] < 2:
        fact = "1: sender, receiver and softirq take turns"
        yield disturbing("CPUs", "confounder", fact, "use a machine with two or more")
    yield _load(machine, root)
    yield _steal(machine, steal)
    yield from _memory(machine, root)
    if machine["clocksource"] not in STEADY_CLOCKS:
        fact = f"{machine['clocksource']}: reading the time is slow"
        yield disturbing("clocksource", "confounder", fact, "boot with clocksource=tsc if it is stable")
    if machine["sysctls"].get("kernel.nmi_watchdog") == "1" and machine["pmu"]:
        fact = "takes one hardware counter of each CPU"
        yield disturbing("NMI watchdog", "confounder", fact, "sysctl kernel.nmi_watchdog=0")


def _load(machine: Mapping[str, Any], root: Path) -> Finding:
    words = (read_text(root, "proc/loadavg") or "").split()
    if not words:
        return disturbing("load", "ok", "not known")
    load, cpus = float(words[0]), machine["cpus_online"]
    fact = f"{load:.2f} runnable tasks on {cpus} CPUs in the last minute"
    if load > BUSY_LOAD_PER_CPU * cpus:
        return disturbing("load", "confounder", fact, "stop other programs, or wait")
    return disturbing("load", "ok", fact)


def _steal(machine: Mapping[str, Any], steal: float | None) -> Finding:
    if machine["hypervisor"] is None:
        return disturbing("hypervisor", "ok", "none seen")
    fact = f"{machine['hypervisor']}: copies on the host are not seen"
    if steal is not None and steal > LOW_STEAL_PERCENT:
        fact = f"{fact}; it stole {steal:.1f} % of the CPU time just now"
        return disturbing("hypervisor", "confounder", fact, "repeat at another time, or on bare metal")
    advice = "no action needed; the steal time of each run is recorded"
    return disturbing("hypervisor", "confounder", fact, advice)


def _memory(machine: Mapping[str, Any], root: Path) -> Iterable[Finding]:
    huge = machine["transparent_hugepages"]
    advice = "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"
    if huge == "always":
        fact = "always: heap buffers may be huge pages although 4 KiB ones were asked for"
        yield disturbing("huge pages (THP)", "confounder", fact, advice)
    elif huge == "never":
        yield disturbing("huge pages (THP)", "limited", "never: --pages thp cannot work", advice)
    else:
        yield disturbing("huge pages (THP)", "ok", str(huge))
    reserved = read_integer(root, "proc/sys/vm/nr_hugepages") or 0
    if reserved:
        yield disturbing("huge pages (reserved)", "ok", f"{reserved} pages")
    else:
        advice = "only for --pages hugetlb: sysctl vm.nr_hugepages=64"
        yield disturbing("huge pages (reserved)", "limited", "none reserved", advice)
