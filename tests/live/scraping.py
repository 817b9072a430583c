# SPDX-License-Identifier: GPL-2.0-only
"""Run `copyscope watch --serve`, and read its metrics."""

import contextlib
import importlib
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence

from profiling import SLOW, WATCH
from programs import free_port


@contextlib.contextmanager
def serving(*words: str, prefix: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `copyscope watch WORDS --serve` as the arguments of a command `prefix`; yield it and its port."""
    port = free_port()
    argv = [*prefix, *WATCH, *words, "--serve", f":{port}"]
    served = subprocess.Popen(argv, stderr=subprocess.PIPE)
    try:
        yield served, port
    finally:
        served.kill()
        # pytest shows the output of a test that failed.
        print(served.communicate()[1].decode())


def samples(port: int) -> dict[str, float]:
    """Return all samples of one scrape; none while nobody listens or no value is known."""
    try:
        url, headers = f"http://127.0.0.1:{port}/metrics", {"Accept": "application/openmetrics-text"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            text = answer.read().decode()
    except urllib.error.URLError:
        return {}
    # Optional: only tests that skip without it get here.
    parser = importlib.import_module("prometheus_client.openmetrics.parser")

    return {
        " ".join((sample.name.removeprefix("copyscope_"), *sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def wait_until(port: int, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    deadline = time.monotonic() + 40 * SLOW
    while time.monotonic() < deadline:
        metrics = samples(port)
        if metrics and condition(metrics):
            return metrics
        time.sleep(0.3)
    raise AssertionError(f"not within {40 * SLOW:g} s: {samples(port)}")
