# SPDX-License-Identifier: GPL-2.0-only
"""Dependencies of a build: packages of the distribution, a new enough Python, and its modules."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from copyscope.base import paths

TOOLS = paths.ROOT / "tools"
DATA = Path(__file__).parent / "data" / "distributions"
COMMANDS = [line.split("\t") for line in (DATA / "commands.tsv").read_text().splitlines()]
PROXY = 'http://eve:"$(touch made)@proxy:3128/'


def run(argv: list[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with only PATH, LC_ALL and the given variables in its environment."""
    variables = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=variables)


def program(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(("release", "command", "packages"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_fresh_machine_gets_all_packages_that_a_run_needs(release: str, command: str, packages: str) -> None:
    done = run([TOOLS / "deps.sh", "--as", DATA / f"{release}.os-release", "run"])
    last_line = f"deps: would run: {command.format(machine=platform.machine())} {packages}"
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, last_line, "")


def test_unknown_distribution_gets_the_list_of_dependencies(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text("ID=void\n")
    done = run([TOOLS / "deps.sh", "--as", tmp_path / "os-release"])
    assert done.returncode == 1 and "JSON in C (<jansson.h>)" in done.stdout
    assert done.stderr == ("deps: void: unknown distribution; install the above with its package manager\n")
    nowhere = run([TOOLS / "deps.sh", "--as", tmp_path / "nowhere"])
    assert (nowhere.returncode, nowhere.stdout) == (
        1,
        "",
    ) and "nowhere: not a readable file" in nowhere.stderr


DEBIAN = "ID=debian" in Path("/etc/os-release").read_text().splitlines()
NEEDED = ("bash", "env", "dirname", "readlink", "sed", "tr", "sort", "paste", "grep", "cat", "uname")


@pytest.mark.parametrize("lacks", ["nothing", "linux-perf", "clang"])
@pytest.mark.skipif(os.geteuid() != 0 or not DEBIAN, reason="only root installs packages, here Debian's")
def test_unavailable_package_does_not_stop_others_and_proxies_survive_sudo(
    tmp_path: Path, lacks: str
) -> None:
    """apt-get is a script that installs nothing, and apt-cache lacks a package. perf is optional."""
    for name in NEEDED:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    shutil.copy(str(shutil.which("bash")), tmp_path / "sudo")
    program(tmp_path / "apt-get", f'echo "$* through $https_proxy" >>{tmp_path}/calls')
    program(tmp_path / "apt-cache", f"[ $2 = {lacks} ] || echo 'Candidate: 1'")
    command = f"env -u https_proxy SUDO_UID=0 {TOOLS}/deps.sh run; exit $?"
    done = run([tmp_path / "sudo", "-c", command], PATH=str(tmp_path), https_proxy=PROXY)
    update, install = (tmp_path / "calls").read_text().splitlines()
    assert update == f"-q update through {PROXY}"
    assert install.startswith("-q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends ")
    assert install.endswith(f" through {PROXY}")
    wanted = {"clang", "gcc", "linux-perf", "python3-venv"}
    assert wanted & set(install.split()) == wanted - {lacks}
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("deps: still missing: C compiler (gcc): gcc; ")
    assert "; BPF compiler (clang): clang; " in done.stderr
    assert "perf" not in done.stderr and done.stderr.endswith("; install them by hand\n")


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ({"python3": "3.13"}, "python3"),
        ({"python3": "3.9", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.10", "python3.11": "3.11", "python3.14": "3.14"}, "python3.14"),
        ({"python3.11": "3.11"}, "python3.11"),
        ({"python3": "3.9"}, None),
        ({}, None),
    ],
)
def test_new_enough_python_is_found_by_its_name(
    tmp_path: Path, there: Mapping[str, str], chosen: str | None
) -> None:
    for name, version in there.items():
        old = version in ("3.9", "3.10")
        program(tmp_path / name, f'[ "$1" != -V ] || {{ echo Python {version}; exit; }}; exit {int(old)}')
    done = run(["/bin/sh", TOOLS / "python.sh"], PATH=str(tmp_path))
    if chosen is None:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "Python 3.11 or newer is needed" in done.stderr
        assert ("Python 3.9" if there else "missing") in done.stderr
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path / chosen}\n", "")


def test_python_without_the_required_module_is_skipped(tmp_path: Path) -> None:
    """Debian's python3 lacks ensurepip without the package python3-venv. An older Python may have it."""
    program(tmp_path / "python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    assert run(["/bin/sh", TOOLS / "python.sh"], PATH=str(tmp_path)).stdout == f"{tmp_path}/python3\n"
    done = run(["/bin/sh", TOOLS / "python.sh", "ensurepip"], PATH=str(tmp_path))
    assert done.returncode == 1 and "3.11 or newer with ensurepip is needed" in done.stderr
    program(tmp_path / "python3.11", "exit 0")
    done = run(["/bin/sh", TOOLS / "python.sh", "ensurepip"], PATH=str(tmp_path))
    assert done.stdout == f"{tmp_path}/python3.11\n"


def test_proxies_survive_sudo_and_make(tmp_path: Path) -> None:
    """sudo hides the caller's environment from its command. No shell interprets the value of a proxy."""
    shutil.copy(str(shutil.which("bash")), tmp_path / "sudo")
    make = f"make -s -C {paths.ROOT} -f Makefile -f {tmp_path}/show.mk show"
    (tmp_path / "show.mk").write_text("show:\n\t@printenv https_proxy NO_PROXY http_proxy\n")
    called = {"https_proxy": PROXY, "NO_PROXY": "localhost, .example.org", "LD_PRELOAD_proxy": "x"}
    stripped = "env -i PATH=$PATH"
    done = run([tmp_path / "sudo", "-c", f"{stripped} SUDO_UID=0 {make}; true"], **called)
    assert done.stdout.splitlines() == [PROXY, "localhost, .example.org"]
    all_of_them = run([tmp_path / "sudo", "-c", f"{stripped} SUDO_UID=0 {TOOLS}/proxies.sh; true"], **called)
    assert sorted(all_of_them.stdout.splitlines()) == sorted(
        [f"https_proxy={PROXY}", "NO_PROXY=localhost, .example.org"]
    )
    # Without sudo, make uses only its own environment.
    assert run([tmp_path / "sudo", "-c", f"{stripped} {make}; true"], **called).stdout == ""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with a fake Python: pip succeeds if FOUND is set, imports succeed if BORROWED is set."""
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOLS / "pinned.sh", tmp_path / "tools")
    program(
        tmp_path / ".venv" / "bin" / "python3",
        'case "$1 $2" in\n'
        '"-m pip") echo "$*" >>said\n[ -n "$FOUND" ] || { echo "ERROR: No matching rich" >&2; exit 1; } ;;\n'
        '"-Ic import rich,msgspec") grep -q "packages = true" .venv/pyvenv.cfg && [ -n "$BORROWED" ] ;;\n'
        "*) exit 3 ;;\nesac",
    )
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return tmp_path


def test_without_a_network_packages_come_from_the_distribution(tree: Path) -> None:
    config = tree / ".venv" / "pyvenv.cfg"
    before = config.read_text()
    pinned: list[str | Path] = [tree / "tools" / "pinned.sh", "requirements/run.txt", "rich", "msgspec"]
    failed = run(pinned)
    assert (failed.returncode, failed.stdout, failed.stderr) == (
        1,
        "",
        "copyscope: requirements/run.txt: pip: No matching rich; behind a proxy set https_proxy; without "
        "a network install python3-rich python3-msgspec of this distribution, or fill wheels/ on another "
        "machine with the same Python (pip download -d wheels -r requirements/run.txt), and make again\n",
    )
    assert config.read_text() == before
    borrowed = run(pinned, BORROWED="yes")
    assert (borrowed.returncode, borrowed.stderr) == (0, "")
    assert borrowed.stdout == "  pip: No matching rich; using the distribution's rich msgspec\n"
    assert config.read_text() == before.replace("false", "true")


def test_wheels_beside_the_tree_need_no_network(tree: Path) -> None:
    run([tree / "tools" / "pinned.sh", "requirements/run.txt"], FOUND="yes")
    (tree / "wheels").mkdir()
    done = run([tree / "tools" / "pinned.sh", "requirements/run.txt"], FOUND="yes")
    without, with_wheels = (tree / "said").read_text().splitlines()
    hashes = " --require-hashes -r requirements/run.txt"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert without.endswith(f"--disable-pip-version-check{hashes}")
    assert with_wheels.endswith(f" --no-index --find-links=wheels{hashes}")
