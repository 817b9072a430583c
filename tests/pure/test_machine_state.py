"""How busy the machine was while a run was measured: what is taken from what, when it matters, what to do."""

import io
from pathlib import Path
from typing import Any

import builders
import pytest
from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.ledger.verdict import next_step
from copyscope.machine import fingerprint
from copyscope.machine.clock import read_clock, read_on_battery
from copyscope.record.assemble import readings
from copyscope.record.check import typed_whole
from copyscope.show import first_screen, terminal
from copyscope.show.summary import render_summary
from copyscope.sweep import noise
from rich.console import Console
from test_machine import plant

Record = dict[str, Any]
WALL_NS = 4_000_000_000  # of two CPUs
SIDES_NS = 3_000_000_000
# Of CPU 0 and 2; CPU 1 does something else.
STAT = """cpu  99 99 99 99 99 99 99 99 0 0
cpu0 {user} 0 {system} {idle} 7 0 {softirq} {steal} 0 0
cpu1 {idle} 0 0 0 0 0 0 0 0 0
cpu2 1 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def busy_record(others_ns: int) -> Record:
    raw = builders.raw_record("one_copy")
    raw["machine_state"] = readings(builders.loads(WALL_NS, SIDES_NS, others_ns), SIDES_NS)
    return raw


def screen(full: Record) -> str:
    out = io.StringIO()
    terminal.render(typed_whole(full), verbose=False, explain=False, console=Console(file=out, width=100))
    return out.getvalue()


def test_what_nobody_else_accounts_for_is_of_others(tmp_path: Path) -> None:
    """Ticks of 10 ms: 300 of programs, 40 of the kernel, 60 of softirq; iowait and idle are no work."""
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    loads = []
    for user, system, softirq, steal in ((1000, 100, 10, 5), (1300, 140, 70, 9)):
        stat.write_text(STAT.format(user=user, system=system, idle=5 * user, softirq=softirq, steal=steal))
        loads.append(fingerprint.read_load(user * 1000, {0, 2}, tmp_path) | {"t_ns": user * 10**7})
    section = readings(loads, 1_000_000_000)
    assert (section["busy_ns"], section["softirq_ns"], section["steal_ns"]) == (
        4 * 10**9,
        6 * 10**8,
        4 * 10**7,
    )
    assert (section["own_ns"], section["wall_ns"], section["reasons"]) == (300_000, 3 * 10**9, {})
    assert (section["cpus"], fingerprint.read_load(1, (), tmp_path)["cpus"]) == (2, 3)
    stat.unlink()
    gone = readings([fingerprint.read_load(1, (), tmp_path), fingerprint.read_load(2, (), tmp_path)], 1)
    assert gone["busy_ns"] is None and gone["own_ns"] == 1
    assert "No such file" in gone["reasons"]["busy_ns"]


def test_a_quiet_machine_is_not_mentioned() -> None:
    full = derive(busy_record(0))
    state = full["machine_state"]
    assert (state["others_share"], state["steal_share"], state["sentence"]) == (0.0, 0.0, None)
    assert "machine" not in screen(full).split("COPY LEDGER")[0]


def test_two_busy_loops_are_named_near_the_top() -> None:
    """Others had 3.84 of 8 s of CPU time: 48 %."""
    full = derive(busy_record(3_840_000_000))
    assert full["machine_state"]["others_share"] == pytest.approx(0.48, abs=0.01)
    top = " ".join(screen(full).split("COPY LEDGER")[0].split())
    assert "machine busy: others took 48 % of the CPUs; segments varied by 0 %: " in top
    assert "repeat when idle, or --duration 12" in top


def test_softirq_work_beside_the_sides_is_the_runs_own() -> None:
    raw = busy_record(10**9)
    raw["machine_state"]["softirq_ns"] = 10**9
    state = derive(raw)["machine_state"]
    beside_ns = derive(raw)["sides"]["other"]["cpu_ns"] * WALL_NS / (3 * builders.SEGMENT_NS)
    assert 0 < beside_ns < 10**9
    assert state["others_ns"] == pytest.approx(10**9 - beside_ns, rel=0.01)


def test_the_hypervisor_and_unsteady_segments_are_named() -> None:
    raw = busy_record(0)
    raw["machine_state"]["steal_ns"] = 400_000_000
    assert "the hypervisor took 5 % of their time" in derive(raw)["machine_state"]["sentence"]
    raw = busy_record(0)
    factors = iter([1, 4, 1])
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "unprobed":
            segment["sides"]["receiver"]["bytes"] *= next(factors)
    state = derive(raw)["machine_state"]
    assert state["spread_share"] == pytest.approx(3**0.5 / 2)  # of 1, 4, 1: 1.732 about 2
    assert state["sentence"] == "unsteady: segments varied by 87 %: repeat, or --duration 12"


def test_a_watched_program_has_the_same_line() -> None:
    raw = watched_record()
    wall_ns = raw["machine_state"]["wall_ns"]
    assert derive(raw)["machine_state"]["sentence"] is None
    raw["machine_state"]["busy_ns"] += wall_ns
    sentence = derive(raw)["machine_state"]["sentence"]
    assert sentence.startswith("machine busy: others took 50 % of the CPUs")


def test_the_load_generator_is_a_peer_and_not_others() -> None:
    """A wrk that takes one of two CPUs; another program takes three tenths of one more."""
    raw = watched_record()
    wall_ns = raw["machine_state"]["wall_ns"]
    raw["machine_state"] |= {"busy_ns": raw["machine_state"]["busy_ns"] + wall_ns, "peers_ns": wall_ns}
    state = derive(raw)["machine_state"]
    assert state["others_share"] == 0.0
    assert state["sentence"] == "its peer on this machine took 50 % of the CPUs"
    shown = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(raw)), shown)
    text = shown.export_text()
    assert "its peer took 50 %" in text and "busy" not in text and "others took" not in text
    raw["machine_state"]["busy_ns"] += 3 * wall_ns // 10
    assert derive(raw)["machine_state"]["sentence"].startswith("machine busy: others took 15 % of the CPUs")


@pytest.mark.parametrize(
    "reason,step",
    [
        ("identity sender_time: x: 1 is not 2 ns", "repeat when idle, or --duration 12"),
        ("identity sent_bytes: 1 is not 2 bytes", "keep the run with --json FILE and report it"),
        ("loss: calls_task_map_full: 3 of an unknown number", "--instruments counters,sampler"),
        ("interrupted: 2.8 of 5 s measured", "run it once more, to its end"),
        ("hook send: missing", "doctor"),
        ("sender: memlock", "fix what the first reason names"),
    ],
)
def test_an_invalid_run_ends_with_what_to_do(reason: str, step: str) -> None:
    full = derive(busy_record(3_840_000_000))
    busy = full["machine_state"]["disturbance"]
    assert step in next_step([reason], busy, 3.0)
    assert "idle" not in next_step([reason], None, 3.0) and next_step([reason], None, 3.0)
    assert next_step([], busy, 3.0) == "" == full["verdict"]["next"]


def test_the_step_stands_below_the_reasons() -> None:
    raw = busy_record(3_840_000_000)
    raw["counters"]["receiver"]["task-clock"]["value"] -= 90_000_000 * 3
    full = derive(raw)
    assert not full["verdict"]["valid"]
    shown = screen(full)
    assert (
        shown.index("INVALID") < shown.index("next: machine busy: repeat when idle") < shown.index("verdict")
    )


CPU = "sys/devices/system/cpu"
# A laptop: two threads of one core and a second core, plugged in; the battery of its mouse is no matter.
LAPTOP = {
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "powersave" for n in range(3)},
    **{f"{CPU}/cpu{n}/cpufreq/energy_performance_preference": "balance_performance" for n in range(3)},
    f"{CPU}/intel_pstate/no_turbo": "0",
    **{f"{CPU}/cpu{n}/topology/core_cpus_list": cpus for n, cpus in enumerate(("0-1", "0-1", "2"))},
    **{f"{CPU}/cpu{n}/topology/physical_package_id": "0" for n in range(3)},
    **{f"{CPU}/cpu{n}/thermal_throttle/core_throttle_count": str(c) for n, c in enumerate((5, 5, 1))},
    **{f"{CPU}/cpu{n}/thermal_throttle/package_throttle_count": "40" for n in range(3)},
    "sys/firmware/acpi/platform_profile": "balanced",
    **{"sys/class/power_supply/BAT0/type": "Battery", "sys/class/power_supply/BAT0/status": "Charging"},
    **{"sys/class/power_supply/AC/type": "Mains", "sys/class/power_supply/AC/online": "1"},
    "sys/class/power_supply/mouse/type": "Battery",
    **{"sys/class/power_supply/mouse/status": "Discharging", "sys/class/power_supply/mouse/scope": "Device"},
}
UNPLUGGED = {"sys/class/power_supply/BAT0/status": "Discharging", "sys/class/power_supply/AC/online": "0"}


def test_what_decides_the_clock_is_read_of_the_runs_cpus(tmp_path: Path) -> None:
    """Heat slowed core 0 down 5 times, core 2 once, the package 40 times: each CPU shows its core's count."""
    plant(tmp_path, LAPTOP)
    assert read_clock({0, 2}, tmp_path) == {
        "governor": "powersave",
        "energy_preference": "balance_performance",
        "turbo": True,
        "platform_profile": "balanced",
        "on_battery": False,
        "throttles": 46,
    }
    plant(tmp_path, {f"{CPU}/cpu1/cpufreq/scaling_governor": "performance"})
    assert read_clock({0, 2}, tmp_path)["governor"] == "powersave"
    assert read_clock({0, 1}, tmp_path)["governor"] == "performance, powersave"
    assert set(read_clock((), tmp_path / "a virtual machine").values()) == {None}


