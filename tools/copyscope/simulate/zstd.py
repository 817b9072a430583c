"""What zstd has packed: Python has no reader of it before 3.14."""

import subprocess

from copyscope.errors import RunError

UNPACK_S = 60.0


def unpack(packed: bytes, what: str) -> bytes:
    """What zstd makes of it. Raises RunError that begins with `what`."""
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
