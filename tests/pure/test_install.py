"""`make install` into a DESTDIR: found from anywhere, whole without its tree, and taken away again."""

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope import VERSION, paths
from copyscope.commands.verbs import VERBS
from copyscope.trust import find_danger

INSTALL = str(paths.ROOT / "tools" / "install.sh")
BUILT_OF = str(paths.ROOT / "tools" / "built_of.sh")
PREFIX = "/usr/local"


@pytest.fixture(scope="module")
def destdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("root")
    (made / "usr/local/bin").mkdir(parents=True)
    (made / "usr/local/bin/another").write_text("")
    subprocess.run([BUILT_OF, paths.OUTPUT / "built-of.json"], check=True, timeout=60)
    subprocess.run([INSTALL, "install", made, PREFIX], check=True, capture_output=True, timeout=100)
    yield made
    shutil.rmtree(made)


def call(destdir: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As from a shell of somebody who knows nothing of the tree."""
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


def test_it_runs_from_anywhere_and_calls_itself_by_its_name(destdir: Path, tmp_path: Path) -> None:
    done = call(destdir, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sudo copyscope COMMAND") and "bin/" not in done.stdout
    said = call(destdir, "--version", cwd=tmp_path).stdout
    head = subprocess.run(
        ["git", "-C", paths.ROOT, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert said.startswith(f"copyscope {VERSION} (commit {head.stdout[:12]}") and "by clang" in said
    # Programs of its own, strategies and experiments are there; results are looked for where the user is.
    (tmp_path / "x.toml").write_text((paths.ROOT / "experiments/quick.toml").read_text())
    planned = call(destdir, "sweep", "x.toml", "--dry-run", cwd=tmp_path)
    assert planned.returncode == 0 and "runs" in planned.stdout, planned.stderr
    report = call(destdir, "report", cwd=tmp_path)
    assert "none of your sweeps" in report.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "x.toml"]


def test_it_holds_what_is_pinned_and_nobody_else_may_change_it(destdir: Path) -> None:
    lib = destdir / "usr/local/lib/copyscope"
    names = {path.name for path in next(lib.glob(".venv/lib/*/site-packages")).iterdir()}
    assert {"rich", "msgspec", "matplotlib", "pyarrow", "copyscope.pth"} <= names and not {
        "pytest",
        "mypy",
        "pip",
    } & names
    assert find_danger(str(lib), {"SUDO_UID": str(os.getuid())}) is None
    assert not [path for path in lib.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    # Nothing in it leads back to the tree that it was made from.
    links = [path.readlink() for path in lib.rglob("*") if path.is_symlink()]
    assert not [link for link in links if link.is_relative_to(paths.ROOT)]


def test_man_pages_say_what_help_says(destdir: Path) -> None:
    pages = destdir / "usr/local/share/man/man1"
    assert {path.stem for path in pages.iterdir()} == {"copyscope", *(f"copyscope-{v.name}" for v in VERBS)}
    for verb in VERBS:
        text = (pages / f"copyscope-{verb.name}.1").read_text().replace("\\-", "-")
        shown = [action for action in verb.parser()._actions if action.help != argparse.SUPPRESS]
        options = {name for action in shown for name in action.option_strings}
        assert all(name in text for name in options) and "tools/" not in text
    if shutil.which("groff"):
        for page in pages.iterdir():
            said = subprocess.run(
                ["groff", "-man", "-ww", "-Tutf8", "-z", page], capture_output=True, check=False
            )
            assert (said.returncode, said.stderr) == (0, b""), page


def test_shells_complete_verbs_and_options(destdir: Path) -> None:
    share = destdir / "usr/local/share"
    bash = share / "bash-completion/completions/copyscope"
    for typed, expected in (("wat", "watch"), ("watch --net", "--netns"), ("draw --ou", "--out")):
        words = ["copyscope", *typed.split()]
        script = f"source {bash}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        script += "; $(complete -p copyscope | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo ${COMPREPLY[@]}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=10, check=False)
        assert done.stdout.split() == [expected], done.stderr
    for file, shell in (
        ("zsh/site-functions/_copyscope", "zsh"),
        ("fish/vendor_completions.d/copyscope.fish", "fish"),
    ):
        text = (share / file).read_text()
        assert all(verb.name in text for verb in VERBS) and "netns" in text
        if shutil.which(shell):
            subprocess.run([shell, "-n", share / file], check=True, timeout=10)


def test_uninstall_leaves_what_is_not_its_own(destdir: Path) -> None:
    subprocess.run([INSTALL, "uninstall", destdir, PREFIX], check=True, timeout=60)
    left = [path for path in destdir.rglob("*") if not path.is_dir()]
    assert left == [destdir / "usr/local/bin/another"]


def test_a_prefix_is_absolute() -> None:
    done = subprocess.run(
        [INSTALL, "install", "", "here"], capture_output=True, text=True, timeout=10, check=False
    )
    assert (done.returncode, done.stderr) == (1, "install: PREFIX: here: not an absolute path\n")
