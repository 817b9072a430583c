"""Whose tree root runs, and what of the caller's environment reaches root's programs."""

import grp
import os
import pwd
import shutil
import struct
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.environment import PATH, clean, for_root, of_caller, without_odd_sizes
from copyscope.trust import find_danger

ME = {"SUDO_UID": str(os.getuid())}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree as a user's clone is, with a Python of its own."""
    root = tmp_path / "tree"
    for name in (
        ".output",
        ".venv/bin",
        ".venv/lib",
        "bpf",
        "experiments",
        "src",
        "tools/copyscope/taxonomy",
    ):
        (root / name).mkdir(parents=True)
    for name in (
        ".output/collector",
        ".venv/bin/python3",
        "tools/copyscope/taxonomy/taxonomy.tsv",
        "experiments/quick.toml",
    ):
        (root / name).write_text("")
    (root / "Makefile").write_text("")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)
    return root


def test_a_tree_of_ones_own_is_fine(tree: Path) -> None:
    assert find_danger(str(tree), ME) is None
    assert find_danger(str(tree), {**ME, "SUDO_UID": "x"}) is None or os.getuid() != 0


@pytest.mark.parametrize(
    "name",
    [
        *("", ".output", ".output/collector", ".venv/bin", ".venv/lib", "Makefile", "bpf", "src", "tools"),
        *("tools/copyscope", "tools/copyscope/taxonomy/taxonomy.tsv", "experiments/quick.toml", ".."),
    ],
)  # fmt: skip
def test_what_others_may_write_is_named(tree: Path, name: str) -> None:
    path = tree / name
    path.chmod(0o777)
    said = find_danger(str(tree), ME)
    assert said is not None
    assert said.startswith(f"{os.path.normpath(path)}: others may write it")
    path.chmod(0o755)
    assert find_danger(str(tree), ME) is None


def test_in_a_sticky_directory_others_replace_nothing(tree: Path) -> None:
    tree.parent.chmod(0o1777)
    assert find_danger(str(tree), ME) is None


