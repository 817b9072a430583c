# SPDX-License-Identifier: GPL-2.0-only
"""A simulated run without a machine: output of the plugin, reports of both sides, and the record."""

import hashlib
import json
from pathlib import Path
from typing import Any

from copyscope.record import store
from copyscope.record.measured import Copyscope
from copyscope.record.simulated import COUNTED
from copyscope.run.simulate import boot, caches, counted_stacks, document, job, qemu, simulation
from copyscope.run.simulate.job import GuestCommand
from copyscope.run.simulate.kernel_image import GuestKernel
from copyscope.run.simulate.kernels import DEFAULT
from copyscope.run.simulate.request import Request

SYMBOLS = """\
ffffffff81000100 t nobody_knows
ffffffff81000100 T tcp_sendmsg
ffffffff81000200 T _copy_from_iter
ffffffff81000300 T _copy_to_iter
ffffffff81000400 T tcp_recvmsg
ffffffff81000500 T do_syscall_64
"""
SENDS = ["ffffffff81000200", "ffffffff81000100", "ffffffff81000500"]
RECEIVES = ["ffffffff81000300", "ffffffff81000400", "ffffffff81000500"]


HOW = {
    **{"receiver": "read", "align": "heap", "pages": "4k", "touch": False, "nodelay": True},
    **{"congestion_control": None, "sndbuf_bytes": None, "rcvbuf_bytes": None},
}


def counts(**given: int) -> list[int]:
    return [given.get(name, 0) for name in COUNTED]


def plugin_output(l1d: int = 16) -> str:
    """Return the plugin's output for 64 messages of 1 KiB: two copies, the sender's loop, an idle CPU."""
    kib = 64
    stacks: list[dict[str, Any]] = [
        {
            "side": "sender",
            "frames": SENDS,
            "counts": counts(
                calls=kib, instructions=9 * kib, read_bytes=1024 * kib, written_bytes=1024 * kib,
                read_lines=16 * kib, written_lines=16 * kib, l1d_load_misses=l1d * kib,
            ),
        },
        {
            "side": "receiver",
            "frames": RECEIVES,
            "counts": counts(
                instructions=10 * kib, read_bytes=1024 * kib, written_bytes=1024 * kib,
                read_lines=16 * kib, written_lines=16 * kib, l1d_store_misses=16 * kib,
            ),
        },
        {"side": "sender", "frames": [], "counts": counts(instructions=5 * kib, read_lines=kib)},
        {"side": "other", "frames": ["ffffffff81000500", "0"], "counts": counts(instructions=9999)},
    ]  # fmt: skip
    for stack in stacks:
        stack["executed"] = 0
    row = {
        "measurement": 1,
        "columns": list(COUNTED),
        "stacks": stacks,
        "lost": {"accesses": 0, "returns": 3, "unrooted_instructions": 9999, "memory": False},
        "digest": "0123456789abcdef",
    }
    return json.dumps(row) + "\n" + json.dumps({"end": True, "measurements": 1}) + "\n"


# Symbols of a simulated command, which makes a copy of its own.
COMMAND_SYMBOLS = SYMBOLS + "0000000000401000 t __memmove_avx_unaligned\n0000000000402000 t main\n"


def command_output() -> str:
    first, end = map(json.loads, plugin_output().splitlines())
    for stack, frames in zip(first["stacks"], (SENDS, RECEIVES, ["402000"]), strict=False):
        stack |= {"side": "other", "frames": frames}
    copied = {"instructions": 3 * 64, "read_bytes": 65536, "written_bytes": 65536}
    first["stacks"].append({"side": "other", "frames": ["401000"], "counts": counts(**copied), "executed": 0})
    return json.dumps(first) + "\n" + json.dumps(end) + "\n"


def keep_kernel(cache: Path, **modules: bytes) -> Path:
    """Save a kernel in the cache, as if it was fetched before. Its image has 5 bytes."""
    directory = cache / "guests" / DEFAULT
    directory.mkdir(parents=True)
    for name, content in {"vmlinuz": b"image", **{f"{each}.ko": modules[each] for each in modules}}.items():
        (directory / name).write_bytes(content)
    files = {"vmlinuz": b"image", **modules}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    about = {"release": "6.12.107", "modules": list(modules), "sha256": hashes}
    (directory / "about.json").write_text(json.dumps(about))
    return directory


def measured() -> job.GuestMeasurement:
    return job.GuestMeasurement("one_copy", 1024, 8, 1, 64, 64, 64, (), (), dict(HOW))


def reports(copies: int = 0, sent: int = 128 * 1024) -> document.SideReports:
    claim = document.GuestClaim(copies)
    return {"sender": document.GuestReport(sent, claim), "receiver": document.GuestReport(128 * 1024)}


def simulated_record(*, seeds: tuple[int, ...] = (1, 2, 3), sent: int = 128 * 1024) -> dict[str, Any]:
    """Return a record of one_copy with 1 KiB, booted for each seed. Seed 1 misses 17 lines, the others 16."""
    path = job.GuestPath("veth", 1500, (("gro", "off"),))
    request = Request(caches.PRESETS["generic"], "6.12", path, (measured(),), seeds, exact=True)
    outputs = [plugin_output(17 if seed == 1 else 16) for seed in seeds]
    return _record(request, outputs, SYMBOLS, reports(sent=sent))


def command_record(output: str | None = None) -> dict[str, Any]:
    """Return the record of a simulated command. output: what the plugin wrote."""
    asked = GuestCommand(("./talks", "64 times"), b"", b"")
    path = job.GuestPath("loopback")
    request = Request(caches.PRESETS["generic"], "6.12", path, (), (1, 2), exact=True, command=asked)
    return _record(request, [output or command_output()] * 2, COMMAND_SYMBOLS, {})


def _record(
    request: Request, outputs: list[str], symbols: str, side_reports: document.SideReports
) -> dict[str, Any]:
    kernel = GuestKernel("6.12", "6.12.107", b"", {}, "0" * 64, Path("/nowhere"))
    programs = boot.Programs(b"", b"", "/nowhere")
    plan = boot.Plan(kernel, qemu.QemuProgram("qemu", "7.2.22", 1), programs, "/nowhere", request)
    counted = [
        boot.BootCounts(tuple(counted_stacks.parse(each)), (side_reports,), "", ("erms",)) for each in outputs
    ]
    section = simulation.simulated_section(plan, counted, symbols, 9.5)
    made_by = Copyscope("0", None, None)
    boot_record = simulation.make_record(request, section, "2026-01-01T00:00:00Z", 10.25, made_by)
    return store.document_of(boot_record)
