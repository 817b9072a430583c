# SPDX-License-Identifier: GPL-2.0-only
"""The load of the machine during a run: CPU time of other programs, disturbances, and advice."""

import io
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import builders
import pytest
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.ledger.verdict import next_step
from copyscope.machine import fingerprint
from copyscope.machine.cgroups import CpuQuotas
from copyscope.machine.cores import find_siblings, read_isolated_cpus
from copyscope.machine.processors import ClockSettings, read_clock, read_on_battery
from copyscope.record.assemble import machine_load
from copyscope.record.sections import ClockState, QuotaStops
from copyscope.record.session_result import LoadReading
from copyscope.show import first_screen, terminal
from copyscope.show.first_screen import render_summary
from copyscope.sweep import sweep
from msgspec import to_builtins
from rich.console import Console
from test_machine import plant

Record = dict[str, Any]
WALL_NS = 4_000_000_000  # CPU time of two CPUs
SIDES_NS = 3_000_000_000
# /proc/stat. The run uses CPU 0 and CPU 2; CPU 1 runs other programs.
STAT = """cpu  99 99 99 99 99 99 99 99 0 0
cpu0 {user} 0 {system} {idle} 7 0 {softirq} {steal} 0 0
cpu1 {idle} 0 0 0 0 0 0 0 0 0
cpu2 1 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def busy_record(others_ns: int) -> Record:
    raw = builders.raw_record("one_copy")
    raw["machine_state"] = to_builtins(machine_load(builders.loads(WALL_NS, SIDES_NS, others_ns), SIDES_NS))
    return raw


def screen(full: Record) -> str:
    out = io.StringIO()
    terminal.render(typed_whole(full), verbose=False, explain=False, console=Console(file=out, width=100))
    return out.getvalue()


def read_load(own_ns: int, cpus: Collection[int], root: Path) -> LoadReading:
    return LoadReading(**asdict(fingerprint.read_load(own_ns, cpus, root=root)))


def test_the_load_of_a_run_is_read_from_proc_stat(tmp_path: Path) -> None:
    """Ticks of 10 ms: 300 user, 40 kernel, 60 softirq. Idle time and iowait are not busy time."""
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    loads = []
    for user, system, softirq, steal in ((1000, 100, 10, 5), (1300, 140, 70, 9)):
        stat.write_text(STAT.format(user=user, system=system, idle=5 * user, softirq=softirq, steal=steal))
        loads.append(replace(read_load(user * 1000, {0, 2}, tmp_path), t_ns=user * 10**7))
    section = machine_load(loads, 1_000_000_000)
    assert (section.busy_ns, section.softirq_ns, section.steal_ns) == (
        4 * 10**9,
        6 * 10**8,
        4 * 10**7,
    )
    assert (section.own_ns, section.wall_ns, section.reasons) == (300_000, 3 * 10**9, {})
    assert (section.cpus, read_load(1, (), tmp_path).cpus) == (2, 3)
    stat.unlink()
    unread = machine_load([read_load(1, (), tmp_path), read_load(2, (), tmp_path)], 1)
    assert unread.busy_ns is None and unread.own_ns == 1
    assert "No such file" in unread.reasons["busy_ns"]


def test_a_quiet_machine_is_not_mentioned() -> None:
    full = derive(busy_record(0))
    state = full["machine_state"]
    assert (state["others_share"], state["steal_share"], state["sentence"]) == (0.0, 0.0, None)
    assert "machine" not in screen(full).split("COPY LEDGER")[0]


def test_two_busy_loops_are_reported_near_the_top() -> None:
    """Other programs took 3.84 of 8 s of CPU time: 48 %."""
    full = derive(busy_record(3_840_000_000))
    assert full["machine_state"]["others_share"] == pytest.approx(0.48, abs=0.01)
    top = " ".join(screen(full).split("COPY LEDGER")[0].split())
    assert "machine busy: other programs used 48 % of the CPUs; goodput of segments varied by 0 %: " in top
    assert "repeat when idle, or --duration 12" in top


def test_softirq_work_of_the_run_is_not_counted_as_other_programs() -> None:
    raw = busy_record(10**9)
    raw["machine_state"]["softirq_ns"] = 10**9
    state = derive(raw)["machine_state"]
    run_softirq_ns = derive(raw)["sides"]["other"]["cpu_ns"] * WALL_NS / (3 * builders.SEGMENT_NS)
    assert 0 < run_softirq_ns < 10**9
    assert state["others_ns"] == pytest.approx(10**9 - run_softirq_ns, rel=0.01)


CPU = "sys/devices/system/cpu"


def test_tasks_on_hyper_thread_siblings_are_other_programs(tmp_path: Path) -> None:
    """CPUs 0 and 4 share a core, and so do 1 and 5. The run uses CPUs 0 and 1; CPU 5 is offline.

    Within 4 s, tasks ran 248 ticks of 10 ms on CPU 4: 62 %. Its 100 ticks of softirq work may be the run's.
    """
    cores = {0: "0,4", 1: "1,5", 4: "0,4"}
    plant(tmp_path, {f"{CPU}/cpu{n}/topology/core_cpus_list": cpus for n, cpus in cores.items()})
    plant(tmp_path, {f"{CPU}/online": "0-4"})
    assert find_siblings({0, 1}, tmp_path) == {4}
    assert find_siblings({0, 4}, tmp_path) == set()
    loads = []
    for ticks, softirq in ((0, 0), (248, 100)):
        cpus = [f"cpu{n} {100 * n} 0 0 0 0 0 0 0 0 0" for n in range(4)]
        stat = "\n".join(["cpu 0 0 0 0 0 0 0 0 0 0", *cpus, f"cpu4 {ticks} 0 0 9 0 0 {softirq} 0 0 0"])
        plant(tmp_path, {"proc/stat": stat})
        reading = fingerprint.read_load(0, {0, 1}, find_siblings({0, 1}, tmp_path), tmp_path)
        loads.append(LoadReading(**asdict(reading) | {"t_ns": ticks * 4 * 10**9 // 248}))
    section = machine_load(loads, 0)
    assert (section.siblings, section.siblings_ns, section.busy_ns) == (1, 2_480_000_000, 0)
    raw = busy_record(0)
    raw["machine_state"] |= {"siblings": 1, "siblings_ns": section.siblings_ns, "own_ns": 0}
    full = derive(raw)
    evidence = "other programs used 62 % of the hyper-thread siblings"
    assert full["machine_state"]["siblings_share"] == pytest.approx(0.62)
    assert full["machine_state"]["disturbance"] == "busy"
    assert evidence in " ".join(screen(full).split())
    # A peer of the watched process that runs on the sibling is not another program.
    raw["machine_state"]["peers_ns"] = section.siblings_ns
    assert derive(raw)["machine_state"]["siblings_share"] == 0


def test_isolated_cpus_are_those_of_both_kernel_options(tmp_path: Path) -> None:
    plant(tmp_path, {f"{CPU}/isolated": "2-3", f"{CPU}/nohz_full": "3,6\n"})
    assert read_isolated_cpus(tmp_path) == {2, 3, 6}
    plant(tmp_path, {f"{CPU}/isolated": "\n", f"{CPU}/nohz_full": "(null)\n"})
    assert read_isolated_cpus(tmp_path) == set()


STAT_V1 = "nr_periods 80\nnr_throttled {stops}\nthrottled_time {stopped_us}000\n"
STAT_V2 = "usage_usec 9\nnr_periods 80\nnr_throttled {stops}\nthrottled_usec {stopped_us}\n"


@pytest.mark.parametrize(
    ("mount", "membership", "stat"),
    [
        ("cgroup /c cgroup rw,relatime,cpu,cpuacct", "3:cpuset:/other\n2:cpu,cpuacct:/pod/web", STAT_V1),
        ("cgroup2 /c cgroup2 rw,relatime", "0::/pod/web", STAT_V2),
    ],
)
def test_a_cpu_quota_of_a_cgroup_or_of_one_above_is_reported(
    mount: str, membership: str, stat: str, tmp_path: Path
) -> None:
    """The quota of `pod` stopped threads in 12 periods, for 1.2 s; that of `web` stopped nothing."""
    plant(tmp_path, {"proc/self/mounts": f"proc /proc proc rw 0 0\n{mount} 0 0", "proc/7/cgroup": membership})
    quotas, readings = CpuQuotas(tmp_path), []
    for stops, stopped_us in ((5, 100_000), (17, 1_300_000)):
        plant(tmp_path, {"c/pod/cpu.stat": stat.format(stops=stops, stopped_us=stopped_us)})
        plant(tmp_path, {"c/pod/web/cpu.stat": stat.format(stops=3, stopped_us=3)})
        quotas.add([7, 8])
        readings.append(quotas.read())
    loads = [
        replace(load, quotas=quotas)
        for load, quotas in zip(builders.loads(WALL_NS, 0), readings, strict=True)
    ]
    section = machine_load(loads, 0)
    assert section.quotas == [QuotaStops("/c/pod", 12, 1_200_000_000)]
    raw = busy_record(0)
    raw["machine_state"]["quotas"] = to_builtins(section.quotas)
    full = derive(raw)
    sentence = "the CPU quota of cgroup /c/pod stopped threads for 1.2 s of 4.0 s"
    assert sentence in full["machine_state"]["quota_sentence"]
    assert sentence in " ".join(screen(full).split())
    raw["machine_state"]["quotas"] = []
    assert derive(raw)["machine_state"]["quota_sentence"] is None


def test_steal_of_the_hypervisor_and_unsteady_segments_are_reported() -> None:
    raw = busy_record(0)
    raw["machine_state"]["steal_ns"] = 400_000_000
    assert "the hypervisor took 5 % of the CPUs' time" in derive(raw)["machine_state"]["sentence"]
    raw = busy_record(0)
    factors = iter([1, 4, 1])
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "unprobed":
            segment["sides"]["receiver"]["bytes"] *= next(factors)
    state = derive(raw)["machine_state"]
    assert state["spread_share"] == pytest.approx(3**0.5 / 2)  # of 1, 4, 1: 1.732 about 2
    assert state["sentence"] == "unsteady: goodput of segments varied by 87 %: repeat, or --duration 12"


def test_other_programs_are_reported_beside_a_watched_program_too() -> None:
    raw = watched_record()
    wall_ns = raw["machine_state"]["wall_ns"]
    assert derive(raw)["machine_state"]["sentence"] is None
    raw["machine_state"]["busy_ns"] += wall_ns
    sentence = derive(raw)["machine_state"]["sentence"]
    assert sentence.startswith("machine busy: other programs used 50 % of the CPUs")


def test_a_load_generator_is_reported_as_the_peer() -> None:
    """wrk takes one of two CPUs, and another program 30 % of a CPU."""
    raw = watched_record()
    wall_ns = raw["machine_state"]["wall_ns"]
    raw["machine_state"] |= {"busy_ns": raw["machine_state"]["busy_ns"] + wall_ns, "peers_ns": wall_ns}
    state = derive(raw)["machine_state"]
    assert state["others_share"] == 0.0
    assert state["sentence"] == "its peer on this machine took 50 % of the CPUs"
    shown = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(raw)), shown)
    text = shown.export_text()
    assert "its peer used 50 %" in text and "busy" not in text and "other programs" not in text
    raw["machine_state"]["busy_ns"] += 3 * wall_ns // 10
    assert derive(raw)["machine_state"]["sentence"].startswith(
        "machine busy: other programs used 15 % of the CPUs"
    )


@pytest.mark.parametrize(
    "reason,step",
    [
        ("identity sender_time: x: 1 is not 2 ns", "repeat when idle, or --duration 12"),
        ("identity sent_bytes: 1 is not 2 bytes", "keep the run with --json FILE and report it"),
        ("loss: calls_task_map_full: 3 of an unknown number", "--instruments counters,sampler"),
        ("interrupted: 2.8 of 5 s measured", "run it once more, without an interruption"),
        ("hook send: missing", "doctor"),
        ("sender: memlock", "fix what the first reason names"),
    ],
)
def test_the_next_step_of_an_invalid_run_depends_on_its_reason(reason: str, step: str) -> None:
    full = derive(busy_record(3_840_000_000))
    busy = full["machine_state"]["disturbance"]
    assert step in next_step([reason], busy, 3.0)
    assert "idle" not in next_step([reason], None, 3.0) and next_step([reason], None, 3.0)
    assert next_step([], busy, 3.0) == "" == full["verdict"]["next"]


def test_the_next_step_is_printed_below_the_reasons() -> None:
    raw = busy_record(3_840_000_000)
    raw["counters"]["receiver"]["task-clock"]["value"] -= 90_000_000 * 3
    full = derive(raw)
    assert not full["verdict"]["valid"]
    shown = screen(full)
    assert (
        shown.index("INVALID") < shown.index("next: machine busy: repeat when idle") < shown.index("verdict")
    )


# A plugged-in laptop: two threads of one core, and a second core. The battery of its mouse must be ignored.
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


def test_clock_settings_are_read_from_the_cpus_of_the_run(tmp_path: Path) -> None:
    """Heat slowed core 0 down 5 times, core 2 once, the package 40 times. Each CPU shows its core's count."""
    plant(tmp_path, LAPTOP)
    assert read_clock({0, 2}, tmp_path) == ClockSettings(
        governor="powersave",
        energy_preference="balance_performance",
        turbo=True,
        platform_profile="balanced",
        on_battery=False,
        throttles=46,
    )
    plant(tmp_path, {f"{CPU}/cpu1/cpufreq/scaling_governor": "performance"})
    assert read_clock({0, 2}, tmp_path).governor == "powersave"
    assert read_clock({0, 1}, tmp_path).governor == "performance, powersave"
    assert set(vars(read_clock((), tmp_path / "a virtual machine")).values()) == {None}


