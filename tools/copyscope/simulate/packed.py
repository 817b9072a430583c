"""What xz or zstd has packed, as kernels and modules are. Python has no reader of zstd before 3.14."""

import lzma

from copyscope.asking import LimitError, ask
from copyscope.errors import RunError, what_to_simulate_with

XZ, ZSTD = b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
UNPACK_S = 60.0
# An image of a kernel with all that distributions build has a quarter of that.
UNPACKED_MAX_BYTES = 256 << 20


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
        done = ask(["zstd", "-dcq"], said=packed, limit_s=UNPACK_S, most_bytes=UNPACKED_MAX_BYTES)
    except FileNotFoundError:
        raise RunError(f"{what}: zstd: not found: {what_to_simulate_with('zstd')}") from None
    except LimitError as error:
        raise RunError(f"{what}: {error}") from None
    if done.status != 0:
        raise RunError(f"{what}: cannot be unpacked: {done.complaint or 'zstd failed'}")
    return done.output
