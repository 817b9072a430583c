"""A program of somebody else's in a simulated machine: what it moved is known."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from copyscope.errors import RunError
from copyscope.simulate import boot, kernels, qemu
from copyscope.simulate.guest import Guest
from copyscope.simulate.unpacked import startable

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
    made: Path = tmp_path_factory.mktemp("talks") / "it talks"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-fno-builtin-memcpy"]
    source = paths.ROOT / "tests" / "simulator" / "talks.c"
    subprocess.run(["cc", *options, "-o", made, source], check=True, timeout=60)
    return made


def simulate(*words: str | Path) -> subprocess.CompletedProcess[str]:
    # Bytes are exact without counting instructions, too, which takes half as long.
    options = ["--quiet", "--fast", "--seeds", "1", "--json", "-"]
    argv: list[str | Path] = [paths.ROOT / "bin" / "copyscope", "simulate", *options]
    done = subprocess.run([*argv, "--", *words], capture_output=True, text=True, timeout=290, check=False)
    if "is there a network?" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


def test_the_copies_of_a_command_and_its_own_memcpy(program: Path) -> None:
    done = simulate(program, str(COUNT), str(SIZE))
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    (one,) = made["simulated"]["measurements"]
    kib = one["delivered_bytes"] / 1024
    accounts: dict[str, Any] = {row["category"]: row for row in one["accounts"]}
    for account, column in (("copy_in", "read_bytes_per_kib"), ("copy_out", "written_bytes_per_kib")):
        assert accounts[account][column] * kib == pytest.approx(COUNT * SIZE, rel=0.02), account
    # The first message was copied before anything was sent.
    assert accounts["gather"]["read_bytes_per_kib"] * kib == pytest.approx((COUNT - 1) * SIZE, rel=0.02)
    assert made["verdict"]["valid"] and one["command"][1:] == [str(COUNT), str(SIZE)]
    # Its own work is not among that of kernel threads and idle CPUs.
    sides = {row["side"]: row for row in one["sides"]}
    assert set(sides) <= {"command", "other"}
    assert sides["command"]["read_bytes_per_kib"] > 3000 > sides["other"]["read_bytes_per_kib"]


def test_a_command_and_its_server(program: Path) -> None:
    """A server that never ends: the command's end is the end."""
    done = simulate(program, "serve", "7000", "--", program, str(COUNT), str(SIZE), "7000")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["simulated"]["measurements"]
    accounts = {row["category"]: row for row in one["accounts"]}
    kib = one["delivered_bytes"] / 1024
    for account, column in (("copy_in", "read_bytes_per_kib"), ("copy_out", "written_bytes_per_kib")):
        assert accounts[account][column] * kib == pytest.approx(COUNT * SIZE, rel=0.02), account


def test_a_kernel_without_veth_is_named() -> None:
    found = qemu.find()
    programs = boot.build(found)
    try:
        kernel = replace(kernels.take(kernels.DEFAULT, lambda _: None), modules={})
    except RunError as error:
        pytest.skip(str(error))
    machine = qemu.Machine(vcpus=1, seed=1, exact=False)
    with Guest(startable(kernel), boot.files(kernel, programs, "network veth\n")) as guest:
        argv = qemu.command(found, machine, guest.files)
        with pytest.raises(RunError, match=r"^guest: veth: .*: this kernel has none: --topology loopback"):
            guest.run(argv, Path("/nowhere/console"), lambda _: None)


def test_a_command_that_sends_nothing_is_an_error_in_one_line(program: Path) -> None:
    done = simulate(program, "0")
    (said,) = done.stderr.splitlines()
    assert done.returncode == 1 and not done.stdout
    assert "simulator: the command: sent nothing through a socket" in said
