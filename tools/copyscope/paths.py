"""Where things are in the tree. Nothing else: no file is opened here."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / ".output"
TRAFFIC = OUTPUT / "traffic"
COLLECTOR = OUTPUT / "collector"
XDP_OBJECT = OUTPUT / "xdp_pass.bpf.o"
