# SPDX-License-Identifier: GPL-2.0-only
"""Boot a simulated machine: build its file system, run QEMU, and read the counts that the plugin wrote."""

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from msgspec import MsgspecError, json

from copyscope.base import paths
from copyscope.base.errors import BUILD_ADVICE, RunError
from copyscope.base.files import save
from copyscope.base.programs import delay_interrupts
from copyscope.run.build import build_if_stale
from copyscope.run.child import dies_with_us
from copyscope.run.elf import ElfFile
from copyscope.run.simulate import counted_stacks, document, job, qemu
from copyscope.run.simulate.job import GuestCommand
from copyscope.run.simulate.kernel_image import GuestKernel, save_startable
from copyscope.run.simulate.kernels import Say
from copyscope.run.simulate.qemu import Files
from copyscope.run.simulate.request import Request

# The first part runs one boot, from the start of QEMU to its end, with time limits and without files on disk.
# Files of QEMU are in memory (memfd_create(2)) and inherited. The kernel kills QEMU when copyscope dies, even
# by SIGKILL (child.dies_with_us), so that no files remain. Only the console of a failed guest is saved, and
# its path printed.

# Time limit in seconds for the first line of a guest.
BOOT_TIMEOUT_S = 120.0
# Longest time in seconds between lines of a guest, which prints a line at least every few MiB. Sending a
# megabyte takes 0.1 s.
SILENCE_TIMEOUT_S = 180.0
# Pattern of the message of a kernel that failed.
PANIC = re.compile(r"(?:Kernel panic|BUG:|Oops|Unable to mount).*")
# Advice for a QEMU with an unexpected version of the plugin interface (qemu.API_NUMBERS).
OTHER_QEMU_ADVICE = "use another QEMU: 7.2 (Debian 12) and 10.0 (Debian 13) load this plugin"
ReportLine = Callable[[str], None]


class Memory:
    """File in memory that a child process can open by path."""

    def __init__(self, name: str, content: bytes) -> None:
        self.fd = os.memfd_create(name)
        written = 0
        while written < len(content):
            written += os.write(self.fd, content[written:])

    @property
    def path(self) -> str:
        """Path of the file in a process that has inherited it."""
        return f"/proc/self/fd/{self.fd}"

    def text(self) -> str:
        size = os.fstat(self.fd).st_size
        return os.pread(self.fd, size, 0).decode(errors="replace") if size else ""

    def close(self) -> None:
        os.close(self.fd)


