"""Many hosts by ansible-core: the user's inventory, settings, become and connections; our command.

ansible-playbook runs a play of one task. `library/` is what runs on each host, `callback_plugins/` says what
came of each, a line for each. When this process is gone, the callback ends ansible, and so what runs there.
"""

import base64
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from msgspec import Struct
from msgspec.json import decode

from copyscope.asking import LimitError, ask
from copyscope.environment import of_caller
from copyscope.errors import RunError, UsageError
from copyscope.escaping import one_line, visible
from copyscope.fleet.answers import Answer

HERE = Path(__file__).parent
MISSING = "ansible-core is missing: apt install ansible-core, or in a source tree make .venv/.ready-ansible"
# ansible has that long on top of the host's own time, to connect and to end.
CONNECT_S = 60
END_S = 5.0
LINE_MAX_BYTES = 100 << 20
ALIVE = "-o ControlMaster=no -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
# What it becomes is the name of a directory: no `-` in front, no `/`.
OF_HOST = re.compile(rb'\{"host": "([A-Za-z0-9_.@:\[\]-]+)"')
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]{0,252}")


@dataclass(frozen=True)
class Job:
    """What every host is asked to run, and as whom."""

    argv: tuple[str, ...]
    become: bool
    timeout_s: float


class Line(Struct):
    """What the callback says of a host; without an `ended` that it is asked now."""

    host: str
    ended: str | None = None
    status: int | None = None
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    facts: Any = None


