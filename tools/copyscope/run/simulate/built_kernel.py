# SPDX-License-Identifier: GPL-2.0-only
"""Read a kernel that the user has built: a bzImage, or a build tree with its modules and configuration."""

import hashlib
import re
from pathlib import Path

from copyscope.base.errors import RunError
from copyscope.run.simulate.kernel_image import (
    GuestKernel,
    decompress,
    is_bzimage,
    release_of,
    unpack_bzimage,
)

IMAGE_IN_TREE = "arch/x86/boot/bzImage"
# Paths in a build tree of the modules for network paths.
MODULES_IN_TREE = {"veth": "drivers/net/veth.ko", "e1000": "drivers/net/ethernet/intel/e1000/e1000.ko"}
# Markers of a configuration in a kernel image (CONFIG_IKCONFIG, kernel/configs.c).
CONFIG_BEGIN, CONFIG_END = b"IKCFG_ST", b"IKCFG_ED"
# Options that every guest needs, with the reason.
NEEDED = {
    "64BIT": "the programs of the guest are for x86-64",
    "SMP": "sender and receiver have a CPU each",
    "ACPI": "the kernel finds its second CPU in tables of ACPI",
    "BINFMT_ELF": "the guest runs programs",
    "BLK_DEV_INITRD": "the programs are in an initramfs",
    "INET": "the programs send over TCP",
    "KALLSYMS": "rows need names of functions",
    "PROC_FS": "the guest gets its symbols and its list of sockets from /proc",
    "SYSFS": "the guest reads the addresses of modules in /sys",
    "TMPFS": "the programs use /tmp",
    "SERIAL_8250_CONSOLE": "messages of a failing kernel go to the serial console",
    "X86_IOPL_IOPERM": "the guest reports through an I/O port",
    "FUTEX": "the programs have threads",
    "EPOLL": "the programs wait with epoll",
    "EVENTFD": "the programs wake their threads with an eventfd",
    "VETH": "the default network path; without it, use --topology loopback",
    "NET_NS": "sender and receiver have a network namespace each; without it, use --topology loopback",
}


def read(path: Path, cache: Path) -> GuestKernel:
    """Return the kernel at a path: a bzImage, or a build tree that contains one. Raises RunError.

    `cache`: directory for files that are derived from the kernel.
    """
    try:
        image_path = path / IMAGE_IN_TREE if path.is_dir() else path
        image = image_path.read_bytes()
        if not is_bzimage(image):
            raise RunError(
                f"--kernel {path}: not a bzImage; build one with `make bzImage`, or give the source tree"
            )
        tree = path if path.is_dir() else _tree_of(path)
        modules = _read_modules(tree)
        _check_config(path, _read_config(tree, image), modules)
        sha256 = hashlib.sha256(image).hexdigest()
        directory = cache / f"built-{sha256[:16]}"
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"--kernel {path}: {error.filename}: {error.strerror}; run `make bzImage`") from error
    return GuestKernel(str(path), release_of(image), image, modules, sha256, directory)


def _tree_of(image_path: Path) -> Path | None:
    """Return the build tree that contains a bzImage, or None if the file is not in one."""
    resolved = image_path.resolve()
    parts = Path(IMAGE_IN_TREE).parts
    return resolved.parents[len(parts) - 1] if resolved.parts[-len(parts) :] == parts else None


def _read_modules(tree: Path | None) -> dict[str, bytes]:
    """Return a build tree's modules that the guest may load; drivers may also be built into the kernel."""
    if tree is None:
        return {}
    paths = {name: tree / path for name, path in MODULES_IN_TREE.items()}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def _read_config(tree: Path | None, image: bytes) -> str | None:
    """Return the configuration from the tree or the image (CONFIG_IKCONFIG), or None if neither has it."""
    if tree is not None and (tree / ".config").exists():
        return (tree / ".config").read_text(encoding="utf-8", errors="replace")
    unpacked = unpack_bzimage(image) or b""
    begin, end = unpacked.find(CONFIG_BEGIN), unpacked.find(CONFIG_END)
    if not 0 <= begin < end:
        return None
    packed = unpacked[begin + len(CONFIG_BEGIN) : end]
    return decompress(packed, "the configuration in the kernel").decode("utf-8", "replace")


def _check_config(path: Path, config: str | None, modules: dict[str, bytes]) -> None:
    """Raise RunError if the configuration lacks an option that the guest needs.

    `config`: text of the configuration; if None (unknown), only an error in the guest shows what is missing.
    """
    if config is None:
        return
    built_in = set(re.findall(r"^CONFIG_(\w+)=y$", config, re.MULTILINE))
    missing = [name for name in NEEDED if name not in built_in and name.lower() not in modules]
    if missing:
        names = ", ".join(f"CONFIG_{name}=y" for name in missing)
        raise RunError(f"--kernel {path}: its configuration lacks {names}: {NEEDED[missing[0]]}")
