# SPDX-License-Identifier: GPL-2.0-only
"""Find QEMU, and build its command line. Only find_qemu() runs a program."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.base.errors import RunError, how_to_install_for_simulation
from copyscope.base.programs import LimitError, run_program

PROGRAM = "qemu-system-x86_64"
VERSION_TIMEOUT_S = 20
OLDEST_VERSION = (6, 0)
# Memory of the guest in MiB.
MEMORY_MIB = 768
CPU_MODEL = "max"
# Size in MiB of QEMU's cache of translated code. A boot needs this size, and a larger cache is not faster.
TRANSLATION_CACHE_MIB = 24
# Start time of the guest's clock, independent of the host's clock.
CLOCK = "2026-01-01T00:00:00"
# Pairs (version of QEMU, version of its plugin interface from then on), from include/qemu/qemu-plugin.h.
API_NUMBERS = (
    *(((11, 1), 7), ((10, 2), 6), ((10, 1), 5), ((9, 2), 4), ((9, 1), 3), ((9, 0), 2)),
    (OLDEST_VERSION, 1),
)
# Arguments of the guest's kernel. nokaslr: saved symbols stay valid. tsc=reliable: otherwise the watchdog
# selects a slower clock on a busy host. cryptomgr.notests: self-tests would continue after the boot.
# ipv6.disable: router solicitations come at random times. panic=-1 with -no-reboot: a panic ends QEMU at
# once. no_timer_check: saves a wait of ten ticks. hpet=disable: saves the calibration of an unused clock.
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet panic=-1 oops=panic nokaslr tsc=reliable cryptomgr.notests ipv6.disable=1"
    " no_timer_check hpet=disable"
)
# Kernel argument for CPUs without a local timer: calibrating this timer is a loop of 100 ms, half of a boot
# with counted instructions (calibrate_APIC_clock() of the kernel). Without it, all sleeps end with a tick
# (250 a second), and idle CPUs tick, too.
TICK_ONLY = "nolapic_timer"


@dataclass(frozen=True)
class QemuProgram:
    """Installed QEMU, and the version of its plugin interface (`api`)."""

    path: str
    version: str
    api: int


@dataclass(frozen=True)
class BootSettings:
    """Options in which boots differ.

    exact: count instructions, so that every run is identical to the last bit
    cards: give the guest two network cards
    plugin: value of -plugin, or None
    fine_timers: True if a program in the guest may sleep for less than a tick
    """

    vcpus: int
    seed: int
    exact: bool
    cards: bool = False
    plugin: str | None = None
    fine_timers: bool = True


@dataclass(frozen=True)
class Files:
    """Paths of files that QEMU reads and writes. The guest's lines go to QEMU's standard output."""

    kernel: str
    initramfs: str
    console: str
    symbols: str


def find_qemu() -> QemuProgram:
    """Return this machine's QEMU. Raises RunError if QEMU is missing, or too old for plugins."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise RunError(f"{PROGRAM}: not found; {how_to_install_for_simulation('qemu-system-x86')}")
    try:
        result = run_program([path, "--version"], limit_s=VERSION_TIMEOUT_S)
    except (OSError, LimitError) as error:
        raise RunError(f"{path}: does not start: {error}") from error
    return QemuProgram(path, *read_version(result.text))


def read_version(text: str) -> tuple[str, int]:
    """Parse the output of `--version`. Return QEMU's version and its plugin interface's. Raises RunError."""
    match = re.search(r"version (\d+)\.(\d+)(?:\.\d+)*", text)
    if match is None:
        raise RunError(f"{PROGRAM}: printed no version: {text.strip()[:80] or 'no output'}")
    version = (int(match[1]), int(match[2]))
    for since, api in API_NUMBERS:
        if version >= since:
            return match[0].removeprefix("version "), api
    raise RunError(
        f"{PROGRAM}: version {match[1]}.{match[2]} is too old for plugins; install "
        f"{OLDEST_VERSION[0]}.{OLDEST_VERSION[1]} or later"
    )


def hangs_bit_exact(qemu: QemuProgram, release: str, vcpus: int) -> bool:
    """Return True if a bit-exact boot would hang: QEMU 6 or 7, Linux 6.1 or older, and several CPUs."""
    kernel = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return vcpus > 1 and qemu.version.startswith(("6.", "7.")) and kernel <= (6, 1)


def command(qemu: QemuProgram, settings: BootSettings, files: Files) -> list[str]:
    """Return the command line of QEMU for a boot."""
    argv = [qemu.path, "-nodefaults", "-no-user-config", "-machine", "pc", "-cpu", CPU_MODEL]
    argv += ["-smp", str(settings.vcpus), "-m", f"{MEMORY_MIB}M"]
    # Use one thread for all CPUs. With more threads, a CPU may execute code that another CPU is still
    # patching.
    argv += ["-accel", f"tcg,thread=single,tb-size={TRANSLATION_CACHE_MIB}", "-seed", str(settings.seed)]
    if settings.exact:
        argv += ["-icount", "shift=0,sleep=off", "-rtc", f"base={CLOCK},clock=vm"]
    arguments = KERNEL_ARGUMENTS
    if settings.exact and not settings.fine_timers:
        arguments += f" {TICK_ONLY}"
    argv += ["-kernel", files.kernel, "-initrd", files.initramfs, "-append", arguments]
    argv += ["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"]
    argv += ["-chardev", f"file,id=console,path={files.console}", "-serial", "chardev:console"]
    argv += ["-chardev", "stdio,id=said,signal=off", "-device", "isa-debugcon,iobase=0xe9,chardev=said"]
    argv += ["-chardev", f"file,id=symbols,path={files.symbols}"]
    argv += ["-device", "isa-debugcon,iobase=0xea,chardev=symbols"]
    if settings.cards:
        argv += _cards()
    if settings.plugin is not None:
        argv += ["-plugin", settings.plugin]
    return argv


def _cards() -> list[str]:
    """Return options for two network cards that a hub inside QEMU connects."""
    argv = []
    for number in (0, 1):
        argv += ["-netdev", f"hubport,id=h{number},hubid=0"]
        argv += ["-device", f"e1000,netdev=h{number},mac=52:54:00:00:00:0{number + 1}"]
    return argv


def plugin_argument(path: str, options: Sequence[tuple[str, str]]) -> str:
    """Return the value for QEMU's -plugin option. Commas within a value are doubled, as QEMU requires."""
    words = [path, *(f"{name}={value}" for name, value in options)]
    return ",".join(word.replace(",", ",,") for word in words)
