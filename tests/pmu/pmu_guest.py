"""A guest with a PMU that the simulator's plugin feeds (simpmu.c), booted by tests/kernels/boot.sh."""

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
from copyscope import paths
from copyscope.errors import RunError
from copyscope.simulate import boot, qemu

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent / "kernels"
KEPT = paths.OUTPUT / "pmu"
SUITE = "trixie"
TIMEOUT_S = 900
# Interrupts of thousands that may come some blocks too late, as where QEMU runs an instruction alone.
LATE_MAX = 20
# simpmu.h: the whole, and where in it the words `late` of a CPU are.
MEMORY_BYTES = 1 << 20
CPU_BYTES, FIRST_CPU, LATE = 192, 64, 152
# Small enough that a copy misses each of them.
CACHES = (("l2", "256K:16"), ("llc", "512K:16"))
# nokaslr: its symbols fit. NO_REPEATED: a `rep movsb` is a block of the plugin for each byte.
APPEND = f"nokaslr hpet=disable no_timer_check {beside.NO_REPEATED}"


@dataclass(frozen=True)
class Boot:
    """What a guest is told (inside): what it does, options of its PMU, processors, those that are offline."""

    name: str
    words: tuple[str, ...]
    pmu: str = ""
    cpus: int = 2
    offline: str = ""

    @property
    def kept(self) -> Path:
        """Where all that it left is kept."""
        return KEPT / self.name


@dataclass(frozen=True)
class Parts:
    """What is built for all guests: their kernel, the plugin, and programs."""

    root: str
    plugin: str
    files: dict[str, bytes]


def build() -> Parts:
    """Raises RunError, or CalledProcessError with what a compiler said above it."""
    root = subprocess.check_output([KERNELS / "fetch.sh", SUITE, "amd64"], text=True).strip()
    module = KEPT / "module"
    subprocess.run([HERE / "module.sh", SUITE, module], check=True)
    reads = KEPT / "reads"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-static", "-o", reads, HERE / "reads.c"], check=True
    )
    files = {"simpmu.ko": (module / "simpmu.ko").read_bytes(), "reads": reads.read_bytes()}
    return Parts(root, boot.build(qemu.find()).plugin, files | {"tell": beside.tell()})


def run(parts: Parts, one: Boot) -> None:
    """One guest, from power-on to power-off. Raises RunError where it fails, or many interrupts are late."""
    shutil.rmtree(one.kept, ignore_errors=True)
    one.kept.mkdir(parents=True)
    for name, content in parts.files.items():
        (one.kept / name).write_bytes(content)
        (one.kept / name).chmod(0o755)
    memory = os.memfd_create("simpmu", 0)
    os.ftruncate(memory, MEMORY_BYTES)
    bells = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(one.cpus)]
    try:
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{place}/ivshmem")
            listener.listen()
            threading.Thread(target=_serve, args=(listener, memory, bells), daemon=True).start()
            try:
                _boot(parts, one, f"{place}/ivshmem", memory, bells)
            finally:
                listener.shutdown(socket.SHUT_RDWR)
        late = [_word(memory, FIRST_CPU + cpu * CPU_BYTES + LATE) for cpu in range(one.cpus)]
    finally:
        for fd in (memory, *bells):
            os.close(fd)
    if sum(late) > LATE_MAX:
        raise RunError(f"{one.name}: {sum(late)} interrupts came too late: repeat when idle")


def _word(fd: int, at: int) -> int:
    return int.from_bytes(os.pread(fd, 8, at), "little")


def _serve(listener: socket.socket, memory: int, bells: list[int]) -> None:
    """The server of ivshmem-doorbell, for each QEMU that comes (ivshmem-spec.txt of QEMU).

    The version, the client's number, the memory, and an eventfd for each of its vectors.
    """
    clients = []
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        said = [(0, []), (0, []), (-1, [memory]), *((0, [bell]) for bell in bells)]
        for number, fds in said:
            socket.send_fds(client, [number.to_bytes(8, "little", signed=True)], fds)
        clients.append(client)


def _boot(parts: Parts, one: Boot, server: str, memory: int, bells: list[int]) -> None:
    words = [str(HERE.relative_to(paths.ROOT) / "inside"), one.pmu, *one.words]
    command = f"OFFLINE='{one.offline}' {shlex.join(words)}"
    options = [("out", str(one.kept / "counted")), ("symbols", str(one.kept / "symbols"))]
    options += [*CACHES, ("vcpus", str(one.cpus)), ("shared", f"/proc/self/fd/{memory}")]
    options += [("bells", "/".join(map(str, bells)))]
    argv = [str(KERNELS / "boot.sh"), parts.root, command]
    argv += ["-fsdev", f"local,id=results,path={one.kept},security_model=none"]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results"]
    # While both CPUs wait for a file, the clock does not leap ahead.
    argv += ["-icount", "shift=0,sleep=on", "-plugin", qemu.plugin_argument(parts.plugin, options)]
    argv += ["-chardev", f"socket,id=ivshmem,path={server}"]
    argv += ["-device", f"ivshmem-doorbell,chardev=ivshmem,vectors={one.cpus}"]
    told = {"CPUS": str(one.cpus), "TIMEOUT_S": str(TIMEOUT_S), "APPEND": APPEND}
    environment = os.environ | {f"COPYSCOPE_GUEST_{name}": value for name, value in told.items()}
    log = one.kept / "log.txt"
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
        raise RunError(f"{one.name}: the guest ended with status {done.returncode}: see {log}")
