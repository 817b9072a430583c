"""Boots a guest in which the collector and the simulator look at the same messages (see init)."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.simulate import boot, document, initramfs, kernels, output, qemu
from copyscope.simulate.guest import Guest
from copyscope.simulate.unpacked import startable
from copyscope.taxonomy.taxonomy import Taxonomy

HERE = Path(__file__).parent
# REP_GOOD, ERMS and FSRM (arch/x86/include/asm/cpufeatures.h): QEMU counts each byte of a `rep movsb` as an
# instruction, the simulator all of them as one. Without these it has loops for nearly all of them.
NO_REPEATED = "clearcpuid=112,297,580"
# There a cycle is an instruction, and a nanosecond: the kernel would find 0.03 % more or less.
CLOCK = "tsc_early_khz=1000000"
TELL = (HERE / "tell.c", paths.ROOT / "src" / "guest" / "channel.c")


@dataclass(frozen=True)
class Case:
    """What is sent, what the collector is told and opens, and for how many of the guest's seconds."""

    impl: str
    collect: str
    instruments: str
    warm_s: float
    count_s: float

    def line(self) -> str:
        send = f"--impl {self.impl} --size 64K"
        warm = str(self.warm_s or "")
        return "|".join((send, self.collect, self.instruments, warm, str(self.count_s)))


@dataclass(frozen=True)
class Seen:
    """What both said of one case, the collector twice; and the names of the simulator's addresses."""

    case: Case
    before: dict[str, Any]
    after: dict[str, Any]
    modelled: output.Measurement
    names: dict[str, str]


def boot_beside(
    name: str, cases: Sequence[Case], *, exact: bool, vcpus: int, say: Callable[[str], None]
) -> list[Seen]:
    """Each case, in one boot of the kernel of this name."""
    found = qemu.find()
    programs = boot.build(found)
    kernel = kernels.take(name, say)
    symbols = boot.kernel_symbols(kernel, found, programs, say)
    with Guest(startable(kernel), initramfs.cpio(_files(programs, cases))) as guest:
        options = [("out", guest.counted.path), ("symbols", symbols), ("symbols", guest.symbols.path)]
        options.append(("vcpus", str(vcpus)))
        plugin = qemu.plugin_argument(programs.plugin, options)
        machine = qemu.Machine(vcpus=vcpus, seed=1, exact=exact, plugin=plugin)
        argv = qemu.command(found, machine, guest.files)
        argv[argv.index("-append") + 1] += f" {NO_REPEATED} {CLOCK}"
        said = guest.run(argv, kernel.place / "console", lambda _: None)
        measured = output.parse(guest.counted.text())
        texts = (Path(symbols).read_text(), guest.symbols.text())
    known = document.known_symbols(texts, Taxonomy.load())
    words = [line.partition(" ") for line in said]
    before, after = (
        [json.loads(rest) for verb, _, rest in words if verb == wanted] for wanted in ("before", "after")
    )
    rows = zip(cases, before, after, measured, strict=True)
    return [Seen(*row, known) for row in rows]


def _files(programs: boot.Programs, cases: Sequence[Case]) -> dict[str, bytes]:
    busybox = shutil.which("busybox")
    assert busybox, "busybox: not found: apt-get install busybox-static"
    files = {
        "init": (HERE / "init").read_bytes(),
        "cases": "".join(f"{case.line()}\n" for case in cases).encode(),
        "bin/busybox": Path(busybox).read_bytes(),
        "bin/tell": tell(),
        "traffic": programs.traffic,
        "collector": paths.COLLECTOR.read_bytes(),
    }
    said = subprocess.run(["ldd", paths.COLLECTOR], capture_output=True, text=True, timeout=20, check=True)
    for line in said.stdout.splitlines():
        library = next((word for word in line.split() if word.startswith("/")), None)
        if library:
            files[library.lstrip("/")] = Path(library).read_bytes()
    return files


def tell() -> bytes:
    """The program by which a guest speaks to the simulator."""
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "tell"
        options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-static"]
        subprocess.run(["cc", *options, "-o", made, *TELL], check=True, timeout=60)
        return made.read_bytes()
