# SPDX-License-Identifier: GPL-2.0-only
"""Simulated machines, without starting QEMU: the input of a guest, and the sections made from its output."""

import io
import json
import lzma
import shutil
import struct
import subprocess
import tarfile
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import sweep, write
from builders.documents import typed_boot, validate
from builders.simulated import (
    RECEIVES,
    SYMBOLS,
    keep_kernel,
    measured,
    plugin_output,
    reports,
    simulated_record,
)
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import run as run_command
from copyscope.commands import show
from copyscope.commands import simulate as simulate_command
from copyscope.plan.arguments import parser
from copyscope.record import store
from copyscope.record.simulated import COUNTED, PerKib
from copyscope.run.simulate import boot, caches, counted_stacks, document, job, kernel_image, kernels, qemu
from copyscope.run.simulate.job import GuestCommand
from copyscope.run.simulate.request import read
from copyscope.show.simulated import simulated_lines
from copyscope.sweep import results
from copyscope.taxonomy.taxonomy import Taxonomy
from msgspec import to_builtins

pytestmark = pytest.mark.timeout(20)

# -- input of a guest -------------------------------------------------------------------------------------


def test_a_built_initramfs_has_the_format_of_the_kernel() -> None:
    """Expected values follow buffer-format.rst of the kernel: inode, mode, links, size, name and padding."""
    archive = boot.build_cpio({"a/b": b"xyz"})
    head = b"070701" + b"%08X" * 13
    name_offset = archive.index(b"a/b\0")
    assert archive[name_offset - 110 : name_offset] == head % (6, 0o100755, 0, 0, 1, 0, 3, 0, 0, 0, 0, 4, 0)
    # A header of 110 bytes and a name of 4 are padded to 116, and content of three bytes to four.
    assert archive[name_offset + 4 : name_offset + 10] == b"\0\0xyz\0"
    assert archive.endswith(b"TRAILER!!!\0\0\0\0") and len(archive) % 4 == 0
    names = [
        archive[i + 110 :].split(b"\0")[0] for i in range(len(archive)) if archive[i : i + 6] == b"070701"
    ]
    assert names == [b"a", b"dev", b"proc", b"sys", b"tmp", b"a/b", b"TRAILER!!!"]


def elf(functions: list[tuple[str, int]]) -> bytes:
    """Return a kernel module with the functions in .text, one object in .data, and a symbol table."""
    names = b"\0.text\0.data\0.symtab\0.strtab\0"
    strings = b"\0" + b"".join(name.encode() + b"\0" for name, _ in functions) + b"thing\0"
    symbols = bytes(24)
    for name, value in functions:
        symbols += struct.pack("<IBBHQQ", strings.index(name.encode()), 2, 0, 1, value, 9)
    symbols += struct.pack("<IBBHQQ", strings.index(b"thing"), 1, 0, 2, 4, 8)
    body = names + strings + symbols
    body_offset, section = 64, struct.Struct("<IIQQQQIIQQ")
    table = bytes(64)
    table += section.pack(names.index(b".text"), 1, 6, 0, 0, 0, 0, 0, 1, 0)
    table += section.pack(names.index(b".data"), 1, 3, 0, 0, 0, 0, 0, 1, 0)
    offset = body_offset + len(names) + len(strings)
    table += section.pack(names.index(b".symtab"), 2, 0, 0, offset, len(symbols), 4, 0, 8, 24)
    table += section.pack(
        names.index(b".strtab"), 3, 0, 0, body_offset + len(names), len(strings), 0, 0, 1, 0
    )
    table += section.pack(0, 3, 0, 0, body_offset, len(names), 0, 0, 1, 0)
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", body_offset + len(body)) + bytes(10)
    return (head + struct.pack("<HHH", 64, 6, 5)).ljust(64, b"\0") + body + table


