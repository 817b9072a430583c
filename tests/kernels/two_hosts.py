# SPDX-License-Identifier: GPL-2.0-only
"""Measure between a sender and a receiver on two guests, with two kernels and clocks, joined by one cable.

    make check-two-hosts                              6.12 and 7.x
    make check-two-hosts KERNELS="6.12 6.12-arm64"    the second has another processor
    make check-two-hosts RUNS=crossover               the size from which zero_copy pays off (ten minutes)
    make check-two-hosts RUNS=why                     whether `why` finds the fault of each sender

The cable is a QEMU socket between two e1000 cards. On a second card each guest has an sshd, which this
machine reaches. This machine calls `copyscope run --sender-at ... --receiver-at ...`. Records are kept in
.output/two-hosts. A broken identity, or a zero-copy send that was copied, fails the run.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import matrix
from far_hosts import LIBRARIES, SSHD, session_program_options
from matrix import Kernel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".output" / "two-hosts"
# Debian packages for a guest of another architecture, which sees no files of this machine: sshd and its
# needs.
FAR_HOST = (
    *("openssh-server", "bash", "dash", "iproute2", "util-linux", "ethtool", "kmod", "mount"),
    *("coreutils", "grep", "sed", "hostname", "busybox-static"),
)
SSHD_CONFIG = """\
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
ListenAddress 10.0.2.15
StrictModes no
UsePAM no
PermitRootLogin yes
"""
SSH_CONFIG = """\
Host guest*
  HostName 127.0.0.1
  HostKeyAlias guest
  User root
  UserKnownHostsFile {directory}/known
  IdentityFile {directory}/user
  IdentitiesOnly yes
Host guest1
  Port {first}
Host guest2
  Port {second}
"""
SENT = ("--sender-at", "guest1", "--receiver-at", "guest2", "--sender-address", "198.18.0.1")
BACK = ("--sender-at", "guest2", "--receiver-at", "guest1", "--sender-address", "198.18.0.2")
RUNS = {
    "zero_copy": (*SENT, "--impl", "zero_copy", "--duration", "3"),
    "one_copy": (*SENT, "--impl", "one_copy", "--duration", "3"),
    "zero_copy_back": (*BACK, "--impl", "zero_copy", "--duration", "3"),
}
CROSSOVER = "crossover"
# Runs are in random order, so that a drift of the machine affects both strategies.
EXPERIMENT = """\
name = "wire"
question = "From which message size on does zero-copy overtake one-copy between two hosts?"
expected = "10m"
repeats = 2
duration_s = 1.5
seed = 1

[factors]
impl = ["one_copy", "zero_copy"]
size = ["4K", "32K", "256K"]

