# SPDX-License-Identifier: GPL-2.0-only
"""The web page of `watch --serve`: numbers of a known program, and what an answer allows a browser to do."""

import base64
import hashlib
import re
import socket
import time
from html.parser import HTMLParser
from typing import Any

import pytest
from builders.documents import derive, typed_whole
from builders.watched import CALLS, SIZE, watched_record
from copyscope.base.spelling import format_bytes
from copyscope.report import live_page
from copyscope.report import served_endpoint as endpoint
from copyscope.report.live_page import SampledRun
from copyscope.report.openmetrics import Family, MetricsText
from copyscope.report.served_endpoint import Endpoint

BLOCKS, RECEIVES = 3, 4096
EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\x1b\udcff\" onload='alert(3)'"


def sampled_run(record: dict[str, Any] | None = None, ended_s: float = 0.0) -> SampledRun:
    return SampledRun(typed_whole(record or derive(watched_record(receives=RECEIVES))), ended_s)


def metrics(processes: int = 1, read_s: float = 1.0) -> list[Family]:
    rows = [
        ({"protocol": protocol, "direction": direction, "call": "other"}, float(n_bytes))
        for protocol in ("tcp", "mptcp")
        for direction, n_bytes in (("send", 3 << 30), ("receive", 5 << 20))
    ]
    return [
        Family("socket_bytes", "counter", "bytes", "", rows),
        Family("program_processes", "gauge", "", "", [({}, float(processes))]),
        Family("read_timestamp_seconds", "gauge", "seconds", "", [({}, read_s)]),
    ]


class Tags(HTMLParser):
    """Tags, texts and `on...` attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith(("on", "style"))]

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] * bool(data.strip())


def test_the_page_has_the_bytes_of_the_counters_and_of_the_sampled_second() -> None:
    now_s = time.time()
    page = live_page.write("nginx", metrics(2, now_s), sampled_run(ended_s=now_s - 120), 15.0).decode()
    words = " ".join(Tags(page).texts)
    assert "nginx: the path of a byte" in words
    assert "Sent 6 GiB and received 10 MiB through sockets" in words and "Running processes: 2." in words
    read_at = time.strftime("%H:%M:%S", time.gmtime(now_s))
    assert re.search(rf"Read \d+ s ago, at {read_at} UTC", words)
    assert "sampled 2 min ago" in words and "one second of every 15 s" in words
    for n_bytes in (BLOCKS * CALLS * SIZE, BLOCKS * CALLS * RECEIVES):
        assert f"{format_bytes(n_bytes)}, " in words


def test_the_page_says_that_nothing_was_measured_or_that_the_program_does_not_run() -> None:
    empty = live_page.write("nginx", [], None, 15.0).decode()
    assert "no numbers were read yet" in empty and "Nothing to draw yet" in empty
    assert "<svg" not in empty and "0 B" not in empty
    ended = live_page.write("nginx", metrics(processes=0), None, 15.0).decode()
    assert "The program does not run now; copyscope waits for it." in ended


def test_names_cannot_add_html() -> None:
    """Names of the program, the machine and its devices may come from anybody who starts a program."""
    record = derive(watched_record(receives=RECEIVES))
    harmless = live_page.write("nginx", metrics(), sampled_run(record), 15.0).decode()
    record["target"]["name"] = record["target"]["comm"] = EVIL
    record["machine"] |= {"kernel": EVIL, "cpu_model": EVIL, "hostname": EVIL}
    record["topology"]["devices"][0]["name"] = EVIL
    hostile = live_page.write(EVIL, metrics(), sampled_run(record), 15.0)
    page = hostile.decode()
    assert Tags(page).tags == Tags(harmless).tags and Tags(page).handlers == []
    assert b"\x1b" not in hostile and "alert(1)" in page


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 60.0)
    monkeypatch.setattr(endpoint, "TEXT_INTERVAL_S", 3600.0)


def ask(served: Endpoint, method: str = "GET", host: str = "localhost", path: str = "/") -> tuple[str, str]:
    """Return the headers and the body of an answer."""
    address, port = served.address.split(":")
    with socket.create_connection((address, int(port)), timeout=10) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return head, body


@pytest.mark.usefixtures("patient")
def test_the_page_is_made_once_a_second_for_clients_that_name_this_server() -> None:
    pages = iter((live_page.write("nginx", metrics(), sampled_run(), 15.0),))  # a second call would fail

    def text(*_: object) -> MetricsText:
        return MetricsText(b"# EOF\n", "text/plain")

    with Endpoint(("127.0.0.1", 0), text, page=lambda: next(pages)) as served:
        head, body = ask(served)
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n")
        assert f"Content-Length: {len(body.encode())}\r\n" in head and body.endswith("</html>\n")
        assert ask(served, "HEAD") == (head, "")
        assert ask(served, path="/?x=1") == (head, body)
        evil_head, evil_body = ask(served, host="evil.example")
        assert evil_head.startswith("HTTP/1.1 421 ") and "nginx" not in evil_body
        assert ask(served, "POST")[0].startswith("HTTP/1.1 405 ")
        assert ask(served, path="/metrics")[1] == "# EOF\n"


def test_the_policy_allows_exactly_the_styles_and_the_script_of_the_page() -> None:
    page = live_page.write("nginx", metrics(), sampled_run(), 15.0).decode()
    for kind, count in (("style", 2), ("script", 1)):
        texts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        allowed = re.findall(rf"{kind}-src ([^;]*)", endpoint.PAGE_HEADERS)
        assert len(texts) == count and allowed == [" ".join(f"'sha256-{value}'" for value in hashes)]
    assert "Content-Security-Policy: default-src 'none';" in endpoint.PAGE_HEADERS
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