class Guest:
    """Boot of a guest, with its files in memory. Leaving `with` ends the boot and closes the files.

    lines: lines that the guest has printed
    """

    def __init__(self, kernel: str, initramfs: bytes) -> None:
        """Create the files of a boot. `kernel`: path of the kernel. `initramfs`: the guest's file system."""
        self._stack = contextlib.ExitStack()
        self.kernel = kernel
        self.initramfs = self._file("initramfs", initramfs)
        self.console = self._file("console")
        self.symbols = self._file("symbols")
        self.counted = self._file("counted")
        self._errors = self._file("errors")
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.lines: list[str] = []
        self._deadline_s = math.inf

    @property
    def files(self) -> Files:
        """Paths of the files, for QEMU's command line."""
        return Files(self.kernel, self.initramfs.path, self.console.path, self.symbols.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the boot and close its files. May be called at any time, and more than once."""
        self._stack.close()

    def _file(self, name: str, content: bytes = b"") -> Memory:
        memory = Memory(name, content)
        self._stack.callback(memory.close)
        return memory

    def run(self, argv: Sequence[str], console: Path, on_line: ReportLine) -> list[str]:
        """Boot, and return the lines that the guest printed. Raises RunError after saving the console log.

        `argv`: QEMU's command line. `console`: path for the saved log. `on_line`: called with each line.
        """
        self.start(argv, console, on_line)
        while not wait_for_guests([self]):
            pass
        return self.lines

    def start(self, argv: Sequence[str], console: Path, on_line: ReportLine) -> None:
        """Start the boot like run(), but return at once. wait_for_guests() waits for output and the end."""
        self._console_path, self._on_line = console, on_line
        inherited = (self.initramfs, self.console, self.symbols, self.counted)
        try:
            with delay_interrupts() as interrupts:
                self._process = subprocess.Popen(
                    [*dies_with_us(), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=self._errors.fd,
                    pass_fds=[memory.fd for memory in inherited],
                    # Ctrl-C must not reach QEMU, because copyscope ends QEMU.
                    start_new_session=True,
                )
        except OSError as error:
            raise RunError(f"{argv[0]}: {error.strerror}: the guest could not be started") from error
        self._stack.callback(self._end)
        if interrupts:
            signal.raise_signal(interrupts[0])
        self._deadline_s = time.monotonic() + BOOT_TIMEOUT_S

    def _end(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def fileno(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def left_s(self) -> float:
        """Seconds left in which the guest must print the next line."""
        return max(0.0, self._deadline_s - time.monotonic())

    def handle_output(self, *, ready: bool) -> bool:
        """Read the guest's output; return True once the guest has ended. Raises RunError.

        `ready`: True if there is output, False if the time limit for the next line has passed.
        """
        try:
            return self._handle_output(ready)
        except RunError as error:
            raise RunError(f"{error}{self._keep()}") from None

    def _handle_output(self, ready: bool) -> bool:
        """Do the work of handle_output(), but do not save the console log after an error."""
        if not ready:
            moment = f"after `{self.lines[-1][:60]}`" if self.lines else "before its first line"
            limit = SILENCE_TIMEOUT_S if self.lines else BOOT_TIMEOUT_S
            raise RunError(f"guest: silent for {limit:.0f} s {moment}, so the boot was ended")
        chunk = os.read(self.fileno(), 1 << 16)
        if not chunk:
            self._check_end()
            return True
        *complete, self._pending = (self._pending + chunk).split(b"\n")
        for raw in complete:
            line = raw.decode(errors="replace")
            if line.startswith("failed "):
                raise RunError(f"guest: {line.removeprefix('failed ')}")
            self.lines.append(line)
            self._on_line(line)
            self._deadline_s = time.monotonic() + SILENCE_TIMEOUT_S
        return False

    def _check_end(self) -> None:
        """Raise RunError unless QEMU exited with status 0 after the line that ends a complete boot."""
        assert self._process is not None
        try:
            status = self._process.wait(BOOT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RunError("guest: QEMU does not end") from None
        messages = self._errors.text().strip().splitlines()
        # If the plugin fails to load, its own message has the reason; QEMU only reports the failure.
        messages = [message for message in messages if message.startswith("simulator: ")] or messages
        if status != 0:
            ending = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
            advice = f"; {OTHER_QEMU_ADVICE}" if messages and "plugin requires" in messages[-1] else ""
            raise RunError(f"QEMU: {ending}" + (f": {messages[-1]}" if messages else "") + advice)
        if self.lines[-1:] != ["end"]:
            panic = PANIC.search(self.console.text())
            raise RunError(
                f"guest: {panic[0].strip() if panic else 'the guest ended before its work was done'}"
            )

    def _keep(self) -> str:
        """Save the guest's console log, and return a clause about the log for an error message."""
        console = self.console.text()
        if not console.strip():
            return ""
        try:
            save(self._console_path, console.encode())
        except OSError as error:
            last = console.strip().splitlines()[-1]
            return f"; the console cannot be saved ({error.strerror}) and ends with: {last}"
        return f"; the console is saved in {self._console_path}"


def wait_for_guests(running: Collection[Guest]) -> list[Guest]:
    """Wait for output from the guests; return those that have ended. Raises RunError if a guest fails."""
    ready = select.select(running, [], [], min(guest.left_s for guest in running))[0]
    late = [] if ready else [guest for guest in running if not guest.left_s]
    return [guest for guest in (*ready, *late) if guest.handle_output(ready=guest in ready)]


# The initramfs is the only file system of the guest, in cpio's newc format, which the kernel unpacks. The
# archive depends neither on the clock nor on this machine, so that the same files always give the same bytes.

# Modes of a directory and of an executable file.
DIRECTORY = 0o040755
EXECUTABLE = 0o100755


def build_cpio(files: Mapping[str, bytes]) -> bytes:
    """Return a cpio archive of executable files and their directories. `files`: content by path."""
    directories = {"dev", "proc", "sys", "tmp"}
    for path in files:
        parts = path.split("/")[:-1]
        directories |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    members = [
        _member(number, path, DIRECTORY, b"") for number, path in enumerate(sorted(directories), start=1)
    ]
    members += [
        _member(number, path, EXECUTABLE, content)
        for number, (path, content) in enumerate(sorted(files.items()), start=len(directories) + 1)
    ]
    # Documentation/driver-api/early-userspace/buffer-format.rst
    return b"".join([*members, _member(0, "TRAILER!!!", 0, b"")])


def _member(number: int, path: str, mode: int, content: bytes) -> bytes:
    """Return the bytes of an archive member. `number`: the member's inode number."""
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return _padded(head) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


# The second part boots a kernel with programs and reads the counts: once for its symbols, then once per seed.

BUILT = paths.OUTPUT / "guest"
# Last part of the line of a symbol that the plugin needs to see system calls. Its line also shows that the
# list of symbols is complete.
LANDMARK = " entry_SYSCALL_64\n"
CONSOLE = "console"


@dataclass(frozen=True)
class Programs:
    """Programs for the guest, and the path of the plugin for the guest's QEMU."""

    init: bytes
    traffic: bytes
    plugin: str


@dataclass(frozen=True)
class BootCounts:
    """Counts from one boot: stacks and reports of each measurement, the modules' symbols, and CPU flags."""

    measurements: tuple[counted_stacks.MeasuredStacks, ...]
    reports: tuple[document.SideReports, ...]
    symbols: str
    cpu_flags: tuple[str, ...]


def build(program: qemu.QemuProgram) -> Programs:
    """Build the guest's programs and the plugin for this QEMU. Raises RunError with the compiler's error."""
    plugin = BUILT / f"simulator-{program.api}.so"
    paths_built = [BUILT / "init", BUILT / "traffic", plugin]
    build_if_stale(targets=[str(path.relative_to(paths.ROOT)) for path in paths_built])
    try:
        init, traffic = (path.read_bytes() for path in paths_built[:2])
    except OSError as error:
        advice = BUILD_ADVICE if paths.INSTALLED else f"build it: make {error.filename}"
        raise RunError(f"{error.filename}: {error.strerror}; {advice}") from error
    return Programs(init, traffic, str(plugin))


def build_file_system(
    kernel: GuestKernel, programs: Programs, orders: str, command: GuestCommand | None = None
) -> bytes:
    """Return the initramfs. `orders`: content of the file /job. `command`: the user's command, or None."""
    content_by_path = {"init": programs.init, "traffic": programs.traffic, "job": os.fsencode(orders)}
    if command is not None:
        content_by_path |= {"command": command.program, "command.symbols": command.symbols}
        content_by_path |= {"server": command.server_program} if command.server else {}
    for name, module in kernel.modules.items():
        content_by_path[f"modules/{name}.ko"] = module
        content_by_path[f"modules/{name}.symbols"] = module_functions(module)
    return build_cpio(content_by_path)


def module_functions(module: bytes) -> bytes:
    """Return a line `SECTION OFFSET NAME` for each function of a kernel module, sorted. Raises RunError.

    Only the guest knows at which addresses the kernel has loaded the sections, so the guest adds them
    (src/guest/symbols.c).
    """
    rows = ElfFile.of(module).code()
    return "".join(f"{section} {offset:x} {name}\n" for section, offset, name in rows).encode()


def kernel_symbols(kernel: GuestKernel, program: qemu.QemuProgram, programs: Programs, say: Say) -> str:
    """Return the path of the file with a kernel's symbols. If necessary, an extra boot reads and saves them.

    `say` announces the extra boot.
    """
    path = kernel.directory / f"symbols-{kernel.sha256[:16]}"
    try:
        if LANDMARK in path.read_text():
            return str(path)
    except (OSError, UnicodeDecodeError):
        pass
    say(f"reading the symbols of Linux {kernel.release}, once")
    with Guest(save_startable(kernel), build_file_system(kernel, programs, "kernel-symbols\n")) as guest:
        machine = qemu.BootSettings(vcpus=1, seed=1, exact=False)
        guest.run(qemu.command(program, machine, guest.files), kernel.directory / CONSOLE, lambda _: None)
        text = guest.symbols.text()
    if LANDMARK not in text:
        raise RunError(
            f"guest: Linux {kernel.release} has no symbol{LANDMARK.rstrip()} and cannot be simulated"
        )
    try:
        save(path, text.encode())
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}: cannot save the symbols") from error
    return str(path)


