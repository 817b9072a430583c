"""Metrics of a program without an end: what is counted over all its restarts, and who may read it."""

import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from builders.watched import SIZE, seen_of
from copyscope import paths
from copyscope.commands import watch
from copyscope.errors import RunError
from copyscope.exports.openmetrics import written
from copyscope.ledger.window import Window
from copyscope.plan.schedule import served_segments
from copyscope.record.check import Whole, typed_whole
from copyscope.serving import endpoint
from copyscope.serving.counts import SECONDS_KEPT, Counts, Divided
from copyscope.serving.endpoint import Endpoint
from copyscope.serving.families import FAMILIES
from msgspec.structs import replace

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")

RECEIVES = 4096
BUFFERS = {"protocol": "tcp", "enobufs": 7, "eagain": 0, "waits": 3, "waited_ns": 2_000_000_000}
DASHBOARD = paths.ROOT / "docs" / "reference" / "grafana.json"
SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}
NAMES = {f"copyscope_{name}{SUFFIXES[one.kind]}" for name, one in FAMILIES.items()}


def session(counts: Counts) -> tuple[dict[str, Any], Whole]:
    """A program that sends with MSG_ZEROCOPY, all of it copied, and receives: its last reading, and what was
    sampled."""
    seen = seen_of(zerocopy=True, copied=100, receives=RECEIVES, phases=("unprobed", "ledger"))
    target = {"how": "comm", "name": "server", "follow": True, "comm": "server", "duration_s": None}
    window = Window(target | dict.fromkeys(("cgroup", "netns", "command")), 499, in_turn=True)
    counts.begin_session()
    for segment in seen.segments:
        counts.read({**segment["marks"][2]["target"], "buffers": [BUFFERS]})
        window.add_load(segment["block"], {**seen.loads[1]})
    assert seen.collector is not None
    run = typed_whole(window.record(seen, seen.collector))
    counts.sampled(run)
    return dict(seen.segments[-1]["marks"][2]["target"]), run


def samples(text: bytes) -> dict[str, float]:
    """Each sample by its name and labels; the parser refuses what is not OpenMetrics."""
    found = {}
    for family in parser.text_string_to_metric_families(text.decode()):
        assert family.documentation and family.name.startswith("copyscope_")
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        for one in family.samples:
            found[" ".join((one.name.removeprefix("copyscope_"), *one.labels.values()))] = one.value
    return found


def test_counts_are_what_was_read_and_go_on_over_a_restart() -> None:
    counts = Counts()
    last, _ = session(counts)
    calls = last["volume"][0]["calls"]
    sent, received = calls * SIZE, calls * RECEIVES
    once = samples(written(counts.families()))
    expected = {
        "socket_bytes_total sendmsg send tcp": sent,
        "socket_bytes_total read receive tcp": received,
        "socket_calls_total sendmsg send tcp": calls,
        "zerocopy_sends_total sendmsg tcp": calls,
        "zerocopy_sent_bytes_total sendmsg tcp": sent,
        "zerocopy_completed_sends_total": calls,
        "zerocopy_refused_sends_total ENOBUFS tcp": 7,
        "zerocopy_waits_total tcp": 3,
        "zerocopy_wait_seconds_total tcp": 2.0,
        "account_bytes_total pin": sent,
        "account_bytes_total deferred": sent,
        "account_bytes_total copy_out": received,
        "program_cpu_seconds_total": last["process_cpu_ns"] / 1e9,
        "sessions_total": 1,
    }
    assert {name: once.get(name) for name in expected} == pytest.approx(expected)
    copied = [value for name, value in once.items() if name.startswith("zerocopy_copied_sends_total")]
    assert copied == [calls]
    session(counts)
    twice = samples(written(counts.families()))
    assert {name: twice[name] for name in expected} == pytest.approx({n: 2 * x for n, x in expected.items()})
    # As the last sampled second divided it: a quarter of the samples is in the call that pins.
    cpu = twice["account_cpu_seconds_total pin target"] / twice["program_cpu_seconds_total"]
    assert cpu == pytest.approx(0.25) == twice["account_cpu_ratio pin target"]


