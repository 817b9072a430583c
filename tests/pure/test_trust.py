# SPDX-License-Identifier: GPL-2.0-only
"""Trust: owners and modes of the tree that root runs, and the environment of root's programs."""

import grp
import os
import pwd
import shutil
import struct
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.base.process import (
    PATH,
    clean_environment,
    environment_of_caller,
    environment_of_root,
    without_invalid_sizes,
)
from copyscope.base.trust import find_danger

ME = {"SUDO_UID": str(os.getuid())}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree like a user's clone, with a Python of its own."""
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
        ".venv/lib/module.py",
        ".venv/lib/copyscope.pth",
        ".venv/pyvenv.cfg",
        "tools/copyscope/taxonomy/taxonomy.tsv",
        "experiments/quick.toml",
    ):
        (root / name).write_text("")
    (root / "Makefile").write_text("")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)
    return root


def test_a_tree_of_the_user_is_trusted(tree: Path) -> None:
    assert find_danger(str(tree), ME) is None
    assert find_danger(str(tree), {**ME, "SUDO_UID": "x"}) is None or os.getuid() != 0


@pytest.mark.parametrize(
    "name",
    [
        *("", ".output", ".output/collector", ".venv/bin", ".venv/lib", "Makefile", "bpf", "src", "tools"),
        *("tools/copyscope", "tools/copyscope/taxonomy/taxonomy.tsv", "experiments/quick.toml", ".."),
        *(".venv/lib/module.py", ".venv/lib/copyscope.pth", ".venv/pyvenv.cfg"),
    ],
)  # fmt: skip
def test_a_path_that_others_may_write_is_named(tree: Path, name: str) -> None:
    path = tree / name
    path.chmod(0o777)
    danger = find_danger(str(tree), ME)
    assert danger is not None
    assert danger.startswith(f"{os.path.normpath(path)}: others may write this path")
    path.chmod(0o755)
    assert find_danger(str(tree), ME) is None


def test_a_sticky_parent_directory_is_trusted(tree: Path) -> None:
    tree.parent.chmod(0o1777)
    assert find_danger(str(tree), ME) is None


