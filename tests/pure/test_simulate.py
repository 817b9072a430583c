"""The simulated machine, without one: what goes into it, and what its output becomes."""

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
from builders.simulated import (
    RECEIVES,
    SYMBOLS,
    keep_kernel,
    measured,
    plugin_output,
    reports,
    simulated_record,
)
from copyscope.commands import draw
from copyscope.commands import run as run_command
from copyscope.commands import simulate as simulate_command
from copyscope.errors import RunError, UsageError
from copyscope.plan.arguments import parser
from copyscope.record import store
from copyscope.record.check import typed_boot
from copyscope.record.simulated import COUNTED, PerKib
from copyscope.show.simulated import simulated_lines
from copyscope.simulate import (
    boot,
    caches,
    debian,
    document,
    guest,
    initramfs,
    job,
    kernels,
    output,
    packed,
    qemu,
    rows,
    unpacked,
)
from copyscope.simulate.command import Command
from copyscope.simulate.request import read
from copyscope.sweep import results, rewriting
from copyscope.taxonomy.taxonomy import Taxonomy

pytestmark = pytest.mark.timeout(20)

# -- what goes in -----------------------------------------------------------------------------------------


def test_an_archive_is_what_the_kernel_unpacks() -> None:
    """Written out by hand from buffer-format.rst: inode, mode, links and size of each, names and padding."""
    made = initramfs.cpio({"a/b": b"xyz"})
    head = b"070701" + b"%08X" * 13
    at = made.index(b"a/b\0")
    assert made[at - 110 : at] == head % (6, 0o100755, 0, 0, 1, 0, 3, 0, 0, 0, 0, 4, 0)
    # 110 + 4 bytes of name are padded to 116; three bytes of content to four.
    assert made[at + 4 : at + 10] == b"\0\0xyz\0"
    assert made.endswith(b"TRAILER!!!\0\0\0\0") and len(made) % 4 == 0
    names = [made[i + 110 :].split(b"\0")[0] for i in range(len(made)) if made[i : i + 6] == b"070701"]
    assert names == [b"a", b"dev", b"proc", b"sys", b"tmp", b"a/b", b"TRAILER!!!"]


