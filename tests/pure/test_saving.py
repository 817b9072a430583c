"""Files of results: replaced whole, written through where they are no files, and through nobody's link."""

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

import pytest
from builders.sweep import store, sweep
from copyscope.commands import crossover, keeping
from copyscope.crosscheck import peer
from copyscope.errors import RunError
from copyscope.files import rescuing, saving
from test_sweep import EXPERIMENT, fail
from test_sweep import sweep as run_sweep

NOBODY = 65534


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A directory in which everybody can make links, as /tmp is one."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


@pytest.fixture
def under_sudo(monkeypatch: pytest.MonkeyPatch) -> int:
    """As root for somebody else; without root the same code, with files that stay ours."""
    user = NOBODY if os.geteuid() == 0 else os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", str(user))
    monkeypatch.setenv("SUDO_GID", str(NOBODY if user == NOBODY else os.getgid()))
    return user


def read_in_background(fifo: Path) -> Callable[[], bytes]:
    """Like `cat FIFO`; a FIFO that somebody replaced would keep its reader for ever."""
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()

    def result() -> bytes:
        reader.join(10)
        return got[0] if got else b"nothing was written through it"

    return result


def test_a_file_is_replaced_and_what_is_none_stays_what_it_is(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old")
    before = target.stat().st_ino
    with target.open() as reader:
        saving.save(target, b"new")
        assert reader.read() == "old"  # who had it open still reads the whole old one
    assert target.read_bytes() == b"new" and target.stat().st_ino != before
    saving.save(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OSError) as full:
        saving.save(Path("/dev/full"), b"x")
    assert full.value.errno == errno.ENOSPC and full.value.filename == "/dev/full"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_fifo_that_nobody_reads_is_an_error_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "READER_S", 0.05)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="this FIFO has no reader: start the reader first") as raised:
        saving.save(tmp_path / "fifo", b"x")
    assert raised.value.filename == str(tmp_path / "fifo")


def test_who_reads_a_fifo_no_more_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has been opened, and some of it read: the rest has no room in the pipe."""
    monkeypatch.setattr(saving, "PIECE_S", 0.2)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    mute = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match=r"^\[Errno 110\] its reader has taken nothing for 0.2 s"):
            saving.save(fifo, bytes(1 << 20))
    finally:
        os.close(mute)


def test_who_reads_a_fifo_slowly_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "PIECE_S", 0.5)
    fifo, got = tmp_path / "fifo", bytearray()
    os.mkfifo(fifo)

    def read() -> None:
        with fifo.open("rb", buffering=0) as stream:
            while part := stream.read(30_000):
                got.extend(part)
                time.sleep(0.1)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    saving.save(fifo, bytes(300_000))
    reader.join(10)
    assert len(got) == 300_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("sudo", ["", str(NOBODY - 1)])
def test_into_what_another_user_has_put_there_nothing_is_written(
    sudo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root's directory is sticky, as /tmp is: everybody may put a file there, and keeps it."""
    monkeypatch.setenv("SUDO_UID", sudo)
    monkeypatch.setenv("SUDO_GID", sudo)
    monkeypatch.setattr(rescuing, "PLACES", ())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    fifo, file = tmp_path / "fifo.json", tmp_path / "file.json"
    os.mkfifo(fifo, 0o666)
    file.write_text("")
    for planted in (fifo, file):
        planted.chmod(0o666)
        os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(RunError, match="belongs to another user, who could read what is written"):
        keeping.check_file(str(fifo))
    read = read_in_background(fifo)
    assert not keeping.write_json({"a": 1}, str(fifo))
    said = capsys.readouterr().err
    assert "belongs to another user" in said and "the measurement is saved in" in said
    with suppress(OSError):  # its reader may go
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    assert read() == b""
    assert keeping.write_json({"a": 1}, str(file))
    found = file.stat()
    assert found.st_uid == int(sudo or 0) and found.st_mode & 0o777 == 0o644


@pytest.mark.parametrize("odd", ["9" * 5000, str(2**32 - 1), str(2**63), "-1", "٣", "", "1e3"])
def test_a_user_who_cannot_be_is_none(odd: str) -> None:
    assert saving.invoking_ids({"SUDO_UID": odd, "SUDO_GID": "1000"}) is None
    assert saving.invoking_ids({"SUDO_UID": "1000", "SUDO_GID": odd}) is None


