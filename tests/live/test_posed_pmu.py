"""The collector where perf_event_open(2) is posed (posed_pmu.c): what is sampled, by the real programs."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copyscope import paths

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.timeout(120),
]
EVENTS = ("cpu-clock", "cycles", "ref-cycles", "LLC-load-misses", "L1-dcache-load-misses")
DEAD = "it opens, but this PMU did not interrupt in 10 ms of work"


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("posed") / "posed_pmu.so"
    source = Path(__file__).with_name("posed_pmu.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True, timeout=60)
    return made


def probed(preload: Path, posed: str) -> dict[str, tuple[str, str | None]]:
    """Event -> status, reason."""
    said = subprocess.run(
        [paths.COLLECTOR, "--probe"],
        env={**os.environ, "LD_PRELOAD": str(preload), "POSED": posed},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    events = json.loads(said.stdout)["sampler"]["events"]
    return {event["name"]: (event["status"], event["reason"]) for event in events}


@pytest.mark.parametrize(
    ("posed", "sampled", "reason"),
    [
        ("all", EVENTS[1:], "ref-cycles are sampled instead"),
        ("dead", EVENTS[:1], DEAD),
        ("first", EVENTS[:1], "only on CPU 0: "),
    ],
)
def test_what_shows_time_is_on_all_cpus_and_interrupts(
    preload: Path, posed: str, sampled: tuple[str, ...], reason: str
) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one CPU: no event is on some of them only")
    events = probed(preload, posed)
    found = {name for name, (status, _) in events.items() if status == "sampled"}
    # Where the kernel says how long a ref-cycle is, these divide the cycles, too.
    assert found == set(sampled) or ("ref-cycles" in found and found == set(sampled) - {"cycles"})
    assert all(str(why).startswith(reason) for name, (_, why) in events.items() if name not in sampled)
