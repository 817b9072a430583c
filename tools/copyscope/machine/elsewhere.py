"""Files of another machine's /proc and /sys, brought here as text, so that the same code reads them.

What comes is another machine's word: a name that was not asked for is left out.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

CPU = "sys/devices/system/cpu"
# All that fingerprint.describe() reads.
FINGERPRINT = (
    *("proc/sys/kernel/osrelease", "proc/sys/kernel/hostname", "proc/sys/kernel/arch", "proc/cpuinfo"),
    *("proc/sys/kernel/perf_event_paranoid", "proc/sys/kernel/kptr_restrict", "proc/cmdline"),
    *("proc/sys/kernel/nmi_watchdog", "proc/sys/kernel/numa_balancing"),
    *("proc/sys/kernel/perf_event_max_sample_rate", "proc/sys/net/core/*", "proc/sys/net/ipv4/tcp_*"),
    *("proc/sys/vm/nr_hugepages", "proc/self/limits", "proc/meminfo", "boot/config-*"),
    *(f"{CPU}/online", f"{CPU}/smt/active", f"{CPU}/vulnerabilities/*", f"{CPU}/cpufreq/boost"),
    *(f"{CPU}/cpu*/cpufreq/scaling_governor", f"{CPU}/cpuidle/current_driver"),
    *(f"{CPU}/intel_pstate/no_turbo", f"{CPU}/cpu0/cache/index*/*", "sys/devices/system/node/online"),
    *("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name"),
    "sys/bus/event_source/devices/*/cpus",
    "sys/bus/event_source/devices/cpu/type",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    *("sys/kernel/security/lockdown", "sys/kernel/mm/transparent_hugepage/enabled"),
    "proc/device-tree/model",
)
# One line of a long file, which may be packed.
CONFIG = "CONFIG_IRQ_TIME_ACCOUNTING"


def script(patterns: Sequence[str]) -> str:
    """For a shell: each line of these files behind its file's name. A file that is not there is left out."""
    config = "boot/config-*"
    wanted = " ".join(pattern for pattern in patterns if pattern != config)
    lines = ["cd /", f'grep -sH "" {wanted} 2>/dev/null']
    if config in patterns:
        name = "boot/config-$(uname -r)"
        lines.append(
            f"{{ cat {name} 2>/dev/null || zcat proc/config.gz 2>/dev/null; }} | grep {CONFIG} |"
            f' sed "s|^|{name}:|"'
        )
    return "\n".join([*lines, "exit 0"])


def write(text: str, root: Path) -> None:
    """The files that it has lines of, below a directory that is ours."""
    files: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon and _is_plain(name):
            files.setdefault(name, []).append(rest)
    for name, lines in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_text("\n".join(lines) + "\n")


def _is_plain(name: str) -> bool:
    """Whether a name stays below the directory, as every file that is asked for does."""
    parts = name.split("/")
    known = fnmatchcase(name, "[ps][ry][os]*/*") or name.startswith("boot/config-")
    return known and len(name) < 200 and all(part not in ("", ".", "..") for part in parts)


def cpu_ns(root: Path, pid: int) -> int:
    """CPU time of a process: utime and stime of proc_pid_stat(5), in ticks of 10 ms; 0 where it has ended."""
    try:
        words = (root / "proc" / str(pid) / "stat").read_text().rpartition(") ")[2].split()
        return (int(words[11]) + int(words[12])) * 10_000_000
    except (OSError, ValueError, IndexError):
        return 0