def elf(functions: list[tuple[str, int]]) -> bytes:
    """A module with .text, .data, and a symbol table: functions in the first, one object in the second."""
    names = b"\0.text\0.data\0.symtab\0.strtab\0"
    strings = b"\0" + b"".join(name.encode() + b"\0" for name, _ in functions) + b"thing\0"
    symbols = bytes(24)
    for name, value in functions:
        symbols += struct.pack("<IBBHQQ", strings.index(name.encode()), 2, 0, 1, value, 9)
    symbols += struct.pack("<IBBHQQ", strings.index(b"thing"), 1, 0, 2, 4, 8)
    body = names + strings + symbols
    at, section = 64, struct.Struct("<IIQQQQIIQQ")
    table = bytes(64)
    table += section.pack(names.index(b".text"), 1, 6, 0, 0, 0, 0, 0, 1, 0)
    table += section.pack(names.index(b".data"), 1, 3, 0, 0, 0, 0, 0, 1, 0)
    offset = at + len(names) + len(strings)
    table += section.pack(names.index(b".symtab"), 2, 0, 0, offset, len(symbols), 4, 0, 8, 24)
    table += section.pack(names.index(b".strtab"), 3, 0, 0, at + len(names), len(strings), 0, 0, 1, 0)
    table += section.pack(0, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", at + len(body)) + bytes(10)
    return (head + struct.pack("<HHH", 64, 6, 5)).ljust(64, b"\0") + body + table


def test_the_functions_of_a_module_are_those_of_its_code() -> None:
    assert boot.functions_of(elf([("veth_xmit", 0x20), ("veth_poll", 0x10)])) == (
        b".text 10 veth_poll\n.text 20 veth_xmit\n"
    )
    for damaged in (b"", b"MZ", elf([("f", 0)])[:80]):
        with pytest.raises(RunError, match="ELF file"):
            boot.functions_of(damaged)


def test_what_the_guest_is_told() -> None:
    one = job.Measured("one_copy", 65536, 8, 1, 16, 64, 128, ("--impl", "one_copy"), ("--buffer", "128K"))
    orders = job.text(job.Path("veth", 9000, (("gro", "off"),)), [one], ["veth", "e1000"], 2, 7)
    assert orders.splitlines() == [
        "module veth",
        "network veth gro=off mtu=9000",
        "measure one_copy/65536 7001",
        "recv /traffic recv --buffer 128K --connect 10.99.0.1 --port 7001 --cpus 1",
        "send /traffic send --impl one_copy --listen 10.99.0.1 --port 7001 --messages 128 --simulated 64"
        " --seed 7 --cpus 0",
    ]
    # By the clock, nobody knows how long the receiver reads.
    told = job.text(job.Path("veth"), [one], [], 2, 7, exact=False).splitlines()
    assert "--port 7001 --answer 4194304 --answer 12582912" in told[-2] and "--answered --cpus 0" in told[-1]
    # Built into the kernel, or without any; one processor.
    assert "module" not in job.text(job.Path("veth"), [one], [], 1, 1)
    assert job.text(job.Path("loopback"), [one], ["veth"], 1, 1).count("--cpus 0") == 2
    # 8 MiB are counted and 4 MiB warm up, within bounds.
    assert [job.counts(size, None) for size in (1, 1024, 65536, 1 << 20, 1 << 30)] == [
        *((1024, 1024), (1024, 1024), (64, 128), (8, 16), (8, 16))
    ]


def test_a_machine_that_is_the_same_bits_each_time() -> None:
    files = qemu.Files("/k", "/i", "/c", "/s")
    this = qemu.Qemu("/usr/bin/qemu", "7.2.22", 1)
    argv = qemu.command(this, qemu.Machine(2, 5, exact=True, plugin="/p.so,out=/o"), files)
    said = " ".join(argv)
    for part in (
        *("-icount shift=0,sleep=off", "clock=vm", "-seed 5", "-accel tcg,thread=single,", "nokaslr"),
        *("-nic none", "-no-reboot", "-plugin /p.so,out=/o", "-smp 2"),
    ):
        assert part in said
    assert "-drive" not in said and "-fsdev" not in said
    fast = qemu.command(this, qemu.Machine(2, 5, exact=False, cards=True), files)
    assert "-icount" not in fast and fast.count("-netdev") == 2 and "-plugin" not in fast
    # By the clock nothing is gained where no CPU has a timer.
    ticks = [
        "nolapic_timer" in " ".join(qemu.command(this, qemu.Machine(2, 5, exact, fine_timers=fine), files))
        for exact, fine in ((True, False), (True, True), (False, False))
    ]
    assert ticks == [True, False, False]
    assert qemu.plugin_argument("/a,b.so", [("out", "x,y")]) == "/a,,b.so,out=x,,y"


def test_what_may_sleep_for_less_than_a_tick_has_timers() -> None:
    own, paced = (
        read(parser().parse_args(["--simulate", *words])) for words in ([], ["--congestion", "bbr"])
    )
    of_a_program = replace(own, command=Command(("./program",), b"", b""))
    assert [one.fine_timers for one in (own, paced, of_a_program)] == [False, True, True]


def test_the_number_of_the_plugin_interface() -> None:
    """The last version with each number, and the first with the next."""
    numbers = {"6.2.0": 1, "8.2.2": 1, "9.0.1": 2, "9.1.0": 3, "9.2.0": 4, "10.0.3": 4, "10.1.0": 5}
    for version, number in {**numbers, "10.2.3": 6, "11.1.3": 7}.items():
        assert qemu.read_version(f"QEMU emulator version {version} (Debian 1:x)\n") == (version, number)


def test_a_qemu_that_will_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, why in (("QEMU emulator version 5.2.0", "too old"), ("", "no version")):
        with pytest.raises(RunError, match=why):
            qemu.read_version(said)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        RunError, match=r"qemu-system-x86_64: not found: install it: sudo tools/deps.sh simulate"
    ):
        qemu.find()
    old = qemu.Qemu("q", "7.2.22", 1)
    assert qemu.hangs_bit_exact(old, "6.1.0-50-amd64", 2) and not qemu.hangs_bit_exact(old, "6.1.0", 1)
    assert not qemu.hangs_bit_exact(old, "6.12.107+deb13-amd64", 2)
    assert not qemu.hangs_bit_exact(qemu.Qemu("q", "10.0.3", 4), "6.1.0", 2)


# -- the model --------------------------------------------------------------------------------------------


