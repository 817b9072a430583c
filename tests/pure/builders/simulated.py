"""A simulated run without a machine: what the plugin, the guest and both sides said, and its record."""

import hashlib
import json
from pathlib import Path
from typing import Any

from copyscope.record.simulated import COUNTED
from copyscope.simulate import boot, caches, job, output, qemu, simulation
from copyscope.simulate.command import Command
from copyscope.simulate.kernels import DEFAULT, Kernel
from copyscope.simulate.request import Request

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
    """64 messages of 1 KiB: what each copy must do, the loop of the sender, and an idle CPU."""
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
        "lost": {"accesses": 0, "returns": 3, "unrooted_instructions": 9999},
        "digest": "0123456789abcdef",
    }
    return json.dumps(row) + "\n" + json.dumps({"end": True, "measurements": 1}) + "\n"


# The same with a copy of its own, as a command does it: nobody has said a side.
COMMAND_SYMBOLS = SYMBOLS + "0000000000401000 t __memmove_avx_unaligned\n0000000000402000 t main\n"


def command_output() -> str:
    first, end = map(json.loads, plugin_output().splitlines())
    for stack, frames in zip(first["stacks"], (SENDS, RECEIVES, ["402000"]), strict=False):
        stack |= {"side": "other", "frames": frames}
    copied = {"instructions": 3 * 64, "read_bytes": 65536, "written_bytes": 65536}
    first["stacks"].append({"side": "other", "frames": ["401000"], "counts": counts(**copied), "executed": 0})
    return json.dumps(first) + "\n" + json.dumps(end) + "\n"


def keep_kernel(cache: Path, **modules: bytes) -> Path:
    """One that was fetched before; its image is 5 bytes."""
    place = cache / "guests" / DEFAULT
    place.mkdir(parents=True)
    for name, content in {"vmlinuz": b"image", **{f"{each}.ko": modules[each] for each in modules}}.items():
        (place / name).write_bytes(content)
    files = {"vmlinuz": b"image", **modules}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    about = {"release": "6.12.107", "modules": list(modules), "sha256": hashes}
    (place / "about.json").write_text(json.dumps(about))
    return place


def measured() -> job.Measured:
    return job.Measured("one_copy", 1024, 8, 1, 64, 64, 64, (), (), dict(HOW))


def reports(copies: int = 0, sent: int = 128 * 1024) -> dict[str, Any]:
    return {"sender": {"bytes": sent, "claim": {"user_copies": copies}}, "receiver": {"bytes": 128 * 1024}}


def simulated_record(*, seeds: tuple[int, ...] = (1, 2, 3), sent: int = 128 * 1024) -> dict[str, Any]:
    """one_copy of 1 KiB, booted once for each seed; the first of them missed 17 lines instead of 16."""
    path = job.Path("veth", 1500, (("gro", "off"),))
    request = Request(caches.PRESETS["generic"], "6.12", path, (measured(),), seeds, exact=True)
    said = [plugin_output(17 if seed == 1 else 16) for seed in seeds]
    return _record(request, said, SYMBOLS, reports(sent=sent))


def command_record(said: str | None = None) -> dict[str, Any]:
    """Of a command; `said` is what the plugin wrote of it."""
    asked = Command(("./talks", "64 times"), b"", b"")
    path = job.Path("loopback")
    request = Request(caches.PRESETS["generic"], "6.12", path, (), (1, 2), exact=True, command=asked)
    return _record(request, [said or command_output()] * 2, COMMAND_SYMBOLS, {})


def _record(request: Request, said: list[str], symbols: str, told: dict[str, Any]) -> dict[str, Any]:
    kernel = Kernel("6.12", "6.12.107", b"", {}, "0" * 64, Path("/nowhere"))
    programs = boot.Programs(b"", b"", "/nowhere")
    plan = boot.Plan(kernel, qemu.Qemu("qemu", "7.2.22", 1), programs, "/nowhere", request)
    counted = [boot.Counted(tuple(output.parse(each)), (told,), "", ("erms",)) for each in said]
    section = simulation.simulated_section(plan, counted, symbols, 9.5)
    run = {"started": "2026-01-01T00:00:00Z", "wall_s": 10.25}
    return simulation.record(request, section, run, {"version": "0", "git": None, "dirty": None})