def test_functions_of_a_module_are_the_symbols_of_its_text_section() -> None:
    assert boot.module_functions(elf([("veth_xmit", 0x20), ("veth_poll", 0x10)])) == (
        b".text 10 veth_poll\n.text 20 veth_xmit\n"
    )
    for damaged in (b"", b"MZ", elf([("f", 0)])[:80]):
        with pytest.raises(RunError, match="ELF file"):
            boot.module_functions(damaged)


def test_the_job_of_a_guest_has_modules_network_and_commands() -> None:
    measurement = job.GuestMeasurement(
        "one_copy", 65536, 8, 1, 16, 64, 128, ("--impl", "one_copy"), ("--buffer", "128K")
    )
    counted_job = job.job_text(
        job.GuestPath("veth", 9000, (("gro", "off"),)), [measurement], ["veth", "e1000"], 2, 7
    )
    assert counted_job.splitlines() == [
        "module veth",
        "network veth gro=off mtu=9000",
        "measure one_copy/65536 7001",
        "recv /traffic recv --buffer 128K --connect 10.99.0.1 --port 7001 --cpus 1",
        "send /traffic send --impl one_copy --listen 10.99.0.1 --port 7001 --messages 128 --simulated 64"
        " --seed 7 --cpus 0",
    ]
    # Without exact counting, the receiver's answers tell the sender when everything was read.
    clocked_job = job.job_text(job.GuestPath("veth"), [measurement], [], 2, 7, exact=False).splitlines()
    assert (
        "--port 7001 --answer 4194304 --answer 12582912" in clocked_job[-2]
        and "--answered --cpus 0" in clocked_job[-1]
    )
    # A built-in module is not loaded, and loopback needs none. A single processor runs both programs.
    assert "module" not in job.job_text(job.GuestPath("veth"), [measurement], [], 1, 1)
    assert job.job_text(job.GuestPath("loopback"), [measurement], ["veth"], 1, 1).count("--cpus 0") == 2
    # Messages for the warm-up (4 MiB) and for counting (8 MiB), within their limits.
    assert [job.message_counts(size, None) for size in (1, 1024, 65536, 1 << 20, 1 << 30)] == [
        *((1024, 1024), (1024, 1024), (64, 128), (8, 16), (8, 16))
    ]


def test_an_exact_guest_is_started_reproducibly() -> None:
    files = qemu.Files("/k", "/i", "/c", "/s")
    program = qemu.QemuProgram("/usr/bin/qemu", "7.2.22", 1)
    argv = qemu.command(program, qemu.BootSettings(2, 5, exact=True, plugin="/p.so,out=/o"), files)
    words = " ".join(argv)
    for part in (
        *("-icount shift=0,sleep=off", "clock=vm", "-seed 5", "-accel tcg,thread=single,", "nokaslr"),
        *("-nic none", "-no-reboot", "-plugin /p.so,out=/o", "-smp 2"),
    ):
        assert part in words
    assert "-drive" not in words and "-fsdev" not in words
    fast = qemu.command(program, qemu.BootSettings(2, 5, exact=False, cards=True), files)
    assert "-icount" not in fast and fast.count("-netdev") == 2 and "-plugin" not in fast
    # Only an exact guest without fine timers runs without timers of CPUs.
    ticks = [
        "nolapic_timer"
        in " ".join(qemu.command(program, qemu.BootSettings(2, 5, exact, fine_timers=fine), files))
        for exact, fine in ((True, False), (True, True), (False, False))
    ]
    assert ticks == [True, False, False]
    assert qemu.plugin_argument("/a,b.so", [("out", "x,y")]) == "/a,,b.so,out=x,,y"


def test_a_guest_that_may_sleep_for_less_than_a_tick_has_fine_timers() -> None:
    own, paced = (
        read(parser().parse_args(["--simulate", *words])) for words in ([], ["--congestion", "bbr"])
    )
    of_a_program = replace(own, command=GuestCommand(("./program",), b"", b""))
    assert [request.fine_timers for request in (own, paced, of_a_program)] == [False, True, True]


