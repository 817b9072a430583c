# SPDX-License-Identifier: GPL-2.0-only
"""Two hosts: one record from the reports of two collectors, and commands that run on another machine."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive, validate
from builders.two_hosts import on_two_hosts
from copyscope.base.errors import RunError, UsageError
from copyscope.base.programs import RemoteHost, ThisMachine
from copyscope.machine import fingerprint, hosts
from copyscope.machine.hosts import FarHost, hosts_of
from copyscope.plan.arguments import parser
from copyscope.plan.options import check_usage
from copyscope.record import messages


def test_each_side_has_its_own_clock_kernel_and_processors() -> None:
    raw = raw_record("zero_copy")
    alone, between_hosts = derive(raw), derive(on_two_hosts(raw))
    assert validate(between_hosts) == []
    holds_by_name = {row["name"]: row["holds"] for row in between_hosts["identities"]}
    assert [name for name, holds in holds_by_name.items() if holds is False] == []
    assert between_hosts["ledger"] == alone["ledger"]
    capacity = next(row for row in between_hosts["identities"] if row["name"] == "within_cpus")
    capacity_alone = next(row for row in alone["identities"] if row["name"] == "within_cpus")
    assert capacity["tolerance"] > capacity_alone["tolerance"], "a CPU more"


def test_a_hook_that_one_kernel_lacks_is_unknown_only_on_that_host() -> None:
    raw = on_two_hosts(raw_record("one_copy"))
    for row in raw["hooks"]:
        if row["side"] == "receiver" and row["id"].startswith("copy_out_bytes"):
            row |= {"state": "missing", "how": None, "reason": "this kernel has no such place"}
    identities = {row["name"]: row for row in derive(raw)["identities"]}
    assert identities["sent_bytes"]["holds"] is True
    assert identities["received_split"]["holds"] is None
    assert "this kernel has no such place" in identities["received_split"]["reason"]


def report(side: str, *, enabled_ns: int, lost: int) -> Any:
    row = {"side": side, "hook": "x", "calls": 1, "bytes": 5}
    sampler = {"events": [{"name": "cpu-clock"}], "enabled_ns": enabled_ns}
    return {
        **{"event": "report", "hooks": [{"id": "a"}], "bytes": [row], "calls": [row], "sampler": sampler},
        "samples": [{"side": side}, {"side": "other"}],
        "functions": {},
        "loss": {"map_full": lost, "recursion": {"count": None, "reason": "it is not told"}},
    }


def test_joined_reports_keep_the_side_of_each_row() -> None:
    sent = report("sender", enabled_ns=100, lost=2)
    received = report("receiver", enabled_ns=300, lost=3)
    joined: Any = messages.join_reports({"sender": sent, "receiver": received})
    assert joined["hooks"] == [{"id": "a", "side": "sender"}, {"id": "a", "side": "receiver"}]
    assert [row["side"] for row in joined["bytes"]] == ["sender", "receiver"]
    assert [row["side"] for row in joined["samples"]] == ["sender", "other", "receiver", "other"]
    assert joined["loss"] == {"map_full": 5, "recursion": {"count": None, "reason": "it is not told"}}
    assert joined["sampler"] == {"events": [{"name": "cpu-clock"}], "enabled_ns": 300}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--receiver-at", "here"], "--receiver-at: sender or receiver must be on another machine"),
        (
            ["--receiver-at", "web2", "--mtu", "9000"],
            "--mtu: copyscope changes no settings of other machines",
        ),
        (
            ["--sender-at", "web2", "--topology", "loopback"],
            "--topology loopback: --sender-at and --receiver-at define",
        ),
        (["--sender-at", "web2", "--instruments", "functions"], "--instruments: function hooks work on one"),
    ],
)
def test_options_that_do_not_fit_two_hosts_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_usage(parser().parse_args(options))


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "a\x1b[2J", "web2\n"])
def test_an_invalid_host_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        hosts_of(None, name or "-")


def test_one_machine_for_both_sides_is_refused() -> None:
    with pytest.raises(UsageError, match="both options name the same machine"):
        hosts_of("web2", "web2")


def test_files_of_another_machine_stay_in_their_directory(tmp_path: Path) -> None:
    """The fingerprint of the other machine is read from these files by the usual code."""
    output = (
        "proc/sys/kernel/osrelease:7.2.13\nproc/sys/kernel/hostname:web2\n/etc/passwd:x\nproc/../../up:x\n"
        "proc/../x:y\nno colon\nproc/cpuinfo:model name: a: b\nsys/devices/system/cpu/online:0-3\n"
        "boot/config-7.2.13:# CONFIG_IRQ_TIME_ACCOUNTING is not set\n"
    )
    below = tmp_path / "below"
    below.mkdir()
    hosts.write_files(output, below)
    assert [path.name for path in tmp_path.iterdir()] == ["below"]
    machine = fingerprint.describe_machine(root=below, tools={})
    assert (machine.kernel, machine.hostname, machine.cpus_online) == ("7.2.13", "web2", 4)
    assert (machine.cpu_model, machine.irq_time_accounting) == ("a: b", False)


def test_a_command_runs_here_or_by_ssh_without_a_prompt() -> None:
    words = ["echo", "it's; $HOME"]
    assert ThisMachine().argv(words) == words
    assert ThisMachine().argv(words, become=True) == ["sudo", "-n", "--", *words]
    argv = RemoteHost("admin@web1").argv(words, become=True)
    assert argv[-3:] == ["--", "admin@web1", "sudo -n -- echo 'it'\"'\"'s; $HOME'"]
    options = dict(word.split("=", 1) for word in argv[2:-3:2])
    assert argv[0] == "ssh" and set(argv[1:-3:2]) == {"-o"}
    assert options["BatchMode"] == "yes" and options["ControlMaster"] == "no"
    # The installed ssh accepts each option.
    accepted = subprocess.run(
        ["ssh", "-G", "-F", "none", *argv[1:-2], "h"], check=False, capture_output=True, timeout=60
    )
    assert accepted.returncode == 0, accepted.stderr


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory at the front of PATH. Its `ssh` runs the given command on this machine."""
    directory = tmp_path / "programs"
    directory.mkdir()
    program(directory / "ssh", 'for last; do :; done\nexec sh -c "$last"')
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sockets").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "sockets"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 5 192.0.2.2 22")
    (tmp_path / "tree" / ".output").mkdir(parents=True)
    for name in ("collector", "traffic"):
        program(tmp_path / "tree" / ".output" / name, "exec cat")
    return directory


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_open_host_runs_commands_and_reports_its_state(programs: Path, tmp_path: Path) -> None:
    program(programs / "id", "echo 0")
    with FarHost("web2", str(tmp_path / "tree")) as host:
        assert (host.user.uid, host.become) == (0, False)
        assert host.connection == ("192.0.2.1", "5", "192.0.2.2", "22")
        assert host.collector(["--x"])[-1] == f"{tmp_path}/tree/.output/collector --x"
        assert host.run(["echo", "a 'b'"], "no step") == "a 'b'\n"
        with pytest.raises(RunError, match=r"web2: ls: .*No such file or directory; look there"):
            host.run(["ls", "/nowhere"], "look there")
        assert host.machine().kernel == os.uname().release
        assert host.load(os.getpid()).cpus == os.cpu_count()
        assert host.why_gone() is None
    assert list((tmp_path / "sockets").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "programs/sudo",
            "echo 'sudo: a password is required' >&2; exit 1",
            "web2: sudo: a password is required; allow sudo without a password there, or log in as root",
        ),
        (
            "programs/ssh",
            "echo 'Host key verification failed.' >&2; exit 255",
            "web2: Host key verification failed; make sure `ssh web2 true` works without a prompt",
        ),
        (
            "programs/ssh",
            "head -c 100000 /dev/zero; exec sleep 60",
            "web2: unexpected output at login; make its login shell",
        ),
        (
            "programs/ssh",
            "yes | head -c 3000000 >&2; echo 'Connection refused.' >&2; exit 255",
            "web2: (2.80 MiB of earlier output left out) Connection refused; make sure `ssh web2 true` works",
        ),
        # A shell puts $0 before its messages. It must not be the whole script.
        (
            "programs/ssh",
            'for last; do :; done; cd "${0%/*}"; rm sudo; ln -s /bin/sh .; PATH=$PWD exec sh -c "$last"',
            "sudo: not found; allow sudo without a password there, or log in as root",
        ),
        (
            "tree/.output/traffic",
            "echo 'libbpf.so.1: cannot open shared object file' >&2; exit 127",
            "web2: libbpf.so.1: cannot open shared object file; install copyscope there, or give its",
        ),
        ("tree/.output/collector", None, "/collector: not found; install copyscope there, or give its"),
    ],
)
def test_a_host_that_cannot_be_used_is_an_error_in_one_line(
    programs: Path, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    program(programs / "id", "echo 1000")
    # $1 is -n, and the command follows
    program(programs / "sudo", 'shift\nexec "$@"')
    if text is None:
        (tmp_path / name).unlink()
    else:
        program(tmp_path / name, text)
    with pytest.raises(RunError) as caught, FarHost("web2", str(tmp_path / "tree")):
        pass
    assert message in str(caught.value) and len(str(caught.value)) <= 400 and "\n" not in str(caught.value)
    assert list((tmp_path / "sockets").iterdir()) == []


def test_after_a_kill_the_socket_directory_is_removed(programs: Path, tmp_path: Path) -> None:
    """A killed copyscope cannot remove the directory of ssh's socket itself."""
    program(programs / "id", "echo 0")
    script = (
        "import sys, time; from copyscope.machine.hosts import FarHost\n"
        "with FarHost('web2', sys.argv[1]): print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "tree")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline() == b"held\n"
        assert len(list((tmp_path / "sockets").iterdir())) == 1
        running.kill()
    deadline = time.monotonic() + 5
    while list((tmp_path / "sockets").iterdir()):
        assert time.monotonic() < deadline, "it stayed"
        time.sleep(0.05)
