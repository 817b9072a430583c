"""What a process has attached: asked of the kernel, not of the collector."""

from pathlib import Path


def attached(pid: int) -> frozenset[str]:
    """The tracepoints that links of this process hold (bpf_raw_tp_link_show_fdinfo())."""
    found = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = info.read_text().splitlines()
        except OSError:  # a link that went meanwhile
            continue
        found |= {line.split()[1] for line in lines if line.startswith("tp_name:")}
    return frozenset(found)
