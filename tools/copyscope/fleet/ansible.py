# SPDX-License-Identifier: GPL-2.0-only
"""Run one command on many hosts through ansible-core, with the user's inventory, settings and connections.

ansible-playbook runs a play of one task. The module in `library/` runs on each host. The plugin in
`callback_plugins/` writes a line of JSON when the task begins and ends on a host. When this process exits,
the plugin ends ansible, and with it the commands on the hosts.
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

from copyscope.base.errors import RunError, UsageError
from copyscope.base.process import environment_of_caller
from copyscope.base.programs import LimitError, run_program
from copyscope.base.spelling import one_line, visible
from copyscope.fleet.answers import HostAnswer

FLEET_FOLDER = Path(__file__).parent
MISSING = "ansible-core is missing; apt install ansible-core, or in a source tree make .venv/.ready-ansible"
# Seconds that ansible gets in addition to the time limit of the command, to connect and to end.
ANSIBLE_EXTRA_S = 60
# Seconds that ansible gets to exit after its last line.
END_S = 5.0
LINE_MAX_BYTES = 100 << 20
SSH_ARGS = "-o ControlMaster=no -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
# Patterns of a host name, which becomes a directory name: no `/`, and no leading `-`.
HOST_OF_LINE = re.compile(rb'\{"host": "([A-Za-z0-9_.@:\[\]-]+)"')
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]{0,252}")


@dataclass(frozen=True)
class Job:
    """Command that every host runs. `become`: run it as root. `timeout_s`: time limit of the command."""

    argv: tuple[str, ...]
    become: bool
    timeout_s: float


class CallbackLine(Struct):
    """Line from the callback plugin about a host. Of a host's two lines, the first has `ended` = None."""

    host: str
    ended: str | None = None
    status: int | None = None
    output: str = ""
    errors: str = ""
    seconds: float = 0.0
    facts: Any = None