def test_presets_are_machines_that_can_be_modelled() -> None:
    for name, model in caches.PRESETS.items():
        caches.check(model)
        assert model.name == name and model.source
    # Sets of L1D, L2 and LLC, as these CPUs say them (CPUID leaf 4, AMD 0x8000001D, Phase CCSIDR_EL1).
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
    ("asked", "why"),
    [
        ("nehalem", "use generic, sapphire-rapids"),
        ("generic,l1d=48K:7", "not divisible into 7 ways of lines of 64 bytes"),
        ("generic,l2=1M", "not SIZE:WAYS"),
        ("generic,vcpus=9", "not between 1 and 8"),
        ("generic,line=48", "not a power of 2"),
        ("generic,llc=8G:16", "up to 4G"),
        ("generic,l2=0:0", "not a size"),
        ("generic,ddio=yes", "use one of l1d"),
        ("generic,colour=red", "use one of l1d"),
        ("generic,tlb=64", "use one of l1d"),
    ],
)
def test_a_machine_that_is_none(asked: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        caches.parse(asked)


def test_the_caches_of_this_machine(tmp_path: Path) -> None:
    told = (("1", "Data", "48K", 12), ("1", "Instruction", "32K", 8), ("2", "Unified", "2048K", 16))
    for number, (level, kind, size, ways) in enumerate((*told, ("3", "Unified", "107520K", 15))):
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
    with pytest.raises(UsageError, match="does not report its caches: use a preset"):
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
    made = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("data.tar.xz", tree.getvalue())):
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        made += content + b"\n" * (len(content) % 2)
    return made


def test_a_package_is_found_and_unpacked() -> None:
    found = debian.kernel_packages(INDEX)
    assert [(one.name, one.path, one.sha256) for one in found] == [
        ("linux-image-6.12.107+deb13-amd64", "pool/image.deb", "11")
    ]
    split = INDEX.replace("kmod,", "linux-binary-7.2 (= 1), linux-modules-7.2 (= 1),") + "".join(
        f"Package: linux-{part}-7.2\nVersion: 1\nFilename: {part}.deb\nSHA256: 22\n\n"
        for part in ("binary", "modules")
    )
    assert [one.path for one in debian.kernel_packages(split)] == ["binary.deb", "modules.deb"]
    files = {"boot/vmlinuz-6": b"kernel", "usr/share/doc/x": b"no"}
    assert dict(debian.unpack(deb(files), lambda name: "vmlinuz" in name)) == {"boot/vmlinuz-6": b"kernel"}
    for damaged in (b"", b"!<arch>\n", deb(files)[:200]):
        with pytest.raises(debian.ArchiveError):
            dict(debian.unpack(damaged, lambda _: True))


