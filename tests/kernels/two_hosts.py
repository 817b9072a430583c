"""Two guests with kernels of their own, joined by one cable: what the near one measures with the far one.

    make check-two-hosts                      6.12 here, 7.x there

A cable is a socket of QEMU's between two e1000 cards. Each guest has its own clock, and the far one has an
sshd. What is measured is kept in .output/two-hosts; a broken identity, or a copy of a zero-copy send, fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".output" / "two-hosts"
UNPACKED = ROOT / ".output" / "tests" / "openssh"
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.x": "sid"}
SSHD_CONFIG = """\
HostKey {place}/host
AuthorizedKeysFile {place}/user.pub
ListenAddress 198.18.0.2
StrictModes no
UsePAM no
PermitRootLogin yes
"""
SSH_CONFIG = """\
Host far
  HostName 198.18.0.2
  User root
  UserKnownHostsFile {place}/known
  IdentityFile /root/.ssh/user
  IdentitiesOnly yes
"""
NEAR = (
    "tools/profile.py --quiet --receiver-at far {options}"
    " --json $results/{name}.json > $results/{name}.txt 2>&1"
)
LIMIT_S = 400
# What each run is of.
RUNS = {
    "zero_copy": "--impl zero_copy --duration 4",
    "one_copy": "--impl one_copy --duration 4",
    "from_there": "--impl zero_copy --duration 4 --sender-at far --receiver-at here",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--near", default="6.12", choices=SUITES)
    parser.add_argument("--far", default="7.x", choices=SUITES)
    parser.add_argument("--run", action="append", metavar="NAME=OPTIONS", help="instead of the usual ones")
    asked = parser.parse_args()
    runs = dict(one.split("=", 1) for one in asked.run) if asked.run else RUNS
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    # Where guests see it: their /tmp is their own.
    with tempfile.TemporaryDirectory(dir=KEPT) as directory:
        place = Path(directory)
        write(place, runs)
        cable = f"unix,addr.path={place}/cable"
        options = {
            "far": f"stream,id=a,server=on,addr.type={cable}",
            "near": f"stream,id=a,server=off,addr.type={cable}",
        }
        with guest("far", asked.far, place, options["far"]):
            until = time.monotonic() + 30
            while not (place / "cable").exists():
                if time.monotonic() > until:
                    sys.exit("two_hosts: the far guest did not begin")
                time.sleep(0.1)
            with guest("near", asked.near, place, options["near"]) as near:
                status = near.wait(LIMIT_S)
    print((KEPT / "near.log").read_text())
    problems = [problem for name in runs for problem in judge(name)]
    print("\n".join(problems) or "two hosts: all as it should be")
    return 1 if problems or status else 0


def write(place: Path, runs: dict[str, str]) -> None:
    """Keys, configurations and what is to be run, where both guests read it."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
    sshd = next(path for path in (Path("/usr/sbin/sshd"), UNPACKED / "usr/sbin/sshd") if path.exists())
    (place / "sshd").symlink_to(sshd)
    library = next(UNPACKED.glob("usr/lib/*/libwrap.so.0"), Path("/none"))
    (place / "libraries").symlink_to(library.parent)
    (place / "sshd_config").write_text(SSHD_CONFIG.format(place=place))
    (place / "ssh_config").write_text(SSH_CONFIG.format(place=place))
    (place / "known").write_text(f"198.18.0.2 {(place / 'host.pub').read_text()}")
    lines = [NEAR.format(options=options, name=name) for name, options in runs.items()]
    (place / "near").write_text("\n".join([*lines, "exit 0", ""]))


@contextmanager
def guest(side: str, kernel: str, place: Path, cable: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One that runs; its processes end with this."""
    fetched = subprocess.run(
        [HERE / "fetch.sh", SUITES[kernel], "amd64"], check=True, stdout=subprocess.PIPE, text=True
    )
    share = f"local,id=results,path={KEPT},security_model=mapped-xattr"
    with (KEPT / f"{side}.log").open("wb") as log:
        running = subprocess.Popen(
            [
                *(HERE / "boot.sh", fetched.stdout.strip(), f"tests/kernels/far {side} {place} results"),
                *("-netdev", cable, "-device", f"e1000,netdev=a,mac=52:54:00:00:00:0{len(side)}"),
                *("-fsdev", share, "-device", "virtio-9p-pci,fsdev=results,mount_tag=results"),
            ],
            cwd=ROOT,
            env={**os.environ, "COPYSCOPE_GUEST_CPUS": "1", "COPYSCOPE_GUEST_MEMORY": "1G"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def judge(name: str) -> list[str]:
    """What is wrong with a run of two hosts."""
    file = KEPT / f"{name}.json"
    if not file.exists():
        said = (KEPT / f"{name}.txt").read_text() if (KEPT / f"{name}.txt").exists() else "it was not begun"
        return [f"{name}: no record: {said.strip()[-400:]}"]
    record: dict[str, Any] = json.loads(file.read_text())
    found = [f"{name}: {reason}" for reason in record["verdict"]["reasons"]]
    broken = [row for row in record["identities"] if row["holds"] is False]
    found += [f"{name}: {row['name']}: {row['left']} is not {row['right']}" for row in broken]
    kernels = {place["machine"]["kernel"] for place in record["places"].values()}
    if len(kernels) != 2:
        found.append(f"{name}: one kernel on both hosts: {kernels}")
    zerocopy = record["zerocopy"]
    if zerocopy and (zerocopy["copied"] or not zerocopy["completions"]):
        found.append(f"{name}: {zerocopy['copied']} of {zerocopy['completions']} zero-copy sends were copied")
    if zerocopy:
        print(f"{name}: {zerocopy['copied']} of {zerocopy['completions']} zero-copy sends copied")
    print(f"{name}: {record['tx_bytes']} bytes sent, {record['rx_bytes']} received; {sorted(kernels)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
