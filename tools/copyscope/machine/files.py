"""Reading one small file of /proc or /sys, below a root that tests replace."""

import re
from pathlib import Path

ROOT = Path("/")


def read_text(root: Path, path: str) -> str | None:
    """The text of a file below root, stripped; None when it is absent, empty or refused."""
    try:
        return (root / path).read_text(errors="replace").strip() or None
    except OSError:
        return None


def read_integer(root: Path, path: str) -> int | None:
    text = read_text(root, path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def chosen(text: str | None) -> str | None:
    """The bracketed choice in `none [integrity] confidentiality`."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match.group(1) if match else None