[fixed]
sender_at = "guest1"
receiver_at = "guest2"
sender_address = "198.18.0.1"
frequency = 499
"""
WHY = "why"
# Way to send of tests/kernels/cabled.c -> code of its first problem (None: no problem).
SENDERS = {"batches": None, "wait_each": "waits", "small": "small", "no_memlock": "enobufs"}
SEND_S = 12
CABLED = ROOT / ".output" / "tests" / "cabled"
BOOT_S = 240.0
RUN_S = 240.0
CROSSOVER_S = 1200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    kernels_by_name = {kernel.name: kernel for kernel in matrix.KERNELS}
    parser.add_argument("kernels", nargs="*", default=["6.12", "7.x"], help=", ".join(kernels_by_name))
    parser.add_argument("--only", action="append", choices=(*RUNS, CROSSOVER, WHY), help="do only these runs")
    options = parser.parse_args()
    if len(options.kernels) != 2 or not set(options.kernels) <= set(kernels_by_name):
        parser.error(f"name two kernels, each one of {', '.join(kernels_by_name)}")
    # On SIGTERM this program exits normally, so that its guests are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    problems: list[str] = []
    # The directory is in KEPT, because guests see the tree but have a /tmp of their own.
    with tempfile.TemporaryDirectory(dir=KEPT) as temporary, ExitStack() as guests:
        directory = Path(temporary)
        ports = free_port(), free_port()
        write(directory, *ports)
        for number, (kernel, port) in enumerate(zip(options.kernels, ports, strict=True), 1):
            guests.enter_context(guest(number, kernels_by_name[kernel], directory, port))
        for number in (1, 2):
            wait_for(directory, f"guest{number}")
        other_runs = {CROSSOVER: crossover, WHY: why}
        # The senders of `why` are built for this machine's architecture only.
        default_runs = (
            (*RUNS, WHY)
            if {kernels_by_name[name].arch for name in options.kernels} == {"amd64"}
            else tuple(RUNS)
        )
        for name in options.only or default_runs:
            problems += other_runs[name](directory) if name in other_runs else run(directory, name)
    print("\n".join(problems) or "two hosts: all as it should be")
    return 1 if problems else 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def write(directory: Path, first: int, second: int) -> None:
    """Write keys and configurations of ssh and sshd, where the guests read them, too."""
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True
        )
    assert SSHD is not None
    (directory / "sshd").symlink_to(SSHD)
    (directory / "libraries").symlink_to(LIBRARIES)
    (directory / "sshd_config").write_text(
        SSHD_CONFIG.format(directory=directory) + session_program_options()
    )
    (directory / "ssh_config").write_text(SSH_CONFIG.format(directory=directory, first=first, second=second))
    (directory / "known").write_text(f"guest {(directory / 'host.pub').read_text()}")
    (directory / "bin").mkdir()
    (directory / "bin" / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {directory}/ssh_config "$@"\n')
    (directory / "bin" / "ssh").chmod(0o755)


def other_processor(kernel: Kernel, root: str, directory: Path) -> dict[str, str]:
    """Make the file system of a guest of another architecture: Debian's files and our programs.

    Returns the environment variables for boot.sh.
    """
    if not matrix.build_cross(kernel.arch, root):
        sys.exit(f"two_hosts: the programs for {kernel.arch} cannot be built (above)")
    # Static programs run on any kernel, so the suite is that of the libraries (matrix.py).
    unpacked = matrix.fetch(f"{matrix.LIBRARIES_OF[kernel.arch][0]}/all", kernel.arch, *FAR_HOST)
    if unpacked is None:
        sys.exit(f"two_hosts: the files of a host with {kernel.arch} cannot be downloaded (above)")
    tree = KEPT / "tree"
    shutil.copytree(unpacked, tree, symlinks=True)
    for name in ("proc", "sys", "dev", "run", "tmp", "root", "lib/modules"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (tree / "etc" / "group").write_text("root:x:0:\n")
    for part in (
        HERE / "host_on_cable",
        *(directory / name for name in ("host", "host.pub", "user.pub")),
    ):
        copy = tree / part.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(part, copy)
    (tree / directory.relative_to("/") / "sshd").symlink_to("/usr/sbin/sshd")
    (tree / directory.relative_to("/") / "sshd_config").write_text(SSHD_CONFIG.format(directory=directory))
    for program in ("collector", "traffic"):
        copy = tree / (ROOT / ".output" / program).relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / ".output" / kernel.arch / program, copy)
    return {
        "COPYSCOPE_GUEST_ARCH": kernel.arch,
        "COPYSCOPE_GUEST_TREE": str(tree),
        # The guest uses the host's clock. A clock that runs ahead while the guest idles would end waits too
        # early.
        "COPYSCOPE_GUEST_ICOUNT": "no",
    }


@contextmanager
def guest(number: int, kernel: Kernel, directory: Path, port: int) -> Iterator[None]:
    """Run a guest during the block. The first guest opens the socket of the cable."""
    root = matrix.fetch(kernel.suite, kernel.arch)
    if root is None:
        sys.exit(f"two_hosts: {kernel.suite}-{kernel.arch} cannot be downloaded (above)")
    environment = {**os.environ, "COPYSCOPE_GUEST_CPUS": "1", "COPYSCOPE_GUEST_MEMORY": "1G"}
    environment["COPYSCOPE_GUEST_TIMEOUT_S"] = str(round(2 * BOOT_S + CROSSOVER_S))
    if kernel.arch != "amd64":
        environment |= other_processor(kernel, root, directory)
    cable = directory / "cable"
    is_server = "on" if number == 1 else "off"
    with (KEPT / f"guest{number}.log").open("wb") as log:
        running = subprocess.Popen(
            [
                *(HERE / "boot.sh", root, f"{HERE / 'host_on_cable'} {number} {directory}"),
                *("-netdev", f"stream,id=a,server={is_server},addr.type=unix,addr.path={cable}"),
                *("-device", f"e1000,netdev=a,mac=52:54:00:00:00:0{number}"),
                *("-netdev", f"user,id=b,restrict=on,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:22"),
                *("-device", f"e1000,netdev=b,mac=52:54:00:00:01:0{number}"),
            ],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + BOOT_S
            while not listens(cable) and time.monotonic() < deadline:
                time.sleep(0.1)
            yield
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def listens(cable: Path) -> bool:
    """Return True once QEMU listens on the cable's socket.

    The file exists a moment earlier, and a second QEMU that is refused then starts without a cable.
    """
    lines = Path("/proc/net/unix").read_text().splitlines()
    # __SO_ACCEPTCON, include/uapi/linux/net.h
    return any(line.endswith(f" {cable}") and line.split()[3] == "00010000" for line in lines)


def wait_for(directory: Path, host: str) -> None:
    """Wait until a guest answers by ssh."""
    deadline = time.monotonic() + BOOT_S
    while subprocess.run(
        [directory / "bin" / "ssh", host, "true"], capture_output=True, check=False
    ).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"two_hosts: {host} did not come up: see {KEPT}/{host}.log")
        time.sleep(1)


def copyscope(directory: Path, within_s: float, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of copyscope with an `ssh` that knows the guests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.run(
        [sys.executable, "-I", "-m", "copyscope.commands", *arguments],
        env={**environment, "PATH": f"{directory}/bin:{environment['PATH']}", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


def run(directory: Path, name: str) -> list[str]:
    """Run `copyscope run` from here, and return the problems of its record."""
    file = KEPT / f"{name}.json"
    options = ("--quiet", "-v", *RUNS[name], "--json", str(file))
    done = copyscope(directory, RUN_S, "run", *options)
    (KEPT / f"{name}.txt").write_text(done.stdout + done.stderr)
    if not file.exists():
        return [f"{name}: no record: {done.stderr.strip()}"]
    return [f"{name}: {problem}" for problem in judge(json.loads(file.read_text()))]


def crossover(directory: Path) -> list[str]:
    """Run an experiment over the cable, print its result, and return the problems of its runs."""
    experiment, out = KEPT / "wire.toml", KEPT / "wire"
    experiment.write_text(EXPERIMENT)
    options = ("--experiment", str(experiment), "--out", str(out), "-v")
    done = copyscope(directory, CROSSOVER_S, CROSSOVER, *options)
    (KEPT / f"{CROSSOVER}.txt").write_text(done.stdout + done.stderr)
    print(done.stdout, flush=True)
    lines = gzip.decompress((out / "records.jsonl.gz").read_bytes()).splitlines()
    records = [json.loads(line) for line in lines]
    runs = [f"{record['workload']['impl']} {record['workload']['size_bytes']}" for record in records]
    found_problems = [
        f"{name}: {problem}" for name, record in zip(runs, records, strict=True) for problem in judge(record)
    ]
    if len(set(runs)) != 6 or done.returncode:
        found_problems.append(
            f"{CROSSOVER}: status {done.returncode}, runs of {sorted(set(runs))}: {done.stderr[-400:]}"
        )
    return found_problems


def why(directory: Path) -> list[str]:
    """Run `why` on senders of the first guest, which send to the second. Return the problems."""
    argv = [str(directory / "bin" / "ssh"), "guest2", str(CABLED), "receive"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout and receiver.stdout.readline() == "ready\n"
            return [
                f"{WHY} {how}: {problem}"
                for how, code in SENDERS.items()
                for problem in why_of(directory, how, code)
            ]
        finally:
            receiver.kill()


def why_of(directory: Path, how: str, code: str | None) -> list[str]:
    """Watch one sender from start to end, and return what is wrong with the report of `why`."""
    report_file, file = f"/run/{how}.txt", f"/run/{how}.json"
    on_guest = (
        f"cd {ROOT} && export COLUMNS=100 COPYSCOPE_TRUST_UID=$(stat -c %u .) &&"
        f" bin/copyscope why --quiet --json {file} -- {CABLED} {how} {SEND_S} 198.18.0.2 {report_file}"
    )
    screen = on(directory, on_guest)
    (KEPT / f"{WHY}-{how}.txt").write_text(screen)
    try:
        record, truth = (json.loads(on(directory, f"cat {name}")) for name in (file, report_file))
    except ValueError:
        return [f"no record: {screen[-400:]}"]
    (KEPT / f"{WHY}-{how}.json").write_text(json.dumps(record))
    print(f"{WHY} {how}: {record['why']['sentence']}", flush=True)
    return judge_why(record, truth, code)


def on(directory: Path, command: str) -> str:
    """Run a command on the first guest, and return its output."""
    argv = [str(directory / "bin" / "ssh"), "guest1", command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=RUN_S)
    return done.stdout + done.stderr


def judge_why(record: dict[str, Any], truth: dict[str, int], code: str | None) -> list[str]:
    """Compare the record with the sender's own counts and its known fault. Return the differences."""
    keys = {"sends": "sends", "noticed": "given_back_sends", "refused": "enobufs"}
    (buffers,) = record["buffers"] or [{}]
    recorded = {key: buffers.get(name) for key, name in keys.items()}
    recorded["copied"] = record["zerocopy"] and record["zerocopy"]["copied"]
    differences = (
        []
        if recorded == truth and not truth["copied"]
        else [f"counted {truth}, and the record has {recorded}"]
    )
    first = next((problem["code"] for problem in record["why"]["problems"]), None)
    return (
        differences
        if first == code
        else [*differences, f"its first problem is {first}, and should be {code}"]
    )