def test_the_plugin_api_number_follows_from_the_qemu_version() -> None:
    """Versions of QEMU at which the number of the plugin API changes."""
    numbers = {"6.2.0": 1, "8.2.2": 1, "9.0.1": 2, "9.1.0": 3, "9.2.0": 4, "10.0.3": 4, "10.1.0": 5}
    for version, number in {**numbers, "10.2.3": 6, "11.1.3": 7}.items():
        assert qemu.read_version(f"QEMU emulator version {version} (Debian 1:x)\n") == (version, number)


def test_an_unusable_qemu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, reason in (("QEMU emulator version 5.2.0", "too old"), ("", "no version")):
        with pytest.raises(RunError, match=reason):
            qemu.read_version(answer)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        RunError, match=r"qemu-system-x86_64: not found; install it: sudo tools/deps.sh simulate"
    ):
        qemu.find_qemu()
    old = qemu.QemuProgram("q", "7.2.22", 1)
    assert qemu.hangs_bit_exact(old, "6.1.0-50-amd64", 2) and not qemu.hangs_bit_exact(old, "6.1.0", 1)
    assert not qemu.hangs_bit_exact(old, "6.12.107+deb13-amd64", 2)
    assert not qemu.hangs_bit_exact(qemu.QemuProgram("q", "10.0.3", 4), "6.1.0", 2)


# -- the model --------------------------------------------------------------------------------------------


def test_each_preset_is_a_valid_model() -> None:
    for name, model in caches.PRESETS.items():
        caches.check(model)
        assert model.name == name and model.source
    # Sets of L1D, L2 and LLC, as these CPUs report them (CPUID leaf 4, AMD 0x8000001D, Arm CCSIDR_EL1).
    sets = {
        name: [
            level.size_bytes // level.ways // model.line_bytes for level in (model.l1d, model.l2, model.llc)
        ]
        for name, model in caches.PRESETS.items()
    }
    assert sets == {
        "generic": [64, 1024, 32768],
        "sapphire-rapids": [64, 2048, 114688],
        "genoa": [64, 2048, 32768],
        "graviton3": [256, 2048, 32768],
        "laptop": [64, 1024, 16384],
    }
    assert {(model.prefetch, model.ddio) for model in caches.PRESETS.values()} == {("off", "unseen")}
    genoa = dict(caches.parse("genoa,llc=64M:16,prefetch=next,vcpus=4").options())
    assert (genoa["llc"], genoa["prefetch"], genoa["vcpus"], genoa["l1d"]) == ("64M:16", "next", "4", "32K:8")
    assert dict(caches.parse("generic,ddio=off").options())["ddio"] == "off"
    assert dict(caches.parse("generic").options())["ddio"] == "unseen"
    assert caches.parse("generic,llc=0:0").llc == caches.Level(0, 0)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("nehalem", "choose generic, sapphire-rapids"),
        ("generic,l1d=48K:7", "not divisible into 7 ways of lines of 64 bytes"),
        ("generic,l2=1M", "not SIZE:WAYS"),
        ("generic,vcpus=9", "out of range; choose 1 to 8"),
        ("generic,line=48", "not a power of 2"),
        ("generic,llc=8G:16", "up to 4G"),
        ("generic,l2=0:0", "out of range; choose up to 4G"),
        ("generic,ddio=yes", "choose one of l1d"),
        ("generic,colour=red", "choose one of l1d"),
        ("generic,tlb=64", "choose one of l1d"),
    ],
)
def test_an_impossible_cache_model_is_refused(model: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        caches.parse(model)


def test_cache_model_host_is_read_from_sysfs(tmp_path: Path) -> None:
    rows = (("1", "Data", "48K", 12), ("1", "Instruction", "32K", 8), ("2", "Unified", "2048K", 16))
    for number, (level, kind, size, ways) in enumerate((*rows, ("3", "Unified", "107520K", 15))):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, value in (
            *(("level", level), ("type", kind), ("size", size), ("ways_of_associativity", ways)),
            ("coherency_line_size", 64),
        ):
            (index / name).write_text(f"{value}\n")
    model = caches.parse("host", tmp_path)
    assert (str(model.l1d), str(model.l2), str(model.llc)) == ("48K:12", "2M:16", "105M:15")
    (tmp_path / "index2" / "size").unlink()
    with pytest.raises(UsageError, match="does not report its caches; use a preset"):
        caches.parse("host", tmp_path)


# -- kernels ----------------------------------------------------------------------------------------------

INDEX = """\
Package: linux-image-amd64
Version: 6.12-1
Depends: linux-image-6.12.107+deb13-amd64 (= 6.12.107-1)
Filename: pool/meta.deb
SHA256: 00

Package: linux-image-6.12.107+deb13-amd64
Version: 6.12.107-1
Depends: kmod, linux-base (>= 4.3), initramfs-tools | linux-initramfs-tool
Filename: pool/image.deb
SHA256: 11

"""


def deb(files: dict[str, bytes]) -> bytes:
    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w:xz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    archive = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("data.tar.xz", tree.getvalue())):
        archive += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        archive += content + b"\n" * (len(content) % 2)
    return archive