def test_a_kernel_that_is_kept_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> Any:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setenv("COPYSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    place = keep_kernel(tmp_path, veth=b"module")
    kept = kernels.take("6.12", lambda _: None)
    assert (kept.release, kept.image, kept.modules) == ("6.12.107", b"image", {"veth": b"module"})
    # Another byte than was fetched: it is fetched again, which fails in one line.
    (place / "vmlinuz").write_bytes(b"imagE")
    with pytest.raises(
        RunError, match=r"^kernel 6\.12: .*is there a network\?: try again, or --kernel host$"
    ):
        kernels.take("6.12", lambda _: None)
    monkeypatch.setattr(kernels, "FREE_MIN_BYTES", 1 << 60)
    with pytest.raises(RunError, match="MiB free: make room"):
        kernels.take("6.1", lambda _: None)
    with pytest.raises(UsageError, match="or host"):
        kernels.take("2.4", lambda _: None)


# -- what comes out ---------------------------------------------------------------------------------------


def section(copies: int = 0, sent: int = 128 * 1024, text: str | None = None) -> dict[str, Any]:
    taxonomy = Taxonomy.load()
    (counted,) = output.parse(text or plugin_output())
    known = document.known_symbols([SYMBOLS], taxonomy)
    return document.measurement_section(measured(), [counted], [reports(copies, sent)], [known], taxonomy)


def packed_kernel(packed: bytes) -> bytes:
    """By Documentation/arch/x86/boot.rst: five sectors, and 16 bytes later what is packed, and its length."""
    image = bytearray(5 * 512 + 16) + packed + struct.pack("<I", 99)
    image[0x1F1] = 4
    image[0x202:0x208] = b"HdrS\x0f\x02"
    image[0x248:0x250] = struct.pack("<II", 16, len(packed) + 4)
    return bytes(image)


ELF = b"\x7fELF" + bytes(60) + struct.pack("<III", 4, 8, 18) + b"Xen\0" + bytes(100_000)


def test_a_kernel_is_unpacked_once_and_only_if_qemu_can_start_it(tmp_path: Path) -> None:
    assert unpacked.unpacked(packed_kernel(lzma.compress(ELF))) == ELF
    # No note says where it begins; not packed in a way that is known; no kernel.
    assert unpacked.unpacked(packed_kernel(lzma.compress(ELF.replace(b"Xen", b"Zen")))) is None
    assert unpacked.unpacked(packed_kernel(b"BZh9")) is None
    assert unpacked.unpacked(b"image") is None
    kernel = kernels.Kernel("6.12", "6.12.107", packed_kernel(lzma.compress(ELF)), {}, "a" * 64, tmp_path)
    for image in (kernel.image, b"whatever: it is kept"):
        found = Path(unpacked.startable(replace(kernel, image=image)))
        assert found.read_bytes() == ELF and found.parent == tmp_path
    other = unpacked.startable(replace(kernel, image=b"image", sha256="b" * 64))
    assert Path(other).read_bytes() == b"image"


@pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
def test_what_zstd_has_packed_is_unpacked() -> None:
    made = subprocess.run(["zstd", "-qc"], input=ELF, capture_output=True, check=True).stdout
    assert unpacked.unpacked(packed_kernel(made)) == ELF
    with pytest.raises(RunError, match=r"^kernel host: /x: cannot be unpacked: "):
        packed.unpack(made[:-9], "kernel host: /x")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, "kernel: zstd: not found: install it"),
        ("sleep 9", "kernel: zstd: no end within 0.02 s, and was ended: run it by hand"),
    ],
)
def test_a_zstd_that_is_missing_or_hangs_is_one_line(
    answers: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answers is not None:
        (tmp_path / "zstd").write_text(f"#!/bin/sh\nexec {answers}\n")
        (tmp_path / "zstd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if answers else str(tmp_path))
    monkeypatch.setattr(packed, "UNPACK_S", 0.02)
    with pytest.raises(RunError, match=said):
        packed.unpack(packed.ZSTD, "kernel")


def test_rows_are_what_each_copy_did_per_kib() -> None:
    found = {(row["category"], row["side"], row["context"]): row for row in section()["rows"]}
    copy_in = found["copy_in", "sender", "process"]
    assert (copy_in["kind"], copy_in["method"]) == ("account", "modelled")
    assert copy_in["read_bytes_per_kib"] == 1024 and copy_in["l1d_load_misses_per_kib"] == 16
    assert copy_in["instructions_per_kib"] == 9 and copy_in["instructions_per_kib_half_width"] is None
    copy_out = found["copy_out", "receiver", "process"]
    assert copy_out["l1d_store_misses_per_kib"] == 16 and copy_out["l1d_load_misses_per_kib"] == 0
    assert found["user", "sender", "user"]["instructions_per_kib"] == 5
    assert section()["sides"][0]["instructions_per_kib"] == 14
    # Its memcpy runs in user mode.
    gathered = {(row["category"], row["context"]) for row in section(copies=1)["rows"]}
    assert ("gather", "process") in gathered and ("user", "user") not in gathered


def test_of_two_names_of_an_address_the_one_that_the_taxonomy_knows() -> None:
    known = document.known_symbols([SYMBOLS], Taxonomy.load())
    assert known["ffffffff81000100"] == "tcp_sendmsg"


def test_checks_can_fail() -> None:
    assert all(check["holds"] for check in section()["checks"])
    broken = section(sent=127 * 1024)["checks"]
    assert [check["name"] for check in broken if not check["holds"]] == [
        "bytes of the sender, warm-up included"
    ]
    # A copy that reads 900 of 1,024 bytes has not been seen whole; nobody reads twice as many.
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
    # Nobody knows what the receiver's copy is, nor who calls it: 10 of 24 instructions for each KiB.
    nameless = plugin_output().replace(json.dumps(RECEIVES), '["ffffffff82000000"]')
    left = section(text=nameless)["checks"][-2]
    assert (left["left"], left["holds"]) == (10, False)


def test_seeds_become_means_with_intervals() -> None:
    key = ("copy_in", "sender", "process")
    seeds = [{key: dict.fromkeys(COUNTED, value)} for value in (10, 20, 30)]
    (row,) = rows.per_kib(seeds, 10.0)
    # Mean of 1, 2, 3; standard error 1 / sqrt(3); t(0.975, 2) = 4.30265.
    assert row["l2_load_misses_per_kib"] == 2 and row["l2_load_misses_per_kib_half_width"] == 2.4841
    # The same copy on another side's time is the same account.
    moved: list[Any] = [seeds[0], {("copy_in", "other", "softirq"): seeds[0][key]}]
    (whole,) = rows.per_kib([rows.by_account(each) for each in moved], 10.0)
    assert whole["l2_load_misses_per_kib"] == 1 and whole["l2_load_misses_per_kib_half_width"] == 0
    # A row that a seed has not is 0 there.
    (row,) = rows.per_kib([{}, *seeds[:1]], 10.0)
    assert row["calls_per_kib"] == 0.5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no end"),
        (plugin_output().splitlines()[0] + "\n", "has no end"),
        (plugin_output()[:-30], "cannot be read"),
        ('{"error": "symbols: no entry_SYSCALL_64"}\n', "simulator: symbols: no entry_SYSCALL_64"),
        (plugin_output().replace('"dirty_lines"', '"dusty_lines"'), "no column dirty_lines"),
        ("[1]\n", "cannot be read"),
    ],
)
def test_an_output_that_is_not_whole_is_not_used(text: str, why: str) -> None:
    with pytest.raises(RunError, match=why):
        output.parse(text)