def test_a_share_is_of_the_last_seconds_though_the_program_slept_in_them() -> None:
    counts = Counts()
    _, run = session(counts)
    assert "account_cpu_ratio pin target" in samples(written(counts.families()))
    assert run.derived.sides.target is not None
    sides = replace(run.derived.sides, target=replace(run.derived.sides.target, samples=0))
    for _ in range(SECONDS_KEPT):
        counts.sampled(run._replace(derived=replace(run.derived, sides=sides)))
    assert "account_cpu_ratio pin target" not in samples(written(counts.families()))


def test_bytes_of_calls_that_copy_are_no_part_of_what_goes_by_reference() -> None:
    """Both are known at every call: only what became of each is that of the last sampled second."""
    counts = Counts()
    last, _ = session(counts)
    (sent,) = (row for row in last["volume"] if row["direction"] == "send")
    pages = {**sent, "syscall": "sendfile", "bytes": 5000, "zerocopy_calls": 0, "zerocopy_bytes": 0}
    written_ones = {**pages, "syscall": "writev", "bytes": 300}
    counts.read({**last, "volume": [*last["volume"], pages, written_ones]})
    later = samples(written(counts.families()))
    assert later["account_bytes_total pin"] == sent["bytes"] + 5000
    assert "account_bytes_total copy_in" not in later  # none was sampled yet
    assert later["socket_bytes_total writev send tcp"] == 300


def test_a_total_waits_for_the_first_division_and_no_later_one() -> None:
    cpu = Divided()
    cpu.add(100.0)
    assert cpu.sums == {}
    cpu.learn({("copy_in",): 1.0}, 4.0)
    cpu.add(100.0)
    assert cpu.sums == {("copy_in",): 25.0}
    cpu.learn({}, 0.0)  # nothing happened in that second
    cpu.add(120.0)
    assert cpu.sums == {("copy_in",): 30.0}
    cpu.learn({}, 4.0)  # there was work, and none of it a copy
    cpu.add(200.0)
    cpu.learn({("copy_in",): 2.0}, 4.0)
    cpu.add(210.0)
    assert cpu.sums == {("copy_in",): 35.0}


def test_what_is_not_known_has_no_line() -> None:
    counts = Counts()
    counts.begin_session()
    assert set(samples(written(counts.families()))) == {"sessions_total"}


def test_a_second_of_every_fifteen_is_sampled_at_no_fixed_place() -> None:
    planned = served_segments(7)
    blocks: dict[int, list[tuple[str, float]]] = {}
    for _ in range(1 + 4 * 40):
        one = next(planned)
        blocks.setdefault(one.block, []).append((one.phase, one.length_s))
    assert blocks.pop(0) == [("ledger", 1.0)]
    assert all(sum(length for _, length in block) == pytest.approx(15) for block in blocks.values())
    places = {[phase for phase, _ in block].index("ledger") for block in blocks.values()}
    assert places == {0, 1, 2, 3} and max(length for block in blocks.values() for _, length in block) < 5
    # And with --interval 2.
    short = [next(two) for two in [served_segments(7, 2.0)] for _ in range(5)]
    assert [one.length_s for one in short] == [1.0] * 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--serve", "9464x"), "not ADDR:PORT"),
        (("--serve", ":70000"), "not ADDR:PORT"),
        (("--serve", ":9464", "--live"), "--serve and --live"),
        (("--serve", ":9464", "--duration", "5"), "--serve and --duration"),
        (("--serve", ":9464", "--advise"), "--serve and --advise"),
        (("--serve", ":9464", "--interval", "1"), "at least 2 s with --serve"),
    ],
)
def test_what_is_served_has_no_report(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch.main(["nginx", *words]) == 2
    assert said in capsys.readouterr().err


# -- who reads it ------------------------------------------------------------------------------------------

TEXT = b"# EOF\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(endpoint, "ANSWER_S", 60.0)
    with Endpoint(("127.0.0.1", 0), lambda _: TEXT) as made:
        yield made


def connect(made: Endpoint) -> socket.socket:
    host, port = made.address.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def ask(made: Endpoint, request: bytes = GET) -> bytes:
    """The whole answer, up to the end of the connection."""
    with connect(made) as one:
        one.sendall(request)
        return b"".join(iter(lambda: one.recv(1 << 16), b""))


def test_only_metrics_can_be_got(small: Endpoint) -> None:
    head, _, body = ask(small).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0")
    assert body == TEXT and b"Content-Length: 6\r\n" in head + b"\r\n"
    for request, status in (
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 10_000, 431),
    ):
        assert ask(small, request).startswith(b"HTTP/1.1 %d " % status)
    assert small.answers == {"200": 1, "404": 1, "405": 1, "400": 1, "431": 1}