def test_kernel_packages_are_found_and_unpacked() -> None:
    packages = kernels.kernel_packages(INDEX)
    assert [(package.name, package.path, package.sha256) for package in packages] == [
        ("linux-image-6.12.107+deb13-amd64", "pool/image.deb", "11")
    ]
    split = INDEX.replace("kmod,", "linux-binary-7.2 (= 1), linux-modules-7.2 (= 1),") + "".join(
        f"Package: linux-{part}-7.2\nVersion: 1\nFilename: {part}.deb\nSHA256: 22\n\n"
        for part in ("binary", "modules")
    )
    assert [package.path for package in kernels.kernel_packages(split)] == ["binary.deb", "modules.deb"]
    files = {"boot/vmlinuz-6": b"kernel", "usr/share/doc/x": b"no"}
    assert dict(kernels.files_of_package(deb(files), lambda name: "vmlinuz" in name)) == {
        "boot/vmlinuz-6": b"kernel"
    }
    for damaged in (b"", b"!<arch>\n", deb(files)[:200]):
        with pytest.raises(kernels.ArchiveError):
            dict(kernels.files_of_package(damaged, lambda _: True))


def test_a_cached_kernel_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> Any:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setenv("COPYSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    folder = keep_kernel(tmp_path, veth=b"module")
    kernel = kernels.get_kernel("6.12", lambda _: None)
    assert (kernel.release, kernel.image, kernel.modules) == ("6.12.107", b"image", {"veth": b"module"})
    # A changed image is fetched again, which fails in one line.
    (folder / "vmlinuz").write_bytes(b"imagE")
    with pytest.raises(RunError, match=r"^kernel 6\.12: .*check the network, or --kernel host$"):
        kernels.get_kernel("6.12", lambda _: None)
    monkeypatch.setattr(kernels, "FREE_MIN_BYTES", 1 << 60)
    with pytest.raises(RunError, match="MiB free; make room"):
        kernels.get_kernel("6.1", lambda _: None)
    with pytest.raises(UsageError, match="or the path of a bzImage"):
        kernels.get_kernel("2.4", lambda _: None)


# -- output of a guest ------------------------------------------------------------------------------------


def section(copies: int = 0, sent: int = 128 * 1024, text: str | None = None) -> dict[str, Any]:
    taxonomy = Taxonomy.load()
    (counted,) = counted_stacks.parse(text or plugin_output())
    names = counted_stacks.name_symbols([SYMBOLS], taxonomy)
    measurement = document.measurement_section(
        measured(), [counted], [reports(copies, sent)], [names], taxonomy
    )
    section: dict[str, Any] = to_builtins(measurement)
    return section


def packed_kernel(packed: bytes) -> bytes:
    """Return a bzImage (Documentation/arch/x86/boot.rst): five sectors, 16 bytes, packed kernel, its size."""
    image = bytearray(5 * 512 + 16) + packed + struct.pack("<I", 99)
    image[0x1F1] = 4
    image[0x202:0x208] = b"HdrS\x0f\x02"
    image[0x248:0x250] = struct.pack("<II", 16, len(packed) + 4)
    return bytes(image)


ELF = b"\x7fELF" + bytes(60) + struct.pack("<III", 4, 8, 18) + b"Xen\0" + bytes(100_000)


def test_a_kernel_is_unpacked_once_and_only_if_qemu_can_start_it(tmp_path: Path) -> None:
    assert kernel_image.unpack_bzimage(packed_kernel(lzma.compress(ELF))) == ELF
    # These images cannot be unpacked: no Xen note with the entry point, unknown compression, no bzImage.
    assert kernel_image.unpack_bzimage(packed_kernel(lzma.compress(ELF.replace(b"Xen", b"Zen")))) is None
    assert kernel_image.unpack_bzimage(packed_kernel(b"BZh9")) is None
    assert kernel_image.unpack_bzimage(b"image") is None
    kernel = kernel_image.GuestKernel(
        "6.12", "6.12.107", packed_kernel(lzma.compress(ELF)), {}, "a" * 64, tmp_path
    )
    for image in (kernel.image, b"whatever: it is kept"):
        saved = Path(kernel_image.save_startable(replace(kernel, image=image)))
        assert saved.read_bytes() == ELF and saved.parent == tmp_path
    unpackable = kernel_image.save_startable(replace(kernel, image=b"image", sha256="b" * 64))
    assert Path(unpackable).read_bytes() == b"image"


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_a_kernel_packed_by_zstd_is_unpacked() -> None:
    packed = subprocess.run(["zstd", "-qc"], input=ELF, capture_output=True, check=True).stdout
    assert kernel_image.unpack_bzimage(packed_kernel(packed)) == ELF
    with pytest.raises(RunError, match=r"^kernel host: /x: cannot be unpacked: "):
        kernel_image.decompress(packed[:-9], "kernel host: /x")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (None, "kernel: zstd: not found; install it"),
        ("sleep 9", "kernel: zstd: did not end within 0.02 s, and was stopped; run the program by hand"),
    ],
)
def test_a_missing_or_hanging_zstd_is_an_error_in_one_line(
    command: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command is not None:
        (tmp_path / "zstd").write_text(f"#!/bin/sh\nexec {command}\n")
        (tmp_path / "zstd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if command else str(tmp_path))
    monkeypatch.setattr(kernel_image, "UNPACK_TIMEOUT_S", 0.02)
    with pytest.raises(RunError, match=message):
        kernel_image.decompress(kernel_image.ZSTD, "kernel")


def test_rows_have_the_counts_of_each_copy_per_kib() -> None:
    rows = {(row["category"], row["side"], row["context"]): row for row in section()["rows"]}
    copy_in = rows["copy_in", "sender", "process"]
    assert (copy_in["kind"], copy_in["method"]) == ("account", "modelled")
    assert copy_in["read_bytes_per_kib"] == 1024 and copy_in["l1d_load_misses_per_kib"] == 16
    assert copy_in["instructions_per_kib"] == 9 and copy_in["instructions_per_kib_half_width"] is None
    copy_out = rows["copy_out", "receiver", "process"]
    assert copy_out["l1d_store_misses_per_kib"] == 16 and copy_out["l1d_load_misses_per_kib"] == 0
    assert rows["user", "sender", "user"]["instructions_per_kib"] == 5
    assert section()["sides"][0]["instructions_per_kib"] == 14
    # The gather copy is a memcpy in user mode.
    gathered = {(row["category"], row["context"]) for row in section(copies=1)["rows"]}
    assert ("gather", "process") in gathered and ("user", "user") not in gathered


def test_an_address_with_two_names_has_the_name_in_the_taxonomy() -> None:
    names = counted_stacks.name_symbols([SYMBOLS], Taxonomy.load())
    assert names["ffffffff81000100"] == "tcp_sendmsg"


def test_wrong_counts_fail_checks() -> None:
    assert all(check["holds"] for check in section()["checks"])
    broken = section(sent=127 * 1024)["checks"]
    assert [check["name"] for check in broken if not check["holds"]] == [
        "bytes of the sender, warm-up included"
    ]
    # Copies of 1,024 bytes that read 900 were counted incompletely. 5,000 bytes are impossible.
    for wrong in (900, 5000):
        text = plugin_output().replace(str(1024 * 64), str(wrong * 64))
        assert [
            (check["name"], check["left"]) for check in section(text=text)["checks"] if not check["holds"]
        ] == [
            ("read bytes of copy_in, per KiB", wrong),
            ("written bytes of copy_out, per KiB", wrong),
        ]
    unrooted = plugin_output().replace('"other"', '"sender"')
    assert not section(text=unrooted)["checks"][-1]["holds"]
    # Without names, the receiver's copy is unattributed: 10 of 24 instructions per KiB.
    nameless = plugin_output().replace(json.dumps(RECEIVES), '["ffffffff82000000"]')
    left = section(text=nameless)["checks"][-2]
    assert (left["left"], left["holds"]) == (10, False)


def test_seeds_become_means_with_intervals() -> None:
    key = ("copy_in", "sender", "process")
    seeds = [{key: dict.fromkeys(COUNTED, value)} for value in (10, 20, 30)]
    (row,) = document.per_kib(seeds, 10.0)
    # Mean of 1, 2, 3; standard error 1 / sqrt(3); t(0.975, 2) = 4.30265.
    assert row.l2_load_misses_per_kib == 2 and row.l2_load_misses_per_kib_half_width == 2.4841
    # A copy during CPU time of other tasks belongs to the same account.
    moved: list[Any] = [seeds[0], {("copy_in", "other", "softirq"): seeds[0][key]}]
    (copy_in,) = document.per_kib([document.by_account(seed) for seed in moved], 10.0)
    assert copy_in.l2_load_misses_per_kib == 1 and copy_in.l2_load_misses_per_kib_half_width == 0
    # A row that a seed lacks counts as 0.
    (row,) = document.per_kib([{}, *seeds[:1]], 10.0)
    assert row.calls_per_kib == 0.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the output is incomplete"),
        (plugin_output().splitlines()[0] + "\n", "the output is incomplete"),
        (plugin_output()[:-30], "cannot be read"),
        ('{"error": "symbols: no entry_SYSCALL_64"}\n', "simulator: symbols: no entry_SYSCALL_64"),
        (plugin_output().replace('"dirty_lines"', '"dusty_lines"'), "no column dirty_lines"),
        ("[1]\n", "cannot be read"),
    ],
)
def test_incomplete_output_of_the_plugin_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        counted_stacks.parse(text)


