"""The fleet by ansible-core, on this machine alone (ansible_connection=local): names, words, how it ends."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from copyscope.commands import fleet as command
from copyscope.fleet import ansible
from copyscope.fleet.ansible import environment

pytest.importorskip("ansible", reason="make .venv/.ready-ansible")

pytestmark = pytest.mark.all  # each run of ansible takes two seconds
LOCAL = f"ansible_connection=local ansible_python_interpreter={sys.executable}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a copyscope that says its words, and an ansible of nobody's settings."""
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


def run(place: Path, inventory: str, *words: str, more: tuple[str, ...] = ()) -> int:
    (place / "hosts").write_text(inventory)
    options = ["--out", str(place / "out"), "--tree", str(place), "-q", *more]
    return command.main([str(place / "hosts"), *options, "--", "doctor", *words])


def test_words_that_look_like_templates_arrive_as_they_are(place: Path) -> None:
    words = ["{{ lookup('pipe', 'id') }}", "it's; $HOME", '"', "{% raw %}", "a\nb", "\x1b[2J", "../.."]
    assert run(place, f"one {LOCAL}\n", *words) == 0
    (kept,) = (place / "out").glob("host=one/date=*/*.json")
    assert json.loads(kept.read_text())["words"] == words


def test_a_host_that_answers_and_two_that_do_not_are_rows_of_one_table(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    inventory = f"""\
one {LOCAL}
bare ansible_connection=local ansible_python_interpreter=/nowhere/python3
away.invalid
"""
    assert run(place, inventory) == 1
    table = capsys.readouterr().out
    assert "doctor on 3 hosts  1 ok" in table
    assert "1 of 3 unreachable: away.invalid: " in table and "1 of 3 failed: bare: " in table
    assert [path.parts[-3] for path in (place / "out").rglob("*.json")] == ["host=one"]
    (place / "bin" / "copyscope").unlink()
    assert run(place, f"one {LOCAL}\n") == 1
    assert "install copyscope there, or give its directory with --tree" in capsys.readouterr().out


def test_what_takes_too_long_is_ended_there(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It and what it has started, though neither goes by itself."""
    pids = place / "pids"
    script = f"#!/bin/sh\ntrap '' TERM\nsleep 60 & echo $$ $! > {pids}\nwait\n"
    (place / "bin" / "copyscope").write_text(script)
    assert run(place, f"one {LOCAL}\n", more=("--timeout", "2")) == 1
    assert "1 of 1 timed out: one: no end within 2 s" in capsys.readouterr().out
    assert [pid for pid in pids.read_text().split() if is_alive(pid)] == []


def is_alive(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    return False


def test_hosts_are_a_file_or_names_with_a_comma(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "ansible.cfg").write_text("[defaults]\ntransport = local\n")
    words = ["--out", str(place / "out"), "--tree", str(place), "-q", "--", "doctor"]
    assert command.main(["one,two", *words]) == 0
    assert {path.parts[-3] for path in (place / "out").rglob("*.json")} == {"host=one", "host=two"}
    assert command.main(["one", *words]) == 2
    assert "give an inventory of ansible, or hosts with commas" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../../etc", "a$(id)"])
def test_names_that_ansible_reads_are_checked_before_anything_runs(
    place: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    inventory = json.dumps({"all": {"hosts": {name: {"ansible_connection": "local"}, "good": {}}}})
    assert run(place, inventory) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "not a host name" in said
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [("[ssh_connection]\nssh_args = -o ProxyJump=door\n", None), ("[defaults]\n", "-o ControlMaster=no")],
)
def test_what_the_user_has_set_for_ssh_holds(place: Path, settings: str, kept: str | None) -> None:
    (place / "ansible.cfg").write_text(settings)
    found = environment().get("ANSIBLE_SSH_ARGS")
    assert found is None if kept is None else found is not None and found.startswith(kept)


def test_an_inventory_without_hosts_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "[empty]\n") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no host in it" in said


def test_without_ansible_the_next_step_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(ansible, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["web1,", "--", "doctor"]) == 1
    assert capsys.readouterr().err == (
        "copyscope: ansible-core is missing: apt install ansible-core, or in a source tree"
        " make .venv/.ready-ansible\n"
    )