def test_who_is_slow_is_cut_off(small: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.5)
    with connect(small) as one:
        one.sendall(GET[:10])
        began = time.monotonic()
        assert one.recv(100) == b""
    assert time.monotonic() - began > 0.3
    assert small.answers == {"closed": 1}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut off while a test goes on, and a text stays fresh."""
    monkeypatch.setattr(endpoint, "ANSWER_S", 60.0)
    monkeypatch.setattr(endpoint, "TEXT_EVERY_S", 3600.0)


@pytest.mark.usefixtures("patient")
def test_nobody_waits_for_a_slow_reader() -> None:
    """The first does not take its answer, which no buffer holds; the text is made once."""
    made = iter((bytes(64 << 20),))
    with Endpoint(("127.0.0.1", 0), lambda _: next(made)) as served, connect(served) as slow:
        slow.sendall(GET)
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert len(ask(served).partition(b"\r\n\r\n")[2]) == 64 << 20
        assert served.answers == {"200": 1}


@pytest.mark.usefixtures("patient")
def test_a_flood_is_taken_slowly_and_what_is_too_much_is_closed() -> None:
    with Endpoint(("127.0.0.1", 0), lambda _: TEXT) as served:
        began, crowd = time.monotonic(), [connect(served) for _ in range(endpoint.CONNECTIONS_MAX + 4)]
        refused = sum(one.recv(1) == b"" for one in crowd[-2:])
        for one in crowd:
            one.close()
        assert refused == 2 and time.monotonic() - began > 10 * endpoint.TAKEN_EVERY_S
        assert served.answers["closed"] >= 2


def test_a_port_that_is_taken_is_named(small: Endpoint) -> None:
    port = int(small.address.rpartition(":")[2])
    with pytest.raises(
        RunError, match=rf"--serve: 127.0.0.1:{port}: Address already in use: choose another port"
    ):
        Endpoint(("127.0.0.1", port), lambda _: TEXT)
    with pytest.raises(RunError, match="choose an address of this machine"):
        Endpoint(("192.0.2.1", 0), lambda _: TEXT)


# -- who shows it ------------------------------------------------------------------------------------------


def test_the_dashboard_shows_all_metrics_and_no_other() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert set(re.findall(r"copyscope_\w+", " ".join(asked))) == NAMES
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids) and all(panel["title"] for panel in dashboard["panels"])


def test_a_number_on_the_dashboard_is_of_now() -> None:
    """Over a range the last value stays there for an hour after the watcher has gone, its age with it."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    numbers = [
        target for panel in dashboard["panels"] if panel["type"] == "stat" for target in panel["targets"]
    ]
    assert numbers and all(target["instant"] and not target["range"] for target in numbers)


def test_the_cookbook_asks_for_metrics_that_there_are() -> None:
    page = (paths.ROOT / "docs" / "4-cookbook.md").read_text(encoding="utf-8")
    asked = set(re.findall(r"copyscope_\w+", page))
    assert asked and asked <= NAMES


def test_the_page_names_all_metrics() -> None:
    page = (paths.ROOT / "docs" / "reference" / "exports.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("## Metrics of a program")[2]))
    assert {name + "_info" * (one.kind == "info") for name, one in FAMILIES.items()} <= named