@dataclass(frozen=True)
class Ansible:
    """How ansible is started, and which hosts of which inventory are meant."""

    playbook: tuple[str, ...]
    adhoc: tuple[str, ...]
    inventory: str
    limit: str | None

    def hosts(self) -> list[str]:
        """The names of the hosts, as ansible knows them. Raises RunError, UsageError."""
        words = [*self.adhoc, "all", "-i", self.inventory, "--list-hosts"]
        if self.limit is not None:
            words += ["--limit", self.limit]
        try:
            done = ask(words, limit_s=CONNECT_S, environment=environment())
        except LimitError:
            raise RunError(f"{self.inventory}: ansible did not list its hosts within {CONNECT_S} s") from None
        if done.status != 0:
            raise UsageError(f"{self.inventory}: ansible: {_last(done.errors)}")
        # One a line below "  hosts (N):".
        names = [line.removeprefix("    ") for line in done.text.split("\n")[1:]]
        found = list(dict.fromkeys(name for name in names if name))
        if not found:
            raise UsageError(f"{self.inventory}: no host in it matches: {_last(done.errors)}")
        for name in found:
            if NAME.fullmatch(name) is None:
                allowed = "letters, digits, . _ @ : - only"
                raise UsageError(f"{self.inventory}: {visible(name)}: not a host name: {allowed}")
        return found

    def ask_all(
        self,
        names: Sequence[str],
        job: Job,
        forks: int,
        began: Callable[[str], None],
        ended: Callable[[str, Answer], None],
    ) -> None:
        """Every host is asked once. Raises RunError if ansible itself fails."""
        with tempfile.TemporaryDirectory(prefix="copyscope-ansible-") as name:
            place = Path(name)
            words = self._words(place, names, job, forks)
            unsaid = set(names)
            with _running(words, place / "errors") as lines:
                for line in lines:
                    if line.ended is None:
                        began(line.host)
                    elif line.host in unsaid:
                        unsaid.discard(line.host)
                        ended(line.host, _answer(line))
                said = _last((place / "errors").read_bytes())
            if len(unsaid) == len(names):
                raise RunError(f"ansible: {said}")
            for host in unsaid:
                ended(host, Answer(1, b"", b"ansible ended before it was asked", 0.0))

    def _words(self, place: Path, names: Sequence[str], job: Job, forks: int) -> list[str]:
        """The command line; the play and what it needs are files in a directory of ours alone."""
        # Ansible would read `{{` in the user's words as a template of its own.
        argv = base64.b64encode(json.dumps(job.argv).encode()).decode()
        task = {
            "name": "ask",
            "copyscope_ask": {"argv": argv, "timeout_s": job.timeout_s},
            "ignore_errors": True,
            "timeout": int(job.timeout_s) + CONNECT_S,
        }
        play = {
            "name": "copyscope fleet",
            "hosts": "all",
            "gather_facts": False,
            "ignore_unreachable": True,
            "tasks": [task],
        }
        # JSON is YAML.
        (place / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
        (place / "hosts").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        words = [*self.playbook, "-i", self.inventory, "--forks", str(forks), "--limit", f"@{place}/hosts"]
        return [*words, *(["--become"] if job.become else []), str(place / "play.yml")]


def find(inventory: str, limit: str | None) -> Ansible:
    """Ours, which is pinned; else that of PATH. Raises UsageError, RunError."""
    # With a comma it is the hosts themselves, as ansible reads it.
    if "," not in inventory and not Path(inventory).exists():
        named = "give an inventory of ansible, or hosts with commas: web1,web2; of one: web1,"
        raise UsageError(f"{visible(inventory)}: no such file: {named}")
    if find_spec("ansible") is not None:
        ours = (sys.executable, "-I", "-m", "ansible")
        return Ansible((*ours, "playbook"), (*ours, "adhoc"), inventory, limit)
    path = of_caller(os.environ).get("PATH")
    playbook, adhoc = shutil.which("ansible-playbook", path=path), shutil.which("ansible", path=path)
    if playbook is None or adhoc is None:
        raise RunError(MISSING)
    return Ansible((playbook,), (adhoc,), inventory, limit)


def environment() -> dict[str, str]:
    """The caller's, for it says how ansible is set; and what is different for us."""
    found = of_caller(os.environ)
    ours = {
        "ANSIBLE_LIBRARY": HERE / "library",
        "ANSIBLE_CALLBACK_PLUGINS": HERE / "callback_plugins",
    }
    found |= {name: ":".join(filter(None, (str(path), found.get(name)))) for name, path in ours.items()}
    found |= {"ANSIBLE_STDOUT_CALLBACK": "copyscope_lines", "ANSIBLE_RETRY_FILES_ENABLED": "0"}
    found |= {"ANSIBLE_NOCOLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    found.pop("ANSIBLE_FORCE_COLOR", None)
    # One connection for each host instead of five: nothing is copied, and no interpreter is looked for.
    found.setdefault("ANSIBLE_PIPELINING", "1")
    found.setdefault("ANSIBLE_PYTHON_INTERPRETER", "python3")
    # Ansible refuses to work in any other encoding.
    if "utf" not in (found.get("LC_ALL") or found.get("LC_CTYPE") or found.get("LANG") or "").lower():
        found["LC_ALL"] = "C.UTF-8"
    # By default a connection stays open for a minute after us.
    if not _has_ssh_args(found):
        found["ANSIBLE_SSH_ARGS"] = ALIVE
    return found


def _has_ssh_args(found: Mapping[str, str]) -> bool:
    """Whether the user has said how ssh is called (ansible reads the first of these files)."""
    if "ANSIBLE_SSH_ARGS" in found:
        return True
    named = found.get("ANSIBLE_CONFIG")
    places = [named, "ansible.cfg", Path.home() / ".ansible.cfg", "/etc/ansible/ansible.cfg"]
    first = next((Path(place) for place in places if place and Path(place).is_file()), None)
    read = configparser.ConfigParser(strict=False, interpolation=None)
    with suppress(OSError, configparser.Error, UnicodeDecodeError):
        read.read(first or [])
    return read.has_option("ssh_connection", "ssh_args")


@contextmanager
def _running(words: Sequence[str], errors: Path) -> Iterator[Iterator[Line]]:
    """Ansible, which says its lines through one pipe of ours, and ends when another one ends."""
    reading, writing = os.pipe()
    alive, held = os.pipe()
    with os.fdopen(reading, "rb") as lines, os.fdopen(held, "wb") as holding:
        try:
            with errors.open("wb") as stream:
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stream,
                    start_new_session=True,  # Ctrl-C is for us, and we then end it
                    pass_fds=(writing, alive),
                    env={**environment(), "COPYSCOPE_LINES": f"{writing} {alive} {errors.parent}"},
                )
        except OSError as error:
            raise RunError(f"{words[0]}: {error.strerror}: ansible could not be started") from error
        finally:
            os.close(writing)
            os.close(alive)
        try:
            yield _read(lines)
        finally:
            holding.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _read(stream: IO[bytes]) -> Iterator[Line]:
    """Each by itself: one that is not what the callback says has the host's name all the same."""
    while line := stream.readline(LINE_MAX_BYTES):
        begins = line
        while line and not line.endswith(b"\n"):
            line = stream.readline(LINE_MAX_BYTES)
        try:
            if not begins.endswith(b"\n"):
                raise ValueError(f"it is cut, or longer than {LINE_MAX_BYTES >> 20} MiB")
            yield decode(begins, type=Line)
        except (ValueError, RecursionError) as error:
            host = OF_HOST.match(begins)
            if host is not None:
                said = f"its answer cannot be read: {error}".encode(errors="backslashreplace")
                yield Line(host[1].decode(), "failed", 1, errors=base64.b64encode(said).decode())


def _answer(line: Line) -> Answer:
    try:
        output, errors = (base64.b64decode(part, validate=True) for part in (line.output, line.errors))
    except ValueError as error:
        return Answer(1, b"", f"its answer cannot be read: {error}".encode(), 0.0)
    return Answer(line.status, output, errors, line.seconds, line.facts, reached=line.ended != "unreachable")


def _last(errors: bytes) -> str:
    """What ansible said last that is no warning."""
    lines = errors.decode(errors="replace").strip().splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("[WARNING]")]
    return one_line(said[-1]) if said else "it printed nothing"
