# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of `copyscope watch --serve`: counts over all restarts of a program, and the HTTP server."""

import json
import re
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from builders.watched import SIZE, seen_of
from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.commands import watch
from copyscope.ledger.derive import Window
from copyscope.plan.schedule import served_segments
from copyscope.record.moved import MeasuredSegment
from copyscope.record.run import Run
from copyscope.report import served_endpoint as endpoint
from copyscope.report.openmetrics import OPENMETRICS, PLAIN_TEXT, MetricsText, write_families
from copyscope.report.served_counts import SECONDS_KEPT, DividedTotal, ServedCounts
from copyscope.report.served_endpoint import Endpoint
from copyscope.report.served_families import FAMILIES
from msgspec.structs import replace

parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")

RECEIVES = 4096
BUFFERS = {"protocol": "tcp", "enobufs": 7, "eagain": 0, "waits": 3, "waited_ns": 2_000_000_000}
DASHBOARD = paths.ROOT / "docs" / "reference" / "grafana.json"
SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}
NAMES = {f"copyscope_{name}{SUFFIXES[family.kind]}" for name, family in FAMILIES.items()}


def session(counts: ServedCounts) -> tuple[dict[str, Any], Run]:
    """Serve a session of a program that receives, and sends with MSG_ZEROCOPY: all sends are copied.

    Return its last reading, and the run made from its samples.
    """
    watched = seen_of(zerocopy=True, copied=100, receives=RECEIVES, phases=("unprobed", "ledger"))
    target = {"how": "comm", "name": "server", "follow": True, "comm": "server", "duration_s": None}
    window = Window(target | dict.fromkeys(("cgroup", "netns", "command")), 499, in_turn=True)
    counts.begin_session()
    for segment in watched.segments:
        assert isinstance(segment, MeasuredSegment)
        reading: Any = {**segment.marks[2]["target"], "buffers": [BUFFERS]}
        counts.read(reading)
        window.add_load(segment.block, watched.loads[1])
    assert watched.collector is not None
    run = window.run(watched, watched.collector)
    counts.sampled(run)
    last = watched.segments[-1]
    assert isinstance(last, MeasuredSegment)
    return dict(last.marks[2]["target"]), run


def samples(text: bytes) -> dict[str, float]:
    """Return name and labels -> value. The parser refuses text that is not OpenMetrics."""
    values = {}
    for family in parser.text_string_to_metric_families(text.decode()):
        assert family.documentation and family.name.startswith("copyscope_")
        assert not family.unit or family.name.endswith(f"_{family.unit}")
        for sample in family.samples:
            values[" ".join((sample.name.removeprefix("copyscope_"), *sample.labels.values()))] = sample.value
    return values


def test_counts_are_the_readings_and_continue_after_a_restart() -> None:
    counts = ServedCounts()
    last, _ = session(counts)
    calls = last["volume"][0]["calls"]
    sent, received = calls * SIZE, calls * RECEIVES
    once = samples(write_families(counts.families()).data)
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
    twice = samples(write_families(counts.families()).data)
    assert {name: twice[name] for name in expected} == pytest.approx({n: 2 * x for n, x in expected.items()})
    # Shares of the last sampled second: a quarter of the samples is in the pinning call.
    cpu = twice["account_cpu_seconds_total pin target"] / twice["program_cpu_seconds_total"]
    assert cpu == pytest.approx(0.25) == twice["account_cpu_ratio pin target"]


def test_a_share_disappears_after_seconds_without_samples() -> None:
    counts = ServedCounts()
    _, run = session(counts)
    assert "account_cpu_ratio pin target" in samples(write_families(counts.families()).data)
    assert run.derived.sides.target is not None
    sides = replace(run.derived.sides, target=replace(run.derived.sides.target, samples=0))
    for _ in range(SECONDS_KEPT):
        counts.sampled(Run(run.raw, replace(run.derived, sides=sides)))
    assert "account_cpu_ratio pin target" not in samples(write_families(counts.families()).data)


def test_bytes_of_copying_calls_are_not_counted_as_pinned() -> None:
    """Each call shows whether it copies. Only the accounts of its bytes need a sampled second."""
    counts = ServedCounts()
    last, _ = session(counts)
    (sent,) = (row for row in last["volume"] if row["direction"] == "send")
    sendfile_row = {**sent, "syscall": "sendfile", "bytes": 5000, "zerocopy_calls": 0, "zerocopy_bytes": 0}
    writev_row = {**sendfile_row, "syscall": "writev", "bytes": 300}
    reading: Any = {**last, "volume": [*last["volume"], sendfile_row, writev_row]}
    counts.read(reading)
    values = samples(write_families(counts.families()).data)
    assert values["account_bytes_total pin"] == sent["bytes"] + 5000
    assert "account_bytes_total copy_in" not in values  # no second was sampled yet
    assert values["socket_bytes_total writev send tcp"] == 300