def test_a_battery_counts_only_while_it_feeds_the_machine(tmp_path: Path) -> None:
    """First full and plugged in, then discharging, then charged by USB-C."""
    plant(tmp_path, LAPTOP | {"sys/class/power_supply/BAT0/status": "Not charging"})
    assert read_on_battery(tmp_path) is False
    plant(tmp_path, UNPLUGGED)
    assert read_on_battery(tmp_path) is True
    plant(tmp_path, {"sys/class/power_supply/ucsi/type": "USB", "sys/class/power_supply/ucsi/online": "1"})
    assert read_on_battery(tmp_path) is False


@pytest.mark.parametrize(
    ("after", "caution"),
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
def test_a_changed_clock_gives_exactly_one_caution(
    tmp_path: Path, after: dict[str, str], caution: str | None
) -> None:
    before = read_clock((), plant(tmp_path, LAPTOP))
    loads = builders.loads(WALL_NS, SIDES_NS)
    clocks = before, read_clock((), plant(tmp_path, after))
    loads = [
        replace(load, clock=ClockState(**vars(clock))) for load, clock in zip(loads, clocks, strict=True)
    ]
    for raw in (builders.raw_record("one_copy"), watched_record()):
        raw["machine_state"] = to_builtins(machine_load(loads, SIDES_NS))
        full = derive(raw)
        assert full["machine_state"]["clock_sentence"] == caution and full["verdict"]["valid"]
        first = io.StringIO()
        first_screen.render(typed_whole(full), Console(file=first, width=80, height=24, force_terminal=True))
        for shown in (screen(full) if raw.get("target") is None else "", first.getvalue()):
            assert shown.count("caution: ") == (0 if caution is None or not shown else 1)
        assert derive(full)["machine_state"] == full["machine_state"]


def test_an_unread_clock_has_no_sentence() -> None:
    state = derive(busy_record(0))["machine_state"]
    assert state["clock_sentence"] is None and "not read" in state["reasons"]["clock_sentence"]


def test_a_sweep_repeats_points_measured_on_a_busy_machine() -> None:
    runs = [derive(busy_record(others)) for others in (0, 3_840_000_000, 3_840_000_000)]
    assert sweep.find_unsteady(sweep.sample(typed_whole(run)) for run in runs[:1] * 3) == []
    (unsteady,) = sweep.find_unsteady(sweep.sample(typed_whole(run)) for run in runs)
    assert "other programs used 48 % of the CPUs (limit 10 %)" in unsteady.reason and unsteady.wants_more


def test_a_summary_of_runs_shows_which_had_a_busy_machine() -> None:
    out = io.StringIO()
    runs = [typed_whole(derive(busy_record(others))) for others in (0, 3_840_000_000)]
    render_summary(runs, Console(file=out, width=100))
    rows = [line.split("115,200")[-1].strip() for line in out.getvalue().splitlines() if "115,200" in line]
    assert rows == ["valid", "valid; machine busy"]