@pytest.mark.parametrize("width", [72, 100])
def test_the_table_says_what_it_is_and_what_it_is_not(width: int) -> None:
    one = typed_boot(simulated_record(seeds=(2,))).simulated
    lines = [line.plain for line in simulated_lines(one, width, explain=True)]
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    assert "one_copy, SIMULATED: 1 KiB in 8 fields, veth (MTU 1500), 64 messages counted" in text
    assert "a copy of 1 KiB must read 16 lines and write 16" in text
    assert "a measurement of this or another machine" in text and "--seeds 3" in text
    assert any(line.split()[:5] == ["copy", "into", "the", "kernel", "sender"] for line in lines)
    assert "SIDE BY SIDE" not in text
    # 16 lines read and 16 written by each of the two copies, and nothing else misses.
    assert lines[-1].strip() == "one_copy: 32.0 L1D misses per KiB, 100 % of them in its copies"
    several = simulated_record(seeds=(2,))
    several["simulated"]["measurements"] *= 2
    beside = [line.plain.split() for line in simulated_lines(typed_boot(several).simulated, 100)]
    # 14 + 10 instructions of the two sides (and those of others), 16 + 16 misses of L1D, all of copies.
    (first, *_) = [row for row in beside if row[:3] == ["one_copy", "1", "KiB"]]
    assert first[4:] == ["32.0", "0.0", "0.0", "32.0", "0.0", "0.0", "16.0", "0.0", "0.0"]
    broken = simulated_record(seeds=(2,), sent=5)
    text = " ".join(line.plain for line in simulated_lines(typed_boot(broken).simulated, width))
    assert "DOES NOT HOLD: bytes of the sender" in text


def test_a_record_says_what_was_modelled_and_nothing_that_was_measured() -> None:
    made = simulated_record()
    assert store.validate(made) == []
    assert set(made) == {"schema", "copyscope", "run", "simulated", "verdict"}
    (one,) = made["simulated"]["measurements"]
    assert one["delivered_bytes"] == 64 * 1024 and one["digests"] == ["0123456789abcdef"] * 3
    # 17, 16 and 16 lines: standard error 1/3, t(0.975, 2) = 4.30265.
    (copy_in,) = [row for row in one["accounts"] if row["category"] == "copy_in"]
    sender = one["sides"][0]
    for row in (copy_in, sender):
        assert row["l1d_load_misses_per_kib"] == 16.3333
        assert row["l1d_load_misses_per_kib_half_width"] == 1.4342
    assert (sender["side"], sender["method"]) == ("sender", "modelled")
    for row in (*one["rows"], *one["accounts"]):
        assert row["method"] == "modelled"
    # Every column of the plugin, and each with its interval, is in the record.
    assert {f"{name}_per_kib{end}" for name in COUNTED for end in ("", "_half_width")} < {
        *PerKib.__struct_fields__
    }
    assert made["verdict"] == {"valid": True, "reasons": []}
    broken = simulated_record(sent=5)
    assert not broken["verdict"]["valid"] and store.validate(broken) == []
    assert broken["verdict"]["reasons"] == [
        "one_copy at 1024 bytes: bytes of the sender, warm-up included: 5 instead of 131072"
    ]
    del made["simulated"]["measurements"][0]["rows"][0]["l2_load_misses_per_kib"]
    assert store.validate(made) == [
        "Object missing required field `l2_load_misses_per_kib` - at `$.simulated.measurements[0].rows[0]`"
    ]


