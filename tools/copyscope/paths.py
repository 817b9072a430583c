"""Where things are in the tree. Nothing else: no file is opened here."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / ".output"
TRAFFIC = OUTPUT / "traffic"
COLLECTOR = OUTPUT / "collector"
XDP_OBJECT = OUTPUT / "xdp_pass.bpf.o"


def host_results(hostname: str) -> Path:
    """Where the results of a host are."""
    return ROOT / "results" / re.sub(r"[^A-Za-z0-9._-]", "-", hostname)
