"""The fleet by ansible-core, on this machine alone (ansible_connection=local): names, words, how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from copyscope.commands import fleet as command
from copyscope.fleet.by_ansible import environment

pytest.importorskip("ansible", reason="make .venv/.ready-ansible")


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


def run(place: Path, inventory: str, *words: str) -> int:
    (place / "hosts").write_text(inventory)
    options = ["--ansible", "--out", str(place / "out"), "--tree", str(place), "-q"]
    return command.main([str(place / "hosts"), *options, "--", "doctor", *words])


def test_words_that_look_like_templates_arrive_as_they_are(place: Path) -> None:
    words = ["{{ lookup('pipe', 'id') }}", "it's; $HOME", '"', "{% raw %}", "a\nb", "\x1b[2J", "../.."]
    python = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    assert run(place, f"one {python}\n", *words) == 0
    (kept,) = (place / "out").glob("host=one/date=*/*.json")
    assert json.loads(kept.read_text())["words"] == words


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


def test_without_ansible_the_next_step_is_said(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\n")
    code = f"""\
import sys
sys.path.insert(0, {str(Path(command.__file__).parents[2])!r})
import importlib.util as util
find = util.find_spec
from copyscope.fleet import by_ansible
by_ansible.find_spec = lambda name: None if name == "ansible" else find(name)
from copyscope.commands import fleet
sys.exit(fleet.main([{str(tmp_path / "hosts")!r}, "--ansible", "--", "doctor"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "fleet: --ansible: ansible-core is missing: make .venv/.ready-ansible\n",
    )
