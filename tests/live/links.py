# SPDX-License-Identifier: GPL-2.0-only
"""Read from the kernel which tracepoints a process has attached."""

from pathlib import Path


def attached_tracepoints(pid: int) -> frozenset[str]:
    """Return the tracepoints of the BPF links that a process holds (bpf_raw_tp_link_show_fdinfo())."""
    tracepoints = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except OSError:  # the link was closed meanwhile
            continue
        tracepoints |= {line.split()[1] for line in lines if line.startswith("tp_name:")}
    return frozenset(tracepoints)
