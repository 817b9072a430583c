# SPDX-License-Identifier: GPL-2.0-only
"""Boot a guest in which collector and simulator measure the same messages (script `init`)."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copyscope.base import paths
from copyscope.run.simulate import boot, counted_stacks, kernels, qemu
from copyscope.run.simulate.boot import Guest
from copyscope.run.simulate.kernel_image import save_startable
from copyscope.taxonomy.taxonomy import Taxonomy

HERE = Path(__file__).parent
# Switches off REP_GOOD, ERMS and FSRM (arch/x86/include/asm/cpufeatures.h): QEMU counts each byte of a `rep
# movsb` as an instruction, the simulator all of them as one. Without these features the kernel copies by
# loops.
NO_REPEATED = "clearcpuid=112,297,580"
# In the guest an instruction takes a cycle and a nanosecond; the kernel's own calibration would be off by
# 0.03 %.
CLOCK = "tsc_early_khz=1000000"
TELL = (HERE / "tell.c", paths.ROOT / "src" / "guest" / "channel.c")


@dataclass(frozen=True)
class Case:
    """A measurement: strategy, options and instruments of the collector, durations in guest time."""

    impl: str
    collect: str
    instruments: str
    warm_s: float
    count_s: float

    def line(self) -> str:
        """Return the line of this case in the guest's file /cases."""
        send = f"--impl {self.impl} --size 64K"
        warm = str(self.warm_s or "")
        return "|".join((send, self.collect, self.instruments, warm, str(self.count_s)))


@dataclass(frozen=True)
class Seen:
    """Results of one case: the collector's reports before and after, the simulator's stacks, their names."""

    case: Case
    before: dict[str, Any]
    after: dict[str, Any]
    modelled: counted_stacks.MeasuredStacks
    names: dict[str, str]


def boot_beside(
    name: str, cases: Sequence[Case], *, exact: bool, vcpus: int, say: Callable[[str], None]
) -> list[Seen]:
    """Measure all cases in one boot of the kernel `name`. `say` prints progress."""
    installed_qemu = qemu.find_qemu()
    programs = boot.build(installed_qemu)
    kernel = kernels.get_kernel(name, say)
    symbols = boot.kernel_symbols(kernel, installed_qemu, programs, say)
    with Guest(save_startable(kernel), boot.build_cpio(_files(programs, cases))) as guest:
        options = [("out", guest.counted.path), ("symbols", symbols), ("symbols", guest.symbols.path)]
        options.append(("vcpus", str(vcpus)))
        plugin = qemu.plugin_argument(programs.plugin, options)
        machine = qemu.BootSettings(vcpus=vcpus, seed=1, exact=exact, plugin=plugin)
        argv = qemu.command(installed_qemu, machine, guest.files)
        argv[argv.index("-append") + 1] += f" {NO_REPEATED} {CLOCK}"
        guest_lines = guest.run(argv, kernel.directory / "console", lambda _: None)
        measured = counted_stacks.parse(guest.counted.text())
        texts = (Path(symbols).read_text(), guest.symbols.text())
    names = counted_stacks.name_symbols(texts, Taxonomy.load())
    words = [line.partition(" ") for line in guest_lines]
    before, after = (
        [json.loads(rest) for verb, _, rest in words if verb == event] for event in ("before", "after")
    )
    rows = zip(cases, before, after, measured, strict=True)
    return [Seen(*row, names) for row in rows]


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
    listing = subprocess.run(["ldd", paths.COLLECTOR], capture_output=True, text=True, timeout=20, check=True)
    for line in listing.stdout.splitlines():
        library = next((word for word in line.split() if word.startswith("/")), None)
        if library:
            files[library.lstrip("/")] = Path(library).read_bytes()
    return files


def tell() -> bytes:
    """Build the program with which a guest sends commands to the simulator."""
    with tempfile.TemporaryDirectory() as directory:
        executable = Path(directory) / "tell"
        options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-static"]
        subprocess.run(["cc", *options, "-o", executable, *TELL], check=True, timeout=60)
        return executable.read_bytes()
