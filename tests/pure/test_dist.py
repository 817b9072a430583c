# SPDX-License-Identifier: GPL-2.0-only
"""A wheel and a tarball find their programs and data without an environment of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from copyscope import VERSION
from copyscope.base import paths

SCRIPT = "import sys; from copyscope.commands.__main__ import script; sys.exit(script())"


def packages() -> str:
    """Return the directory of the packages that a wheel requires."""
    import msgspec  # noqa: PLC0415

    return str(Path(msgspec.__file__).parent.parent)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a copy of the released parts of a tree, without Makefile and environment."""
    root = tmp_path / "copyscope"
    for name in ("bin", "experiments", "tools"):
        shutil.copytree(paths.ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".output").mkdir()
    for program in (paths.TRAFFIC, paths.COLLECTOR):
        shutil.copy(program, root / ".output")
    (root / ".output" / "built-of.json").write_text(
        '{"commit": "0123456789ab", "changed": false, "for": "x86_64", "by clang": "14.0.6"}'
    )
    # The release must not take the commit of a repository around it for its own.
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, timeout=60)
    return root


def call(*argv: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8", **more}
    return subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def is_dry_run(output: str) -> bool:
    return "runs" in output and "points" in output


def test_tarball_runs_with_the_system_python(release: Path, tmp_path: Path) -> None:
    for package in ("rich", "msgspec", "pygments", "markdown_it", "mdurl"):
        (release / "tools" / package).symlink_to(Path(packages()) / package)
    front = release / "bin" / "copyscope"
    version = call(front, "--version", cwd=tmp_path).stdout
    assert version == f"copyscope {VERSION} (commit 0123456789ab; built for x86_64, by clang 14.0.6)\n"
    # A module in the caller's PYTHONPATH must not replace copyscope.
    (tmp_path / "copyscope.py").write_text("raise SystemExit(9)")
    planned = call(front, "sweep", "quick", "--dry-run", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert planned.returncode == 0 and is_dry_run(planned.stdout), planned.stderr


def test_wheel_runs_from_its_package_alone(release: Path, tmp_path: Path) -> None:
    package = tmp_path / "site" / "copyscope"
    package.parent.mkdir()
    (release / "tools" / "copyscope").rename(package)
    for name in (".output", "experiments"):
        (release / name).rename(package / name)
    way = f"{package.parent}:{packages()}"
    argv = (sys.executable, "-P", "-s", "-c", SCRIPT)
    version = call(*argv, "--version", cwd=tmp_path, PYTHONPATH=way).stdout
    assert version.startswith(f"copyscope {VERSION} (commit 0123456789ab; built for x86_64")
    planned = call(*argv, "sweep", "quick", "--dry-run", cwd=tmp_path, PYTHONPATH=way)
    assert planned.returncode == 0 and is_dry_run(planned.stdout), planned.stderr
    # copyscope writes nothing beside the programs, because uninstalling removes only installed files.
    assert {path.name for path in (package / ".output").iterdir()} == {
        "built-of.json",
        "collector",
        "traffic",
    }
    if os.geteuid() == 0:
        (package / "base" / "stats.py").chmod(0o666)
        refused = call(*argv, "--version", cwd=tmp_path, PYTHONPATH=way)
        assert refused.returncode == 2 and "stats.py: others may write this path" in refused.stderr


def test_missing_packages_of_python_are_reported_in_one_line(release: Path, tmp_path: Path) -> None:
    done = call("python3", "-ISB", release / "tools", "run", cwd=tmp_path)
    version = f"{sys.version_info.major}."
    assert done.returncode == 1 and done.stderr.startswith("copyscope: cannot be loaded: No module named ")
    assert f"install a copyscope that has packages for Python {version}" in done.stderr
