# SPDX-License-Identifier: GPL-2.0-only
"""A user's program in a simulated machine: known bytes are found in the right accounts."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.run.simulate import boot, kernels, qemu
from copyscope.run.simulate.boot import Guest
from copyscope.run.simulate.kernel_image import save_startable

pytestmark = [
    pytest.mark.all,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed"
    ),
]
COUNT, SIZE = 100, 32768


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    executable: Path = tmp_path_factory.mktemp("talks") / "it talks"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-fno-builtin-memcpy"]
    source = paths.ROOT / "tests" / "simulator" / "talks.c"
    subprocess.run(["cc", *options, "-o", executable, source], check=True, timeout=60)
    return executable


def simulate(*words: str | Path) -> subprocess.CompletedProcess[str]:
    # --fast does not count instructions and takes half as long. Bytes stay exact.
    options = ["--quiet", "--fast", "--seeds", "1", "--json", "-"]
    argv: list[str | Path] = [paths.ROOT / "bin" / "copyscope", "simulate", *options]
    done = subprocess.run([*argv, "--", *words], capture_output=True, text=True, timeout=290, check=False)
    if "check the network" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


def test_copies_of_a_simulated_command_and_its_own_memcpy_are_counted(program: Path) -> None:
    done = simulate(program, str(COUNT), str(SIZE))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (measurement,) = document["simulated"]["measurements"]
    kib = measurement["delivered_bytes"] / 1024
    accounts: dict[str, Any] = {row["category"]: row for row in measurement["accounts"]}
    for account, column in (("copy_in", "read_bytes_per_kib"), ("copy_out", "written_bytes_per_kib")):
        assert accounts[account][column] * kib == pytest.approx(COUNT * SIZE, rel=0.02), account
    # The program copies its first message before it sends anything.
    assert accounts["gather"]["read_bytes_per_kib"] * kib == pytest.approx((COUNT - 1) * SIZE, rel=0.02)
    assert document["verdict"]["valid"] and measurement["command"][1:] == [str(COUNT), str(SIZE)]
    # Work of the command is separate from that of kernel threads and idle CPUs.
    sides = {row["side"]: row for row in measurement["sides"]}
    assert set(sides) <= {"command", "other"}
    assert sides["command"]["read_bytes_per_kib"] > 3000 > sides["other"]["read_bytes_per_kib"]


def test_a_simulated_command_ends_the_run_beside_its_server(program: Path) -> None:
    """The run ends with the command, although the server never exits."""
    done = simulate(program, "serve", "7000", "--", program, str(COUNT), str(SIZE), "7000")
    assert done.returncode == 0, done.stderr
    (measurement,) = json.loads(done.stdout)["simulated"]["measurements"]
    accounts = {row["category"]: row for row in measurement["accounts"]}
    kib = measurement["delivered_bytes"] / 1024
    for account, column in (("copy_in", "read_bytes_per_kib"), ("copy_out", "written_bytes_per_kib")):
        assert accounts[account][column] * kib == pytest.approx(COUNT * SIZE, rel=0.02), account


def test_a_simulated_kernel_without_veth_is_an_error() -> None:
    installed_qemu = qemu.find_qemu()
    programs = boot.build(installed_qemu)
    try:
        kernel = replace(kernels.get_kernel(kernels.DEFAULT, lambda _: None), modules={})
    except RunError as error:
        pytest.skip(str(error))
    machine = qemu.BootSettings(vcpus=1, seed=1, exact=False)
    with Guest(save_startable(kernel), boot.build_file_system(kernel, programs, "network veth\n")) as guest:
        argv = qemu.command(installed_qemu, machine, guest.files)
        with pytest.raises(
            RunError, match=r"^guest: veth: .*: this kernel has no veth; use --topology loopback"
        ):
            guest.run(argv, Path("/nowhere/console"), lambda _: None)


def test_a_simulated_command_that_sends_nothing_is_an_error_in_one_line(program: Path) -> None:
    done = simulate(program, "0")
    (error,) = done.stderr.splitlines()
    assert done.returncode == 1 and not done.stdout
    assert "simulator: the command: sent nothing through a socket" in error
