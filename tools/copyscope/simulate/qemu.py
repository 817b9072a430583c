"""QEMU: which one is there, what it is told, and why. Only `find` runs it."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.asking import LimitError, ask
from copyscope.errors import RunError, what_to_simulate_with

PROGRAM = "qemu-system-x86_64"
ANSWER_S = 20
OLDEST = (6, 0)
MEMORY_MIB = 768
CPU_MODEL = "max"
# Room for translated code: what a boot needs at once; four times as much is no faster.
TRANSLATED_MIB = 24
# The guest's clock begins here, whatever the host's says.
CLOCK = "2026-01-01T00:00:00"
# Version in which the number of the plugin interface became this one (include/qemu/qemu-plugin.h of QEMU).
API_NUMBERS = (((11, 1), 7), ((10, 2), 6), ((10, 1), 5), ((9, 2), 4), ((9, 1), 3), ((9, 0), 2), (OLDEST, 1))
# nokaslr: kept symbols fit. tsc=reliable: the watchdog would fall back to a slower clock on a busy host.
# cryptomgr.notests: self-tests of the kernel run on after the boot. ipv6.disable: its router solicitations
# come when they like. panic=-1 with -no-reboot: a panic ends QEMU at once.
# no_timer_check: ten ticks are not waited for. hpet=disable: a clock that nobody reads is not measured.
APPEND = (
    "console=ttyS0 quiet panic=-1 oops=panic nokaslr tsc=reliable cryptomgr.notests ipv6.disable=1"
    " no_timer_check hpet=disable"
)
# CPUs without a timer of their own: to compare it with the clock is a loop of 100 ms, half of a boot whose
# instructions are counted (calibrate_APIC_clock() of the kernel). All sleeps end with the tick then (250 a
# second), and an idle CPU ticks, too.
TICK_ONLY = "nolapic_timer"


@dataclass(frozen=True)
class Qemu:
    """One QEMU, and the number of its plugin interface."""

    path: str
    version: str
    api: int


@dataclass(frozen=True)
class Machine:
    """What a boot differs in."""

    vcpus: int
    seed: int
    exact: bool
    cards: bool = False
    plugin: str | None = None
    # Something in it may sleep for less than a tick.
    fine_timers: bool = True


@dataclass(frozen=True)
class Files:
    """What it reads, and where it writes (what the guest says in lines goes to QEMU's standard output)."""

    kernel: str
    initramfs: str
    console: str
    symbols: str


def find() -> Qemu:
    """The QEMU of this machine. Raises RunError for none, and for one without plugins."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise RunError(f"{PROGRAM}: not found: {what_to_simulate_with('qemu-system-x86')}")
    try:
        done = ask([path, "--version"], limit_s=ANSWER_S)
    except (OSError, LimitError) as error:
        raise RunError(f"{path}: does not start: {error}") from error
    return Qemu(path, *read_version(done.text))


def read_version(said: str) -> tuple[str, int]:
    """(version, number of the plugin interface) of what `--version` prints. Raises RunError."""
    found = re.search(r"version (\d+)\.(\d+)(?:\.\d+)*", said)
    if found is None:
        raise RunError(f"{PROGRAM}: prints no version: {said.strip()[:80] or 'nothing at all'}")
    version = (int(found[1]), int(found[2]))
    for since, number in API_NUMBERS:
        if version >= since:
            return found[0].removeprefix("version "), number
    raise RunError(
        f"{PROGRAM}: version {found[1]}.{found[2]}: too old for its plugins: {OLDEST[0]}.{OLDEST[1]} or later"
    )


def hangs_bit_exact(qemu: Qemu, release: str, vcpus: int) -> bool:
    """7.2 counts instructions and 6.1 (or before) starts its second CPU: neither goes on."""
    kernel = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return vcpus > 1 and qemu.version.startswith(("6.", "7.")) and kernel <= (6, 1)


def command(qemu: Qemu, machine: Machine, files: Files) -> list[str]:
    """The command line. The options that make a run the same bits each time are those of `exact`."""
    argv = [qemu.path, "-nodefaults", "-no-user-config", "-machine", "pc", "-cpu", CPU_MODEL]
    argv += ["-smp", str(machine.vcpus), "-m", f"{MEMORY_MIB}M"]
    # One thread for all CPUs: else code that the kernel patches is run half-written by another CPU.
    argv += ["-accel", f"tcg,thread=single,tb-size={TRANSLATED_MIB}", "-seed", str(machine.seed)]
    if machine.exact:
        argv += ["-icount", "shift=0,sleep=off", "-rtc", f"base={CLOCK},clock=vm"]
    append = APPEND if machine.fine_timers or not machine.exact else f"{APPEND} {TICK_ONLY}"
    argv += ["-kernel", files.kernel, "-initrd", files.initramfs, "-append", append]
    argv += ["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"]
    argv += ["-chardev", f"file,id=console,path={files.console}", "-serial", "chardev:console"]
    argv += ["-chardev", "stdio,id=said,signal=off", "-device", "isa-debugcon,iobase=0xe9,chardev=said"]
    argv += ["-chardev", f"file,id=symbols,path={files.symbols}"]
    argv += ["-device", "isa-debugcon,iobase=0xea,chardev=symbols"]
    if machine.cards:
        argv += _cards()
    if machine.plugin is not None:
        argv += ["-plugin", machine.plugin]
    return argv


def _cards() -> list[str]:
    """Two network cards with a cable between them, which ends inside QEMU."""
    argv = []
    for number in (0, 1):
        argv += ["-netdev", f"hubport,id=h{number},hubid=0"]
        argv += ["-device", f"e1000,netdev=h{number},mac=52:54:00:00:00:0{number + 1}"]
    return argv


def plugin_argument(path: str, options: Sequence[tuple[str, str]]) -> str:
    """A plugin and its options; a comma in a value is written twice (QemuOpts)."""
    words = [path, *(f"{name}={value}" for name, value in options)]
    return ",".join(word.replace(",", ",,") for word in words)