@pytest.mark.parametrize("gid", [0, 4242])
def test_write_access_of_a_group_is_safe_only_for_the_users_own_group(
    tree: Path, monkeypatch: pytest.MonkeyPatch, gid: int
) -> None:
    file = tree / "tools" / "copyscope" / "taxonomy" / "taxonomy.tsv"
    if os.geteuid() == 0:
        os.chown(file, -1, gid)
    file.chmod(0o664)
    gid = file.stat().st_gid
    own = pwd.getpwuid(os.getuid())
    eve = pwd.struct_passwd(("eve", "x", 4243, gid, "", "/", "/bin/sh"))
    for name, members, users, safe in (
        (own.pw_name, [], [own], True),
        (own.pw_name, [own.pw_name], [own], True),
        ("users", [], [own], False),
        (own.pw_name, ["eve"], [own], False),
        (own.pw_name, [], [own, eve], False),  # the group is Eve's primary group
    ):
        group = grp.struct_group((name, "x", gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, entry=group: entry)
        monkeypatch.setattr(pwd, "getpwall", lambda entries=users: entries)
        assert (find_danger(str(tree), ME) is None) == safe


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_tree_of_root_or_of_the_sudo_user_is_trusted(tree: Path) -> None:
    os.chown(tree / "src", 4242, -1)
    danger = find_danger(str(tree), {})
    assert danger is not None
    assert danger.startswith(f"{tree}/src: belongs to user 4242")
    assert find_danger(str(tree), {"SUDO_UID": "4242"}) is None
    assert find_danger(str(tree), {"COPYSCOPE_TRUST_UID": "4242"}) is None
    assert find_danger(str(tree), {"SUDO_UID": "1000"}) == danger
    for invalid_id in ("", "-1", "9" * 5000, "٣", "4242 "):
        assert find_danger(str(tree), {"SUDO_UID": invalid_id}) == danger


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_target_of_the_python_link_is_checked(tree: Path, tmp_path: Path) -> None:
    python = tree / ".venv" / "bin" / "python3"
    python.unlink()
    (tmp_path / "python3").write_text("")
    (tmp_path / "python3").chmod(0o777)
    python.symlink_to(tmp_path / "python3")
    danger = find_danger(str(tree), {})
    assert danger is not None
    assert danger.startswith(f"{tmp_path}/python3: others may write this path")


def test_targets_of_links_and_all_directories_on_the_way_are_checked(tree: Path, tmp_path: Path) -> None:
    """A room of the package, or the packages of the environment, may be a link to another directory."""
    for room in ("tools/copyscope/ledger", ".venv/lib/site-packages"):
        real = tmp_path / "real" / "room"
        real.mkdir(parents=True)
        (real / "rows.py").write_text("")
        middle = tmp_path / "way"
        middle.symlink_to("real")
        link = tree / room
        link.symlink_to(f"{middle}/room")
        for target in (real.parent, real, real / "rows.py"):
            target.chmod(0o755)
        assert find_danger(str(tree), ME) is None
        for target in (real / "rows.py", real, real.parent):
            target.chmod(0o777)
            danger = find_danger(str(tree), ME)
            assert danger is not None and danger.startswith(f"{target}: others may write this path")
            target.chmod(0o755)
        link.unlink()
        middle.unlink()
        shutil.rmtree(real.parent)


def test_a_dangling_link_into_a_shared_directory_is_named(tree: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tree / "src" / "main.c").symlink_to(shared / "main.c")
    assert find_danger(str(tree), ME) is None
    shared.chmod(0o1777)
    danger = find_danger(str(tree), ME)
    assert danger is not None and danger.startswith(f"{shared}: others may write this path")


def test_a_circle_of_links_is_named(tree: Path) -> None:
    (tree / "src" / "a").symlink_to("b")
    (tree / "src" / "b").symlink_to("a")
    danger = find_danger(str(tree), ME)
    assert danger is not None and "Too many levels of symbolic links" in danger


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Return an access control list as in linux/posix_acl_xattr.h: version 2, then (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, NAMED, GROUP, MASK, OTHERS, NOBODYS_ID = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF


@pytest.mark.parametrize(
    ("user", "permissions", "safe"), [(4242, 6, False), (4242, 4, True), (None, 6, True)]
)
def test_write_access_by_an_access_control_list_is_named(
    tree: Path, user: int | None, permissions: int, safe: bool
) -> None:
    """With an access control list, the group bits of the mode show the mask instead of the group."""
    file = tree / "tools" / "copyscope" / "taxonomy" / "taxonomy.tsv"
    named_user = os.getuid() if user is None else user
    entries = acl(
        (OWNER, 6, NOBODYS_ID),
        (NAMED, permissions, named_user),
        (GROUP, 4, NOBODYS_ID),
        (MASK, 6, NOBODYS_ID),
        (OTHERS, 4, NOBODYS_ID),
    )
    try:
        os.setxattr(file, "system.posix_acl_access", entries)
    except OSError as error:
        pytest.skip(f"this file system has no access control lists: {error}")
    assert file.stat().st_mode & 0o777 == 0o664
    danger = find_danger(str(tree), ME)
    assert (danger is None) == safe
    if danger is not None:
        assert danger.startswith(f"{file}: others may write this path") and f"setfacl -b {file}" in danger


def test_other_paths_are_checked_if_they_are_given(tree: Path) -> None:
    (tree / "tests").mkdir()
    (tree / "tests" / "conftest.py").write_text("")
    (tree / "tests" / "conftest.py").chmod(0o666)
    assert find_danger(str(tree), ME) is None
    danger = find_danger(str(tree), ME, ["tests", "requirements.txt"])
    assert danger is not None and danger.startswith(f"{tree}/tests/conftest.py: others may write this path")


def test_programs_of_root_get_only_harmless_variables() -> None:
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
    roots = environment_of_root(caller)
    visible = {name: value for name, value in roots.items() if not name.startswith("COPYSCOPE_CALLERS_")}
    assert visible == {
        "PATH": PATH, "TERM": "xterm", "LC_ALL": "C", "SUDO_UID": "1000", "HOME": "/home/eve",
        "https_proxy": "http://proxy:3128/",
    }  # fmt: skip
    assert environment_of_caller(roots) == caller
    assert environment_of_root(roots) == roots
    # A saved variable of the caller is no way to reach root's programs.
    assert environment_of_root({"COPYSCOPE_CALLERS_LD_PRELOAD": "evil.so"}) == environment_of_root(
        {"LD_PRELOAD": "evil.so"}
    )


def test_invalid_sizes_of_a_terminal_are_removed() -> None:
    invalid_values = ("9" * 5000, "", "-1", "٣", "1e3", "10000")
    for value in invalid_values:
        assert without_invalid_sizes({"COLUMNS": value, "LINES": value, "TERM": "x"}) == {"TERM": "x"}
    assert without_invalid_sizes({"COLUMNS": "80"}) == {"COLUMNS": "80"}


def test_a_caller_who_is_not_root_keeps_the_environment() -> None:
    caller = {"PATH": "/home/eve/bin", "EDITOR": "vi", "COLUMNS": "x"}
    called = {**caller, "PATH": PATH, "COPYSCOPE_CALLERS_PATH": "/home/eve/bin"}
    clean_environment(called, is_root=False)
    assert called == {"PATH": "/home/eve/bin", "EDITOR": "vi"}


def test_the_start_script_does_not_search_the_callers_path() -> None:
    assert f'COPYSCOPE_CALLERS_PATH="$PATH" PATH={PATH}\n' in (paths.ROOT / "bin" / "copyscope").read_text()
