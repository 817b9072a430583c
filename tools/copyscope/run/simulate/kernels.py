# SPDX-License-Identifier: GPL-2.0-only
"""Get kernels to simulate: Debian's (downloaded once), this machine's, or one that the user built."""

import contextlib
import fcntl
import hashlib
import io
import json
import lzma
import platform
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copyscope.base import paths
from copyscope.base.errors import RunError, UsageError
from copyscope.base.programs import LimitError, run_program
from copyscope.base.spelling import alternatives
from copyscope.run.simulate import built_kernel
from copyscope.run.simulate.kernel_image import GuestKernel, decompress

# The first part finds the packages of a kernel in Debian's archive, and reads their files. Pure.

AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60
INDEX_PATH = "main/binary-amd64/Packages.xz"
META_PACKAGE = "linux-image-amd64"


class ArchiveError(Exception):
    """Error for a downloaded file with unexpected content. The message is one line."""


@dataclass(frozen=True)
class Package:
    """Package in an index of Debian's archive, with the path and hash of its file."""

    name: str
    version: str
    path: str
    sha256: str
    depends: tuple[str, ...]


def index_hash(release: str) -> str:
    """Return the hash of the amd64 package index. `release`: text of a Release file."""
    section = release.partition("\nSHA256:\n")[2]
    match = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(INDEX_PATH)}$", section, re.MULTILINE)
    if match is None:
        raise ArchiveError(f"the Release file of the suite has no {INDEX_PATH}")
    return match[1]


def find_package(index: str, name: str) -> Package:
    """Return the package `name`. `index`: text of a Packages file."""
    begin = index.find(f"\nPackage: {name}\n")
    if begin < 0:
        raise ArchiveError(f"the archive has no package {name}")
    paragraph = index[begin + 1 : index.find("\n\n", begin + 1)]
    fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
    depends = tuple(re.split(r"[ (|]", word.strip())[0] for word in fields.get("Depends", "").split(","))
    return Package(name, fields["Version"], fields["Filename"], fields["SHA256"], depends)


def kernel_packages(index: str) -> list[Package]:
    """Return the packages of the newest kernel: a single image, or several parts since 7.x."""
    index = "\n" + index
    depends = find_package(index, META_PACKAGE).depends
    image_names = [name for name in depends if re.match(r"linux-image-\d", name)]
    if not image_names:
        raise ArchiveError(f"{META_PACKAGE}: this package names no image")
    image = find_package(index, image_names[0])
    parts = [name for name in image.depends if re.match(r"linux-(binary|modules)-\d", name)]
    return [find_package(index, name) for name in parts] or [image]


