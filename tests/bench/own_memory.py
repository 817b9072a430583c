"""How much memory does a tool take, with everything that it starts? Looked at from outside, all the time.

Of each program its peak (VmHWM, proc_pid_status(5)); not ru_maxrss, which a program inherits from the one
that forked it (exec_mmap(), fs/exec.c). Forked children share pages with their parent, so peaks do not add
up: of all together it is the largest sum of proportional sizes (Pss, proc_pid_smaps(5)) at one time.
"""

import os
import subprocess
import threading
from pathlib import Path

LOOK_EVERY_S = 0.03
TOGETHER = "all together"
CHILDREN = "its largest child"


def watched(argv: list[str]) -> dict[str, int]:
    """Runs it; KiB of each of its programs, and of all together."""
    peaks: dict[str, int] = {}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as tool:
        ended = threading.Event()
        looker = threading.Thread(target=_watch, args=(tool.pid, Path(argv[0]).name, peaks, ended))
        looker.start()
        status = tool.wait()
        ended.set()
        looker.join()
    if status:
        raise SystemExit(f"{' '.join(argv)}: status {status}")
    return peaks


def _watch(root: int, tool: str, peaks: dict[str, int], ended: threading.Event) -> None:
    while not ended.wait(LOOK_EVERY_S):
        together = 0
        for pid in _family(root):
            together += _kib(pid, "smaps_rollup", "Pss")
            name = _name(pid, root, tool)
            if name:
                peaks[name] = max(peaks.get(name, 0), _kib(pid, "status", "VmHWM"))
        peaks[TOGETHER] = max(peaks.get(TOGETHER, 0), together)


def _name(pid: int, root: int, tool: str) -> str | None:
    """What the table calls it; nothing for what is small and not ours, as nsenter."""
    if pid == root:
        return tool
    try:
        comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if comm == "traffic" and words[1:2] in ([b"send"], [b"recv"]):
        return f"traffic {words[1].decode()}"
    if comm.startswith("python"):
        return CHILDREN
    return comm if comm in ("collector", "perf") else None


def _family(root: int) -> list[int]:
    """The process and everything below it."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 (processes come and go)
        if name.isdigit():
            try:
                status = Path(f"/proc/{name}/stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            parents[int(name)] = int(status.rpartition(")")[2].split()[1])
    found = [root]
    for parent in found:
        found += [pid for pid, above in parents.items() if above == parent]
    return found


def _kib(pid: int, file: str, key: str) -> int:
    """One line of a file in /proc; of a process that has ended, nothing."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{key}:")), 0)
