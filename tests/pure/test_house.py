# SPDX-License-Identifier: GPL-2.0-only
"""Rules of the source tree. A room is a folder of tools/copyscope, or a file beside these folders."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import copyscope
import pytest
from copyscope.base import paths

PACKAGE = Path(copyscope.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES} - {"__init__"})
LINES_MAX = 500
# Number of rooms, floors and imports between rooms in November 2026.
ROOMS_MAX, FLOORS_MAX, ARROWS_MAX = 14, 7, 56
# Modules that pure rooms do not import: these need no root, no network, no clock and no other program.
EFFECTS = {"subprocess", "socket", "os", "ctypes", "signal", "select", "time"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports: modules, and names in modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_below(room: str) -> set[str]:
    """Return the other rooms that a room imports."""
    named = {name for path in MODULES if room_of(path) == room for name in imports(path)}
    ours = {name.split(".")[1] for name in named if name.startswith("copyscope.")}
    return (ours & set(ROOMS)) - {room}


def pure_rooms() -> list[str]:
    """Return the rooms with a docstring that ends with "Pure."."""
    return [
        room
        for room in ROOMS
        if (file := PACKAGE / room / "__init__.py").exists()
        and (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").endswith("Pure.")
    ]


def test_rooms_import_only_rooms_below_them() -> None:
    try:
        order = list(TopologicalSorter({room: rooms_below(room) for room in ROOMS}).static_order())
    except CycleError as circle:
        pytest.fail(f"rooms import each other in a circle: {' -> '.join(circle.args[1])}")
    floors = [order.index(room) for room in ("record", "ledger", "judge", "show", "report", "commands")]
    assert floors == sorted(floors)


def test_rooms_keep_their_limits_of_size() -> None:
    """Raise a limit only for a room that a newcomer would expect."""
    below = {room: rooms_below(room) for room in ROOMS}
    floors: dict[str, int] = {}
    for room in TopologicalSorter(below).static_order():
        floors[room] = 1 + max((floors[lower] for lower in below[room]), default=0)
    assert len(ROOMS) <= ROOMS_MAX
    assert max(floors.values()) <= FLOORS_MAX
    assert sum(len(lower) for lower in below.values()) <= ARROWS_MAX


def test_no_two_files_import_each_other() -> None:
    """Imports inside functions count, too, because they only hide a circle."""
    modules = {name(path): path for path in MODULES}
    graph = {
        module: {
            target for dotted in imports(path) if (target := module_of(dotted, modules)) not in (None, module)
        }
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"files import each other in a circle: {' -> '.join(circle.args[1])}")


def name(path: Path) -> str:
    """Return the dotted name of a module."""
    return ".".join(("copyscope", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def module_of(dotted: str, modules: Mapping[str, Path]) -> str | None:
    """Return the module that an imported name comes from, or None if it is not ours."""
    return (
        dotted if dotted in modules else parent if (parent := dotted.rpartition(".")[0]) in modules else None
    )


def test_class_names_are_unique() -> None:
    """A search for a class name finds one class."""
    classes = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.mark.parametrize("command", ["doctor", "drill", "fleet"])
def test_a_command_that_judges_no_record_loads_no_ledger(command: str) -> None:
    """Loading the ledger delays commands that run on many hosts or on an emulated kernel."""
    code = f"import copyscope.commands.{command}, sys; print(*(name for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("copyscope.")}
    assert "commands" in loaded and not loaded & {"ledger", "report", "sweep"}
    assert "copyscope.run.simulate" not in done.stdout


def test_a_command_knows_no_section_of_a_record() -> None:
    """A command passes on whole records. Only the rooms below read sections.

    The modules with sections are those of record/ that define Structs.
    """
    sections = tuple(name(path) for path in (PACKAGE / "record").glob("*.py") if defines_sections(path))
    assert len(sections) >= 7 and "copyscope.record.watched" in sections
    for path in (PACKAGE / "commands").glob("*.py"):
        assert not {dotted for dotted in imports(path) if dotted.startswith(sections)}, path.name


def defines_sections(path: Path) -> bool:
    """Return True for a module that defines sections of the record."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Section" for base in node.bases)
        for node in tree.body
    )


@pytest.mark.parametrize("room", pure_rooms())
def test_a_pure_room_has_no_effects(room: str) -> None:
    for path in (path for path in MODULES if room_of(path) == room):
        assert {name.split(".")[0] for name in imports(path)} & EFFECTS == set(), path.name


def test_rooms_that_interpret_records_are_pure() -> None:
    assert {"taxonomy", "ledger", "judge"} <= set(pure_rooms())


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=lambda path: path.name)
def test_every_room_has_a_docstring(folder: Path) -> None:
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


def test_rooms_of_the_collector_include_only_rooms_below_them() -> None:
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


def test_every_definition_is_used() -> None:
    """Checks definitions at the top of a module. ansible calls the definitions in its plugin folder."""
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
    """Only hooks.h names hooked functions: neither the collector nor the sections of BPF programs do.

    The section of an iterator names a kind of map, not a function.
    """
    for path in (paths.ROOT / "bpf").glob("*.bpf.[ch]"):
        sections = re.findall(r'SEC\("([^"]*)"\)', path.read_text(encoding="utf-8"))
        hooked = [section for section in sections if "/" in section and not section.startswith("?iter/")]
        assert hooked == [], path.name
    for path in (paths.ROOT / "src" / "collector").rglob("*.c"):
        text = path.read_text(encoding="utf-8")
        for symbol in ("sock_send_length", "sock_recv_length", "skb_copy_datagram_iovec", "sched_switch"):
            assert symbol not in text, f"{path.name}: {symbol}"


def test_every_source_names_its_licence() -> None:
    """REUSE.toml names the license of pages, records and data."""
    folders = [paths.ROOT / name for name in ("src", "bpf", "tools", "tests")]
    suffixes = (".c", ".h", ".py", ".sh")
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    tag = "SPDX-License-Identifier" + ": GPL-2.0-only"
    bare = [str(path) for path in sources if path.stat().st_size and tag not in path.read_text()[:200]]
    assert sources and bare == []


def test_every_test_has_a_time_limit(request: pytest.FixtureRequest) -> None:
    """A test that hangs fails with a traceback, and the next test runs."""
    assert float(request.config.getini("timeout")) > 0
    assert request.config.getini("timeout_method") == "signal"


# Files that may hold untyped JSON objects: documents of records, and the output of `ip -j`.
UNTYPED_JSON = {"record/store.py", "machine/topology/links.py"}


def test_json_objects_have_types() -> None:
    """Untyped JSON is allowed only in files that rewrite documents or read the JSON of other programs."""
    untyped = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if re.search(r"dict\[str, Any\]", path.read_text(encoding="utf-8"))
    }
    assert untyped <= UNTYPED_JSON


# Room -> maximum number of uses of Any. Lower it when uses are removed.
ANY_MOST = {"record": 13, "ledger": 0, "judge": 8, "show": 6, "report": 9}


@pytest.mark.parametrize("room", ANY_MOST)
def test_types_are_named_from_the_record_to_the_screen(room: str) -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in MODULES if room_of(path) == room]
    uses = sum(isinstance(node, ast.Name) and node.id == "Any" for tree in trees for node in ast.walk(tree))
    assert uses <= ANY_MOST[room]