@pytest.mark.parametrize("width", [72, 100])
def test_the_table_is_labelled_as_simulated(width: int) -> None:
    simulated = typed_boot(simulated_record(seeds=(2,))).simulated
    lines = [line.plain for line in simulated_lines(simulated, width, explain=True)]
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    assert "one_copy, SIMULATED: 1 KiB in 8 fields, veth (MTU 1500), 64 messages counted" in text
    assert "a copy of 1 KiB must read 16 lines and write 16" in text
    assert "a measurement of this or another machine" in text and "--seeds 3" in text
    assert any(line.split()[:5] == ["copy", "into", "the", "kernel", "sender"] for line in lines)
    assert "SIDE BY SIDE" not in text
    # Each of the two copies reads 16 lines and writes 16, and nothing else misses.
    assert lines[-1].strip() == "one_copy: 32.0 L1D misses per KiB, 100 % of them in its copies"
    several = simulated_record(seeds=(2,))
    several["simulated"]["measurements"] *= 2
    rows = [line.plain.split() for line in simulated_lines(typed_boot(several).simulated, 100)]
    # All 16 + 16 L1D misses are misses of copies.
    (first, *_) = [row for row in rows if row[:3] == ["one_copy", "1", "KiB"]]
    assert first[4:] == ["32.0", "0.0", "0.0", "32.0", "0.0", "0.0", "16.0", "0.0", "0.0"]
    broken = simulated_record(seeds=(2,), sent=5)
    text = " ".join(line.plain for line in simulated_lines(typed_boot(broken).simulated, width))
    assert "DOES NOT HOLD: bytes of the sender" in text


