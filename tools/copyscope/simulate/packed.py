"""What xz or zstd has packed, as kernels and modules are. Python has no reader of zstd before 3.14."""

import lzma
import subprocess

from copyscope.errors import RunError

XZ, ZSTD = b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
UNPACK_S = 60.0


def unpack(content: bytes, what: str) -> bytes:
    """What is in it, or itself where it is packed by neither. Raises RunError that begins with `what`."""
    if content.startswith(XZ):
        try:
            return lzma.decompress(content)
        except (lzma.LZMAError, EOFError) as error:
            raise RunError(f"{what}: cannot be unpacked: {error}") from error
    return _by_zstd(content, what) if content.startswith(ZSTD) else content


def _by_zstd(packed: bytes, what: str) -> bytes:
    try:
        done = subprocess.run(
            ["zstd", "-dcq"], input=packed, capture_output=True, check=False, timeout=UNPACK_S
        )
    except FileNotFoundError:
        raise RunError(f"{what}: zstd: not found: install it: sudo tools/deps.sh simulate") from None
    except subprocess.TimeoutExpired:
        raise RunError(f"{what}: zstd took over {UNPACK_S:g} s: repeat when idle") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RunError(f"{what}: cannot be unpacked: {said or 'zstd failed'}")
    return done.stdout
