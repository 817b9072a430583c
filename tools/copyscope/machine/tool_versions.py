"""Which versions of the system's tools are installed, remembered so that a profile does not wait for them.

clang alone takes 0.2 s to say its version when it is not cached in memory. What they said is kept in .output,
keyed by the tool's path, size and time, and by the kernel (Ubuntu's perf is a script that picks by kernel).
Where copyscope is installed nothing is kept: what installed it takes away what it brought, and no more.
"""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

from copyscope import paths
from copyscope.asking import Asked, LimitError
from copyscope.files import regular_file, saving

# Tool -> how to ask it for its version; the answer's first number is the version.
QUESTIONS = dict.fromkeys(("perf", "ip", "ethtool", "bpftool", "clang", "setpriv"), "--version")
QUESTIONS |= {"ip": "-V", "bpftool": "version"}
MEMORY = None if paths.INSTALLED else paths.OUTPUT / "tool-versions.json"


def read_tool_versions(memory: Path | None = MEMORY, search_path: str | None = None) -> dict[str, str | None]:
    """Tool -> version; None when it is not installed or says no version."""
    known = {} if memory is None else _recall(memory)
    paths_of = {tool: shutil.which(tool, path=search_path) for tool in QUESTIONS}
    keys = {tool: _identify(path) for tool, path in paths_of.items() if path is not None}
    # All tools are asked at the same time; the answers are collected afterwards.
    asked = {
        tool: _ask(str(paths_of[tool]), QUESTIONS[tool]) for tool, key in keys.items() if key not in known
    }
    known |= {keys[tool]: _hear(one) for tool, one in asked.items()}
    if asked and memory is not None:
        # Without this the next run only takes longer.
        with contextlib.suppress(OSError):
            kept = {key: known[key] for key in keys.values()}
            saving.save(memory, json.dumps(kept, indent=1, sort_keys=True).encode())
    return {tool: known[keys[tool]] if tool in keys else None for tool in QUESTIONS}


def parse_version(answer: str) -> str | None:
    """The first dotted number in what a tool says: `ip utility, iproute2-6.1.0, libbpf 1.1.2` -> 6.1.0."""
    match = re.search(r"\d+(?:\.\d+)+(?:[-.][\w.]+)?", answer)
    return match.group().rstrip(".") if match else None


def _identify(path: str) -> str:
    status = Path(path).stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {os.uname().release}"


def _ask(path: str, question: str) -> Asked | None:
    try:
        return Asked((path, question))
    except OSError:
        return None


def _hear(asked: Asked | None) -> str | None:
    try:
        answer = None if asked is None else asked.answer()
    except LimitError:
        return None
    if answer is None or answer.status != 0:
        return None
    return parse_version(answer.text) or parse_version(answer.complaint)


def _recall(memory: Path) -> dict[str, str | None]:
    try:
        known = json.loads(regular_file.read(memory))
    except (OSError, ValueError, RecursionError):  # none yet, or a damaged one: the tools are asked again
        return {}
    return known if isinstance(known, dict) else {}