def test_growth_is_held_back_until_the_first_shares_are_known() -> None:
    cpu = DividedTotal()
    cpu.grow_to(100.0)
    assert cpu.sums == {}
    cpu.set_shares({("copy_in",): 1.0}, 4.0)
    cpu.grow_to(100.0)
    assert cpu.sums == {("copy_in",): 25.0}
    cpu.set_shares({}, 0.0)  # a second without work changes no shares
    cpu.grow_to(120.0)
    assert cpu.sums == {("copy_in",): 30.0}
    cpu.set_shares({}, 4.0)  # a second with work but without copies
    cpu.grow_to(200.0)
    cpu.set_shares({("copy_in",): 2.0}, 4.0)
    cpu.grow_to(210.0)
    assert cpu.sums == {("copy_in",): 35.0}


def test_an_unknown_value_is_not_served() -> None:
    counts = ServedCounts()
    counts.begin_session()
    assert set(samples(write_families(counts.families()).data)) == {"sessions_total"}


def test_one_second_of_fifteen_is_sampled_at_a_random_position() -> None:
    planned = served_segments(7)
    blocks: dict[int, list[tuple[str, float]]] = {}
    for _ in range(1 + 4 * 40):
        segment = next(planned)
        blocks.setdefault(segment.block, []).append((segment.phase, segment.length_s))
    assert blocks.pop(0) == [("ledger", 1.0)]
    assert all(sum(length for _, length in block) == pytest.approx(15) for block in blocks.values())
    positions = {[phase for phase, _ in block].index("ledger") for block in blocks.values()}
    assert positions == {0, 1, 2, 3} and max(length for block in blocks.values() for _, length in block) < 5
    # The first five segments with --interval 2.
    short = [next(schedule) for schedule in [served_segments(7, 2.0)] for _ in range(5)]
    assert [segment.length_s for segment in short] == [1.0] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--serve", "9464x"), "not ADDR:PORT"),
        (("--serve", ":70000"), "not ADDR:PORT"),
        (("--serve-name", "web1.lan"), "--serve-name: needs --serve"),
        (("--serve", ":9464", "--live"), "--live: not with --serve"),
        (("--serve", ":9464", "--duration", "5"), "--duration: not with --serve"),
        (("--serve", ":9464", "--advise"), "--advise: not with --serve"),
        (("--serve", ":9464", "--interval", "1"), "choose at least 2 s"),
    ],
)
def test_options_that_do_not_fit_serve_are_refused(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch.main(["nginx", *options]) == 2
    assert message in capsys.readouterr().err


# -- the HTTP server --------------------------------------------------------------------------------------

TEXT = b"# EOF\n"
METRICS = MetricsText(TEXT, "text/x-example")
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n"


@pytest.fixture
def served_text(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(endpoint, "ANSWER_S", 60.0)
    with Endpoint(("127.0.0.1", 0), lambda *_: METRICS) as served:
        yield served


def connect(served: Endpoint) -> socket.socket:
    host, port = served.address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def ask(served: Endpoint, request: bytes = GET) -> bytes:
    """Send a request, and return everything received until the connection is closed."""
    with connect(served) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_only_metrics_can_be_requested(served_text: Endpoint) -> None:
    head, _, body = ask(served_text).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/x-example\r\n")
    assert body == TEXT and b"Content-Length: 6\r\n" in head + b"\r\n"
    for request, status in (
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 10_000, 431),
    ):
        assert ask(served_text, request).startswith(b"HTTP/1.1 %d " % status)
    assert ask(served_text, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") == head + b"\r\n\r\n"
    assert ask(served_text, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").endswith(b"\r\n\r\nOK\n")
    assert served_text.answers == {"200": 2, "404": 1, "405": 1, "400": 1, "431": 1}


@pytest.mark.parametrize(
    ("accept", "content_type", "ends_with_eof"),
    [
        (f"{OPENMETRICS};version=1.0.0,{PLAIN_TEXT};q=0.5", OPENMETRICS, True),
        (PLAIN_TEXT, "text/plain; version=0.0.4; charset=utf-8", False),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", False),
        (f"{OPENMETRICS};version=abc", OPENMETRICS, True),
        ("text/plain;version=abc;q=0.123", "text/plain; version=0.0.4; charset=utf-8", False),
    ],
)
def test_a_client_gets_the_format_that_it_accepts(
    accept: str, content_type: str, ends_with_eof: bool
) -> None:
    counts = ServedCounts()
    counts.own["watched", ("nginx", "comm", "host", "6.12", "1")] = 1

    def text(_: Mapping[str, int], accepted: str) -> MetricsText:
        return write_families(counts.families(), accepted)

    with Endpoint(("127.0.0.1", 0), text) as served:
        request = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
        head, _, body = ask(served, request.encode()).partition(b"\r\n\r\n")
    assert f"Content-Type: {content_type}".encode() in head
    assert body.endswith(b"# EOF\n") == ends_with_eof
    # Readers of the text format 0.0.4 refuse the type `info`.
    assert (b"# TYPE copyscope_watched_info gauge\n" in body) == (not ends_with_eof)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *((f"host: {name}", 200) for name in ("LOCALHOST", "127.0.0.1:80", "[::1]:9464", "web1.lan.:1")),
        # A page of evil.example that bound its name to this address.
        *((f"Host: {name}", 421) for name in ("evil.example:9464", "localhost.evil.example", "192.0.2.7")),
        ("Host: ", 421),
        ("X: y", 400),
        ("Host: localhost\r\nHost: evil.example", 400),
    ],
)  # fmt: skip
def test_only_clients_that_name_this_server_get_an_answer(headers: str, status: int) -> None:
    with Endpoint(("127.0.0.1", 0), lambda *_: METRICS, ["Web1.lan"]) as served:
        answer = ask(served, f"GET /metrics HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status) and (TEXT in answer) == (status == 200)


def test_the_address_that_a_client_connected_to_is_a_name_of_the_server() -> None:
    with Endpoint(("127.0.0.2", 0), lambda *_: METRICS) as served:
        port = int(served.address.rpartition(":")[2])
        for host, status in (("127.0.0.2", 200), ("127.0.0.3", 421)):
            with socket.create_connection(("127.0.0.2", port), timeout=60) as client:
                client.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                assert client.recv(100).startswith(b"HTTP/1.1 %d " % status)


def test_a_slow_client_is_cut_off(served_text: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.5)
    with connect(served_text) as connection:
        connection.sendall(GET[:10])
        began = time.monotonic()
        assert connection.recv(100) == b""
    assert time.monotonic() - began > 0.3
    assert served_text.answers == {"closed": 1}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set timeouts so long that no client is cut off and no text expires during a test."""
    monkeypatch.setattr(endpoint, "ANSWER_S", 60.0)
    monkeypatch.setattr(endpoint, "TEXT_INTERVAL_S", 3600.0)


@pytest.mark.usefixtures("patient")
def test_other_clients_do_not_wait_for_a_slow_reader() -> None:
    """The first client does not read its answer, which exceeds all buffers. The text is made once."""
    texts = iter((METRICS._replace(data=bytes(64 << 20)),))
    with Endpoint(("127.0.0.1", 0), lambda *_: next(texts)) as served, connect(served) as slow:
        slow.sendall(GET)
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert len(ask(served).partition(b"\r\n\r\n")[2]) == 64 << 20
        assert served.answers == {"200": 1}


@pytest.mark.usefixtures("patient")
def test_a_flood_is_accepted_slowly_and_surplus_connections_are_closed() -> None:
    with Endpoint(("127.0.0.1", 0), lambda *_: METRICS) as served:
        began, connections = time.monotonic(), [connect(served) for _ in range(endpoint.CONNECTIONS_MAX + 4)]
        refused = sum(connection.recv(1) == b"" for connection in connections[-2:])
        for connection in connections:
            connection.close()
        assert refused == 2 and time.monotonic() - began > 10 * endpoint.ACCEPT_INTERVAL_S
        assert served.answers["closed"] >= 2


def test_a_used_port_is_an_error_with_a_next_step(served_text: Endpoint) -> None:
    port = int(served_text.address.rpartition(":")[2])
    with pytest.raises(
        RunError, match=rf"--serve 127.0.0.1:{port}: Address already in use; choose another port"
    ):
        Endpoint(("127.0.0.1", port), lambda *_: METRICS)
    with pytest.raises(RunError, match="choose an address of this machine"):
        Endpoint(("192.0.2.1", 0), lambda *_: METRICS)


# -- the dashboard and the pages --------------------------------------------------------------------------


def test_the_dashboard_shows_all_metrics_and_no_other() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert set(re.findall(r"copyscope_\w+", " ".join(queries))) == NAMES
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids) and all(panel["title"] for panel in dashboard["panels"])


def test_numbers_on_the_dashboard_are_current_values() -> None:
    """A range query would show the last value for an hour after the watch has ended."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    stat_targets = [
        target for panel in dashboard["panels"] if panel["type"] == "stat" for target in panel["targets"]
    ]
    assert stat_targets and all(target["instant"] and not target["range"] for target in stat_targets)


def test_the_cookbook_queries_only_existing_metrics() -> None:
    page = (paths.ROOT / "docs" / "4-cookbook.md").read_text(encoding="utf-8")
    queried = set(re.findall(r"copyscope_\w+", page))
    assert queried and queried <= NAMES


def test_the_page_names_all_metrics() -> None:
    page = (paths.ROOT / "docs" / "reference" / "exports.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("## Metrics of a program")[2]))
    assert {name + "_info" * (family.kind == "info") for name, family in FAMILIES.items()} <= named
