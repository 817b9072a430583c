"""The house of docs/HOUSE.md, enforced: who may import whom, and who may touch what."""

import ast
import re
from pathlib import Path

import pytest
from copyscope import paths

PACKAGE = paths.ROOT / "tools" / "copyscope"

# Rooms from the top down; a module may import its own room and the rooms named for it.
ROOMS = {
    "crosscheck": {"plan", "effects", "conductor", "ledger", "ground"},
    "commands": {
        *("crosscheck", "sweep", "results", "plan", "effects", "conductor"),
        *("record", "ledger", "render", "ground"),
    },
    "sweep": {"plan", "effects", "conductor", "record", "ledger", "ground"},
    "results": {"plan", "record", "ledger", "ground"},
    "plan": {"effects", "conductor", "record", "ground"},
    "conductor": {"effects", "plan", "record", "ground"},
    "effects": {"ground"},
    "record": {"ledger", "ground"},
    "ledger": {"ground"},
    "render": {"ledger", "ground"},  # the names of accounts and sides
    "ground": set(),
}
ROOM_OF = {
    "sweep": "sweep",
    "crosscheck": "crosscheck",
    "sweep_directory": "sweep",
    "sweep_runner": "sweep",
    "results": "results",
    "plan": "plan",
    "run_plan": "plan",
    "options": "plan",
    "profile_arguments": "plan",
    "experiment": "plan",
    "experiment_file": "plan",
    "experiment_limits": "plan",
    "toml_lines": "ground",
    "conductor": "conductor",
    "watch": "conductor",
    "build": "effects",
    "child": "effects",
    "perf_stat": "effects",
    "topology": "effects",
    "tool_versions": "effects",
    "assemble": "record",
    "segments": "record",
    "watch_assemble": "record",
    "watch_connections": "record",
    "watch_segments": "record",
    "watch_keys": "record",
    "watch_live": "record",
    "record": "record",
    "record_keys": "record",
    "record_shape": "record",
    "commands": "commands",
    "render": "render",
    "errors": "ground",
    "escaping": "ground",
    "arguments": "ground",
    "streams": "ground",
    "regular_file": "ground",
    "paths": "ground",
    "saving": "ground",
    "rescuing": "ground",
    "launch": "ground",
    "trust": "ground",
    "environment": "ground",
    "same_machine": "ground",
    "__init__": "ground",
    "__main__": "ground",
    "counters": "ground",
    "tier": "ground",
    "gate": "ground",
    "tracefs": "ground",
    "findings": "ground",
    "doctor": "effects",
    "doctor_machine": "effects",
    "doctor_network": "effects",
    "machine": "effects",
    "machine_cpu": "effects",
    "machine_files": "effects",
}
# Below the record nothing needs root, a network or another program.
FORBIDDEN_BELOW = {"subprocess", "socket", "os", "ctypes", "signal", "select", "time"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of(name: str) -> str:
    return ROOM_OF.get(name, "ledger")


def imports(path: Path) -> set[str]:
    """What a module imports: ours as `copyscope.x`, others by their first part."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "copyscope":
                found |= {f"copyscope.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
    return {
        ".".join(name.split(".")[:2]) if name.startswith("copyscope.") else name.split(".")[0]
        for name in found
    }


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(name_of(path))
    for name in imports(path):
        if not name.startswith("copyscope."):
            continue
        other = name.removeprefix("copyscope.")
        if other == "VERSION":
            continue
        allowed = room_of(other) == room or room_of(other) in ROOMS[room]
        # segments reads the run section: the lowest shelf of the record, used by everything below it
        assert allowed or other == "segments", f"{path.name} ({room}) imports {other} ({room_of(other)})"


@pytest.mark.parametrize(
    "path", [p for p in modules() if room_of(name_of(p)) == "ledger"], ids=lambda path: path.name
)
def test_the_ledger_is_pure(path: Path) -> None:
    assert imports(path) & FORBIDDEN_BELOW == set()


def test_files_stay_small() -> None:
    sources = [*modules(), *(paths.ROOT / "src").rglob("*.[ch]"), *(paths.ROOT / "bpf").glob("*.[ch]")]
    long = {
        path.name: n for path in sources if (n := len(path.read_text(encoding="utf-8").splitlines())) > 320
    }
    assert long == {}
    assert not [path for path in sources if path.stem in ("utils", "util", "helpers", "common", "misc")]


def test_kernel_functions_are_named_in_one_place_of_the_c_code() -> None:
    """hooks.h names what is hooked; nothing else in the collector does, and no section of a BPF program."""
    for path in (paths.ROOT / "bpf").glob("*.bpf.[ch]"):
        sections = re.findall(r'SEC\("([^"]*)"\)', path.read_text(encoding="utf-8"))
        assert [section for section in sections if "/" in section] == [], path.name
    for path in (paths.ROOT / "src" / "collector").glob("*.c"):
        text = path.read_text(encoding="utf-8")
        for symbol in ("sock_send_length", "sock_recv_length", "skb_copy_datagram_iovec", "sched_switch"):
            assert symbol not in text, f"{path.name}: {symbol}"


def test_every_source_of_a_program_names_its_licence() -> None:
    sources = [path for place in ("src", "bpf") for path in (paths.ROOT / place).rglob("*.[ch]")]
    bare = [path.name for path in sources if "SPDX-License-Identifier: GPL-2.0" not in path.open().readline()]
    assert sources and bare == []
