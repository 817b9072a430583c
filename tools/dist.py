"""What people install, for one kind of machine: a wheel, a tarball and a Debian package (`make dist`).

    tools/dist.py MACHINE DIRECTORY      all three, of the programs in .output/dist.d/MACHINE/programs

The tarball is the tree that bin/copyscope knows, with the packages of requirements.txt for every Python; the
Debian package is that in /usr/lib. The same commit and compiler make the same bytes: all times are the
commit's, all owners root, all names in order.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hatchling.build import build_wheel

ROOT = Path(__file__).resolve().parent.parent
# Those that msgspec has wheels for.
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
PLATFORMS = ("manylinux2014", "manylinux_2_28")
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
CONTROL = """\
Package: copyscope
Version: {version}
Architecture: {architecture}
Maintainer: copyscope maintainers <root@localhost>
Installed-Size: {size_kib}
Section: devel
Priority: optional
Depends: python3 (>= 3.11) | python3.11 | python3.12, iproute2, ethtool, util-linux
Recommends: linux-perf | linux-tools-common
Suggests: python3-matplotlib, python3-prometheus-client, bpftrace, qemu-system-x86
Description: where the Linux kernel copies the bytes of a TCP connection, and at what price
 Profiles send strategies and any program: each copy with its bytes, its CPU time and an interval,
 as a ledger that balances.
"""
# Bytecode is of the Python that is there, and goes before what it was made of.
SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
python=$(/usr/lib/copyscope/tools/python.sh) || exit 0
"$python" -m compileall -q /usr/lib/copyscope/tools
""",
    "prerm": """\
#!/bin/sh
set -e
find /usr/lib/copyscope -name __pycache__ -prune -exec rm -rf {} +
""",
}


def main(words: list[str]) -> int:
    machine, target = words[0], Path(words[1]).resolve()
    os.environ["SOURCE_DATE_EPOCH"] = ask("git", "log", "-1", "--format=%ct")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        os.umask(0o022)
        wheel = make_wheel(machine, target)
        tree = make_tree(wheel, machine, Path(made))
        make_tarball(tree, target / f"{tree.name}.tar.gz")
        make_package(tree, machine, target)
    write_sums(target)
    return 0


def make_wheel(machine: str, target: Path) -> Path:
    """By hatchling, which knows what pyproject.toml says."""
    os.environ["COPYSCOPE_MACHINE"] = machine
    os.chdir(ROOT)
    return target / build_wheel(str(target))


def make_tree(wheel: Path, machine: str, made: Path) -> Path:
    """All that runs without an installation, in a directory by its name."""
    tree = made / f"copyscope-{wheel.name.split('-')[1]}-linux-{machine}"
    (tree / "bin").mkdir(parents=True)
    unpack(wheel, tree / "tools")
    for name in (".output", "experiments"):
        (tree / "tools" / "copyscope" / name).rename(tree / name)
    for name in ("bin/copyscope", "tools/__main__.py", "tools/python.sh"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "tools" / "bpftrace", tree / "tools" / "bpftrace")
    for one in fetch_requirements(machine, made / "wheels"):
        unpack(one, tree / "tools")
    # Another's installer has no business here.
    for record in (tree / "tools").glob("*.dist-info/RECORD"):
        record.unlink()
    write_manual(tree / "share")
    return tree


def fetch_requirements(machine: str, into: Path) -> list[Path]:
    """The wheels that requirements.txt pins, for each Python; pip checks their hashes."""
    pip = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    pip += [
        "--only-binary",
        ":all:",
        "--require-hashes",
        "-r",
        str(ROOT / "requirements.txt"),
        "-d",
        str(into),
    ]
    if (ROOT / "wheels").is_dir():
        pip += ["--no-index", "--find-links", str(ROOT / "wheels")]
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{machine}")]
    for python in PYTHONS:
        subprocess.run([*pip, *platforms, "--python-version", python], check=True)
    return sorted(into.iterdir())


def unpack(wheel: Path, into: Path) -> None:
    """With the permissions that it has; scripts of packages are not for us."""
    with zipfile.ZipFile(wheel) as archive:
        for one in archive.infolist():
            if not one.is_dir() and ".data/" not in one.filename:
                made = Path(archive.extract(one, into))
                made.chmod(0o755 if one.external_attr >> 16 & 0o111 else 0o644)


def write_manual(share: Path) -> None:
    """Man pages and completion where man and shells look below a prefix."""
    argv = [sys.executable, "-I", "-m", "copyscope.commands.manual"]
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([*argv, made], check=True)
        places = {
            "copyscope.bash": "bash-completion/completions/copyscope",
            "copyscope.zsh": "zsh/site-functions/_copyscope",
            "copyscope.fish": "fish/vendor_completions.d/copyscope.fish",
        }
        for page in sorted(Path(made).iterdir()):
            to = share / places.get(page.name, f"man/man1/{page.name}")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, to)


def make_tarball(tree: Path, file: Path) -> None:
    """As `tar` unpacks it: one directory."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in everything(tree):
            archive.add(path, str(path.relative_to(tree.parent)), recursive=False, filter=of_nobody)


def of_nobody(one: tarfile.TarInfo) -> tarfile.TarInfo:
    one.uid = one.gid = 0
    one.uname = one.gname = "root"
    one.mtime = epoch()
    one.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
    return one


def make_package(tree: Path, machine: str, target: Path) -> None:
    """The same tree in /usr/lib, with what /usr/bin and /usr/share have of it."""
    root = tree.parent / "root"
    lib = root / "usr" / "lib" / "copyscope"
    shutil.copytree(tree, lib)
    (lib / "share").rename(root / "usr" / "share")
    (root / "usr" / "bin").mkdir()
    (root / "usr" / "bin" / "copyscope").symlink_to("../lib/copyscope/bin/copyscope")
    licence = root / "usr" / "share" / "doc" / "copyscope" / "copyright"
    licence.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", licence)
    facts = {
        "version": tree.name.split("-")[1],
        "architecture": DEBIAN[machine],
        "size_kib": sum(path.lstat().st_size for path in everything(root)) // 1024,
    }
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(CONTROL.format(**facts))
    for name, text in SCRIPTS.items():
        (root / "DEBIAN" / name).write_text(text)
        (root / "DEBIAN" / name).chmod(0o755)
    for path in everything(root):
        os.utime(path, (epoch(), epoch()), follow_symlinks=False)
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(target)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def everything(tree: Path) -> Iterator[Path]:
    yield tree
    yield from sorted(tree.rglob("*"))


def write_sums(target: Path) -> None:
    """SHA256SUMS of all that is there, of every machine."""
    names = sorted(path.name for path in target.glob("copyscope*"))
    (target / "SHA256SUMS").write_text(ask("sha256sum", *names, where=target) + "\n")


def epoch() -> int:
    return int(os.environ["SOURCE_DATE_EPOCH"])


def ask(*argv: str, where: Path = ROOT) -> str:
    return subprocess.run(argv, cwd=where, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