def judge(record: dict[str, Any]) -> list[str]:
    """Return the problems of a run between two hosts.

    Identities of sampled time are ignored, because emulated CPUs stop at times, with their timers.
    """
    reasons = [str(reason) for reason in record["verdict"]["reasons"]]
    problems = [reason for reason in reasons if not re.match(r"identity \w+_time: ", reason)]
    broken = [
        row for row in record["identities"] if row["holds"] is False and not row["name"].endswith("_time")
    ]
    problems += [f"{row['name']}: {row['left']} is not {row['right']}" for row in broken]
    kernels = [directory["machine"]["kernel"] for directory in record["places"].values()]
    if len(set(kernels)) != 2:
        problems.append(f"one kernel on both hosts: {kernels}")
    holding = [row["name"] for row in record["identities"] if row["holds"]]
    for name in ("delivered", "acked_bytes", "received_of_tcp", "sent_bytes", "received_bytes"):
        if name not in holding:
            problems.append(f"{name}: not checked")
    zerocopy = record["zerocopy"]
    if zerocopy and (zerocopy["copied"] or not zerocopy["completions"]):
        problems.append(f"{zerocopy['copied']} of {zerocopy['completions']} zero-copy sends were copied")
    copied = "" if not zerocopy else f"; {zerocopy['copied']} of {zerocopy['completions']} sends copied"
    workload = record["workload"]
    print(
        f"{workload['impl']} {workload['size_bytes']} B: {kernels}: {record['tx_bytes']} B sent,"
        f" {record['rx_bytes']} B received,"
        f" {len(holding)} of {len(record['identities'])} identities hold{copied}",
        flush=True,
    )
    return problems


if __name__ == "__main__":
    sys.exit(main())