@pytest.mark.parametrize("command", ["crossover", "profile"])
def test_a_fifo_is_written_through_by_each_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = read_in_background(fifo)
    if command == "profile":
        keeping.write_json({"a": 1}, str(fifo))
    else:
        directory = store(sweep(("one_copy", "zero_copy"), threads=(1,)), tmp_path / "demo")
        assert crossover.main([str(directory), "--json", str(fifo)]) == 0, capsys.readouterr().err
    assert isinstance(json.loads(read()), dict)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)


@pytest.mark.parametrize("redirected", [True, False])
def test_standard_output_is_written_in_its_order(redirected: bool, tmp_path: Path) -> None:
    """Whether a pipe or a file is behind /dev/stdout: a file is not replaced while we print to it."""
    program = (
        "from copyscope.files import saving; from pathlib import Path\n"
        "print('before'); saving.save(Path('/dev/stdout'), b'between\\n'); print('after')"
    )
    shown = tmp_path / "shown"
    with shown.open("wb") as file:
        to = file if redirected else subprocess.PIPE
        done = subprocess.run([sys.executable, "-P", "-c", program], stdout=to, check=True, timeout=30)
    said = shown.read_bytes() if redirected else done.stdout
    assert said == b"before\nbetween\nafter\n"


@pytest.mark.usefixtures("under_sudo")
def test_a_link_of_another_user_is_not_followed(open_to_all: Path, tmp_path: Path) -> None:
    victim, planted = tmp_path / "victim", open_to_all / "j.json"
    victim.write_text("mine")
    planted.symlink_to(victim)
    before = victim.stat()
    for use in (
        lambda: saving.save(planted, b"overwritten"),
        lambda: saving.open_to_append(planted),
        lambda: keeping.check_file(str(planted)),
        lambda: saving.make_directory(planted / "below"),
    ):
        with pytest.raises((OSError, RunError), match=r"link|Not a directory|symbolic"):
            use()
    # nor one on the way there, nor a second name of a file
    (open_to_all / "way").symlink_to(tmp_path)
    with pytest.raises(OSError, match="link"):
        saving.save(open_to_all / "way" / "victim", b"overwritten")
    os.link(victim, open_to_all / "failures.jsonl")
    with pytest.raises(OSError, match="second name"):
        saving.open_to_append(open_to_all / "failures.jsonl")
    after = victim.stat()
    assert victim.read_text() == "mine" and (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


@pytest.mark.usefixtures("under_sudo")
def test_links_that_only_root_can_make_are_followed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    if os.getuid() == 0:
        saving.save(tmp_path / "link" / "a", b"x")
        assert (tmp_path / "real" / "a").read_bytes() == b"x"
    else:
        with pytest.raises(OSError, match="link"):  # here the directory is a user's
            saving.save(tmp_path / "link" / "a", b"x")


def test_only_what_is_made_is_given_to_the_user(tmp_path: Path, under_sudo: int) -> None:
    tmp_path.chmod(0o755)
    there = tmp_path / "there"
    there.mkdir()
    (there / "old").write_text("root's")
    keeping.open_directory(str(there))
    saving.make_directory(there / "made" / "below")
    saving.save(there / "made" / "new", b"x")
    saving.save(there / "old", b"y")
    with saving.open_to_append(there / "made" / "lines") as stream:
        stream.write(b"z")
    owner = os.getuid()
    assert there.stat().st_uid == owner and tmp_path.stat().st_uid == owner
    for name in ("made", "made/below", "made/new", "made/lines"):
        assert (there / name).stat().st_uid == under_sudo, name
    assert (there / "old").stat().st_uid == owner  # a file of root's stays root's
    assert (there / "made" / "new").stat().st_mode & 0o777 == 0o644


def test_a_file_that_somebody_made_private_stays_private(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("x")
    target.chmod(0o600)
    saving.save(target, b"y")
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
    name: str, plant: Callable[[Path, Path], None], open_to_all: Path, tmp_path: Path
) -> None:
    """Its runs fail, so that it wants each of its files; a beginning of experiment.toml it would complete."""
    victim, directory = tmp_path / "victim", open_to_all / "tiny"
    victim.write_text(EXPERIMENT[:20])
    directory.mkdir()
    directory.chmod(0o777)
    plant(victim, directory / name)
    before = state(victim)
    try:
        said = run_sweep(directory, fail).stopped
    except RunError as error:
        said = str(error)
    assert said is not None and str(directory / name) in said
    assert state(victim) == before


def state(path: Path) -> tuple[Any, ...]:
    """What whoever writes a file, adds to a directory or gives one of them away would change."""
    found = path.stat()
    held = sorted(path.iterdir()) if path.is_dir() else path.read_bytes()
    return held, found.st_uid, found.st_gid, found.st_mode, found.st_mtime_ns


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The name of each file and directory that Python makes from now on -> `file` or `directory`."""
    found: dict[str, str] = {}
    by_flags, by_mode, mkdir = os.open, io.open, os.mkdir

    def open_by_flags(path: Any, flags: int, *more: Any, **where: Any) -> int:
        if flags & os.O_CREAT:
            found[Path(path).name] = "file"
        return by_flags(path, flags, *more, **where)

    def open_by_mode(file: Any, mode: str = "r", *more: Any, **how: Any) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax"):
            found[Path(file).name] = "file"
        return by_mode(file, mode, *more, **how)

    def make_directory(path: Any, *more: Any, **where: Any) -> None:
        found[Path(path).name] = "directory"
        mkdir(path, *more, **where)

    monkeypatch.setattr(os, "open", open_by_flags)
    monkeypatch.setattr(os, "mkdir", make_directory)
    for module in (io, builtins):
        monkeypatch.setattr(module, "open", open_by_mode)
    return found


class EndsAtOnce(peer.Peer):
    """A tool of others that never attaches."""

    name = "true"

    def argv(self, watched: peer.Watched) -> list[str]:
        return ["true", str(watched.directory)]


def ask_a_tool(_directory: Path) -> None:
    with peer.attached(EndsAtOnce(), {}):
        pass


# Who makes a temporary file, or a directory for some, in a directory that all can write.
MAKERS: dict[str, Callable[[Path], object]] = {
    "a result": lambda directory: saving.save(directory / "run.json", b"x"),
    "a try before the run": lambda directory: saving.check(directory / "run.json"),
    "what a full disk had no room for": lambda _: rescuing.rescue({"run.json": b"x"}),
    "a tool of others": ask_a_tool,
}


@pytest.fixture
def make_in(
    made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path, Callable[[Path], object]], dict[str, str]]:
    """Lets one of them work in a directory, where all names are known before; returns those that it made."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "00" * size)
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(("known", "next", "last")))
    monkeypatch.setattr(peer, "IN_TRACEFS", ())

    def make(directory: Path, maker: Callable[[Path], object]) -> dict[str, str]:
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        monkeypatch.setattr(rescuing, "PLACES", (str(directory),))
        made.clear()
        with suppress(OSError, RunError):
            maker(directory)
        return dict(made)

    return make


