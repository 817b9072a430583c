# SPDX-License-Identifier: GPL-2.0-only
"""Simulations in which something fails. A script replaces QEMU, whose guest never finishes booting."""

import errno
import gc
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import pytest
from builders.documents import typed_boot
from builders.simulated import keep_kernel, simulated_record
from copyscope.base.errors import RunError
from copyscope.commands import entry
from copyscope.commands import simulate as simulate_command
from copyscope.run.simulate import boot, kernels, simulation

pytestmark = pytest.mark.timeout(30)

# Prints a version, or else notes its process id and prints the lines of a guest that never ends.
QEMU = """\
#!/bin/sh
[ "$1" = --version ] && echo "QEMU emulator version 7.2.22" && exit
echo booted
echo measure one_copy/65536
: >$STARTED/$$
exec sleep 60
"""


def alive(pid: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def command(folder: Path) -> NoReturn:
    """Run `copyscope simulate` in a folder of its own, without compiled programs. stderr goes to a file."""
    # Callbacks of hypothesis must go, because an interrupt in a callback of the garbage collector is lost.
    gc.callbacks.clear()
    os.environ |= {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "COPYSCOPE_CACHE": str(folder / "cache"),
        "STARTED": str(folder / "started"),
    }
    tempfile.tempdir = str(folder / "tmp")
    setattr(entry, "build_if_stale", lambda *_: None)  # noqa: B010 (replaces a function)
    setattr(boot, "build", lambda _: boot.Programs(b"", b"", "/nowhere"))  # noqa: B010
    with (folder / "stderr").open("w") as sys.stderr:
        words = ["--json", str(folder / "run.json"), "--seeds", "2", "--impl", "one_copy"]
        status = simulate_command.main(words)
    os._exit(status)


def begin(folder: Path) -> BaseProcess:
    """Start the command in a forked child, which need not import anything."""
    for name in ("bin", "started", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "bin" / "qemu-system-x86_64").write_text(QEMU)
    (folder / "bin" / "qemu-system-x86_64").chmod(0o755)
    kernel_folder = keep_kernel(folder / "cache")
    sha256 = json.loads((kernel_folder / "about.json").read_text())["sha256"]["vmlinuz"]
    (kernel_folder / f"symbols-{sha256[:16]}").write_text("ffffffff81000000 T entry_SYSCALL_64\n")
    child = multiprocessing.get_context("fork").Process(target=command, args=(folder,))
    child.start()
    return child


def end(child: BaseProcess, folder: Path, signal_number: int, guests: int) -> None:
    """Send a signal once `guests` of the two guests run, and check that no process or file remains."""
    deadline_s = time.monotonic() + 20
    kept = {"about.json", "vmlinuz", "lock", kernels.DEFAULT, "guests"}
    while not (folder / "stderr").exists() or len(list((folder / "started").iterdir())) < guests:
        assert time.monotonic() < deadline_s and child.is_alive(), "the guests did not start in time"
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal_number)
    child.join(10)
    if signal_number != signal.SIGKILL and guests:
        errors = (folder / "stderr").read_text()
        assert child.exitcode == 130 and errors.splitlines()[-1].startswith("copyscope simulate: interrupted")
    while any(alive(entry.name) for entry in (folder / "started").iterdir()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert list((folder / "tmp").iterdir()) == []
    assert not (folder / "run.json").exists()
    left_over = {path.name for path in (folder / "cache").rglob("*")} - kept
    assert all(name.startswith(("symbols-", "vmlinux-")) for name in left_over)


@pytest.mark.parametrize(
    ("signal_number", "guests"),
    [
        *((signal.SIGINT, 0), (signal.SIGINT, 2), (signal.SIGTERM, 1)),
        *((signal.SIGKILL, 1), (signal.SIGKILL, 2)),
    ],
)
def test_after_a_signal_no_process_and_no_file_is_left(
    tmp_path: Path, signal_number: int, guests: int
) -> None:
    child = begin(tmp_path / "place")
    try:
        end(child, tmp_path / "place", signal_number, guests)
    finally:
        child.kill()
        child.join()


def test_a_guest_that_fails_ends_the_other(tmp_path: Path) -> None:
    with boot.Guest("", b"") as booting, boot.Guest("", b"") as failing:
        booting.start(
            ["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 60"], tmp_path / "console", lambda _: None
        )
        fails = f"until [ -s {tmp_path}/pid ]; do sleep 0.01; done; echo failed veth: no"
        failing.start(["sh", "-c", fails], tmp_path / "console", lambda _: None)
        with pytest.raises(RunError, match="guest: veth: no"):
            while not boot.wait_for_guests([booting, failing]):
                pass
    assert not alive((tmp_path / "pid").read_text().strip())


def test_a_console_that_cannot_be_saved_is_quoted() -> None:
    with boot.Guest("", b"") as guest:
        script = f"echo booted; echo 'the last words' >{guest.console.path}"
        with pytest.raises(RunError, match=r"console cannot be saved \(.*\) and ends with: the last words$"):
            guest.run(["sh", "-c", script], Path("/nowhere/console"), lambda _: None)


def test_a_partly_written_kernel_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up while the image of a newer kernel is written, and has room again later."""
    fetched: list[str] = []

    def index(suite: str) -> str:
        fetched.append(suite)
        return ""

    files = {"boot/vmlinuz-6": b"new", "lib/modules/6.12.200/kernel/veth.ko": b"module"}
    package = kernels.Package("linux-image", "1", "pool/x.deb", "00", ())
    monkeypatch.setenv("COPYSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_fetch_index", index)
    monkeypatch.setattr(kernels, "_download", lambda *_: b"")
    monkeypatch.setattr(kernels, "kernel_packages", lambda _: [package])
    monkeypatch.setattr(kernels, "files_of_package", lambda *_: iter(files.items()))
    (keep_kernel(tmp_path) / "vmlinuz").write_bytes(b"imagE")
    write = Path.write_bytes

    def write_one_byte(path: Path, content: bytes) -> int:
        if path.name != "vmlinuz":
            return write(path, content)
        write(path, content[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", write_one_byte)
        with pytest.raises(RunError, match=r"^kernel 6\.12: .*/vmlinuz: No space left on device"):
            kernels.get_kernel("6.12", lambda _: None)
    assert kernels.get_kernel("6.12", lambda _: None).release == "6.12.200"
    assert kernels.get_kernel("6.12", lambda _: None).image == b"new"
    assert fetched == ["trixie", "trixie"]


def test_a_record_without_room_on_the_disk_is_rescued_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    simulated_run = typed_boot(simulated_record())
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(simulation, "simulate", lambda *_, **__: simulated_run)
    monkeypatch.setattr("copyscope.commands.output_files.save", full)
    monkeypatch.setattr("copyscope.base.files.RESCUE_DIRECTORIES", (str(tmp_path),))
    assert simulate_command.main(["-q", "--json", str(tmp_path / "run.json")]) == 1
    out, err = capsys.readouterr()
    assert "No space left on device" in err and "LINES OF EACH COPY" in out