def test_a_modelled_record_is_in_no_measured_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(simulated_record(), tmp_path / "simulated.json")
    assert draw.main([str(tmp_path / "simulated.json")]) == 0
    assert "modelled: L1D 32 KiB" in capsys.readouterr().out
    directory = sweep.store([simulated_record()], tmp_path / "demo")
    assert results.load(directory).records == ()
    # Nothing of it is derived, so that nothing is worked out anew or taken out.
    assert rewriting.rewrite(directory, rewriting.strip) == (1, [])


# -- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo booted; sleep 30", r"silent for 0 s after `booted`: ended"),
        ("sleep 30", "before its first line"),
        ("echo failed veth: Operation not supported", "guest: veth: Operation not supported"),
        (
            "echo booted; echo 'Kernel panic - not syncing: x' >$CONSOLE",
            "guest: Kernel panic - not sync.*: its console: ",
        ),
        (
            "echo 'plugin requires API version 5, but this QEMU supports only up to version 4' >&2; exit 1",
            "QEMU: ended with status 1: plugin requires API version 5, .* version 4: use another QEMU: 7.2",
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
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(guest, "SILENT_S" if "booted" in script else "BOOT_S", 0.02)
    console = tmp_path / "console"
    with guest.Guest("", b"") as one, pytest.raises(RunError, match=why):
        one.run(["sh", "-c", script.replace("$CONSOLE", one.console.path)], console, lambda _: None)
    if "panic" in script:
        assert "Kernel panic" in console.read_text()


def test_a_guest_that_comes_to_its_end_is_heard() -> None:
    heard: list[str] = []
    with guest.Guest("", b"") as one:
        script = f"echo booted; echo counted >{one.counted.path}; echo end"
        assert one.run(["sh", "-c", script], Path("/nowhere"), heard.append) == ["booted", "end"]
        assert one.counted.text() == "counted\n"
    assert heard == ["booted", "end"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--gate", "4"], "--gate: not available in a simulated machine"),
        (["--topology", "nics:a,b"], "a simulated machine has veth, veth-xdp, nics, loopback"),
        (["--kernel", "9.9"], "--kernel: 9.9: use 5.10"),
        (["--seeds", "0"], "not between 1 and 10"),
        (["--cache", "generic,l1d=48K:7"], "not divisible"),
        (["--impl", "one_copy,magic"], "magic"),
        (["--pages", "hugetlb"], "the guest has reserved none"),
        (["--sender", "loop"], "--sender: not available in a simulated machine"),
        (["--no-such"], "unrecognized arguments: --no-such"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    assert simulate_command.main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and why in said[0]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--seeds", "2"], "--seeds: only for a simulated machine: add --simulate"),
        (["--simulate", "--sender", "loop"], "--sender: not available in a simulated machine"),
        (["--simulate", "--", "true"], "to run a program in a simulated machine: copyscope simulate -- true"),
    ],
)
def test_a_run_models_what_it_measures(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is known before anything is measured."""
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    assert run_command.main(words) == 2
    assert why in capsys.readouterr().err


def test_what_was_measured_stays_where_the_model_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once for all runs, and never of one that was interrupted."""
    asked: list[object] = []

    def fails(*_: object) -> None:
        asked.append(1)
        raise RunError("QEMU: was killed by signal 11")

    monkeypatch.setattr("copyscope.simulate.qemu.find", lambda: None)
    monkeypatch.setattr("copyscope.simulate.simulation.simulate", fails)
    model = run_command.asked_to_model(parser().parse_args(["--simulate", "-q"]))
    assert model(interrupted=True) == {} and asked == []
    assert model(interrupted=False) == model(interrupted=False) == {} and asked == [1]
    assert capsys.readouterr().err == "copyscope: --simulate: QEMU: was killed by signal 11\n"
    monkeypatch.setattr("copyscope.simulate.simulation.simulate", lambda *_: simulated_record())
    model = run_command.asked_to_model(parser().parse_args(["--simulate", "-q"]))
    assert model(interrupted=False) == {"modelled": simulated_record()["simulated"]}
    assert run_command.asked_to_model(parser().parse_args([]))(interrupted=False) == {}


def test_how_a_run_is_measured_is_nothing_to_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copyscope.simulate.qemu.find", lambda: None)
    words = ["--simulate", "--impl", "one_copy", "--size", "16K", "--duration", "9", "--messages", "7", "-v"]
    (one,) = simulate_command.beside(parser().parse_args([*words, "--frequency", "99"])).measured
    assert (one.impl, one.size_bytes, one.messages) == ("one_copy", 16384, job.counts(16384, None)[1])
