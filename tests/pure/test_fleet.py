"""The fleet: who is asked, where a command runs, what came of each host, and that nothing of it stays."""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from copyscope import VERSION, paths
from copyscope.commands import fleet as command
from copyscope.commands.verbs import VERBS
from copyscope.errors import UsageError
from copyscope.fleet import by_ssh, inventory, outliers
from copyscope.fleet.answers import Row, copied_share, judge
from copyscope.fleet.by_ssh import GUARD, Answer, Job, ask, ask_all
from copyscope.ledger.derive import derive
from copyscope.places import Here, InNamespace, OnHost, Place
from copyscope.record import store

FACTS = b'{"kernel": "6.12.1", "arch": "x86_64", "nics": ["mlx5_core"]}\n'


def answer(status: int | None, output: bytes = FACTS, errors: bytes = b"", seconds: float = 2.0) -> Answer:
    return Answer(status, output, errors, seconds)


def said(document: Any) -> bytes:
    return FACTS + json.dumps(document).encode()


def test_a_command_runs_here_in_a_namespace_or_by_ssh_which_asks_nothing() -> None:
    words = ["echo", "it's; $HOME"]
    assert Here().argv(words) == words
    assert Here().argv(words, become=True) == ["sudo", "-n", "--", *words]
    assert InNamespace("a").argv(words) == ["nsenter", "--net=/run/netns/a", "--", *words]
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


