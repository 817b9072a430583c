"""A simulation in which something breaks, without a machine: QEMU is a script that boots for ever."""

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
from typing import Any, NoReturn

import pytest
from builders.simulated import keep_kernel, simulated_record
from copyscope.commands import entry
from copyscope.commands import simulate as simulate_command
from copyscope.errors import RunError
from copyscope.files import rescuing
from copyscope.simulate import boot, debian, guest, kernels, simulation

pytestmark = pytest.mark.timeout(30)

# Says its version; else it leaves its id, and boots until somebody ends it.
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


def command(place: Path) -> NoReturn:
    """All of the command but what is compiled, in a place of its own; what it says is kept in `said`."""
    # An interrupt in such a callback is lost, and the library of these tests has one.
    gc.callbacks.clear()
    os.environ |= {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "COPYSCOPE_CACHE": str(place / "cache"),
        "STARTED": str(place / "started"),
    }
    tempfile.tempdir = str(place / "tmp")
    setattr(entry, "build_if_stale", lambda *_: None)  # noqa: B010 (it is another function)
    setattr(boot, "build", lambda _: boot.Programs(b"", b"", "/nowhere"))  # noqa: B010
    with (place / "said").open("w") as sys.stderr:
        words = ["--json", str(place / "run.json"), "--seeds", "2", "--impl", "one_copy"]
        status = simulate_command.main(words)
    os._exit(status)


def begin(place: Path) -> BaseProcess:
    """A fork has imported all of it already: nothing is measured here that needs a Python of its own."""
    for name in ("bin", "started", "tmp"):
        (place / name).mkdir(parents=True)
    (place / "bin" / "qemu-system-x86_64").write_text(QEMU)
    (place / "bin" / "qemu-system-x86_64").chmod(0o755)
    kept = keep_kernel(place / "cache")
    sha256 = json.loads((kept / "about.json").read_text())["sha256"]["vmlinuz"]
    (kept / f"symbols-{sha256[:16]}").write_text("ffffffff81000000 T entry_SYSCALL_64\n")
    ours = multiprocessing.get_context("fork").Process(target=command, args=(place,))
    ours.start()
    return ours


def end(ours: BaseProcess, place: Path, number: int, guests: int) -> None:
    """A signal as soon as so many of its two guests run; nothing may be left then."""
    until = time.monotonic() + 20
    kept = {"about.json", "vmlinuz", "lock", kernels.DEFAULT, "guests"}
    while not (place / "said").exists() or len(list((place / "started").iterdir())) < guests:
        assert time.monotonic() < until and ours.is_alive(), "it did not come to that"
        time.sleep(0.01)
    assert ours.pid is not None
    os.kill(ours.pid, number)
    ours.join(10)
    if number != signal.SIGKILL and guests:
        said = (place / "said").read_text()
        assert ours.exitcode == 130 and said.splitlines()[-1].startswith("copyscope: interrupted")
    while any(alive(each.name) for each in (place / "started").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert list((place / "tmp").iterdir()) == []
    assert not (place / "run.json").exists()
    left = {path.name for path in (place / "cache").rglob("*")} - kept
    assert all(name.startswith(("symbols-", "vmlinux-")) for name in left)


@pytest.mark.parametrize(
    ("number", "guests"),
    [
        *((signal.SIGINT, 0), (signal.SIGINT, 2), (signal.SIGTERM, 1)),
        *((signal.SIGKILL, 1), (signal.SIGKILL, 2)),
    ],
)
def test_nothing_is_left_at_any_moment(tmp_path: Path, number: int, guests: int) -> None:
    ours = begin(tmp_path / "place")
    try:
        end(ours, tmp_path / "place", number, guests)
    finally:
        ours.kill()
        ours.join()


def test_of_two_guests_one_that_fails_ends_the_other(tmp_path: Path) -> None:
    with guest.Guest("", b"") as good, guest.Guest("", b"") as bad:
        good.start(
            ["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 60"], tmp_path / "console", lambda _: None
        )
        fails = f"until [ -s {tmp_path}/pid ]; do sleep 0.01; done; echo failed veth: no"
        bad.start(["sh", "-c", fails], tmp_path / "console", lambda _: None)
        with pytest.raises(RunError, match="guest: veth: no"):
            while not guest.wait([good, bad]):
                pass
    assert not alive((tmp_path / "pid").read_text().strip())


def test_a_console_that_cannot_be_kept_is_quoted() -> None:
    with guest.Guest("", b"") as one:
        script = f"echo booted; echo 'the last words' >{one.console.path}"
        with pytest.raises(RunError, match=r"console cannot be kept \(.*\); it ends with: the last words$"):
            one.run(["sh", "-c", script], Path("/nowhere/console"), lambda _: None)


def test_a_kernel_that_was_fetched_in_part_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while the image is written, where an older one was kept; then there is room again."""
    fetched: list[str] = []

    def index(suite: str) -> str:
        fetched.append(suite)
        return ""

    files = {"boot/vmlinuz-6": b"new", "lib/modules/6.12.200/kernel/veth.ko": b"module"}
    package = debian.Package("linux-image", "1", "pool/x.deb", "00", ())
    monkeypatch.setenv("COPYSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "_index", index)
    monkeypatch.setattr(kernels, "_get", lambda *_: b"")
    monkeypatch.setattr(debian, "kernel_packages", lambda _: [package])
    monkeypatch.setattr(debian, "unpack", lambda *_: iter(files.items()))
    (keep_kernel(tmp_path) / "vmlinuz").write_bytes(b"imagE")
    write = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        if path.name != "vmlinuz":
            return write(path, content)
        write(path, content[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        with pytest.raises(RunError, match=r"^kernel 6\.12: .*/vmlinuz: No space left on device"):
            kernels.take("6.12", lambda _: None)
    assert kernels.take("6.12", lambda _: None).release == "6.12.200"
    assert kernels.take("6.12", lambda _: None).image == b"new"
    assert fetched == ["trixie", "trixie"]


def test_a_record_that_finds_no_room_is_kept_elsewhere_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    made: dict[str, Any] = simulated_record()
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    monkeypatch.setattr(simulation, "simulate", lambda *_: made)
    monkeypatch.setattr("copyscope.commands.keeping.saving.save", full)
    monkeypatch.setattr(rescuing, "PLACES", (str(tmp_path),))
    assert simulate_command.main(["-q", "--json", str(tmp_path / "run.json")]) == 1
    out, err = capsys.readouterr()
    assert "No space left on device" in err and "LINES OF EACH COPY" in out
