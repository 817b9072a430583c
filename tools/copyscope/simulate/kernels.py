"""Kernels for the guest: fetched once from Debian and kept with their hashes, or this machine's own."""

import contextlib
import fcntl
import hashlib
import json
import lzma
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copyscope.asking import LimitError, ask
from copyscope.errors import RunError, UsageError
from copyscope.simulate import debian
from copyscope.simulate.packed import unpack

# Kernel -> the suite of Debian that has it.
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.x": "sid"}
DEFAULT = "6.12"
HOST = "host"
MIRROR = "https://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MODULES = ("veth", "e1000")
ANSWER_S = 30
FREE_MIN_BYTES = 100 << 20
Say = Callable[[str], None]


@dataclass(frozen=True)
class Kernel:
    """A kernel and the modules that a path needs (a module that is built in is missing here)."""

    name: str
    release: str
    image: bytes
    modules: dict[str, bytes]
    sha256: str
    place: Path  # what is known of it is kept here


def cache() -> Path:
    """Where all that can be made again is kept: the same place as that of the test kernels."""
    asked = os.environ.get("COPYSCOPE_CACHE")
    if asked:
        return Path(asked)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "copyscope"


def check_name(name: str) -> None:
    """Raises UsageError for what is no kernel of the list."""
    if name not in (*SUITES, HOST):
        raise UsageError(f"--kernel: {name}: use {', '.join(SUITES)} or {HOST} (this machine's, from /boot)")


def take(name: str, say: Say) -> Kernel:
    """The kernel of this name: kept, or fetched now. `say` is told what takes long. Raises RunError."""
    check_name(name)
    if name == HOST:
        return _of_host()
    place = cache() / "guests" / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place):
            kept = _kept(name, place)
            return kept if kept is not None else _fetch(name, place, say)
    except OSError as error:
        raise RunError(f"kernel {name}: {error.filename or place}: {error.strerror or error}") from error


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Two at once would fetch the same; the lock goes with the file."""
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(name: str, place: Path) -> Kernel | None:
    """What was fetched before, if it is whole; what is not is fetched again."""
    try:
        about = json.loads((place / "about.json").read_text())
        image = (place / "vmlinuz").read_bytes()
        modules = {each: (place / f"{each}.ko").read_bytes() for each in about["modules"]}
        release, hashes = about["release"], about["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if hashes != _hashes(image, modules):
        return None
    return Kernel(name, release, image, modules, hashes["vmlinuz"], place)


def _fetch(name: str, place: Path, say: Say) -> Kernel:
    suite = SUITES[name]
    if shutil.disk_usage(place).free < FREE_MIN_BYTES:
        raise RunError(f"kernel {name}: {place}: less than {FREE_MIN_BYTES >> 20} MiB free: make room")
    say(f"fetching Linux {name} from Debian {suite}, once")
    try:
        packages = debian.kernel_packages(_index(suite))
        files: dict[str, bytes] = {}
        for package in packages:
            deb = _get(f"{MIRROR}/{package.path}", package.sha256)
            files |= dict(debian.unpack(deb, _is_wanted))
        release, image, modules = _chosen(files)
    except (debian.ArchiveError, lzma.LZMAError) as error:
        raise RunError(f"kernel {name}: {MIRROR}: {error}: try again, or --kernel {HOST}") from error
    hashes = _hashes(image, modules)
    about = {
        "release": release,
        "modules": sorted(modules),
        "sha256": hashes,
        "packages": {package.name: [package.version, package.sha256] for package in packages},
    }
    # What says that all is there comes last, and in one step.
    (place / "about.json").unlink(missing_ok=True)
    for each, content in modules.items():
        (place / f"{each}.ko").write_bytes(content)
    (place / "vmlinuz").write_bytes(image)
    part = place / "about.json.part"
    part.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    part.rename(place / "about.json")
    return Kernel(name, release, image, modules, hashes["vmlinuz"], place)


def _hashes(image: bytes, modules: dict[str, bytes]) -> dict[str, str]:
    files = {"vmlinuz": image, **modules}
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def _is_wanted(path: str) -> bool:
    file = path.rsplit("/", 1)[-1]
    return file.startswith("vmlinuz") or (file.split(".")[0] in MODULES and ".ko" in file)


def _chosen(files: dict[str, bytes]) -> tuple[str, bytes, dict[str, bytes]]:
    """(release, image, modules) of what was unpacked."""
    image = next((content for path, content in files.items() if "vmlinuz" in path), None)
    parts = [path.split("/") for path in files if ".ko" in path]
    if image is None or not parts:
        raise debian.ArchiveError("the package holds no kernel, or no modules")
    release = parts[0][parts[0].index("modules") + 1]
    modules = {
        path.rsplit("/", 1)[-1].split(".")[0]: unpack(content, path)
        for path, content in files.items()
        if ".ko" in path
    }
    return release, image, modules


def _index(suite: str) -> str:
    signed = _get(f"{MIRROR}/dists/{suite}/InRelease", None)
    _check_signature(suite, signed)
    wanted = debian.index_hash(signed.decode(errors="replace"))
    # By its hash: the archive may change between two requests.
    path = f"{MIRROR}/dists/{suite}/main/binary-amd64/by-hash/SHA256/{wanted}"
    return lzma.decompress(_get(path, wanted)).decode(errors="replace")


def _check_signature(suite: str, signed: bytes) -> None:
    """With Debian's keys where this machine has them; without them the connection alone vouches (TLS)."""
    if not KEYRING.exists() or shutil.which("gpgv") is None:
        return
    argv = ["gpgv", "--quiet", "--keyring", str(KEYRING)]
    try:
        done = ask(argv, said=signed, limit_s=ANSWER_S)
    except LimitError:
        raise debian.ArchiveError(
            f"{suite}: gpgv took over {ANSWER_S:g} s over its signature: repeat when idle"
        ) from None
    if done.status != 0:
        said = done.complaint.splitlines()
        raise debian.ArchiveError(f"{suite}: bad signature: {said[-1] if said else 'gpgv'}")


def _get(url: str, sha256: str | None) -> bytes:
    # Whoever shows a record loads this module, too: these would be a tenth of its time.
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            content: bytes = answer.read()
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise debian.ArchiveError(
            f"{url.rsplit('/', 1)[-1]}: no answer: {reason}: is there a network?"
        ) from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise debian.ArchiveError(f"{url.rsplit('/', 1)[-1]}: its hash is not the one in the archive's list")
    return content


def _of_host() -> Kernel:
    release = platform.release()
    image_path = Path("/boot") / f"vmlinuz-{release}"
    try:
        image = image_path.read_bytes()
    except OSError as error:
        raise RunError(
            f"kernel {HOST}: {image_path}: {error.strerror}: use --kernel {DEFAULT}, which is fetched"
        ) from error
    modules = {}
    for each in MODULES:
        for path in sorted(Path("/lib/modules", release, "kernel/drivers/net").rglob(f"{each}.ko*")):
            modules[each] = unpack(path.read_bytes(), f"kernel {HOST}: {path}")
    sha256 = hashlib.sha256(image).hexdigest()
    place = cache() / "guests" / f"host-{sha256[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    return Kernel(HOST, release, image, modules, sha256, place)
