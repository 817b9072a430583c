# SPDX-License-Identifier: GPL-2.0-only
"""The page of `watch --serve` in a browser: its numbers change, and nothing is cut off or refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from browser import CHANGED, CUT, SCREENS, look
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.report import live_page
from copyscope.report.openmetrics import Family, MetricsText
from copyscope.report.served_endpoint import Endpoint


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve a page whose number of bytes grows with every request."""
    run = typed_whole(derive(watched_record(zerocopy=True, copied=100, receives=4096)))
    gigabytes = count(1)

    def page() -> bytes:
        sent = ({"direction": "send"}, next(gigabytes) * 1e9)
        now_s = time.time()
        families = [
            Family("socket_bytes", "counter", "bytes", "", [sent]),
            Family("program_processes", "gauge", "", "", [({}, 1)]),
            Family("read_timestamp_seconds", "gauge", "seconds", "", [({}, now_s)]),
        ]
        return live_page.write("<b>server</b>", families, live_page.SampledRun(run, now_s), 15.0)

    with Endpoint(("127.0.0.1", 0), lambda *_: MetricsText(b"", "text/plain"), page=page) as served:
        yield f"http://{served.address}/"


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_numbers_change_and_nothing_is_cut_off(url: str, width: int, dark: bool) -> None:
    name = f"live-{width}-{'dark' if dark else 'light'}"
    answer = look(url, width=width, dark=dark, wait=CHANGED, axe=True, ask=CUT, name=name)
    assert (answer["messages"], answer["findings"]) == ([], [])
    assert answer["said"] <= 0


def test_the_name_of_a_program_is_text(url: str) -> None:
    ask = "[document.querySelector('h1').innerText, document.querySelectorAll('h1 *').length]"
    assert look(url, ask=ask)["said"] == ["<b>server</b>: the path of a byte", 0]


def test_the_page_says_that_the_server_does_not_answer() -> None:
    pages = iter((live_page.write("server", (), None, 15.0),))

    def page() -> bytes:
        if html := next(pages, None):
            return html
        raise OSError("the server has ended")

    with Endpoint(("127.0.0.1", 0), lambda *_: MetricsText(b"", "text/plain"), page=page) as served:
        shown = "document.querySelector('[role=status]').offsetHeight > 0"
        answer = look(f"http://{served.address}/", wait=shown, name="live-silent")
    assert any("not loaded" in message for message in answer["messages"])
