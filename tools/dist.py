# SPDX-License-Identifier: GPL-2.0-only
"""Build the distribution files for one architecture (`make dist`): a wheel, a tarball and a Debian package.

    tools/dist.py MACHINE DIRECTORY      write them, from the programs in .output/dist.d/MACHINE/programs

The source distribution and the bill of materials are the same for all architectures.

The tarball contains the tree that bin/copyscope needs, with the packages of requirements/run.txt for each
supported Python. The Debian package installs the same tree in /usr/lib, and a service. Builds are
reproducible: the same commit and compiler give the same bytes, because all times are that of the commit, all
owners are root, and all names are sorted.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from copyscope import VERSION
from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).resolve().parent.parent
# Python versions for which msgspec has wheels.
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
# Platform tags of wheels that pip may choose, without the architecture.
PLATFORMS = ("manylinux2014", "manylinux_2_28")
# Name of an architecture in Debian, by its name in uname(1).
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# Control file of the Debian package.
CONTROL = """\
Package: copyscope
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size_kib}
Section: devel
Priority: optional
Depends: python3 (>= 3.11) | python3.11 | python3.12, libc6, iproute2, ethtool
Recommends: linux-perf | linux-tools-common, python3-prometheus-client (>= 0.16)
Suggests: python3-matplotlib, bpftrace, qemu-system-x86
Description: where the Linux kernel copies the bytes of a TCP connection, and at what price
 Profiles send strategies and any program: each copy with its bytes, its CPU
 time and an interval, as a ledger that balances.
"""
# Debian packages of the libraries that are linked statically. tools/copyright has their licenses.
LIBRARIES = ("libbpf-dev", "libc6-dev", "libelf-dev", "libjansson-dev", "liburing-dev", "zlib1g-dev")
MAINTAINER = "The copyscope authors <copyscope@copyscope.invalid>"
CHANGELOG = """\
copyscope ({version}) unstable; urgency=medium

  * CHANGELOG.md of the source lists the changes.

 -- {maintainer}  {date}
"""
# Tags of lintian that do not apply, with the reasons.
OVERRIDES = """\
# Programs run on any distribution, and in a simulated machine without libraries.
copyscope: statically-linked-binary *
copyscope: embedded-library *
# BPF program
copyscope: binary-from-other-architecture *
# Wheels of PyPI, as their authors built them
copyscope: unstripped-binary-or-object *
"""
# Scripts of the Debian package. The installed Python compiles bytecode, which is removed before the package.
# The service runs only after `systemctl enable --now copyscope`; an upgrade restarts it.
SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl --system daemon-reload
	deb-systemd-invoke try-restart copyscope.service
fi
python=$(/usr/lib/copyscope/tools/python.sh) || exit 0
"$python" -m compileall -q /usr/lib/copyscope/tools
""",
    "prerm": """\
#!/bin/sh
set -e
[ "$1" != remove ] || systemctl --quiet disable --now copyscope.service 2> /dev/null || true
find /usr/lib/copyscope -name __pycache__ -prune -exec rm -rf {} +
""",
}


def main(arguments: list[str]) -> int:
    """Build all distribution files. `arguments`: architecture, and output directory."""
    machine, output = arguments[0], Path(arguments[1]).resolve()
    os.environ["SOURCE_DATE_EPOCH"] = run_command("git", "log", "-1", "--format=%ct")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        os.umask(0o022)
        wheel = make_wheel(machine, output)
        tree = make_tree(wheel, machine, Path(directory))
        make_tarball(tree, output / f"{tree.name}.tar.gz")
        make_debian_package(tree, machine, output)
    build_sdist(str(output))
    write_bill_of_materials(output)
    write_checksums(output)
    return 0


def make_wheel(machine: str, output: Path) -> Path:
    """Build the wheel for an architecture with hatchling, and return its path in the output directory."""
    os.environ["COPYSCOPE_MACHINE"] = machine
    os.chdir(ROOT)
    return output / build_wheel(str(output))


def make_tree(wheel: Path, machine: str, directory: Path) -> Path:
    """Make the tree that runs without installation in a temporary directory, and return its path."""
    tree = directory / f"copyscope-{wheel.name.split('-')[1]}-linux-{machine}"
    (tree / "bin").mkdir(parents=True)
    unpack(wheel, tree / "tools")
    for name in (".output", "experiments"):
        (tree / "tools" / "copyscope" / name).rename(tree / name)
    for name in ("bin/copyscope", "tools/__main__.py", "tools/python.sh"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copy(ROOT / "tools" / "copyright", tree / "copyright")
    shutil.copytree(ROOT / "tools" / "bpftrace", tree / "tools" / "bpftrace")
    for requirement in fetch_requirements(machine, directory / "wheels"):
        unpack(requirement, tree / "tools")
    # pip must not manage these packages: without RECORD, it refuses to uninstall them.
    for record in (tree / "tools").glob("*.dist-info/RECORD"):
        record.unlink()
    write_manual(tree / "share")
    return tree


def fetch_requirements(machine: str, directory: Path) -> list[Path]:
    """Download the wheels that requirements/run.txt pins, for each Python version; return their paths.

    pip checks the hashes of the wheels.
    """
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
        str(ROOT / "requirements" / "run.txt"),
        "-d",
        str(directory),
    ]
    if (ROOT / "wheels").is_dir():
        pip += ["--no-index", "--find-links", str(ROOT / "wheels")]
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{machine}")]
    for python in PYTHONS:
        subprocess.run([*pip, *platforms, "--python-version", python], check=True)
    return sorted(directory.iterdir())