def test_a_simulated_record_has_only_modelled_values() -> None:
    record = simulated_record()
    assert validate(record) == []
    assert set(record) == {"schema", "copyscope", "run", "simulated", "verdict"}
    (measurement,) = record["simulated"]["measurements"]
    assert measurement["delivered_bytes"] == 64 * 1024 and measurement["digests"] == ["0123456789abcdef"] * 3
    # 17, 16 and 16 lines: standard error 1/3, t(0.975, 2) = 4.30265.
    (copy_in,) = [row for row in measurement["accounts"] if row["category"] == "copy_in"]
    sender = measurement["sides"][0]
    for row in (copy_in, sender):
        assert row["l1d_load_misses_per_kib"] == 16.3333
        assert row["l1d_load_misses_per_kib_half_width"] == 1.4342
    assert (sender["side"], sender["method"]) == ("sender", "modelled")
    for row in (*measurement["rows"], *measurement["accounts"]):
        assert row["method"] == "modelled"
    # The record has every column of the plugin, and an interval for each.
    assert {f"{name}_per_kib{end}" for name in COUNTED for end in ("", "_half_width")} < {
        *PerKib.__struct_fields__
    }
    assert record["verdict"] == {"valid": True, "reasons": []}
    broken = simulated_record(sent=5)
    assert not broken["verdict"]["valid"] and validate(broken) == []
    assert broken["verdict"]["reasons"] == [
        "one_copy at 1024 bytes: bytes of the sender, warm-up included: 5 instead of 131072"
    ]
    del record["simulated"]["measurements"][0]["rows"][0]["l2_load_misses_per_kib"]
    assert validate(record) == [
        "Object missing required field `l2_load_misses_per_kib` - at `$.simulated.measurements[0].rows[0]`"
    ]


