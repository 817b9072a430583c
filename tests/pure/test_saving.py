# SPDX-License-Identifier: GPL-2.0-only
"""Writing results: files are replaced, FIFOs and devices are written to, links of others are refused."""

import builtins
import errno
import gzip
import io
import json
import os
import secrets
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import builders
import peer
import pytest
from builders.documents import derive, typed_whole
from builders.sweep import store, sweep
from copyscope.base import files
from copyscope.base.errors import RunError
from copyscope.commands import crossover, output_files
from copyscope.record import store as store_on_disk
from test_sweep import EXPERIMENT, fail
from test_sweep import sweep as run_sweep

RUN = typed_whole(derive(builders.raw_record()))

NOBODY = 65534


@pytest.fixture
def shared_directory(tmp_path: Path) -> Path:
    """Return a directory in which every user can create links, like /tmp but not sticky."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


@pytest.fixture
def under_sudo(monkeypatch: pytest.MonkeyPatch) -> int:
    """Act as root under sudo, and return the user who called it. Without root, files keep their owner."""
    user = NOBODY if os.geteuid() == 0 else os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(user))
    monkeypatch.setenv("SUDO_GID", str(NOBODY if user == NOBODY else os.getgid()))
    return user


def read_in_background(fifo: Path) -> Callable[[], bytes]:
    """Read a FIFO in a thread, like `cat FIFO`. The returned function waits at most 10 s for the data."""
    contents: list[bytes] = []
    reader = threading.Thread(target=lambda: contents.append(fifo.read_bytes()), daemon=True)
    reader.start()

    def result() -> bytes:
        reader.join(10)
        return contents[0] if contents else b"nothing was written through it"

    return result


def test_a_regular_file_is_replaced_and_a_device_is_not(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    before = target.stat().st_ino
    with target.open() as reader:
        files.save(target, b"new")
        assert reader.read() == "old"  # a reader that opened the old file still reads the old content
    assert target.read_bytes() == b"new" and target.stat().st_ino != before
    files.save(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OSError) as full:
        files.save(Path("/dev/full"), b"x")
    assert full.value.errno == errno.ENOSPC and full.value.filename == "/dev/full"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_fifo_without_a_reader_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READER_START_S", 0.05)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="this FIFO has no reader: start the reader first") as raised:
        files.save(tmp_path / "fifo", b"x")
    assert raised.value.filename == str(tmp_path / "fifo")


def test_a_reader_that_stops_reading_a_fifo_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader keeps the FIFO open but reads nothing, and the data exceed the capacity of a pipe."""
    monkeypatch.setattr(files, "CHUNK_WAIT_S", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(
            OSError, match=r"^\[Errno 110\] the reader of this FIFO has read nothing for 0.2 s"
        ):
            files.save(fifo, bytes(1 << 20))
    finally:
        os.close(reader)


def test_a_slow_reader_of_a_fifo_gets_all_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_WAIT_S", 0.5)
    fifo, received = tmp_path / "fifo", bytearray()
    os.mkfifo(fifo)

    def read() -> None:
        with fifo.open("rb", buffering=0) as stream:
            while part := stream.read(30_000):
                received.extend(part)
                time.sleep(0.1)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    files.save(fifo, bytes(300_000))
    reader.join(10)
    assert len(received) == 300_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("sudo", ["", str(NOBODY - 1)])
def test_a_fifo_of_another_user_is_refused_and_a_file_is_replaced(
    sudo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root's directory is sticky, like /tmp: every user can create a file there and stays its owner."""
    monkeypatch.setenv("SUDO_UID", sudo)
    monkeypatch.setenv("SUDO_GID", sudo)
    monkeypatch.setattr(files, "RESCUE_DIRECTORIES", ())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    fifo, file = tmp_path / "fifo.json", tmp_path / "file.json"
    os.mkfifo(fifo, 0o666)
    file.write_text("")
    for planted in (fifo, file):
        planted.chmod(0o666)
        os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(RunError, match="belongs to another user, who could read the data"):
        output_files.check_file(str(fifo))
    read = read_in_background(fifo)
    assert not output_files.write_runs(RUN, str(fifo))
    errors = capsys.readouterr().err
    assert "belongs to another user" in errors and "the measurement is saved in" in errors
    with suppress(OSError):  # lets the reader end
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    assert read() == b""
    assert output_files.write_runs(RUN, str(file))
    status = file.stat()
    assert status.st_uid == int(sudo or 0) and status.st_mode & 0o777 == (0o644 if sudo else 0o600)


@pytest.mark.parametrize("invalid_id", ["9" * 5000, str(2**32 - 1), str(2**63), "-1", "٣", "", "1e3"])
def test_impossible_user_and_group_ids_are_ignored(invalid_id: str) -> None:
    assert files.invoking_ids({"SUDO_UID": invalid_id, "SUDO_GID": "1000"}) is None
    assert files.invoking_ids({"SUDO_UID": "1000", "SUDO_GID": invalid_id}) is None


@pytest.mark.parametrize("command", ["crossover", "profile"])
def test_each_command_writes_to_a_fifo_without_replacing_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = read_in_background(fifo)
    if command == "profile":
        output_files.write_runs(RUN, str(fifo))
    else:
        directory = store(sweep(("one_copy", "zero_copy"), threads=(1,)), tmp_path / "demo")
        assert crossover.main([str(directory), "--json", str(fifo)]) == 0, capsys.readouterr().err
    assert isinstance(json.loads(read()), dict)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)


@pytest.mark.parametrize("redirected", [True, False])
def test_data_for_dev_stdout_are_written_between_two_prints(redirected: bool, tmp_path: Path) -> None:
    """Data for /dev/stdout go to the open descriptor, so that a redirected file is not replaced."""
    program = (
        "from copyscope.base import files; from pathlib import Path\n"
        "print('before'); files.save(Path('/dev/stdout'), b'between\\n'); print('after')"
    )
    shown = tmp_path / "shown"
    with shown.open("wb") as file:
        stdout = file if redirected else subprocess.PIPE
        done = subprocess.run([sys.executable, "-P", "-c", program], stdout=stdout, check=True, timeout=30)
    output = shown.read_bytes() if redirected else done.stdout
    assert output == b"before\nbetween\nafter\n"


@pytest.mark.usefixtures("under_sudo")
def test_a_link_of_another_user_is_not_followed(shared_directory: Path, tmp_path: Path) -> None:
    victim, planted = tmp_path / "victim", shared_directory / "j.json"
    victim.write_text("mine")
    planted.symlink_to(victim)
    before = victim.stat()
    for write in (
        lambda: files.save(planted, b"overwritten"),
        lambda: files.open_to_append(planted),
        lambda: output_files.check_file(str(planted)),
        lambda: files.make_directory(planted / "below"),
    ):
        with pytest.raises((OSError, RunError), match=r"link|Not a directory|symbolic"):
            write()
    # A link in the path of the file, and a second hard link are refused too.
    (shared_directory / "way").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        files.save(shared_directory / "way" / "victim", b"overwritten")
    os.link(victim, shared_directory / "failures.jsonl")
    with pytest.raises(OSError, match="second hard link"):
        files.open_to_append(shared_directory / "failures.jsonl")
    after = victim.stat()
    assert victim.read_text() == "mine" and (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


@pytest.mark.usefixtures("under_sudo")
def test_links_in_a_directory_of_root_are_followed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    if os.getuid() == 0:
        files.save(tmp_path / "link" / "a", b"x")
        assert (tmp_path / "real" / "a").read_bytes() == b"x"
    else:
        with pytest.raises(OSError, match="link"):  # without root, the directory belongs to a user
            files.save(tmp_path / "link" / "a", b"x")


def test_only_created_files_and_directories_are_given_to_the_user(tmp_path: Path, under_sudo: int) -> None:
    tmp_path.chmod(0o755)
    directory = tmp_path / "there"
    directory.mkdir()
    (directory / "old").write_text("root's")
    output_files.create_directory(str(directory))
    files.make_directory(directory / "made" / "below")
    files.save(directory / "made" / "new", b"x")
    files.save(directory / "old", b"y")
    with files.open_to_append(directory / "made" / "lines") as stream:
        stream.write(b"z")
    owner = os.getuid()
    assert directory.stat().st_uid == owner and tmp_path.stat().st_uid == owner
    for name in ("made", "made/below", "made/new", "made/lines"):
        assert (directory / name).stat().st_uid == under_sudo, name
    assert (directory / "old").stat().st_uid == owner  # a replaced file of root still belongs to root
    assert (directory / "made" / "new").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="other users write files with their own umask")
def test_other_users_cannot_read_the_records_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert output_files.write_runs(RUN, str(tmp_path / "run.json"))
    store_on_disk.append_record(tmp_path / "records.jsonl.gz", RUN)
    for name in ("run.json", "records.jsonl.gz"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("x")
    target.chmod(0o600)
    files.save(target, b"y")
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("under_sudo")
@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("experiment.toml", os.symlink),
        ("experiment.toml", os.link),
        ("failures.jsonl", os.symlink),
        ("failures.jsonl", os.link),
        ("records.jsonl.gz", os.symlink),
        ("records.jsonl.gz", os.link),
    ],
)
def test_a_sweep_follows_no_link_of_another_user(
    name: str, plant: Callable[[Path, Path], None], shared_directory: Path, tmp_path: Path
) -> None:
    """All runs fail, so that the sweep needs each of its files. It would complete the cut experiment.toml."""
    victim, directory = tmp_path / "victim", shared_directory / "tiny"
    victim.write_text(EXPERIMENT[:20])
    directory.mkdir()
    directory.chmod(0o777)
    plant(victim, directory / name)
    before = state(victim)
    try:
        error_text = run_sweep(directory, fail).stopped
    except RunError as error:
        error_text = str(error)
    assert error_text is not None and str(directory / name) in error_text
    assert state(victim) == before


