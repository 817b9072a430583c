"""The house, read from its folders: a folder of tools/copyscope is a room, and so is a file beside them."""

import ast
import re
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import copyscope
import pytest
from copyscope import paths

PACKAGE = Path(copyscope.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES})
LINES_MAX = 500
# A pure room needs no root, no network, no clock and no other program.
EFFECTS = {"subprocess", "socket", "os", "ctypes", "signal", "select", "time"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports, a name of a module or of what is in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms_below(room: str) -> set[str]:
    """The other rooms that a room imports."""
    named = {name for path in MODULES if room_of(path) == room for name in imports(path)}
    ours = {name.split(".")[1] for name in named if name.startswith("copyscope.")}
    return (ours & set(ROOMS)) - {room}


def pure_rooms() -> list[str]:
    """Those whose `__init__.py` says so."""
    return [
        room
        for room in ROOMS
        if (file := PACKAGE / room / "__init__.py").exists()
        and (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").endswith("Pure.")
    ]


def test_rooms_stand_on_each_other_without_a_circle() -> None:
    try:
        order = list(TopologicalSorter({room: rooms_below(room) for room in ROOMS}).static_order())
    except CycleError as circle:
        pytest.fail(f"rooms import each other in a circle: {' -> '.join(circle.args[1])}")
    floors = [order.index(room) for room in ("record", "ledger", "judge", "study", "report", "commands")]
    assert floors == sorted(floors)


@pytest.mark.parametrize("command", ["doctor", "drill", "fleet"])
def test_a_command_that_judges_no_record_loads_no_ledger(command: str) -> None:
    """Who asks a hundred hosts or an emulated kernel waits for what is loaded."""
    code = f"import copyscope.commands.{command}, sys; print(*(name for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("copyscope.")}
    assert "commands" in loaded and not loaded & {"ledger", "study", "sweep", "simulate"}


def test_a_command_knows_no_section_of_a_record() -> None:
    """It hands a record on, whole: what a section says is the business of the rooms below."""
    sections = tuple(
        f"copyscope.record.{name}" for name in ("raw", "instruments", "derived", "simulated", "program")
    )
    for path in (PACKAGE / "commands").glob("*.py"):
        assert not {name for name in imports(path) if name.startswith(sections)}, path.name


@pytest.mark.parametrize("room", pure_rooms())
def test_a_pure_room_has_no_effects(room: str) -> None:
    for path in (path for path in MODULES if room_of(path) == room):
        assert {name.split(".")[0] for name in imports(path)} & EFFECTS == set(), path.name


def test_what_a_record_says_is_worked_out_in_pure_rooms() -> None:
    assert {"taxonomy", "ledger", "judge", "study"} <= set(pure_rooms())


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=lambda path: path.name)
def test_every_room_says_what_it_owns(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


def test_rooms_of_the_collector_stand_on_each_other_without_a_circle() -> None:
    collector = paths.ROOT / "src" / "collector"
    rooms: dict[str, set[str]] = {}
    for path in collector.rglob("*.[ch]"):
        room = str(path.parent.relative_to(collector))
        text = path.read_text(encoding="utf-8")
        named = {str(Path(name).parent) for name in re.findall(r'#include "([^"]+)"', text)}
        rooms.setdefault(room, set()).update(named - {".", room})
    try:
        assert list(TopologicalSorter(rooms).static_order())[-1] == "."
    except CycleError as circle:
        pytest.fail(f"rooms of the collector include each other: {' -> '.join(circle.args[1])}")


def test_files_stay_small() -> None:
    sources = [*MODULES, *(paths.ROOT / "src").rglob("*.[ch]"), *(paths.ROOT / "bpf").glob("*.[ch]")]
    long = {
        path.name: n
        for path in sources
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}
    assert not [path for path in sources if path.stem in ("utils", "util", "helpers", "common", "misc")]


def test_what_is_defined_is_named_elsewhere() -> None:
    """At the top of a module. What is in the folder of plugins ansible calls."""
    texts = {path: path.read_text(encoding="utf-8") for path in (paths.ROOT / "tools").rglob("*.py")}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    defined = re.compile(r"^(?:def|class) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.MULTILINE)
    bare = [
        f"{path.name}: {name}"
        for path in texts.keys() & set(MODULES)
        if path.parent.name != "callback_plugins"
        for name in map("".join, defined.findall(texts[path]))
        if words[name] == 1
    ]
    assert bare == []


def test_kernel_functions_are_named_in_one_place_of_the_c_code() -> None:
    """hooks.h names what is hooked; nothing else in the collector does, and no section of a BPF program."""
    for path in (paths.ROOT / "bpf").glob("*.bpf.[ch]"):
        sections = re.findall(r'SEC\("([^"]*)"\)', path.read_text(encoding="utf-8"))
        assert [section for section in sections if "/" in section] == [], path.name
    for path in (paths.ROOT / "src" / "collector").rglob("*.c"):
        text = path.read_text(encoding="utf-8")
        for symbol in ("sock_send_length", "sock_recv_length", "skb_copy_datagram_iovec", "sched_switch"):
            assert symbol not in text, f"{path.name}: {symbol}"


def test_every_source_of_a_program_names_its_licence() -> None:
    sources = [path for place in ("src", "bpf") for path in (paths.ROOT / place).rglob("*.[ch]")]
    bare = [path.name for path in sources if "SPDX-License-Identifier: GPL-2.0" not in path.open().readline()]
    assert sources and bare == []


def test_no_test_is_without_a_time_limit(request: pytest.FixtureRequest) -> None:
    """What hangs is a failure that says where, and the next test runs."""
    assert float(request.config.getini("timeout")) > 0
    assert request.config.getini("timeout_method") == "signal"


# What is not said in types: it may only fall. The machine quotes the kernel.
ANY_MOST = {"record": 51, "ledger": 9, "judge": 14, "study": 6, "show": 6, "report": 2, "exports": 2}


@pytest.mark.parametrize("room", ANY_MOST)
def test_types_are_named_from_the_record_to_the_screen(room: str) -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in MODULES if room_of(path) == room]
    found = sum(isinstance(node, ast.Name) and node.id == "Any" for tree in trees for node in ast.walk(tree))
    assert found <= ANY_MOST[room]