def test_simulated_records_are_kept_apart_from_measured_runs(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    write(simulated_record(), tmp_path / "simulated.json")
    assert show.main([str(tmp_path / "simulated.json"), "--export", "drawing"]) == 0
    assert b"modelled: L1D 32 KiB" in capsysbinary.readouterr().out
    assert show.main([str(tmp_path / "simulated.json"), "--export", "csv"]) == 2
    assert b"a simulated machine; use --export drawing" in capsysbinary.readouterr().err
    directory = sweep.store([simulated_record()], tmp_path / "demo")
    assert results.load(directory).records == ()
    # A simulated record has no derived sections to drop.
    assert results.rewrite(directory, store.without_derived) == (1, [])


# -- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo booted; sleep 30", r"silent for 0 s after `booted`, so the boot was ended"),
        ("sleep 30", "before its first line"),
        ("echo failed veth: Operation not supported", "guest: veth: Operation not supported"),
        (
            "echo booted; echo 'Kernel panic - not syncing: x' >$CONSOLE",
            "guest: Kernel panic - not sync.*; the console is saved in ",
        ),
        (
            "echo 'plugin requires API version 5, but this QEMU supports only up to version 4' >&2; exit 1",
            "QEMU: ended with status 1: plugin requires API version 5, .* version 4; use another QEMU: 7.2",
        ),
        (
            "echo 'simulator: ddio: no registers' >&2; echo 'Could not load plugin' >&2; exit 1",
            "status 1: simulator: ddio: no registers",
        ),
        ("kill -SEGV $$", "QEMU: was killed by signal 11"),
        ("echo booted", "ended before its work was done"),
    ],
)
def test_a_guest_that_fails_is_named(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(boot, "SILENCE_TIMEOUT_S" if "booted" in script else "BOOT_TIMEOUT_S", 0.02)
    console = tmp_path / "console"
    with boot.Guest("", b"") as guest, pytest.raises(RunError, match=reason):
        guest.run(["sh", "-c", script.replace("$CONSOLE", guest.console.path)], console, lambda _: None)
    if "panic" in script:
        assert "Kernel panic" in console.read_text()


def test_a_guest_that_ends_delivers_its_lines_and_counts() -> None:
    lines: list[str] = []
    with boot.Guest("", b"") as guest:
        script = f"echo booted; echo counted >{guest.counted.path}; echo end"
        assert guest.run(["sh", "-c", script], Path("/nowhere"), lines.append) == ["booted", "end"]
        assert guest.counted.text() == "counted\n"
    assert lines == ["booted", "end"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--gate", "4"], "--gate: not available in a simulated machine"),
        (["--topology", "nics:a,b"], "not in a simulated machine; choose veth, veth-xdp, nics or loopback"),
        (["--kernel", "9.9"], "--kernel 9.9: unknown kernel; choose 5.10"),
        (["--seeds", "0"], "out of range; choose 1 to 10"),
        (["--cache", "generic,l1d=48K:7"], "not divisible"),
        (["--impl", "one_copy,magic"], "magic"),
        (["--pages", "hugetlb"], "the guest has no reserved huge pages"),
        (["--sender", "loop"], "--sender: not available in a simulated machine"),
        (["--no-such"], "--no-such: unknown option"),
    ],
)
def test_impossible_options_of_simulate_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    assert simulate_command.main(words) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and reason in errors[0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--seeds", "2"], "--seeds: only for a simulated machine; add --simulate"),
        (["--simulate", "--sender", "loop"], "--sender: not available in a simulated machine"),
        (
            ["--simulate", "--", "true"],
            "--simulate: not for a command; to run the command in a simulated machine, use ",
        ),
    ],
)
def test_impossible_options_of_run_simulate_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors are reported before the measurement starts."""
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    assert run_command.main(words) == 2
    assert reason in capsys.readouterr().err


def test_a_failed_simulation_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the first of several runs is simulated, and an interrupted run is not."""
    simulations: list[object] = []

    def fails(*_: object) -> None:
        simulations.append(1)
        raise RunError("QEMU: was killed by signal 11")

    monkeypatch.setattr("copyscope.run.simulate.qemu.find_qemu", lambda: None)
    monkeypatch.setattr("copyscope.run.simulate.simulation.simulate", fails)
    model = run_command.simulator(parser().parse_args(["--simulate", "-q"]))
    assert model(True) is None and simulations == []
    assert model(False) is model(False) is None and simulations == [1]
    assert capsys.readouterr().err == "copyscope: --simulate: QEMU: was killed by signal 11\n"
    boot_of_record = typed_boot(simulated_record())
    monkeypatch.setattr("copyscope.run.simulate.simulation.simulate", lambda *_, **__: boot_of_record)
    model = run_command.simulator(parser().parse_args(["--simulate", "-q"]))
    assert model(False) is boot_of_record
    assert run_command.simulator(parser().parse_args([]))(False) is None


def test_options_of_the_measurement_do_not_change_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copyscope.run.simulate.qemu.find_qemu", lambda: None)
    words = ["--simulate", "--impl", "one_copy", "--size", "16K", "--duration", "9", "--messages", "7", "-v"]
    (measurement,) = simulate_command.request_for_run(
        parser().parse_args([*words, "--frequency", "99"])
    ).measured
    assert (measurement.impl, measurement.size_bytes, measurement.messages) == (
        "one_copy",
        16384,
        job.message_counts(16384, None)[1],
    )