def test_an_inventory_is_a_host_a_line() -> None:
    hosts = inventory.parse(
        "web1\n  admin@web2.example  # old\n\n# none\nhere\nnetns:a\n[::1]\n"[:-6], "hosts"
    )
    assert list(hosts) == ["web1", "admin@web2.example", "here", "netns:a"]
    assert list(hosts.values()) == [OnHost("web1"), OnHost("admin@web2.example"), Here(), InNamespace("a")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host in it"),
        ("web1\n-oProxyCommand=sh\n", "hosts:2: -oProxyCommand=sh: not a host name"),
        ("../../etc\n", "not a host name"),
        ("a/b\n", "not a host name"),
        ("web'1\n", "not a host name"),
        ("web\x1b[2J\n", "web␛[2J: not a host name"),
        ("netns:../x\n", "not a host name"),
        ("[web]\n", "an inventory of ansible is read with --ansible"),
        ("web1 ansible_user=x\n", "not one host"),
        ("web1\nweb1\n", "hosts:2: web1: named twice"),
    ],
)
def test_what_is_no_host_is_refused_before_anything_runs(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        inventory.parse(text, "hosts")
    assert why in str(refused.value) and "\x1b" not in str(refused.value)


# What ssh and sudo say is copied from OpenSSH 9.2 and sudo 1.9.13.
@pytest.mark.parametrize(
    ("answered", "state", "cause"),
    [
        (
            answer(255, b"", b"ssh: connect to host h port 22: Connection refused\r\n"),
            "unreachable",
            "ssh: connect to host h port 22: Connection refused: make `ssh h true` work without a question",
        ),
        (answer(255, b"", b"root@h: Permission denied (publickey).\n"), "unreachable", "Permission denied"),
        (
            answer(255, FACTS, b"client_loop: send disconnect: Broken pipe\n"),
            "unreachable",
            "broke after 2 s",
        ),
        (answer(None, seconds=300), "timed out", "no end within 300 s: --timeout waits longer"),
        (
            answer(1, b"", b"sudo: a password is required\n"),
            "failed",
            "without a password, or log in as root",
        ),
        (answer(127, b"", b"bash: line 1: python3: command not found\n"), "failed", "install Python 3 there"),
        (answer(127, FACTS, b"/opt/x/tools/doctor.py: No such file\n"), "failed", "/opt/x/tools/doctor.py"),
        (answer(0), "failed", "not what doctor says"),
        (answer(0, b"Welcome!\n" + FACTS), "failed", "its login shell must print nothing"),
        (answer(0, FACTS + b"[" * 100_000), "failed", "not what doctor says"),
        (answer(0, said({"works": 1})), "failed", "not what doctor says"),
        (answer(1, FACTS, b"doctor: \x1b]0;owned\x07\n"), "failed", "doctor: ␛]0;owned␇"),
    ],
)
def test_whatever_happens_to_a_host_is_a_row_with_its_cause(answered: Answer, state: str, cause: str) -> None:
    row = judge("h", "doctor", answered)
    assert row.state == state and row.cause is not None and cause in row.cause
    assert "\n" not in row.cause and "\x1b" not in row.cause and row.document is None


def test_a_record_of_another_host_is_believed_only_when_it_is_whole() -> None:
    record = derive(raw_record("zero_copy"))
    row = judge("h", "run", answer(0, FACTS + store.serialise(record)))
    assert (row.state, row.valid, row.copied) == ("ok", True, 1.0)
    assert row.facts is not None and (row.facts.kernel, row.facts.nics) == ("6.12.1", ["mlx5_core"])
    assert row.traits["zero-copy sends"].startswith("copied after all: ")
    del record["ledger"]
    row = judge("h", "run", answer(0, FACTS + store.serialise(record)))
    assert (row.state, row.document) == ("failed", None)
    assert row.cause is not None and "not a whole record: ledger" in row.cause
    assert judge("h", "run", answer(0, FACTS + b'{"schema": 99}')).state == "failed"


def test_hosts_are_alike_in_whether_one_strategy_overtakes_and_unlike_in_the_size() -> None:
    """Of a crossover without a valid run nothing is believed."""
    at = {"pair": ["one_copy", "zero_copy"], "quantity": "goodput_gbps", "threads": 1, "verdict": "crosses"}
    document = {
        "schema": 1,
        "kind": "crossover",
        "valid_runs": 6,
        "sentence": "above 32 KiB",
        "crossovers": [at],
    }
    row = judge("h", "crossover", answer(0, said(document)))
    assert (row.state, dict(row.traits)) == (
        "ok",
        {"one_copy and zero_copy, goodput_gbps, threads 1": "crosses"},
    )
    row = judge("h", "crossover", answer(1, said(document | {"valid_runs": 0, "sentence": "undetermined"})))
    assert (row.state, row.cause) == ("failed", "undetermined")
    assert judge("h", "crossover", answer(0, said(document | {"crossovers": 1}))).state == "failed"


def test_what_was_copied_without_the_flag_is_copied() -> None:
    share = {"completions": 10, "copied": 0, "bytes_silent": 30, "bytes_zero_copy": 10}
    assert copied_share(share) == 0.75
    assert copied_share({**share, "bytes_silent": 0}) == 0.0
    assert copied_share({**share, "copied": 5, "bytes_silent": None}) == 0.5
    assert copied_share({**share, "copied": None}) is None
    assert copied_share({}) is None


def test_who_is_unlike_the_others_is_said() -> None:
    rows = [Row(f"h{n}", "ok", traits={"a": "works", "b": f"{n % 2}"}) for n in range(6)]
    rows += [Row("x", "ok", traits={"a": "mis\x1bsing"})]
    rows += [Row(n, "unreachable", cause=f"connect to {n}: refused") for n in ("p", "q")]
    said = outliers.find(rows)
    assert said[0] == "2 of 9 unreachable: p, q: connect to p: refused"
    assert "1 of 7: a: mis␛sing: x; on the others works" in said
    assert "3 of 6: b: 0: h0, h2, h4" in said and "3 of 6: b: 1: h1, h3, h5" in said
    assert len(said) == 4
    assert outliers.named(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"


# The guard, which runs on the other host, and what asks it.


def asked(*argv: str, timeout_s: float = 20.0, bundle: bytes = b"") -> Answer:
    return asyncio.run(ask(Here(), Job(argv, False, timeout_s, bundle)))


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    return False


def wait_for(file: Path) -> str:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if file.exists() and (text := file.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.01)
    raise AssertionError(f"{file}: nothing in it")


def test_a_command_says_what_it_has_to_say_and_ends_with_its_own_status() -> None:
    found = asked("sh", "-c", "echo out; echo err >&2; exit 7")
    first, rest = found.output.split(b"\n", 1)
    assert json.loads(first)["kernel"] == os.uname().release
    assert (found.status, rest, found.errors) == (7, b"out\n", b"err\n")
    found = asked("/nowhere/tools/doctor.py")
    assert (found.status, found.errors) == (127, b"/nowhere/tools/doctor.py: No such file or directory\n")


@dataclass(frozen=True)
class Odd(Here):
    """An ssh that behaves oddly, as a shell does it."""

    script: str

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        del command, become
        return ["sh", "-c", self.script]


@pytest.mark.timeout(20)
def test_who_says_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the rest: waiting for the end of that would have no end."""
    monkeypatch.setattr(by_ssh, "OUTPUT_MAX_BYTES", 1 << 20)
    found = asyncio.run(ask(Odd("exec yes"), Job((), False, 60.0)))
    assert found.status == 1 and b"more than 1 MiB" in found.errors and len(found.output) < 2 << 20


@pytest.mark.timeout(20)
def test_what_an_ssh_has_started_and_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ProxyCommand has the standard error of its ssh, and may outlive it."""
    monkeypatch.setattr(by_ssh, "END_S", 0.5)
    found = asyncio.run(ask(Odd("sleep 15 & exec sleep 16"), Job((), False, 0.5)))
    assert found.status is None and found.seconds < 5


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_ssh_that_was_stopped_is_gone_after_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupts: int
) -> None:
    """With the asyncio of Debian 12's Python 3.11.2, too: there a timeout counts cancellations from zero."""
    enter = asyncio.Timeout.__aenter__

    async def as_in_3_11_2(self: asyncio.Timeout) -> asyncio.Timeout:
        entered = await enter(self)
        self._cancelling = 0  # type: ignore[attr-defined]
        return entered

    monkeypatch.setattr(asyncio.Timeout, "__aenter__", as_in_3_11_2)
    monkeypatch.setattr(by_ssh, "END_S", 0.5)
    said = tmp_path / "pid"
    place = Odd(f"echo $$ > {said}; kill -STOP $$")

    async def interrupted() -> None:
        asking = asyncio.create_task(ask(place, Job((), False, 60.0)))
        await asyncio.to_thread(wait_for, said)
        for _ in range(interrupts):
            asking.cancel()
            await asyncio.sleep(0.1)
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        assert not Path("/proc", wait_for(said)).exists()

    asyncio.run(interrupted())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_signals_end_the_fleet_at_once_and_leave_no_ssh(tmp_path: Path, number: signal.Signals) -> None:
    """After the first, what runs over there has its time to end."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nread -r opening\necho $$ > {tmp_path}/pid\nkill -STOP $$\n")
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text("web1\n")
    words = ["fleet", str(tmp_path / "hosts"), "--out", str(tmp_path / "out"), "-q", "--", "doctor"]
    fleet = subprocess.Popen(
        [sys.executable, "-I", str(paths.ROOT / "tools" / "copyscope"), *words],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stopped = Path("/proc", wait_for(tmp_path / "pid"))
    fleet.send_signal(number)
    time.sleep(1)
    assert fleet.poll() is None and stopped.exists()
    fleet.send_signal(number)
    table, errors = fleet.communicate(timeout=3)
    assert (fleet.returncode, errors) == (130, "") and "1 of 1 interrupted: web1" in table
    assert not stopped.exists()


def test_what_takes_too_long_is_ended_over_there(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found = asked("sh", "-c", f"sleep 60 & echo $$ $! > {pids}; wait", timeout_s=3.0)
    assert found.status is None and found.seconds < 10
    assert not any(is_alive(int(pid)) for pid in wait_for(pids).split())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """A guard with a bundle in a directory of the test's, whose command does not go when it is asked to."""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "far")}
    (tmp_path / "far").mkdir()
    guard = subprocess.Popen(
        [sys.executable, "-I", "-c", GUARD.read_text()],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert guard.stdin
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 60"
    guard.stdin.write(Job(("sh", "-c", script), False, 60.0, bundle()).opening())
    guard.stdin.flush()
    yield guard, tmp_path
    if guard.poll() is None:
        guard.kill()
    guard.communicate()


def bundle() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo("tools/hello.sh")
        member.size, member.mode = 24, 0o755
        archive.addfile(member, io.BytesIO(b"#!/bin/sh\necho hello $1\n\n"[:24]))
    return made.getvalue()


@pytest.mark.parametrize("how", ["end", "silence", "SIGTERM", "SIGHUP"])
def test_nothing_remains_five_seconds_after_the_connection(
    guarded: tuple["subprocess.Popen[bytes]", Path], how: str
) -> None:
    """Its input ends, nothing comes any more (a cut network), or sshd ends it."""
    guard, place = guarded
    pid = int(wait_for(place / "pid"))
    assert [path.stat().st_mode & 0o777 for path in (place / "far").iterdir()] == [0o700]
    if how == "end":
        assert guard.stdin
        guard.stdin.close()
        guard.stdin = None
    elif how != "silence":
        guard.send_signal(getattr(signal, how))
    assert guard.wait(5.0) == 124
    assert not is_alive(pid) and list((place / "far").iterdir()) == []


def test_a_signal_that_comes_while_the_command_begins_leaves_nothing(tmp_path: Path) -> None:
    """The guard is held in Popen for a while after its command has begun."""
    slow = GUARD.read_text().replace(
        "def main() -> int:",
        "class Slow(subprocess.Popen):\n"
        "    def __init__(self, *words, **more):\n"
        "        super().__init__(*words, **more)\n"
        "        __import__('time').sleep(0.5)\n"
        "subprocess.Popen = Slow\n"
        "def main() -> int:",
    )
    guard = subprocess.Popen(
        [sys.executable, "-I", "-c", slow], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert guard.stdin
        guard.stdin.write(
            Job(("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"), False, 60.0).opening()
        )
        guard.stdin.flush()
        pid = int(wait_for(tmp_path / "pid"))
        guard.terminate()
        assert guard.wait(5.0) == 124
        assert not is_alive(pid)
    finally:
        guard.kill()
        guard.communicate()


def test_a_bundle_runs_only_as_it_was_sent() -> None:
    found = asked("@BUNDLE@/tools/hello.sh", "you", bundle=bundle())
    assert (found.status, found.output.split(b"\n", 1)[1]) == (0, b"hello you\n")
    found = asked("@BUNDLE@/tools", bundle=bundle())
    assert found.status == 127 and b"/tools: Permission denied: let TMPDIR there name another" in found.errors
    # One bit is another on the way.
    job = Job(("@BUNDLE@/tools/hello.sh",), False, 5.0, bundle())
    opening = job.opening().replace(b"echo hello", b"echo jello")
    assert hashlib.sha256(job.bundle).hexdigest().encode() in opening
    guard = subprocess.run(
        [sys.executable, "-I", "-c", GUARD.read_text()],
        input=opening,
        check=False,
        capture_output=True,
        timeout=10,
    )
    assert guard.returncode == 125 and b"SHA-256 is not that of what was sent" in guard.stderr
    assert b"jello" not in guard.stdout


def test_so_many_hosts_are_asked_at_once_and_each_answer_is_told() -> None:
    """What came of each is in test_fleet_resume.py, of 500 that fail in four ways."""
    hosts: dict[str, Place] = {f"h{n}": Odd(f"sleep 0.05; exit {n}") for n in range(12)}
    running, most, statuses = set[str](), 0, dict[str, int | None]()

    def began(name: str) -> None:
        nonlocal most
        running.add(name)
        most = max(most, len(running))

    def ended(name: str, found: Answer) -> None:
        running.discard(name)
        statuses[name] = found.status

    asyncio.run(ask_all(hosts, Job((), False, 10.0), 3, began, ended))
    assert statuses == {f"h{n}": n for n in range(12)} and most == 3 and not running


def test_the_table_and_the_records_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first use: two names, one of which there is not."""
    tree = tmp_path / "tree" / "bin"
    tree.mkdir(parents=True)
    findings = [{"area": "kernel", "name": "BTF", "status": "ok"}]
    document = {"works": True, "sentence": "it works", "findings": findings}
    far = f"""#!/bin/sh\n[ "$*" = "doctor --json - -v" ] && echo '{json.dumps(document)}'\n"""
    (tree / "copyscope").write_text(far)
    (tree / "copyscope").chmod(0o755)
    (tmp_path / "hosts").write_text("here\nno-such-host.invalid\n")
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    out = tmp_path / "out"
    options = ["--out", str(out), "--tree", str(tree.parent), "-q"]
    assert command.main([str(tmp_path / "hosts"), *options, "--", "doctor", "-v"]) == 1
    table = capsys.readouterr().out
    assert "doctor on 2 hosts  1 ok" in table and "1 of 2 unreachable: no-such-host.invalid: " in table
    (kept,) = out.glob("host=*/date=*/*.json")
    assert kept.parent.parent == out / "host=here" and kept.parent.name.startswith("date=20")
    assert json.loads(kept.read_text()) == document
    assert command.main([str(tmp_path / "hosts"), "--", "rm", "-rf"]) == 2


@pytest.mark.parametrize(("uid", "sudo"), [(0, True), (1000, False)])
def test_only_root_is_refused_when_sudo_was_called(
    uid: int, sudo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sudo -u somebody` leaves SUDO_UID, too: ssh then uses that user's keys."""
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert command.main([str(tmp_path / "none"), "--", "doctor"]) == 2
    said = capsys.readouterr().err
    assert ("called by sudo" in said) == sudo and ("No such file" in said) != sudo


def test_a_row_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "hosts").write_text("here\n")
    rows = tmp_path / "out" / "rows"
    rows.parent.mkdir()
    rows.write_text("a file\n")
    options = ["--out", str(rows.parent), "--tree", "/nowhere", "-q"]
    assert command.main([str(tmp_path / "hosts"), *options, "--", "doctor"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f": {rows}: Not a directory: choose a directory")


def test_the_manifest_runs_a_command_that_is_understood_and_waits_for_the_files_that_it_writes() -> None:
    """A writable root is not needed: all that it names lies in the one volume, and so do temporary files."""
    manifest = (paths.ROOT / "docs/reference/fleet-daemonset.yaml").read_text()
    (line,) = re.findall(r"^ *copyscope (.*)$", manifest, re.MULTILINE)
    words, _, shell = line.partition(" > ")
    name, *options = words.split()
    args = next(verb for verb in VERBS if verb.name == name).parser().parse_args(options)
    assert (args.program, args.duration, args.json) == ("nginx", 30.0, "/out/record.json")
    assert shell == "/out/screen.txt 2>&1"
    assert f"image: registry.example/copyscope:{VERSION}\n" in manifest
    assert "mountPath: /out\n" in manifest and "value: /out\n" in manifest