def test_a_battery_that_feeds_nothing_is_no_matter(tmp_path: Path) -> None:
    """Full and plugged in; then a charger by USB-C; then none."""
    plant(tmp_path, LAPTOP | {"sys/class/power_supply/BAT0/status": "Not charging"})
    assert read_on_battery(tmp_path) is False
    plant(tmp_path, UNPLUGGED)
    assert read_on_battery(tmp_path) is True
    plant(tmp_path, {"sys/class/power_supply/ucsi/type": "USB", "sys/class/power_supply/ucsi/online": "1"})
    assert read_on_battery(tmp_path) is False


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({}, None),
        (
            {f"{CPU}/cpu{n}/thermal_throttle/package_throttle_count": "43" for n in range(3)},
            "clock: heat slowed it down 3 times: repeat when it is cool",
        ),
        (UNPLUGGED, "clock: on battery: repeat on mains power"),
        (
            {f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(3)},
            "clock: governor changed from powersave to performance: repeat",
        ),
        (
            {f"{CPU}/intel_pstate/no_turbo": "1", "sys/firmware/acpi/platform_profile": "quiet"},
            "clock: turbo changed from on to off, platform profile changed from balanced to quiet: repeat",
        ),
    ],
)
def test_the_clock_is_one_caution_where_it_changed_and_nothing_otherwise(
    tmp_path: Path, after: dict[str, str], said: str | None
) -> None:
    before = read_clock((), plant(tmp_path, LAPTOP))
    loads = builders.loads(WALL_NS, SIDES_NS)
    loads[0]["clock"], loads[1]["clock"] = before, read_clock((), plant(tmp_path, after))
    for raw in (builders.raw_record("one_copy"), watched_record()):
        raw["machine_state"] = readings(loads, SIDES_NS)
        full = derive(raw)
        assert full["machine_state"]["clock_sentence"] == said and full["verdict"]["valid"]
        first = io.StringIO()
        first_screen.render(typed_whole(full), Console(file=first, width=80, height=24, force_terminal=True))
        for shown in (screen(full) if raw.get("target") is None else "", first.getvalue()):
            assert shown.count("caution: ") == (0 if said is None or not shown else 1)
        assert derive(full)["machine_state"] == full["machine_state"]


def test_a_machine_whose_clock_nobody_read_says_nothing() -> None:
    state = derive(busy_record(0))["machine_state"]
    assert state["clock_sentence"] is None and "not read" in state["reasons"]["clock_sentence"]


def test_a_sweep_marks_points_that_were_measured_beside_others() -> None:
    runs = [derive(busy_record(others)) for others in (0, 3_840_000_000, 3_840_000_000)]
    assert noise.find_unsteady(noise.sample(run) for run in runs[:1] * 3) == []
    (found,) = noise.find_unsteady(noise.sample(run) for run in runs)
    assert "other programs took 48 % of the CPUs (limit 10 %)" in found.reason and found.wants_more


def test_of_several_runs_each_says_whether_the_machine_was_busy() -> None:
    out = io.StringIO()
    runs = [typed_whole(derive(busy_record(others))) for others in (0, 3_840_000_000)]
    render_summary(runs, Console(file=out, width=100))
    rows = [line.split("115,200")[-1].strip() for line in out.getvalue().splitlines() if "115,200" in line]
    assert rows == ["valid", "valid; machine busy"]