@dataclass(frozen=True)
class Plan:
    """Settings that all boots of a simulation share. `symbols`: path of the kernel's symbols."""

    kernel: GuestKernel
    qemu: qemu.QemuProgram
    programs: Programs
    symbols: str
    request: Request


def count(plan: Plan, say: Callable[[int, str], None]) -> list[BootCounts]:
    """Boot once per seed; return the counts in the order of the seeds. Raises RunError.

    `say(seed, line)` is called with each line that a guest prints.
    """
    seeds = list(plan.request.seeds)
    running: dict[Guest, int] = {}
    done: dict[int, BootCounts] = {}
    with contextlib.ExitStack() as stack:
        while seeds or running:
            while seeds and len(running) < count_concurrent_boots(plan.request):
                seed = seeds.pop(0)
                guest = stack.enter_context(_guest(plan, seed))
                running[guest] = seed
                guest.start(_command(plan, seed, guest), plan.kernel.directory / CONSOLE, partial(say, seed))
            for guest in wait_for_guests(running):
                done[running.pop(guest)] = _read_counts(plan, guest)
                guest.close()
    return [done[seed] for seed in plan.request.seeds]


def count_concurrent_boots(request: Request) -> int:
    """Return the number of boots that may run at once: one per CPU, or one if guests use the real clock."""
    return len(os.sched_getaffinity(0)) if request.exact else 1