def unpack(wheel: Path, directory: Path) -> None:
    """Unpack a wheel with the permissions of its files, but without its scripts (.data/)."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.is_dir() and ".data/" not in member.filename:
                file = Path(archive.extract(member, directory))
                file.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)


def write_manual(share: Path) -> None:
    """Write man pages and shell completion into a share/ directory, where man and shells search for them."""
    argv = [sys.executable, "-I", "-m", "copyscope.commands.manual"]
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([*argv, directory], check=True)
        completion_paths = {
            "copyscope.bash": "bash-completion/completions/copyscope",
            "copyscope.zsh": "zsh/site-functions/_copyscope",
            "copyscope.fish": "fish/vendor_completions.d/copyscope.fish",
        }
        for file in sorted(Path(directory).iterdir()):
            target = share / completion_paths.get(file.name, f"man/man1/{file.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def make_tarball(tree: Path, file: Path) -> None:
    """Write a reproducible tarball that unpacks to a single directory, the tree."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=commit_time()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in all_paths(tree):
            archive.add(path, str(path.relative_to(tree.parent)), recursive=False, filter=normalise)


def normalise(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Set the owner of a tarball's member to root, its time to that of the commit, and its mode."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = commit_time()
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def make_debian_package(tree: Path, machine: str, output: Path) -> None:
    """Build the Debian package: the tree in /usr/lib, a link in /usr/bin, and manuals in /usr/share."""
    root = tree.parent / "root"
    lib = root / "usr" / "lib" / "copyscope"
    shutil.copytree(tree, lib)
    share = root / "usr" / "share"
    (lib / "share").rename(share)
    for page in share.glob("man/man1/*"):
        save_packed(page.with_name(f"{page.name}.gz"), page.read_bytes())
        page.unlink()
    (root / "usr" / "bin").mkdir()
    (root / "usr" / "bin" / "copyscope").symlink_to("../lib/copyscope/bin/copyscope")
    units = root / "usr" / "lib" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "daemon" / "copyscope.service", units)
    documents = share / "doc" / "copyscope"
    documents.mkdir(parents=True)
    (lib / "copyright").rename(documents / "copyright")
    facts: dict[str, object] = {
        "version": tree.name.split("-")[1],
        "maintainer": MAINTAINER,
        "date": formatdate(commit_time()),
        "architecture": DEBIAN[machine],
        "size_kib": sum(path.lstat().st_size for path in all_paths(root)) // 1024,
    }
    save_packed(documents / "changelog.gz", CHANGELOG.format(**facts).encode())
    (share / "lintian" / "overrides").mkdir(parents=True)
    (share / "lintian" / "overrides" / "copyscope").write_text(OVERRIDES)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(CONTROL.format(**facts))
    for name, text in SCRIPTS.items():
        (root / "DEBIAN" / name).write_text(text)
        (root / "DEBIAN" / name).chmod(0o755)
    for path in all_paths(root):
        os.utime(path, (commit_time(), commit_time()), follow_symlinks=False)
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(output)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def save_packed(path: Path, content: bytes) -> None:
    """Write a file with gzip, without its time, so that builds are reproducible."""
    path.write_bytes(gzip.compress(content, mtime=0))


def all_paths(tree: Path) -> Iterator[Path]:
    """Yield a directory and all paths below it, sorted."""
    yield tree
    yield from sorted(tree.rglob("*"))


def write_bill_of_materials(output: Path) -> None:
    """Write copyscope.cdx.json (CycloneDX): the Python packages and static libraries in the packages."""
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE)
    parts = [(name, version, f"pkg:pypi/{name}@{version}") for name, version in pinned]
    libraries = run_command("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}\\n", *LIBRARIES)
    for line in libraries.splitlines():
        name, version = line.split()
        parts.append((name, version, f"pkg:deb/debian/{name}@{quote(version)}"))
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "copyscope", "version": VERSION}},
        "components": [
            {"type": "library", "name": name, "version": version, "purl": purl}
            for name, version, purl in parts
        ],
    }
    (output / "copyscope.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")


def write_checksums(output: Path) -> None:
    """Write SHA256SUMS of all distribution files in the output directory, of every architecture."""
    names = sorted(path.name for path in output.glob("copyscope*"))
    (output / "SHA256SUMS").write_text(run_command("sha256sum", *names, directory=output) + "\n")


def commit_time() -> int:
    """Return the time of the commit in seconds since 1970."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def run_command(*argv: str, directory: Path = ROOT) -> str:
    """Run a command in a directory, and return its output without the last newline."""
    return subprocess.run(argv, cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