@pytest.mark.usefixtures("under_sudo")
@pytest.mark.parametrize("plant", [os.symlink, os.link])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_who_knows_the_name_of_a_temporary_file_gets_nothing_by_a_link(
    maker: Callable[[Path], object],
    plant: Callable[[Path, Path], None],
    make_in: Callable[[Path, Callable[[Path], object]], dict[str, str]],
    open_to_all: Path,
    tmp_path: Path,
) -> None:
    """Seen once, each name is taken by a link to a file or a directory of ours when it is wanted again."""
    victims = {"file": tmp_path / "file", "directory": tmp_path / "directory"}
    victims["file"].write_text("mine")
    victims["directory"].mkdir()
    (tmp_path / "seen").mkdir()
    planted = make_in(tmp_path / "seen", maker)
    assert planted
    for name, kind in planted.items():
        (os.symlink if kind == "directory" else plant)(victims[kind], open_to_all / name)
    before = [state(victim) for victim in victims.values()]
    make_in(open_to_all, maker)
    assert [state(victim) for victim in victims.values()] == before
    assert all((open_to_all / name).samefile(victims[kind]) for name, kind in planted.items())


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    assert keeping.write_json({"a": 1}, str(tmp_path / "run.json.gz"))
    packed = (tmp_path / "run.json.gz").read_bytes()
    assert json.loads(gzip.decompress(packed)) == {"a": 1}
