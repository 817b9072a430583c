# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope fleet` by ansible-core on this machine (ansible_connection=local)."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from copyscope.commands import fleet
from copyscope.fleet import ansible
from copyscope.fleet.ansible import ansible_environment

pytest.importorskip("ansible", reason="make .venv/.ready-ansible")

pytestmark = pytest.mark.all  # each run of ansible takes two seconds
LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable}"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a tree with a copyscope that prints its arguments. ansible has default settings."""
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "bin").mkdir()
    script = f"""\
#!{sys.executable}
import json, sys
print(json.dumps({{"works": True, "sentence": "", "findings": [], "words": sys.argv[4:]}}))
"""
    (tmp_path / "bin" / "copyscope").write_text(script)
    (tmp_path / "bin" / "copyscope").chmod(0o755)
    return tmp_path


def run(tree: Path, inventory: str, *words: str, more: tuple[str, ...] = ()) -> int:
    (tree / "hosts").write_text(inventory)
    options = ["--out", str(tree / "out"), "--tree", str(tree), "-q", *more]
    return fleet.main([str(tree / "hosts"), *options, "--", "doctor", *words])


def test_arguments_that_look_like_templates_arrive_unchanged(tree: Path) -> None:
    words = ["{{ lookup('pipe', 'id') }}", "it's; $HOME", '"', "{% raw %}", "a\nb", "\x1b[2J", "../.."]
    assert run(tree, f"one {LOCAL}\n", *words) == 0
    (kept,) = (tree / "out").glob("host=one/date=*/*.json")
    assert json.loads(kept.read_text())["words"] == words


def test_answering_and_failing_hosts_are_rows_of_one_table(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    inventory = f"""\
one {LOCAL}
bare ansible_connection=local ansible_python_interpreter=/nowhere/python3
away.invalid
"""
    assert run(tree, inventory) == 1
    table = capsys.readouterr().out
    assert "doctor: 1 of 3 hosts ok" in table
    assert "1 of 3 unreachable: away.invalid: " in table and "1 of 3 failed: bare: " in table
    assert [path.parts[-3] for path in (tree / "out").rglob("*.json")] == ["host=one"]
    (tree / "bin" / "copyscope").unlink()
    assert run(tree, f"one {LOCAL}\n") == 1
    assert "install copyscope there, or give its directory with --tree" in capsys.readouterr().out


def test_command_beyond_the_timeout_is_killed_on_its_host(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command and its child ignore SIGTERM, and are killed."""
    pids = tree / "pids"
    script = f"#!/bin/sh\ntrap '' TERM\nsleep 60 & echo $$ $! > {pids}\nwait\n"
    (tree / "bin" / "copyscope").write_text(script)
    assert run(tree, f"one {LOCAL}\n", more=("--timeout", "2")) == 1
    assert "1 of 1 timed out: one: did not end within 2 s" in capsys.readouterr().out
    assert [pid for pid in pids.read_text().split() if is_alive(pid)] == []


def is_alive(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    return False


def test_hosts_are_given_as_a_file_or_as_names_with_commas(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "ansible.cfg").write_text("[defaults]\ntransport = local\n")
    words = ["--out", str(tree / "out"), "--tree", str(tree), "-q", "--", "doctor"]
    assert fleet.main(["one,two", *words]) == 0
    assert {path.parts[-3] for path in (tree / "out").rglob("*.json")} == {"host=one", "host=two"}
    assert fleet.main(["one", *words]) == 2
    assert "give an ansible inventory, or hosts separated by commas" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../../etc", "a$(id)"])
def test_invalid_host_names_are_refused_before_anything_runs(
    tree: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    inventory = json.dumps({"all": {"hosts": {name: {"ansible_connection": "local"}, "good": {}}}})
    assert run(tree, inventory) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "not a host name" in errors
    assert not (tree / "out").exists()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [("[ssh_connection]\nssh_args = -o ProxyJump=door\n", None), ("[defaults]\n", "-o ControlMaster=no")],
)
def test_ssh_settings_of_the_user_are_kept(tree: Path, settings: str, kept: str | None) -> None:
    (tree / "ansible.cfg").write_text(settings)
    ssh_args = ansible_environment().get("ANSIBLE_SSH_ARGS")
    assert ssh_args is None if kept is None else ssh_args is not None and ssh_args.startswith(kept)


def test_inventory_without_hosts_is_an_error_of_one_line(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree, "[empty]\n") == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1 and "no host matches" in errors


def test_missing_ansible_is_named_with_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(ansible, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fleet.main(["web1,", "--", "doctor"]) == 1
    assert capsys.readouterr().err == (
        "copyscope fleet: ansible-core is missing; apt install ansible-core, or in a source tree"
        " make .venv/.ready-ansible\n"
    )