def files_of_package(deb: bytes, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each regular file in a package for which `is_wanted(path)` is True."""
    data = _data_member(deb)
    try:
        with tarfile.open(fileobj=data, mode="r|xz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isfile() and is_wanted(name):
                    content = tar.extractfile(member)
                    assert content is not None  # because the member is a regular file
                    yield name, content.read()
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise ArchiveError(f"damaged package: {error}") from error


def _data_member(deb: bytes) -> io.BytesIO:
    """Return the member data.tar.xz of a Debian package, which is an ar archive."""
    if not deb.startswith(AR_MAGIC):
        raise ArchiveError("not a package of Debian")
    offset = len(AR_MAGIC)
    while offset + AR_HEADER_BYTES <= len(deb):
        name = deb[offset : offset + 16].decode("ascii", "replace").strip(" /")
        size = deb[offset + 48 : offset + 58]
        begin = offset + AR_HEADER_BYTES
        if name == "data.tar.xz":
            return io.BytesIO(deb[begin : begin + int(size)])
        offset = begin + int(size) + int(size) % 2
    raise ArchiveError("the package has no data.tar.xz")


# The second part gets kernels for the guest: downloaded once from Debian and saved with their hashes, or the
# kernel of this machine.

# Debian suite of each kernel.
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.x": "sid"}
DEFAULT = "6.12"
HOST = "host"
MIRROR = "https://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MODULES = ("veth", "e1000")
ANSWER_TIMEOUT_S = 30
FREE_MIN_BYTES = 100 << 20
Say = Callable[[str], None]


def check_name(name: str) -> None:
    """Raise UsageError unless a value of --kernel is a known kernel or an existing path."""
    if name in (*SUITES, HOST):
        return
    if not Path(name).exists():
        choices = alternatives(
            (*SUITES, f"{HOST} (from /boot)", "the path of a bzImage or of its build tree")
        )
        raise UsageError(f"--kernel {name}: unknown kernel; choose {choices}")


def get_kernel(name: str, say: Say) -> GuestKernel:
    """Return a kernel, downloading it if it is not saved yet. Raises RunError.

    `name`: value of --kernel. `say` announces the download.
    """
    check_name(name)
    if name == HOST:
        return _read_host_kernel()
    if name not in SUITES:
        return built_kernel.read(Path(name), paths.cache_directory() / "guests")
    directory = paths.cache_directory() / "guests" / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory):
            kernel = _read_saved(name, directory)
            return kernel if kernel is not None else _fetch(name, directory, say)
    except OSError as error:
        raise RunError(f"kernel {name}: {error.filename or directory}: {error.strerror or error}") from error


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock during the body of the `with`, so that two runs do not download the same kernel.

    Closing the lock file releases the lock.
    """
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_saved(name: str, directory: Path) -> GuestKernel | None:
    """Return a saved kernel, or None if the saved files are incomplete or damaged."""
    try:
        about = json.loads((directory / "about.json").read_text())
        image = (directory / "vmlinuz").read_bytes()
        modules = {name: (directory / f"{name}.ko").read_bytes() for name in about["modules"]}
        release, hashes = about["release"], about["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if hashes != _hashes(image, modules):
        return None
    return GuestKernel(name, release, image, modules, hashes["vmlinuz"], directory)


def _fetch(name: str, directory: Path, say: Say) -> GuestKernel:
    """Download a kernel from Debian, save it in a directory, and return it. Raises RunError."""
    suite = SUITES[name]
    if shutil.disk_usage(directory).free < FREE_MIN_BYTES:
        raise RunError(f"kernel {name}: {directory}: less than {FREE_MIN_BYTES >> 20} MiB free; make room")
    say(f"fetching Linux {name} from Debian {suite}, once")
    try:
        packages = kernel_packages(_fetch_index(suite))
        files: dict[str, bytes] = {}
        for package in packages:
            deb = _download(f"{MIRROR}/{package.path}", package.sha256)
            files |= dict(files_of_package(deb, _is_wanted))
        release, image, modules = _select_files(files)
    except (ArchiveError, lzma.LZMAError) as error:
        raise RunError(f"kernel {name}: {MIRROR}: {error}; check the network, or --kernel {HOST}") from error
    hashes = _hashes(image, modules)
    about = {
        "release": release,
        "modules": sorted(modules),
        "sha256": hashes,
        "packages": {package.name: [package.version, package.sha256] for package in packages},
    }
    # about.json shows that a saved kernel is complete, so this file is written last, and renamed into place.
    (directory / "about.json").unlink(missing_ok=True)
    for module, content in modules.items():
        (directory / f"{module}.ko").write_bytes(content)
    (directory / "vmlinuz").write_bytes(image)
    part = directory / "about.json.part"
    part.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    part.rename(directory / "about.json")
    return GuestKernel(name, release, image, modules, hashes["vmlinuz"], directory)


def _hashes(image: bytes, modules: dict[str, bytes]) -> dict[str, str]:
    files = {"vmlinuz": image, **modules}
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _is_wanted(path: str) -> bool:
    """Return True if a path in a package is the kernel image or a module that the guest needs."""
    file = path.rsplit("/", 1)[-1]
    return file.startswith("vmlinuz") or (file.split(".")[0] in MODULES and ".ko" in file)


def _select_files(files: dict[str, bytes]) -> tuple[str, bytes, dict[str, bytes]]:
    """Return the release, the image and the modules of a kernel. `files`: content by path."""
    image = next((content for path, content in files.items() if "vmlinuz" in path), None)
    parts = [path.split("/") for path in files if ".ko" in path]
    if image is None or not parts:
        raise ArchiveError("the package contains no kernel, or no modules")
    release = parts[0][parts[0].index("modules") + 1]
    modules = {
        path.rsplit("/", 1)[-1].split(".")[0]: decompress(content, path)
        for path, content in files.items()
        if ".ko" in path
    }
    return release, image, modules


def _fetch_index(suite: str) -> str:
    """Download a suite's package index, and return its text. Raises ArchiveError."""
    signed = _download(f"{MIRROR}/dists/{suite}/InRelease", None)
    _check_signature(suite, signed)
    sha256 = index_hash(signed.decode(errors="replace"))
    # Request the index by its hash, because the archive may change between two requests.
    path = f"{MIRROR}/dists/{suite}/main/binary-amd64/by-hash/SHA256/{sha256}"
    return lzma.decompress(_download(path, sha256)).decode(errors="replace")


def _check_signature(suite: str, signed: bytes) -> None:
    """Check the signature of a Release file. Raises ArchiveError.

    If this machine lacks gpgv or Debian's keys, only TLS protects the download.
    """
    if not KEYRING.exists() or shutil.which("gpgv") is None:
        return
    argv = ["gpgv", "--quiet", "--keyring", str(KEYRING)]
    try:
        result = run_program(argv, stdin_data=signed, limit_s=ANSWER_TIMEOUT_S)
    except LimitError:
        raise ArchiveError(
            f"{suite}: gpgv needed more than {ANSWER_TIMEOUT_S:g} s for the signature; repeat when idle"
        ) from None
    if result.status != 0:
        lines = result.complaint.splitlines()
        raise ArchiveError(f"{suite}: bad signature: {lines[-1] if lines else 'gpgv'}")


def _download(url: str, sha256: str | None) -> bytes:
    """Download a file and return its content. `sha256`: expected hash, or None. Raises ArchiveError."""
    # Import here, because `show` loads this module, too, and these imports would take a tenth of its time.
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    try:
        with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ArchiveError(f"{url.rsplit('/', 1)[-1]}: no answer: {reason}") from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ArchiveError(f"{url.rsplit('/', 1)[-1]}: the hash differs from the hash in the archive's list")
    return content


def _read_host_kernel() -> GuestKernel:
    """Return this machine's running kernel, from /boot and /lib/modules. Raises RunError."""
    release = platform.release()
    image_path = Path("/boot") / f"vmlinuz-{release}"
    try:
        image = image_path.read_bytes()
    except OSError as error:
        raise RunError(
            f"kernel {HOST}: {image_path}: {error.strerror}; use --kernel {DEFAULT}, which is downloaded"
        ) from error
    modules = {}
    for module in MODULES:
        for path in sorted(Path("/lib/modules", release, "kernel/drivers/net").rglob(f"{module}.ko*")):
            modules[module] = decompress(path.read_bytes(), f"kernel {HOST}: {path}")
    sha256 = hashlib.sha256(image).hexdigest()
    directory = paths.cache_directory() / "guests" / f"host-{sha256[:16]}"
    directory.mkdir(parents=True, exist_ok=True)
    return GuestKernel(HOST, release, image, modules, sha256, directory)
