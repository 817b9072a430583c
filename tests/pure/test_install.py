# SPDX-License-Identifier: GPL-2.0-only
"""`make install` into a DESTDIR: the installed copy runs without the source tree, and can be removed."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope import VERSION
from copyscope.base import paths
from copyscope.base.errors import how_to_install_extra
from copyscope.base.trust import find_danger
from copyscope.commands.verbs import VERBS

INSTALL = str(paths.ROOT / "tools" / "install.sh")
BUILT_OF = str(paths.ROOT / "tools" / "built_of.sh")
PREFIX = "/usr/local"


@pytest.fixture(scope="module")
def destdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("root")
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/another").write_text("")
    subprocess.run([BUILT_OF, paths.OUTPUT / "built-of.json"], check=True, timeout=60)
    subprocess.run([INSTALL, "install", root, PREFIX], check=True, capture_output=True, timeout=100)
    yield root
    shutil.rmtree(root)


def call(destdir: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command with a minimal environment."""
    front = destdir / "usr/local/bin/copyscope"
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [front, *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_installed_command_runs_from_any_directory_under_its_own_name(destdir: Path, tmp_path: Path) -> None:
    done = call(destdir, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("copyscope shows where") and "bin/" not in done.stdout
    version = call(destdir, "--version", cwd=tmp_path).stdout
    head = subprocess.run(
        ["git", "-C", paths.ROOT, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert version.startswith(f"copyscope {VERSION} (commit {head.stdout[:12]}") and "by clang" in version
    # Programs and experiments are those of the installation; results are searched in the current directory.
    (tmp_path / "x.toml").write_text((paths.ROOT / "experiments/quick.toml").read_text())
    planned = call(destdir, "sweep", "x.toml", "--dry-run", cwd=tmp_path)
    assert planned.returncode == 0 and "runs" in planned.stdout, planned.stderr
    report = call(destdir, "report", cwd=tmp_path)
    assert "no sweep of yours" in report.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "x.toml"]


def test_installed_tree_has_pinned_packages_and_nobody_else_can_write_it(destdir: Path) -> None:
    lib = destdir / "usr/local/lib/copyscope"
    names = {path.name for path in next(lib.glob(".venv/lib/*/site-packages")).iterdir()}
    assert {"rich", "msgspec", "matplotlib", "copyscope.pth"} <= names and not {
        "pytest",
        "mypy",
        "pip",
        "pyarrow",
        "duckdb",
    } & names
    data = {"taxonomy/taxonomy.tsv", "judge/servers.toml", "report/report.html.j2"}
    assert all((lib / "tools/copyscope" / name).is_file() for name in data)
    assert find_danger(str(lib), {"SUDO_UID": str(os.getuid())}) is None
    assert not [path for path in lib.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    # No link points back to the source tree.
    links = [path.readlink() for path in lib.rglob("*") if path.is_symlink()]
    assert not [link for link in links if link.is_relative_to(paths.ROOT)]


def test_man_pages_have_the_options_of_help(destdir: Path) -> None:
    pages = destdir / "usr/local/share/man/man1"
    assert {path.stem for path in pages.iterdir()} == {"copyscope", *(f"copyscope-{v.name}" for v in VERBS)}
    for verb in VERBS:
        text = (pages / f"copyscope-{verb.name}.1").read_text().replace("\\-", "-")
        shown = [action for action in verb.parser()._actions if action.help != argparse.SUPPRESS]
        options = {name for action in shown for name in action.option_strings}
        assert all(name in text for name in options) and "tools/" not in text
    if shutil.which("groff"):
        for page in pages.iterdir():
            formatted = subprocess.run(
                ["groff", "-man", "-ww", "-Tutf8", "-z", page], capture_output=True, check=False
            )
            assert (formatted.returncode, formatted.stderr) == (0, b""), page


def test_shells_complete_verbs_and_options(destdir: Path) -> None:
    share = destdir / "usr/local/share"
    bash = share / "bash-completion/completions/copyscope"
    for typed, expected in (("wat", "watch"), ("watch --net", "--netns"), ("show --ou", "--output")):
        words = ["copyscope", *typed.split()]
        script = f"source {bash}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        script += "; $(complete -p copyscope | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo ${COMPREPLY[@]}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.split() == [expected], done.stderr
    for file, shell in (
        ("zsh/site-functions/_copyscope", "zsh"),
        ("fish/vendor_completions.d/copyscope.fish", "fish"),
    ):
        text = (share / file).read_text()
        assert all(verb.name in text for verb in VERBS) and "netns" in text
        if shutil.which(shell):
            subprocess.run([shell, "-n", share / file], check=True, timeout=60)


def test_uninstall_leaves_other_files(destdir: Path) -> None:
    subprocess.run([INSTALL, "uninstall", destdir, PREFIX], check=True, timeout=60)
    left = [path for path in destdir.rglob("*") if not path.is_dir()]
    assert left == [destdir / "usr/local/bin/another"]


def test_relative_prefix_is_refused() -> None:
    done = subprocess.run(
        [INSTALL, "install", "", "here"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "install: PREFIX here: not an absolute path; write one such as /usr/local\n",
    )


@pytest.mark.parametrize(
    ("root", "directory", "command"),
    [
        ("/src", "/src", "bin/copyscope"),
        ("/src", "/home", "/src/bin/copyscope"),
        ("/opt/copyscope-0.3.0", "/opt", "copyscope-0.3.0/bin/copyscope"),
        ("/usr/lib/copyscope", "/", "copyscope"),
        ("/site/copyscope", "/site", "copyscope"),
    ],
)
def test_advice_names_a_command_that_works_in_the_current_directory(
    root: str, directory: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "ROOT", Path(root))
    monkeypatch.setattr(paths, "PACKAGE", Path(root) if root.startswith("/site") else Path("/x"))
    monkeypatch.setattr(Path, "cwd", lambda: Path(directory))
    assert paths.command() == command


@pytest.mark.parametrize(
    ("root", "package", "extra", "advice"),
    [
        ("/src", "/src/tools/copyscope", "serve", "make .venv/.ready-serve"),
        ("/usr/lib/copyscope", "/x", "serve", "apt install python3-prometheus-client"),
        ("/usr/lib/copyscope", "/x", "report", "apt install python3-matplotlib"),
        ("/opt/copyscope-0.3.0", "/x", "serve", "install python3-prometheus-client"),
        ("/site/copyscope", "/site/copyscope", "serve", f"{sys.executable} -m pip install prometheus-client"),
        (
            "/usr/lib/copyscope",
            "/x",
            "fleet",
            "python3 -m pip install --target /usr/lib/copyscope/tools duckdb",
        ),
    ],
)
def test_advice_on_missing_libraries_fits_the_installation(
    root: str, package: str, extra: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "INSTALLED", root != "/src")
    monkeypatch.setattr(paths, "ROOT", Path(root))
    monkeypatch.setattr(paths, "PACKAGE", Path(package))
    assert how_to_install_extra(extra) == advice
