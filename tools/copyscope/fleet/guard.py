"""Runs one command on another host, and ends it, with all that was brought there, when nobody listens.

This text is sent as it is and runs in the Python of that host (`python3 -I -c`): the standard library only,
as of Python 3.6, and nothing of ours. On its standard input: one line, the job as JSON; the bytes of the
bundle, if there is one; then a line now and then. The end of that, or silence, is the end of the job: a
connection that is cut, or an ssh that was killed, sends no signal. On standard output: one line of facts,
then what the command says. Exit status: the command's own; 124 nobody was there any more, 125 the bundle
arrived damaged or has no room, 127 the command is not there. Each host starts it anew: what only a bundle
needs is loaded with one.
"""
# ruff: noqa: PLC0415, PTH119, PTH207

import glob
import json
import os
import select
import signal
import subprocess
import sys

END_S = 1.0
OPENING_S = 30
HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
ABANDONED, NO_BUNDLE, NOT_THERE = 124, 125, 127


class Gone(Exception):
    """Nobody is there any more, or wants it to go on."""


def look(seconds: int, wakeup: int) -> bytes:
    """What was said, or nothing when a child has ended. Raises Gone after so many seconds without either, and
    for a signal that came: here and nowhere else, so that what was just begun is held by then.

    Second by second: a machine that stood still for long has not been silent for long.
    """
    for _ in range(seconds):
        ready = select.select([0, wakeup], [], [], 1.0)[0]
        if wakeup in ready:
            for number in os.read(wakeup, 1 << 10):  # signal.set_wakeup_fd()
                if number in HANDLED:
                    raise Gone(f"signal {number} came")
            return b""
        if ready:
            said = os.read(0, 1 << 16)
            if said:
                return said
            raise Gone("the connection ended")
    raise Gone(f"nothing came through the connection for {seconds} s")


def facts() -> str:
    """What a table of hosts says of each."""
    drivers = glob.glob("/sys/class/net/*/device/driver")
    nics = sorted({os.path.basename(os.path.realpath(driver)) for driver in drivers})
    return json.dumps({"kernel": os.uname().release, "arch": os.uname().machine, "nics": nics})


def unpack(data: bytes, digest: str, directory: str) -> None:
    """The files of the bundle. What arrived otherwise than it was sent is not run: raises ValueError."""
    import hashlib
    import io
    import tarfile
    from pathlib import Path

    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError("its SHA-256 is not that of what was sent")
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            # Python 3.12 warns of those who do not say how strict it is to be; some 3.11 have no word for it.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(directory)
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error
    environment = Path(directory, "copyscope", ".venv")
    if environment.is_dir():
        found = "python{}.{}".format(*sys.version_info)
        needed = next((environment / "lib").iterdir()).name
        if found != needed:
            raise ValueError(f"it has packages for {needed}, there is {found}")
        python = Path(sys.executable).resolve()
        (environment / "bin").mkdir()
        (environment / "bin" / "python3").symlink_to(python)
        (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\n")


def watch(argv: "list[str]", silence_s: int, wakeup: int) -> int:
    """Runs it to its end, as long as somebody is there. Raises Gone."""
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        while child.poll() is None:
            look(silence_s, wakeup)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode
    finally:
        finish(child)


def finish(child: "subprocess.Popen[bytes]") -> None:
    """End it in order, as Ctrl-C does, and all of its group; who does not go is killed."""
    for number in HANDLED:  # a second one leaves nothing behind
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(END_S)
            return
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def main() -> int:
    wakeup, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.set_wakeup_fd(ring)
    for number in (signal.SIGCHLD, *HANDLED):
        signal.signal(number, lambda _number, _frame: None)  # look() is told of it
    pending, directory, step = b"", None, ""
    try:
        while b"\n" not in pending:
            pending += look(OPENING_S, wakeup)
        line, _, pending = pending.partition(b"\n")
        job = json.loads(line.decode())
        sys.stdout.write(facts() + "\n")
        sys.stdout.flush()
        argv, size = job["argv"], job["bundle_bytes"]
        if size:
            import tempfile

            parts, left = [pending], size - len(pending)
            while left > 0:
                parts.append(look(job["silence_s"], wakeup))
                left -= len(parts[-1])
            step = ": make room, or let TMPDIR there name another directory"
            try:
                directory = tempfile.mkdtemp(prefix="copyscope-")  # 0700
                unpack(b"".join(parts)[:size], job["sha256"], directory)
            except OSError as error:
                sys.stderr.write(f"bundle: {tempfile.tempdir}: {error.strerror}{step}\n")
                return NO_BUNDLE
            except ValueError as error:
                sys.stderr.write(f"bundle: {error}\n")
                return NO_BUNDLE
            step = ": let TMPDIR there name another directory, in which programs may run"
            argv = [word.replace("@BUNDLE@", directory) for word in argv]
        return watch(argv, job["silence_s"], wakeup)
    except Gone as why:
        sys.stderr.write(f"ended there: {why}: ask it again\n")
        return ABANDONED
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}{step}\n")
        return NOT_THERE
    finally:
        if directory is not None:
            import shutil

            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
