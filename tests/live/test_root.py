# SPDX-License-Identifier: GPL-2.0-only
"""The caller's environment does not affect the programs that run as root."""

import os
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths
from profiling import SLOW

# A library that appends the path of the program that loaded it to a file.
SPY = r"""
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void spy(void) {
    char name[4096];
    ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
    int log = open(LOG, O_WRONLY | O_APPEND);
    if (length > 0 && log >= 0) {
        name[length] = '\n';
        (void)!write(log, name, length + 1);
    }
    if (log >= 0)
        close(log);
}
"""


@pytest.mark.live
def test_only_the_watched_command_gets_the_callers_environment(tmp_path: Path) -> None:
    """Only the watched command gets the caller's libraries, Python modules and programs."""
    tmp_path.chmod(0o755)
    log, library = tmp_path / "log", tmp_path / "spy.so"
    log.write_text("")
    (tmp_path / "spy.c").write_text(SPY)
    build = ["cc", "-shared", "-fPIC", f'-DLOG="{log}"', "-o", str(library), str(tmp_path / "spy.c")]
    subprocess.run(build, check=True, timeout=60 * SLOW)
    (tmp_path / "bin").mkdir()
    for name in ("python3", "make", "git", "perf", "setpriv", "ip", "uname", "nproc"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho evil-{name} >> {log}\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("sitecustomize", "usercustomize", "argparse"):
        (tmp_path / f"{name}.py").write_text(f"open({str(log)!r}, 'a').write('evil-{name}\\n')\n")
    evil = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
        "PYTHONUSERBASE": str(tmp_path),
        "LD_PRELOAD": str(library),
    }
    environment_seen = tmp_path / "heard"
    command = ["/bin/sh", "-c", f'echo "$LD_PRELOAD $PYTHONPATH $PATH" > {environment_seen}']
    done = subprocess.run(
        [str(paths.ROOT / "bin" / "copyscope"), "watch", "-q", "--duration=0.5", "--", *command],
        env={**os.environ, **evil}, capture_output=True, text=True, check=False, timeout=60 * SLOW,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert environment_seen.read_text() == f"{library} {tmp_path} {evil['PATH']}\n", done.stderr
    loaded = log.read_text().splitlines()
    assert not [line for line in loaded if line.startswith("evil-")]
    # Root's LD_PRELOAD reaches bin/copyscope, the programs that this shell script starts, and the command.
    shell_programs = ("sh", "dash", "bash", "readlink", "id", "env", "true", "coreutils")
    pythons = [line for line in loaded if "python" in line]
    assert len(pythons) == 3  # check of the version, check of the tree, the command
    assert not [line for line in loaded if line not in pythons and Path(line).name not in shell_programs]