def state(path: Path) -> tuple[Any, ...]:
    """Return the contents, owner, mode and time of a path: writes and changes of the owner show here."""
    status = path.stat()
    contents = sorted(path.iterdir()) if path.is_dir() else path.read_bytes()
    return contents, status.st_uid, status.st_gid, status.st_mode, status.st_mtime_ns


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Record the files and directories created from now on: name -> `file` or `directory`."""
    names: dict[str, str] = {}
    by_flags, by_mode, mkdir = os.open, io.open, os.mkdir

    def open_by_flags(path: Any, flags: int, *more: Any, **where: Any) -> int:
        if flags & os.O_CREAT:
            names[Path(path).name] = "file"
        return by_flags(path, flags, *more, **where)

    def open_by_mode(file: Any, mode: str = "r", *more: Any, **how: Any) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax"):
            names[Path(file).name] = "file"
        return by_mode(file, mode, *more, **how)

    def make_directory(path: Any, *more: Any, **where: Any) -> None:
        names[Path(path).name] = "directory"
        mkdir(path, *more, **where)

    monkeypatch.setattr(os, "open", open_by_flags)
    monkeypatch.setattr(os, "mkdir", make_directory)
    for module in (io, builtins):
        monkeypatch.setattr(module, "open", open_by_mode)
    return names


class EndsAtOnce(peer.Peer):
    """Another tracing tool, which exits before it attaches."""

    name = "true"

    def argv(self, watched: peer.Watched) -> list[str]:
        return ["true", str(watched.directory)]


def start_a_tool(_directory: Path) -> None:
    with peer.attached(EndsAtOnce(), {}):
        pass


# Description -> function that creates a temporary file or directory in a directory that all users can write.
MAKERS: dict[str, Callable[[Path], object]] = {
    "a result": lambda directory: files.save(directory / "run.json", b"x"),
    "the check before a run": lambda directory: files.check_writable(directory / "run.json"),
    "a file rescued from a full disk": lambda _: files.rescue({"run.json": b"x"}),
    "another tracing tool": start_a_tool,
}


@pytest.fixture
def make_in(
    created: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, Callable[[Path], object]], dict[str, str]]:
    """Return a function that calls a maker with predictable random names, and returns the names created."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "00" * size)
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(("known", "next", "last")))
    monkeypatch.setattr(peer, "IN_TRACEFS", ())

    def make(directory: Path, maker: Callable[[Path], object]) -> dict[str, str]:
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        monkeypatch.setattr(files, "RESCUE_DIRECTORIES", (str(directory),))
        created.clear()
        with suppress(OSError, RunError):
            maker(directory)
        return dict(created)

    return make