def test_a_group_is_somebody_else_unless_it_is_the_users_own(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tree / "tools" / "copyscope" / "taxonomy" / "taxonomy.tsv"
    file.chmod(0o664)
    if file.stat().st_gid == 0:
        assert find_danger(str(tree), ME) is None
        os.chown(file, -1, 1)
    me = pwd.getpwuid(os.getuid()).pw_name
    for name, members, safe in ((me, [], True), (me, [me], True), ("users", [], False), (me, ["eve"], False)):
        entry = grp.struct_group((name, "x", file.stat().st_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, found=entry: found)
        assert (find_danger(str(tree), ME) is None) == safe


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_whose_tree_it_may_be(tree: Path) -> None:
    os.chown(tree / "src", 4242, -1)
    said = find_danger(str(tree), {})
    assert said is not None
    assert said.startswith(f"{tree}/src: belongs to user 4242")
    assert find_danger(str(tree), {"SUDO_UID": "4242"}) is None
    assert find_danger(str(tree), {"COPYSCOPE_TRUST_UID": "4242"}) is None
    assert find_danger(str(tree), {"SUDO_UID": "1000"}) == said
    for odd in ("", "-1", "9" * 5000, "٣", "4242 "):
        assert find_danger(str(tree), {"SUDO_UID": odd}) == said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_python_behind_the_link_counts(tree: Path, tmp_path: Path) -> None:
    python = tree / ".venv" / "bin" / "python3"
    python.unlink()
    (tmp_path / "python3").write_text("")
    (tmp_path / "python3").chmod(0o777)
    python.symlink_to(tmp_path / "python3")
    said = find_danger(str(tree), {})
    assert said is not None
    assert said.startswith(f"{tmp_path}/python3: others may write it")


def test_a_link_is_looked_at_where_it_leads_and_on_its_way(tree: Path, tmp_path: Path) -> None:
    """A room of the package, and the environment's packages, that lie elsewhere."""
    for inside in ("tools/copyscope/ledger", ".venv/lib/site-packages"):
        real = tmp_path / "real" / "room"
        real.mkdir(parents=True)
        (real / "rows.py").write_text("")
        way = tmp_path / "way"
        way.symlink_to("real")
        link = tree / inside
        link.symlink_to(f"{way}/room")
        for place in (real.parent, real, real / "rows.py"):
            place.chmod(0o755)
        assert find_danger(str(tree), ME) is None
        for place in (real / "rows.py", real, real.parent):
            place.chmod(0o777)
            said = find_danger(str(tree), ME)
            if place.is_dir() or "tools" in inside:  # of packages only the directories are looked at
                assert said is not None and said.startswith(f"{place}: others may write it")
            place.chmod(0o755)
        link.unlink()
        way.unlink()
        shutil.rmtree(real.parent)


def test_who_may_make_what_a_link_names_chooses_what_is_run(tree: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tree / "src" / "main.c").symlink_to(shared / "main.c")
    assert find_danger(str(tree), ME) is None
    shared.chmod(0o1777)
    said = find_danger(str(tree), ME)
    assert said is not None and said.startswith(f"{shared}: others may write it")


def test_links_in_a_circle_are_one_line(tree: Path) -> None:
    (tree / "src" / "a").symlink_to("b")
    (tree / "src" / "b").symlink_to("a")
    said = find_danger(str(tree), ME)
    assert said is not None and "Too many levels of symbolic links" in said


def acl(*entries: tuple[int, int, int]) -> bytes:
    """As include/uapi/linux/posix_acl_xattr.h has it: version 2, then (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, NAMED, GROUP, MASK, OTHERS, NOBODYS_ID = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF


@pytest.mark.parametrize(
    ("user", "permissions", "safe"), [(4242, 6, False), (4242, 4, True), (None, 6, True)]
)
def test_an_access_control_list_counts(tree: Path, user: int | None, permissions: int, safe: bool) -> None:
    """The group's bits of the mode are then those of the mask; the group itself may do nothing."""
    file = tree / "tools" / "copyscope" / "taxonomy" / "taxonomy.tsv"
    who = os.getuid() if user is None else user
    entries = acl(
        (OWNER, 6, NOBODYS_ID),
        (NAMED, permissions, who),
        (GROUP, 4, NOBODYS_ID),
        (MASK, 6, NOBODYS_ID),
        (OTHERS, 4, NOBODYS_ID),
    )
    try:
        os.setxattr(file, "system.posix_acl_access", entries)
    except OSError as error:
        pytest.skip(f"this file system has no access control lists: {error}")
    assert file.stat().st_mode & 0o777 == 0o664
    said = find_danger(str(tree), ME)
    assert (said is None) == safe
    if said is not None:
        assert said.startswith(f"{file}: others may write it") and f"setfacl -b {file}" in said


def test_what_else_is_run_is_looked_at_where_it_is_named(tree: Path) -> None:
    (tree / "tests").mkdir()
    (tree / "tests" / "conftest.py").write_text("")
    (tree / "tests" / "conftest.py").chmod(0o666)
    assert find_danger(str(tree), ME) is None
    said = find_danger(str(tree), ME, ["tests", "requirements.txt"])
    assert said is not None and said.startswith(f"{tree}/tests/conftest.py: others may write it")


def test_what_reaches_the_programs_of_root() -> None:
    caller = {
        "PATH": "/home/eve/bin",
        "PYTHONPATH": "/tmp",
        "PYTHONSTARTUP": "x",
        "LD_PRELOAD": "evil.so",
        "LD_LIBRARY_PATH": "/tmp",
        "BASH_ENV": "x",
        "GIT_DIR": "x",
        "MAKEFLAGS": "-f evil",
        "IFS": "/",
        "TERM": "xterm",
        "LC_ALL": "C",
        "SUDO_UID": "1000",
        "HOME": "/home/eve",
        "https_proxy": "http://proxy:3128/",
    }
    roots = for_root(caller)
    visible = {name: value for name, value in roots.items() if not name.startswith("COPYSCOPE_CALLERS_")}
    assert visible == {
        "PATH": PATH, "TERM": "xterm", "LC_ALL": "C", "SUDO_UID": "1000", "HOME": "/home/eve",
        "https_proxy": "http://proxy:3128/",
    }  # fmt: skip
    assert of_caller(roots) == caller
    assert for_root(roots) == roots
    # A variable that is only given back never gets root's programs anything.
    assert for_root({"COPYSCOPE_CALLERS_LD_PRELOAD": "evil.so"}) == for_root({"LD_PRELOAD": "evil.so"})


def test_sizes_of_a_terminal_are_numbers() -> None:
    odd = ("9" * 5000, "", "-1", "٣", "1e3", "10000")
    for value in odd:
        assert without_odd_sizes({"COLUMNS": value, "LINES": value, "TERM": "x"}) == {"TERM": "x"}
    assert without_odd_sizes({"COLUMNS": "80"}) == {"COLUMNS": "80"}


def test_a_caller_who_is_not_root_keeps_the_environment() -> None:
    caller = {"PATH": "/home/eve/bin", "EDITOR": "vi", "COLUMNS": "x"}
    called = {**caller, "PATH": PATH, "COPYSCOPE_CALLERS_PATH": "/home/eve/bin"}
    clean(called, is_root=False)
    assert called == {"PATH": "/home/eve/bin", "EDITOR": "vi"}


def test_the_front_looks_for_nothing_where_the_caller_says() -> None:
    assert f'COPYSCOPE_CALLERS_PATH="$PATH" PATH={PATH}\n' in (paths.ROOT / "bin" / "copyscope").read_text()
