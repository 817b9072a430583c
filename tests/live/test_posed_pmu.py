# SPDX-License-Identifier: GPL-2.0-only
"""The collector with a fake perf_event_open(2) (posed_pmu.c): it samples only events that work."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.timeout(120),
]
EVENTS = ("cpu-clock", "cycles", "ref-cycles", "LLC-load-misses", "L1-dcache-load-misses")
DEAD = "it opens, but this PMU did not interrupt in 10 ms of work"


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library: Path = tmp_path_factory.mktemp("posed") / "posed_pmu.so"
    source = Path(__file__).with_name("posed_pmu.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


def probed(preload: Path, posed: str) -> dict[str, tuple[str, str | None]]:
    """Probe the events under a fake PMU. Return (status, reason) of each event."""
    probe = subprocess.run(
        [paths.COLLECTOR, "--probe"],
        env={**os.environ, "LD_PRELOAD": str(preload), "POSED": posed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    events = json.loads(probe.stdout)["sampler"]["events"]
    return {event["name"]: (event["status"], event["reason"]) for event in events}


@pytest.mark.parametrize(
    ("posed", "sampled", "reason"),
    [
        ("all", EVENTS[1:], "ref-cycles are sampled instead"),
        ("dead", EVENTS[:1], DEAD),
        ("first", EVENTS[:1], "only on CPU 0: "),
    ],
)
def test_only_events_that_interrupt_on_all_cpus_are_sampled(
    preload: Path, posed: str, sampled: tuple[str, ...], reason: str
) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one CPU: no event can exist on only some CPUs")
    events = probed(preload, posed)
    sampled_names = {name for name, (status, _) in events.items() if status == "sampled"}
    # If the kernel reports the length of a ref-cycle, ref-cycles are sampled in place of cycles.
    assert sampled_names == set(sampled) or (
        "ref-cycles" in sampled_names and sampled_names == set(sampled) - {"cycles"}
    )
    assert all(str(why).startswith(reason) for name, (_, why) in events.items() if name not in sampled)