@pytest.mark.usefixtures("under_sudo")
@pytest.mark.parametrize("plant", [os.symlink, os.link])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_link_with_the_name_of_a_temporary_file_is_not_followed(
    maker: Callable[[Path], object],
    plant: Callable[[Path, Path], None],
    make_in: Callable[[Path, Callable[[Path], object]], dict[str, str]],
    shared_directory: Path,
    tmp_path: Path,
) -> None:
    """Names that a first call used are links to files of the user when a second call uses them again."""
    victims = {"file": tmp_path / "file", "directory": tmp_path / "directory"}
    victims["file"].write_text("mine")
    victims["directory"].mkdir()
    (tmp_path / "first").mkdir()
    planted = make_in(tmp_path / "first", maker)
    assert planted
    for name, kind in planted.items():
        (os.symlink if kind == "directory" else plant)(victims[kind], shared_directory / name)
    before = [state(victim) for victim in victims.values()]
    make_in(shared_directory, maker)
    assert [state(victim) for victim in victims.values()] == before
    assert all((shared_directory / name).samefile(victims[kind]) for name, kind in planted.items())


def test_a_file_named_gz_is_compressed(tmp_path: Path) -> None:
    assert output_files.write_runs(RUN, str(tmp_path / "run.json.gz"))
    packed = (tmp_path / "run.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed)) == store_on_disk.document_of(RUN)