def _guest(plan: Plan, seed: int) -> Guest:
    """Return the boot for a seed, not started yet."""
    request, kernel = plan.request, plan.kernel
    if request.command is None:
        orders = job.job_text(
            request.path,
            request.measured,
            list(kernel.modules),
            request.model.vcpus,
            seed,
            exact=request.exact,
        )
    else:
        orders = job.command_text(request.command.words, request.command.server)
    return Guest(save_startable(kernel), build_file_system(kernel, plan.programs, orders, request.command))


def _command(plan: Plan, seed: int, guest: Guest) -> list[str]:
    """Return the command line of QEMU for a boot."""
    request = plan.request
    options = [("out", guest.counted.path), ("symbols", plan.symbols), ("symbols", guest.symbols.path)]
    plugin = qemu.plugin_argument(plan.programs.plugin, [*options, *request.model.options()])
    with_cards = request.path.kind == "nics"
    machine = qemu.BootSettings(
        request.model.vcpus,
        seed,
        request.exact,
        cards=with_cards,
        plugin=plugin,
        fine_timers=request.fine_timers,
    )
    return qemu.command(plan.qemu, machine, guest.files)


def _read_counts(plan: Plan, guest: Guest) -> BootCounts:
    """Return the counts from a boot that has ended. Raises RunError if measurements are missing."""
    measurements, expected = counted_stacks.parse(guest.counted.text()), plan.request.count
    if len(measurements) != expected:
        raise RunError(f"simulator: only {len(measurements)} of {expected} measurements were made")
    lines = guest.lines
    return BootCounts(
        tuple(measurements), tuple(read_reports(lines)), guest.symbols.text(), read_string_flags(lines)
    )


def read_reports(lines: Sequence[str]) -> list[dict[str, document.GuestReport]]:
    """Return the sender's and receiver's reports for each measurement. Raises RunError if one is invalid.

    `lines`: lines that the guest printed.
    """
    reports: list[dict[str, document.GuestReport]] = []
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "measure":
            reports.append({})
        elif name in ("sender", "receiver") and reports:
            try:
                reports[-1][name] = json.decode(rest, type=document.GuestReport)
            except MsgspecError as error:
                raise RunError(f"guest: the report of the {name} cannot be read: {error}") from error
    return reports


def read_string_flags(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the guest's CPU flags for fast string operations, which determine the kernel's copy code."""
    for line in lines:
        if line.startswith("cpu "):
            return tuple(word for word in line.split()[1:] if word != "-")
    return ()