@dataclass(frozen=True)
class Ansible:
    """Commands that start ansible, and its hosts: an inventory, and a pattern that selects hosts from it."""

    playbook: tuple[str, ...]
    adhoc: tuple[str, ...]
    inventory: str
    limit: str | None

    def hosts(self) -> list[str]:
        """List the names of the hosts. Raises RunError, UsageError."""
        argv = [*self.adhoc, "all", "-i", self.inventory, "--list-hosts"]
        if self.limit is not None:
            argv += ["--limit", self.limit]
        try:
            result = run_program(argv, limit_s=ANSIBLE_EXTRA_S, environment=ansible_environment())
        except LimitError:
            raise RunError(
                f"{self.inventory}: ansible listed no hosts within {ANSIBLE_EXTRA_S} s; check the file"
            ) from None
        if result.status != 0:
            raise UsageError(f"{self.inventory}: ansible: {_last_line(result.errors)}")
        # ansible prints "  hosts (N):" and then a name in each line.
        lines = [line.removeprefix("    ") for line in result.text.split("\n")[1:]]
        names = list(dict.fromkeys(name for name in lines if name))
        if not names:
            raise UsageError(f"{self.inventory}: no host matches: {_last_line(result.errors)}")
        for name in names:
            if HOST_NAME.fullmatch(name) is None:
                allowed = "only letters, digits, . _ @ : -"
                raise UsageError(f"{self.inventory}: {visible(name)}: not a host name; use {allowed}")
        return names

    def run_everywhere(
        self,
        names: Sequence[str],
        job: Job,
        forks: int,
        on_begin: Callable[[str], None],
        on_end: Callable[[str, HostAnswer], None],
    ) -> None:
        """Run the job once on each host, `forks` hosts at a time. Raises RunError if ansible itself fails.

        `names`: names of the hosts. `on_begin(host)` and `on_end(host, answer)` are called for each host. If
        ansible does not report on a host, the host's answer is an error.
        """
        with tempfile.TemporaryDirectory(prefix="copyscope-ansible-") as name:
            directory = Path(name)
            argv = self._playbook_argv(directory, names, job, forks)
            unanswered = set(names)
            with _running(argv, directory / "errors") as lines:
                for line in lines:
                    if line.ended is None:
                        on_begin(line.host)
                    elif line.host in unanswered:
                        unanswered.discard(line.host)
                        on_end(line.host, _answer(line))
                message = _last_line((directory / "errors").read_bytes())
            if len(unanswered) == len(names):
                raise RunError(f"ansible: {message}")
            for host in unanswered:
                on_end(host, HostAnswer(1, b"", b"ansible ended before it ran the command here", 0.0))

    def _playbook_argv(self, directory: Path, names: Sequence[str], job: Job, forks: int) -> list[str]:
        """Write the play and the list of hosts to a directory, and return the command that runs the play."""
        # Base64, because ansible would expand `{{` in the user's arguments as a template.
        argv = base64.b64encode(json.dumps(job.argv).encode()).decode()
        task = {
            "name": "ask",
            "copyscope_ask": {"argv": argv, "timeout_s": job.timeout_s},
            "ignore_errors": True,
            "timeout": int(job.timeout_s) + ANSIBLE_EXTRA_S,
        }
        play = {
            "name": "copyscope fleet",
            "hosts": "all",
            "gather_facts": False,
            "ignore_unreachable": True,
            "tasks": [task],
        }
        # JSON is valid YAML.
        (directory / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
        (directory / "hosts").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        hosts = ["-i", self.inventory, "--forks", str(forks), "--limit", f"@{directory}/hosts"]
        become = ["--become"] if job.become else []
        return [*self.playbook, *hosts, *become, str(directory / "play.yml")]


def find_ansible(inventory: str, limit: str | None) -> Ansible:
    """Find ansible: the pinned ansible-core in our environment, else the one on the PATH.

    `inventory`: ansible inventory file, or hosts separated by commas. `limit`: pattern that selects hosts.
    Raises UsageError, RunError.
    """
    # ansible reads an inventory that contains a comma as a list of hosts.
    if "," not in inventory and not Path(inventory).exists():
        advice = "give an ansible inventory, or hosts separated by commas: web1,web2 (a single host: web1,)"
        raise UsageError(f"{visible(inventory)}: no such file; {advice}")
    if find_spec("ansible") is not None:
        module = (sys.executable, "-I", "-m", "ansible")
        return Ansible((*module, "playbook"), (*module, "adhoc"), inventory, limit)
    path = environment_of_caller(os.environ).get("PATH")
    playbook, adhoc = shutil.which("ansible-playbook", path=path), shutil.which("ansible", path=path)
    if playbook is None or adhoc is None:
        raise RunError(MISSING)
    return Ansible((playbook,), (adhoc,), inventory, limit)


def ansible_environment() -> dict[str, str]:
    """Return the environment for ansible: the caller's settings, and those that copyscope needs."""
    variables = environment_of_caller(os.environ)
    plugin_folders = {
        "ANSIBLE_LIBRARY": FLEET_FOLDER / "library",
        "ANSIBLE_CALLBACK_PLUGINS": FLEET_FOLDER / "callback_plugins",
    }
    for name, folder in plugin_folders.items():
        variables[name] = ":".join(filter(None, (str(folder), variables.get(name))))
    variables |= {"ANSIBLE_STDOUT_CALLBACK": "copyscope_lines", "ANSIBLE_RETRY_FILES_ENABLED": "0"}
    variables |= {"ANSIBLE_NOCOLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    variables.pop("ANSIBLE_FORCE_COLOR", None)
    # Use one connection to each host instead of five: ansible copies no files and searches for no
    # interpreter.
    variables.setdefault("ANSIBLE_PIPELINING", "1")
    variables.setdefault("ANSIBLE_PYTHON_INTERPRETER", "python3")
    # ansible refuses to run with an encoding other than UTF-8.
    locale = variables.get("LC_ALL") or variables.get("LC_CTYPE") or variables.get("LANG") or ""
    if "utf" not in locale.lower():
        variables["LC_ALL"] = "C.UTF-8"
    # By default, ansible keeps a connection open for a minute after its own end.
    if not _has_ssh_args(variables):
        variables["ANSIBLE_SSH_ARGS"] = SSH_ARGS
    return variables


def _has_ssh_args(variables: Mapping[str, str]) -> bool:
    """Return True if the environment or ansible.cfg sets arguments for ssh. `variables`: the environment."""
    if "ANSIBLE_SSH_ARGS" in variables:
        return True
    # ansible reads the first of these files that exists.
    paths = [
        variables.get("ANSIBLE_CONFIG"),
        "ansible.cfg",
        Path.home() / ".ansible.cfg",
        "/etc/ansible/ansible.cfg",
    ]
    first = next((Path(path) for path in paths if path and Path(path).is_file()), None)
    config = configparser.ConfigParser(strict=False, interpolation=None)
    with suppress(OSError, configparser.Error, UnicodeDecodeError):
        config.read(first or [])
    return config.has_option("ssh_connection", "ssh_args")


@contextmanager
def _running(argv: Sequence[str], errors: Path) -> Iterator[Iterator[CallbackLine]]:
    """Run ansible, and yield an iterator over the callback plugin's lines.

    `errors`: file for ansible's standard error. The plugin writes lines to one pipe. It reads from
    another pipe, and ends ansible when our end of that pipe closes.
    """
    lines_reader, lines_writer = os.pipe()
    alive_reader, alive_writer = os.pipe()
    # Descriptors and directory that the callback plugin reads from the environment.
    lines_argument = f"{lines_writer} {alive_reader} {errors.parent}"
    with os.fdopen(lines_reader, "rb") as lines, os.fdopen(alive_writer, "wb") as alive:
        try:
            with errors.open("wb") as stream:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stream,
                    start_new_session=True,  # Ctrl-C reaches copyscope only, which then ends ansible
                    pass_fds=(lines_writer, alive_reader),
                    env={**ansible_environment(), "COPYSCOPE_LINES": lines_argument},
                )
        except OSError as error:
            raise RunError(f"{argv[0]}: could not be started: {error.strerror}") from error
        finally:
            os.close(lines_writer)
            os.close(alive_reader)
        try:
            yield _read_lines(lines)
        finally:
            alive.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _read_lines(stream: IO[bytes]) -> Iterator[CallbackLine]:
    """Yield the lines that the callback plugin writes.

    If a line cannot be decoded but the host's name in it is readable, the line counts as a failure of that
    host.
    """
    while line := stream.readline(LINE_MAX_BYTES):
        beginning = line
        while line and not line.endswith(b"\n"):
            line = stream.readline(LINE_MAX_BYTES)
        try:
            if not beginning.endswith(b"\n"):
                raise ValueError(f"the line is incomplete, or longer than {LINE_MAX_BYTES >> 20} MiB")
            yield decode(beginning, type=CallbackLine)
        except (ValueError, RecursionError) as error:
            host = HOST_OF_LINE.match(beginning)
            if host is not None:
                message = f"its answer cannot be read: {error}".encode(errors="backslashreplace")
                yield CallbackLine(host[1].decode(), "failed", 1, errors=base64.b64encode(message).decode())


def _answer(line: CallbackLine) -> HostAnswer:
    """Return a host's answer, from the last line about the host."""
    try:
        output, errors = (base64.b64decode(part, validate=True) for part in (line.output, line.errors))
    except ValueError as error:
        return HostAnswer(1, b"", f"its answer cannot be read: {error}".encode(), 0.0)
    return HostAnswer(
        line.status, output, errors, line.seconds, line.facts, reached=line.ended != "unreachable"
    )


def _last_line(errors: bytes) -> str:
    """Return the last line of ansible's standard error that is not a warning."""
    lines = errors.decode(errors="replace").strip().splitlines()
    messages = [line for line in lines if line.strip() and not line.startswith("[WARNING]")]
    return one_line(messages[-1]) if messages else "ansible printed nothing"
