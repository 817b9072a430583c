"""Two hosts: what two collectors said as one record, and how another machine is spoken to."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.two_hosts import on_two_hosts
from copyscope.errors import RunError, UsageError
from copyscope.hosts import Far, hosts_of
from copyscope.ledger.derive import derive
from copyscope.machine import elsewhere, fingerprint
from copyscope.places import Here, OnHost
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage
from copyscope.record import store, two_hosts


def test_each_side_has_its_own_clock_kernel_and_processors() -> None:
    raw = raw_record("zero_copy")
    alone, made = derive(raw), derive(on_two_hosts(raw))
    assert store.validate(made) == []
    held = {row["name"]: row["holds"] for row in made["identities"]}
    assert [name for name, holds in held.items() if holds is False] == []
    assert made["ledger"] == alone["ledger"]
    capacity = next(row for row in made["identities"] if row["name"] == "within_cpus")
    one = next(row for row in alone["identities"] if row["name"] == "within_cpus")
    assert capacity["tolerance"] > one["tolerance"], "a CPU more"


def test_a_hook_that_one_kernel_lacks_is_unknown_on_that_side_alone() -> None:
    raw = on_two_hosts(raw_record("one_copy"))
    for row in raw["hooks"]:
        if row["side"] == "receiver" and row["id"].startswith("copy_out_bytes"):
            row |= {"state": "missing", "how": None, "reason": "this kernel has no such place"}
    identities = {row["name"]: row for row in derive(raw)["identities"]}
    assert identities["sent_bytes"]["holds"] is True
    assert identities["received_split"]["holds"] is None
    assert "this kernel has no such place" in identities["received_split"]["reason"]


def report(side: str, *, enabled_ns: int, lost: int) -> dict[str, Any]:
    row = {"side": side, "hook": "x", "calls": 1, "bytes": 5}
    sampler = {"events": [{"name": "cpu-clock"}], "enabled_ns": enabled_ns}
    return {
        **{"event": "report", "hooks": [{"id": "a"}], "bytes": [row], "calls": [row], "sampler": sampler},
        "samples": [{"side": side}, {"side": "other"}],
        "functions": {},
        "loss": {"map_full": lost, "recursion": {"count": None, "reason": "it is not told"}},
    }


def test_two_reports_are_one_in_which_each_row_is_of_its_side() -> None:
    sent = report("sender", enabled_ns=100, lost=2)
    received = report("receiver", enabled_ns=300, lost=3)
    both = two_hosts.join({"sender": sent, "receiver": received})
    assert both["hooks"] == [{"id": "a", "side": "sender"}, {"id": "a", "side": "receiver"}]
    assert [row["side"] for row in both["bytes"]] == ["sender", "receiver"]
    assert [row["side"] for row in both["samples"]] == ["sender", "other", "receiver", "other"]
    assert both["loss"] == {"map_full": 5, "recursion": {"count": None, "reason": "it is not told"}}
    assert both["sampler"] == {"events": [{"name": "cpu-clock"}], "enabled_ns": 300}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--receiver-at", "here"], "--receiver-at: one of the two sides must be on another machine"),
        (["--receiver-at", "web2", "--mtu", "9000"], "--mtu: copyscope changes nothing on other machines"),
        (
            ["--sender-at", "web2", "--topology", "loopback"],
            "--topology loopback: --sender-at and --receiver-at define",
        ),
        (["--sender-at", "web2", "--instruments", "functions"], "--instruments: function hooks work on one"),
    ],
)
def test_options_that_two_hosts_cannot_have_are_refused(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_usage(parser().parse_args(options))


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "a\x1b[2J", "web2\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        hosts_of(None, name or "-")


def test_one_machine_for_both_sides_is_refused() -> None:
    with pytest.raises(UsageError, match="the same machine"):
        hosts_of("web2", "web2")


def test_another_machines_files_stay_below_ours(tmp_path: Path) -> None:
    """And its fingerprint is read from them by the same code."""
    said = (
        "proc/sys/kernel/osrelease:7.2.13\nproc/sys/kernel/hostname:web2\n/etc/passwd:x\nproc/../../up:x\n"
        "proc/../x:y\nno colon\nproc/cpuinfo:model name: a: b\nsys/devices/system/cpu/online:0-3\n"
        "boot/config-7.2.13:# CONFIG_IRQ_TIME_ACCOUNTING is not set\n"
    )
    below = tmp_path / "below"
    below.mkdir()
    elsewhere.write(said, below)
    assert [path.name for path in tmp_path.iterdir()] == ["below"]
    found = fingerprint.describe(root=below, tools={})
    assert (found["kernel"], found["hostname"], found["cpus_online"]) == ("7.2.13", "web2", 4)
    assert (found["cpu_model"], found["irq_time_accounting"]) == ("a: b", False)


def test_a_command_runs_here_or_by_ssh_which_asks_nothing() -> None:
    words = ["echo", "it's; $HOME"]
    assert Here().argv(words) == words
    assert Here().argv(words, become=True) == ["sudo", "-n", "--", *words]
    argv = OnHost("admin@web1").argv(words, become=True)
    assert argv[-3:] == ["--", "admin@web1", "sudo -n -- echo 'it'\"'\"'s; $HOME'"]
    options = dict(word.split("=", 1) for word in argv[2:-3:2])
    assert argv[0] == "ssh" and set(argv[1:-3:2]) == {"-o"}
    assert options["BatchMode"] == "yes" and options["ControlMaster"] == "no"
    # ssh itself takes each of them.
    known = subprocess.run(
        ["ssh", "-G", "-F", "none", *argv[1:-2], "h"], check=False, capture_output=True, timeout=10
    )
    assert known.returncode == 0, known.stderr


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is looked into before all others; its `ssh` runs on this machine what it is given."""
    made = tmp_path / "programs"
    made.mkdir()
    program(made / "ssh", 'for last; do :; done\nexec sh -c "$last"')
    monkeypatch.setenv("PATH", f"{made}:{os.environ['PATH']}")
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sockets").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "sockets"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 5 192.0.2.2 22")
    (tmp_path / "tree" / ".output").mkdir(parents=True)
    for name in ("collector", "traffic"):
        program(tmp_path / "tree" / ".output" / name, "exec cat")
    return made


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_host_is_spoken_to_while_it_is_held(programs: Path, tmp_path: Path) -> None:
    program(programs / "id", "echo 0")
    with Far("web2", str(tmp_path / "tree")) as host:
        assert (host.user.uid, host.become) == (0, False)
        assert host.connection == ("192.0.2.1", "5", "192.0.2.2", "22")
        assert host.collector(["--x"])[-1] == f"{tmp_path}/tree/.output/collector --x"
        assert host.run(["echo", "a 'b'"], "no step") == "a 'b'\n"
        with pytest.raises(RunError, match=r"web2: ls: .*No such file or directory: look there"):
            host.run(["ls", "/nowhere"], "look there")
        assert host.machine()["kernel"] == os.uname().release
        assert host.load(os.getpid())["cpus"] == os.cpu_count()
        assert host.why_gone() is None
    assert list((tmp_path / "sockets").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "programs/sudo",
            "echo 'sudo: a password is required' >&2; exit 1",
            "web2: sudo: a password is required: allow sudo without a password there, or log in as root",
        ),
        (
            "programs/ssh",
            "echo 'Host key verification failed.' >&2; exit 255",
            "web2: Host key verification failed: make sure `ssh web2 true` works without a prompt",
        ),
        (
            "programs/ssh",
            "head -c 100000 /dev/zero; exec sleep 60",
            "web2: its first line is unexpected: its login shell",
        ),
        (
            "programs/ssh",
            "yes | head -c 3000000 >&2; echo 'Connection refused.' >&2; exit 255",
            "web2: (2.80 MiB before it left out) Connection refused: make sure `ssh web2 true` works",
        ),
        # A shell puts its own name before what it says, which must not be all of the text that it runs.
        (
            "programs/ssh",
            'for last; do :; done; cd "${0%/*}"; rm sudo; ln -s /bin/sh .; PATH=$PWD exec sh -c "$last"',
            "sudo: not found: allow sudo without a password there, or log in as root",
        ),
        (
            "tree/.output/traffic",
            "echo 'libbpf.so.1: cannot open shared object file' >&2; exit 127",
            "web2: libbpf.so.1: cannot open shared object file: install copyscope there, or give its",
        ),
        ("tree/.output/collector", None, "/collector: not found: install copyscope there, or give its"),
    ],
)
def test_what_keeps_us_out_is_one_line(
    programs: Path, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    program(programs / "id", "echo 1000")
    # -n and the command
    program(programs / "sudo", 'shift\nexec "$@"')
    if text is None:
        (tmp_path / name).unlink()
    else:
        program(tmp_path / name, text)
    with pytest.raises(RunError) as caught, Far("web2", str(tmp_path / "tree")):
        pass
    assert said in str(caught.value) and len(str(caught.value)) <= 400 and "\n" not in str(caught.value)
    assert list((tmp_path / "sockets").iterdir()) == []


def test_when_we_are_killed_nothing_of_ours_stays_here(programs: Path, tmp_path: Path) -> None:
    """The directory of ssh's socket: whoever made it cannot remove it any more."""
    program(programs / "id", "echo 0")
    held = (
        "import sys, time; from copyscope.hosts import Far\n"
        "with Far('web2', sys.argv[1]): print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", held, str(tmp_path / "tree")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline() == b"held\n"
        assert len(list((tmp_path / "sockets").iterdir())) == 1
        running.kill()
    end = time.monotonic() + 5
    while list((tmp_path / "sockets").iterdir()):
        assert time.monotonic() < end, "it stayed"
        time.sleep(0.05)
