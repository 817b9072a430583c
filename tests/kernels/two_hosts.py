"""Sender and receiver on two guests with kernels and clocks of their own, joined by one cable.

    make check-two-hosts                              6.12 and 7.x
    make check-two-hosts KERNELS="6.12 6.12-arm64"    the second has another processor
    make check-two-hosts RUNS=crossover               from which size on zero_copy pays there (ten minutes)
    make check-two-hosts RUNS=why                     what `why` says of senders with one fault

The cable is a socket of QEMU's between two e1000 cards. Over a second card each guest has an sshd, which this
machine reaches: it is the third, from which `copyscope run --sender-at ... --receiver-at ...` is called.
What is measured is kept in .output/two-hosts; a broken identity, or a zero-copy send that was copied, fails.
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
from far_hosts import LIBRARIES, SSHD, parts_of_sshd
from matrix import Kernel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".output" / "two-hosts"
# A guest with another processor sees none of this machine's files: an sshd, and what a far host has to have.
FAR_HOST = (
    *("openssh-server", "bash", "dash", "iproute2", "util-linux", "ethtool", "kmod", "mount"),
    *("coreutils", "grep", "sed", "hostname", "busybox-static"),
)
SSHD_CONFIG = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
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
  UserKnownHostsFile {place}/known
  IdentityFile {place}/user
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
# In the order of the seed, so that what drifts hits both.
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
# What tests/kernels/cabled.c does -> the code of its first problem; None: nothing is wrong.
SENDERS = {"batches": None, "wait_each": "waits", "small": "small", "no_memlock": "enobufs"}
SEND_S = 12
CABLED = ROOT / ".output" / "tests" / "cabled"
BOOT_S = 240.0
RUN_S = 240.0
CROSSOVER_S = 1200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    known = {kernel.name: kernel for kernel in matrix.KERNELS}
    parser.add_argument("kernels", nargs="*", default=["6.12", "7.x"], help=", ".join(known))
    parser.add_argument("--only", action="append", choices=(*RUNS, CROSSOVER, WHY), help="of the runs")
    asked = parser.parse_args()
    if len(asked.kernels) != 2 or not set(asked.kernels) <= set(known):
        parser.error(f"name two kernels, each one of {', '.join(known)}")
    # Guests end with this program, also where it is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    problems: list[str] = []
    # Where guests see it: their /tmp is their own.
    with tempfile.TemporaryDirectory(dir=KEPT) as directory, ExitStack() as guests:
        place = Path(directory)
        ports = free_port(), free_port()
        write(place, *ports)
        for number, (kernel, port) in enumerate(zip(asked.kernels, ports, strict=True), 1):
            guests.enter_context(guest(number, known[kernel], place, port))
        for number in (1, 2):
            wait_for(place, f"guest{number}")
        others = {CROSSOVER: crossover, WHY: why}
        # Its sender is built for this processor.
        most = (*RUNS, WHY) if {known[name].arch for name in asked.kernels} == {"amd64"} else tuple(RUNS)
        for name in asked.only or most:
            problems += others[name](place) if name in others else run(place, name)
    print("\n".join(problems) or "two hosts: all as it should be")
    return 1 if problems else 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def write(place: Path, first: int, second: int) -> None:
    """Keys and configurations, where the guests read them, too."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    assert SSHD is not None
    (place / "sshd").symlink_to(SSHD)
    (place / "libraries").symlink_to(LIBRARIES)
    (place / "sshd_config").write_text(SSHD_CONFIG.format(place=place) + parts_of_sshd())
    (place / "ssh_config").write_text(SSH_CONFIG.format(place=place, first=first, second=second))
    (place / "known").write_text(f"guest {(place / 'host.pub').read_text()}")
    (place / "bin").mkdir()
    (place / "bin" / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {place}/ssh_config "$@"\n')
    (place / "bin" / "ssh").chmod(0o755)


def other_processor(kernel: Kernel, root: str, place: Path) -> dict[str, str]:
    """The files that its guest sees: Debian's, and what the guest is to find of ours."""
    if not matrix.build_cross(kernel.arch, root):
        sys.exit(f"two_hosts: the programs for {kernel.arch} cannot be built (above)")
    # A static program runs on any of its kernels; the suite is that of the libraries (matrix.py).
    unpacked = matrix.fetch(f"{matrix.LIBRARIES_OF[kernel.arch][0]}/all", kernel.arch, *FAR_HOST)
    if unpacked is None:
        sys.exit(f"two_hosts: the files of a host with {kernel.arch} cannot be downloaded (above)")
    tree = KEPT / "tree"
    shutil.copytree(unpacked, tree, symlinks=True)
    for directory in ("proc", "sys", "dev", "run", "tmp", "root", "lib/modules"):
        (tree / directory).mkdir(parents=True, exist_ok=True)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (tree / "etc" / "group").write_text("root:x:0:\n")
    for part in (
        HERE / "host_on_cable",
        *(place / name for name in ("host", "host.pub", "user.pub")),
    ):
        there = tree / part.relative_to("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(part, there)
    (tree / place.relative_to("/") / "sshd").symlink_to("/usr/sbin/sshd")
    (tree / place.relative_to("/") / "sshd_config").write_text(SSHD_CONFIG.format(place=place))
    for program in ("collector", "traffic"):
        there = tree / (ROOT / ".output" / program).relative_to("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / ".output" / kernel.arch / program, there)
    return {
        "COPYSCOPE_GUEST_ARCH": kernel.arch,
        "COPYSCOPE_GUEST_TREE": str(tree),
        # Its clock is the host's: one that runs ahead while the guest idles ends what waits too early.
        "COPYSCOPE_GUEST_ICOUNT": "no",
    }


@contextmanager
def guest(number: int, kernel: Kernel, place: Path, port: int) -> Iterator[None]:
    """One that runs; its processes end with this. The first holds the cable's socket."""
    root = matrix.fetch(kernel.suite, kernel.arch)
    if root is None:
        sys.exit(f"two_hosts: {kernel.suite}-{kernel.arch} cannot be downloaded (above)")
    environment = {**os.environ, "COPYSCOPE_GUEST_CPUS": "1", "COPYSCOPE_GUEST_MEMORY": "1G"}
    environment["COPYSCOPE_GUEST_TIMEOUT_S"] = str(round(2 * BOOT_S + CROSSOVER_S))
    if kernel.arch != "amd64":
        environment |= other_processor(kernel, root, place)
    cable = place / "cable"
    held = "on" if number == 1 else "off"
    with (KEPT / f"guest{number}.log").open("wb") as log:
        running = subprocess.Popen(
            [
                *(HERE / "boot.sh", root, f"{HERE / 'host_on_cable'} {number} {place}"),
                *("-netdev", f"stream,id=a,server={held},addr.type=unix,addr.path={cable}"),
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
            until = time.monotonic() + BOOT_S
            while not listens(cable) and time.monotonic() < until:
                time.sleep(0.1)
            yield
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def listens(cable: Path) -> bool:
    """Its file is there a moment earlier, and a QEMU that is refused then goes on without a cable."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    # __SO_ACCEPTCON, include/uapi/linux/net.h
    return any(line.endswith(f" {cable}") and line.split()[3] == "00010000" for line in lines)


def wait_for(place: Path, host: str) -> None:
    until = time.monotonic() + BOOT_S
    while subprocess.run([place / "bin" / "ssh", host, "true"], capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            sys.exit(f"two_hosts: {host} did not come up: see {KEPT}/{host}.log")
        time.sleep(1)


def copyscope(place: Path, within_s: float, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of ours, for which `ssh` knows the guests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.run(
        [sys.executable, "-I", "-m", "copyscope", *words],
        env={**environment, "PATH": f"{place}/bin:{environment['PATH']}", "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
    )


def run(place: Path, name: str) -> list[str]:
    """One profile, from here; what is wrong with it."""
    file = KEPT / f"{name}.json"
    words = ("--quiet", "-v", *RUNS[name], "--json", str(file))
    done = copyscope(place, RUN_S, "run", *words)
    (KEPT / f"{name}.txt").write_text(done.stdout + done.stderr)
    if not file.exists():
        return [f"{name}: no record: {done.stderr.strip()}"]
    return [f"{name}: {problem}" for problem in judge(json.loads(file.read_text()))]


def crossover(place: Path) -> list[str]:
    """An experiment over the cable: what it says, and what is wrong with its runs."""
    experiment, out = KEPT / "wire.toml", KEPT / "wire"
    experiment.write_text(EXPERIMENT)
    words = ("--experiment", str(experiment), "--out", str(out), "-v")
    done = copyscope(place, CROSSOVER_S, CROSSOVER, *words)
    (KEPT / f"{CROSSOVER}.txt").write_text(done.stdout + done.stderr)
    print(done.stdout, flush=True)
    lines = gzip.decompress((out / "records.jsonl.gz").read_bytes()).splitlines()
    records = [json.loads(line) for line in lines]
    runs = [f"{record['workload']['impl']} {record['workload']['size_bytes']}" for record in records]
    found = [
        f"{name}: {problem}" for name, record in zip(runs, records, strict=True) for problem in judge(record)
    ]
    if len(set(runs)) != 6 or done.returncode:
        found.append(
            f"{CROSSOVER}: status {done.returncode}, runs of {sorted(set(runs))}: {done.stderr[-400:]}"
        )
    return found


def why(place: Path) -> list[str]:
    """What `why` says of senders on the first guest; the second only receives."""
    argv = [str(place / "bin" / "ssh"), "guest2", str(CABLED), "receive"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout and receiver.stdout.readline() == "ready\n"
            return [
                f"{WHY} {how}: {problem}"
                for how, code in SENDERS.items()
                for problem in why_of(place, how, code)
            ]
        finally:
            receiver.kill()


def why_of(place: Path, how: str, code: str | None) -> list[str]:
    """One sender, watched from start to end; what is wrong with what was said of it."""
    said, file = f"/run/{how}.txt", f"/run/{how}.json"
    on_guest = (
        f"cd {ROOT} && export COLUMNS=100 COPYSCOPE_TRUST_UID=$(stat -c %u .) &&"
        f" bin/copyscope why --quiet --json {file} -- {CABLED} {how} {SEND_S} 198.18.0.2 {said}"
    )
    screen = on(place, on_guest)
    (KEPT / f"{WHY}-{how}.txt").write_text(screen)
    try:
        record, truth = (json.loads(on(place, f"cat {name}")) for name in (file, said))
    except ValueError:
        return [f"no record: {screen[-400:]}"]
    (KEPT / f"{WHY}-{how}.json").write_text(json.dumps(record))
    print(f"{WHY} {how}: {record['why']['sentence']}", flush=True)
    return judge_why(record, truth, code)


def on(place: Path, command: str) -> str:
    """What it prints on the first guest."""
    argv = [str(place / "bin" / "ssh"), "guest1", command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=RUN_S)
    return done.stdout + done.stderr


def judge_why(record: dict[str, Any], truth: dict[str, int], code: str | None) -> list[str]:
    """By what the sender itself has counted."""
    keys = {"sends": "sends", "noticed": "given_back_sends", "refused": "enobufs"}
    (buffers,) = record["buffers"] or [{}]
    seen = {key: buffers.get(name) for key, name in keys.items()}
    seen["copied"] = record["zerocopy"] and record["zerocopy"]["copied"]
    found = [] if seen == truth and not truth["copied"] else [f"counted {truth}, and the record has {seen}"]
    first = next((one["code"] for one in record["why"]["problems"]), None)
    return found if first == code else [*found, f"its first problem is {first}, and should be {code}"]


def judge(record: dict[str, Any]) -> list[str]:
    """What is wrong with a run of two hosts.

    Emulated processors stand still, and their timers with them: samples are no measure of CPU time there.
    """
    reasons = [str(reason) for reason in record["verdict"]["reasons"]]
    found = [reason for reason in reasons if not re.match(r"identity \w+_time: ", reason)]
    broken = [
        row for row in record["identities"] if row["holds"] is False and not row["name"].endswith("_time")
    ]
    found += [f"{row['name']}: {row['left']} is not {row['right']}" for row in broken]
    kernels = [place["machine"]["kernel"] for place in record["places"].values()]
    if len(set(kernels)) != 2:
        found.append(f"one kernel on both hosts: {kernels}")
    held = [row["name"] for row in record["identities"] if row["holds"]]
    for name in ("delivered", "acked_bytes", "received_of_tcp", "sent_bytes", "received_bytes"):
        if name not in held:
            found.append(f"{name}: not checked")
    zerocopy = record["zerocopy"]
    if zerocopy and (zerocopy["copied"] or not zerocopy["completions"]):
        found.append(f"{zerocopy['copied']} of {zerocopy['completions']} zero-copy sends were copied")
    copied = "" if not zerocopy else f"; {zerocopy['copied']} of {zerocopy['completions']} sends copied"
    workload = record["workload"]
    print(
        f"{workload['impl']} {workload['size_bytes']} B: {kernels}: {record['tx_bytes']} B sent,"
        f" {record['rx_bytes']} B received,"
        f" {len(held)} of {len(record['identities'])} identities hold{copied}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
