# SPDX-License-Identifier: GPL-2.0-only
"""Guests with a PMU that the simulator's plugin feeds (simpmu.c), booted by tests/kernels/boot.sh."""

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import beside
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run.simulate import boot, qemu

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent / "kernels"
KEPT = paths.OUTPUT / "pmu"
SUITE = "trixie"
TIMEOUT_S = 900
# Lines of a failed guest's log that are printed: those of an Oops.
LOG_LINES = 30
# Maximum number of late interrupts, of thousands. Interrupts are late where QEMU runs an instruction alone.
LATE_MAX = 20
# Layout of the shared memory (simpmu.h): its size, the size of a CPU's part, and the offset of its word
# `late`.
MEMORY_BYTES = 1 << 20
CPU_BYTES, FIRST_CPU, LATE = 192, 64, 152
# Caches so small that a copy misses each of them.
CACHES = (("l2", "256K:16"), ("llc", "512K:16"))
# nokaslr makes the symbols match. NO_REPEATED, because the plugin counts each byte of a `rep movsb` as a
# block.
APPEND = f"nokaslr hpet=disable no_timer_check {beside.NO_REPEATED}"


@dataclass(frozen=True)
class Boot:
    """A guest: words for the script `inside`, options of its PMU, number of CPUs, CPUs to switch off."""

    name: str
    words: tuple[str, ...]
    pmu: str = ""
    cpus: int = 2
    offline: str = ""

    @property
    def kept(self) -> Path:
        """Directory of the guest's files."""
        return KEPT / self.name


@dataclass(frozen=True)
class Parts:
    """Parts of all guests: their kernel, the plugin, and programs."""

    root: str
    plugin: str
    files: dict[str, bytes]


def build() -> Parts:
    """Build the parts. Raises RunError, or CalledProcessError after the compiler has printed its error."""
    root = subprocess.check_output([KERNELS / "fetch.sh", SUITE, "amd64"], text=True).strip()
    module = KEPT / "module"
    subprocess.run([HERE / "module.sh", SUITE, module], check=True)
    reads = KEPT / "reads"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-o", reads, HERE / "reads.c"], check=True
    )
    files = {"simpmu.ko": (module / "simpmu.ko").read_bytes(), "reads": reads.read_bytes()}
    return Parts(root, boot.build(qemu.find_qemu()).plugin, files | {"tell": beside.tell()})


def run(parts: Parts, guest: Boot) -> None:
    """Run a guest from power-on to power-off. Raises RunError if it fails or too many interrupts are late."""
    shutil.rmtree(guest.kept, ignore_errors=True)
    guest.kept.mkdir(parents=True)
    for name, content in parts.files.items():
        (guest.kept / name).write_bytes(content)
        (guest.kept / name).chmod(0o755)
    memory = os.memfd_create("simpmu", 0)
    os.ftruncate(memory, MEMORY_BYTES)
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(guest.cpus)]
    try:
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{directory}/ivshmem")
            listener.listen()
            threading.Thread(target=_serve, args=(listener, memory, bells), daemon=True).start()
            try:
                _boot(parts, guest, f"{directory}/ivshmem", memory, bells)
            finally:
                listener.shutdown(socket.SHUT_RDWR)
        late = [_word(memory, FIRST_CPU + cpu * CPU_BYTES + LATE) for cpu in range(guest.cpus)]
    finally:
        for fd in (memory, *bells):
            os.close(fd)
    if sum(late) > LATE_MAX:
        raise RunError(f"{guest.name}: {sum(late)} interrupts came too late: repeat when idle")


def _word(fd: int, offset: int) -> int:
    return int.from_bytes(os.pread(fd, 8, offset), "little")


def _serve(listener: socket.socket, memory: int, bells: list[int]) -> None:
    """Serve the shared memory of ivshmem-doorbell to each QEMU that connects (ivshmem-spec.txt of QEMU).

    A client gets the version, its number, the memory, and an eventfd for each of its vectors.
    """
    clients = []
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        messages = [(0, []), (0, []), (-1, [memory]), *((0, [bell]) for bell in bells)]
        for number, fds in messages:
            socket.send_fds(client, [number.to_bytes(8, "little", signed=True)], fds)
        clients.append(client)


def _boot(parts: Parts, guest: Boot, server: str, memory: int, bells: list[int]) -> None:
    inside_words = [str(HERE.relative_to(paths.ROOT) / "inside"), guest.pmu, *guest.words]
    command = f"OFFLINE='{guest.offline}' {shlex.join(inside_words)}"
    options = [("out", str(guest.kept / "counted")), ("symbols", str(guest.kept / "symbols"))]
    options += [*CACHES, ("vcpus", str(guest.cpus)), ("shared", f"/proc/self/fd/{memory}")]
    options += [("bells", "/".join(map(str, bells)))]
    argv = [str(KERNELS / "boot.sh"), parts.root, command]
    argv += ["-fsdev", f"local,id=results,path={guest.kept},security_model=none"]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results"]
    # sleep=on: the clock does not run ahead while both CPUs wait for a file.
    argv += ["-icount", "shift=0,sleep=on", "-plugin", qemu.plugin_argument(parts.plugin, options)]
    argv += ["-chardev", f"socket,id=ivshmem,path={server}"]
    argv += ["-device", f"ivshmem-doorbell,chardev=ivshmem,vectors={guest.cpus}"]
    guest_settings = {"CPUS": str(guest.cpus), "TIMEOUT_S": str(TIMEOUT_S), "APPEND": APPEND}
    environment = os.environ | {f"COPYSCOPE_GUEST_{name}": value for name, value in guest_settings.items()}
    log = guest.kept / "log.txt"
    with log.open("w") as out:
        done = subprocess.run(
            argv,
            cwd=paths.ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=[memory, *bells],
            check=False,
        )
    if done.returncode != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        raise RunError(f"{guest.name}: the guest ended with status {done.returncode}: see {log}\n{end}")
