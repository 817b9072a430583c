"""Finding and reading other people's processes, as far as it needs no root."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.commands import watch
from copyscope.commands.watch import beginning, check_met, late
from copyscope.commands.watch_arguments import check_usage, parse, parser, split
from copyscope.errors import RunError, UsageError
from copyscope.plan.schedule import watched_segments
from copyscope.record.assemble import zerocopy_limits
from copyscope.run import connections, processes, target
from copyscope.run.followed import Followed


def stat(pid: int, comm: str, *, parent: int = 1, flags: int = 4194560, start: int = 0) -> str:
    """A line of /proc/PID/stat (proc_pid_stat(5))."""
    return f"{pid} ({comm}) S {parent} 77 77 0 -1 {flags} {'0 ' * 12}{start} 0 0"


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::1]:80", "::1"),
        ("[fe80::1%eth0]:80", "fe80::1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
    ],
)
def test_addresses(address: str, host: str) -> None:
    assert connections.host_of(address) == host


def test_a_name_may_hold_anything() -> None:
    process = processes.parse_stat(stat(77, "a) b (c)", start=4321))
    assert (process.pid, process.comm, process.parent, process.alive) == (77, "a) b (c)", 1, True)
    assert process.start == 4321
    assert processes.parse_stat(stat(2, "kthreadd", parent=0, flags=2129984)).kernel


def test_a_number_that_was_given_away_again_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 made 101 and 102; 101 ended and its number is a stranger's, 102 ended and is a new child of 100."""
    cpu_ns = {100: 7, 101: 1000, 102: 500}
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "cpu_ns", cpu_ns.get)
    monkeypatch.setattr(processes, "switches", lambda _: (0, 0))

    def begin(pid: int, *, parent: int, start: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(stat(pid, "x", parent=parent, start=start))

    begin(100, parent=1, start=10)
    begin(101, parent=100, start=11)
    begin(102, parent=100, start=12)
    whom = target.Target(how="pid", pids=(100,))
    asked: list[str] = []
    collector: Any = SimpleNamespace(ask=lambda line, *_: asked.append(line))
    followed = Followed(whom, {}, collector, ExitStack(), None)
    followed.find({"t_ns": 0, "totals": {"births": 0, "exits": 0}, "processes": []})
    assert followed.pids == {100, 101, 102}
    assert followed.cpu.read(followed.pids, fresh=True) == processes.Use()
    cpu_ns |= {101: 1400, 102: 600}
    followed.cpu.glance(followed.pids, fresh=True, counted=False)
    begin(101, parent=1, start=20)
    begin(102, parent=100, start=21)
    cpu_ns |= {101: 9999, 102: 650}
    asked.clear()
    followed.find({"t_ns": 0, "totals": {"births": 1, "exits": 2}, "processes": [[100, False], [102, False]]})
    assert followed.pids == {100, 102}
    # Of the collector's timers the new one has none yet.
    assert asked == ["target target 102"]
    cpu_ns[102] = 680
    assert followed.cpu.read(followed.pids, fresh=True) == processes.Use(400 + 100 + 30)
    begin(100, parent=1, start=30)
    assert whom.find_processes({100, 102}) == {102}


def test_what_processes_had_used_at_their_end_is_told_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that had used 7 before it was watched makes children that nobody looks at while they live."""
    clocks = {100: 7}
    monkeypatch.setattr(processes, "cpu_ns", clocks.get)
    monkeypatch.setattr(processes, "switches", lambda _: (0, 0))
    times = processes.CpuTimes()
    times.read([100], fresh=False)
    times.tell([100], 0)
    clocks[100] = 10
    times.tell([100], 50)  # one has come and gone
    assert times.read([100], fresh=True).cpu_ns == 3 + 50
    clocks |= {101: 20, 102: 5}
    assert times.new_among([100, 101, 102]) == {101, 102}
    times.glance({101}, fresh=True, counted=True)
    times.tell([100, 101, 102], 50)
    assert times.used().cpu_ns == 3 + 50 + 20
    # All end: the one that was looked at had used 30 then, the other one 6, and the shell 12 in all its life.
    times.tell([], 50 + 30 + 6 + 12)
    assert times.used().cpu_ns == 50 + 30 + 6 + (12 - 7)


def test_of_a_process_whose_end_nobody_tells_the_last_look_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a cgroup that never used a socket: the kernel's list does not have it."""
    clocks = {7: 1, 8: 1}
    monkeypatch.setattr(processes, "cpu_ns", clocks.get)
    monkeypatch.setattr(processes, "switches", lambda _: (0, 0))
    times = processes.CpuTimes()
    times.read([7, 8], fresh=False)
    times.tell([7], 0)
    clocks |= {7: 11, 8: 21}
    assert times.read([7, 8], fresh=True).cpu_ns == 10 + 20
    del clocks[8], clocks[7]
    times.tell([], 15)
    assert times.read([], fresh=True).cpu_ns == (15 - 1) + 20


def test_our_own_process() -> None:
    me = os.getpid()
    assert processes.is_alive(me) and os.getppid() in processes.with_descendants([os.getppid()])
    times = processes.CpuTimes()
    assert times.read([me], fresh=False) == processes.Use()
    sum(range(1_000_000))
    assert times.read([me], fresh=False).cpu_ns > 0


def test_switches_of_both_kinds_are_those_that_the_kernel_counts() -> None:
    """Of a process with one thread, between what getrusage(2) tells it before and after it waits for us."""
    script = (
        "import resource, time\n"
        "def tell(): used = resource.getrusage(0); print(used.ru_nvcsw, used.ru_nivcsw, flush=True)\n"
        "for _ in range(50): time.sleep(0.0001)\n"
        "tell(); input(); tell()"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        before = tuple(map(int, child.stdout.readline().split()))
        time.sleep(0.1)
        told = processes.switches(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        after = tuple(map(int, child.stdout.readline().split()))
    assert 50 <= before[0] < told[0] <= after[0] <= before[0] + 4
    assert before[1] <= told[1] <= after[1]


def test_a_limit_that_does_not_hold_is_none() -> None:
    limit_bytes, why = processes.memlock(os.getpid())
    found = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    capable = found is not None and int(found[1], 16) >> 14 & 1
    assert (limit_bytes is None) == bool(why) and (not capable or limit_bytes is None)
    assert processes.memlock(2**22 - 3) == (None, "the process had ended before its limit was read")


def test_of_several_processes_the_least_limit_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {7: (None, "unlimited"), 8: (8_388_608, ""), 9: (65_536, "")}
    monkeypatch.setattr(processes, "memlock", limits.__getitem__)
    machine: dict[str, Any] = {"limits": {}, "reasons": {}, "sysctls": {"net.core.optmem_max": "131072"}}
    processes.put_memlock(machine, {7, 8, 9})
    assert zerocopy_limits(machine) == {"memlock_limit_bytes": 65_536, "optmem_limit_bytes": 131_072}
    processes.put_memlock(machine, {7})
    assert zerocopy_limits(machine)["memlock_limit_bytes"] is None
    assert machine["reasons"]["limits.memlock_bytes"] == "unlimited"


@pytest.mark.parametrize(
    ("pid", "said"),
    [(2**22 - 3, "no such process"), (2, "is a kernel thread")],
)
def test_who_cannot_be_watched_is_told_why(pid: int, said: str) -> None:
    process = processes.read_process(pid)
    if pid == 2 and (process is None or not process.kernel):
        pytest.skip("pid 2 is no kernel thread in this pid namespace")
    with pytest.raises(RunError, match=said):
        target.check_pid(pid)


@pytest.mark.parametrize("text", ["", "0", "12,x", "-1"])
def test_no_pid(text: str) -> None:
    with pytest.raises(UsageError, match="not a process id"):
        target.parse_pids(text)


def test_no_cgroup(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a cgroup of version 2"):
        target.find_cgroup(str(tmp_path))
    with pytest.raises(RunError, match="no such directory"):
        target.find_cgroup("no/such/thing")


def test_the_command_is_behind_the_dashes() -> None:
    argv = ["--duration", "3", "--", "iperf3", "-c", "host", "--", "x"]
    assert split(argv) == (argv[:2], argv[3:])


@pytest.mark.parametrize(
    ("options", "command", "said"),
    [
        ([], [], "nothing to watch: give a name, a pid"),
        (["--pid", "1", "--comm", "x"], [], "--pid and --comm"),
        (["--pid", "1"], ["ls"], "--pid and -- COMMAND"),
        (["--pid", "1", "--duration", "0"], [], "--duration: 0"),
        (["--pid", "1", "--live", "--json", "-"], [], "both want stdout"),
    ],
)
def test_wrong_usage_is_one_line(options: list[str], command: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_usage(parser().parse_args(options), command)


def test_segments_without_an_end_begin_short_and_hold_every_phase() -> None:
    found = list(islice(watched_segments(None, ("unprobed", "ledger", "calls"), 7), 15))
    for block in range(5):
        assert {s.phase for s in found if s.block == block} == {"unprobed", "ledger", "calls"}
    lengths = [sum(s.length_s for s in found if s.block == block) for block in range(5)]
    assert lengths == pytest.approx([0.5, 0.5, 1.0, 2.0, 2.0])
    assert [s.index for s in found] == list(range(15))
    assert found == list(islice(watched_segments(None, ("unprobed", "ledger", "calls"), 7), 15))


def test_a_start_that_took_long_is_named() -> None:
    assert late(1.9) == ""
    assert late(28.3).startswith("; getting ready took 28 s: a hook waits")


DOCKER_ID, PODMAN_ID, OLD_ID = "ab12" + "0" * 60, "cd34" + "1" * 60, "ef56" + "2" * 60
ONCE_ID = "0a9b" + "3" * 60


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with systemd, docker, podman and nspawn; one container in version 1 only."""
    cgroups = {
        10: "0::/system.slice/nginx.service\n",
        11: "0::/system.slice/nginx.service/worker\n",
        20: f"4:memory:/x\n0::/system.slice/docker-{DOCKER_ID}.scope\n",
        30: f"0::/machine.slice/libpod-{PODMAN_ID}.scope/container\n",
        31: f"0::/libpod_parent/libpod-{ONCE_ID}\n",
        40: f"3:cpu:/docker/{OLD_ID}\n0::/\n",
        50: "0::/machine.slice/machine-my\\x2dbox.scope/payload\n",
        60: "0::/kubepods.slice/a/redis.service\n",
        61: "0::/kubepods.slice/b/redis.service\n",
    }
    for pid, text in cgroups.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "stat").write_text(stat(pid, "x"))
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(text)
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    monkeypatch.setattr(target, "DOCKER", tmp_path / "docker")
    monkeypatch.setattr(target, "PODMAN", (tmp_path / "lib", tmp_path / "run"))
    (tmp_path / "docker" / DOCKER_ID).mkdir(parents=True)
    (tmp_path / "docker" / DOCKER_ID / "config.v2.json").write_text('{"Name": "/web"}')
    for file, known, name in (
        ("lib/vfs-containers/containers.json", PODMAN_ID, "db"),
        ("run/overlay-containers/volatile-containers.json", ONCE_ID, "once"),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(f'[{{"id": "{known}", "names": ["{name}"]}}]')


@pytest.mark.usefixtures("host")
def test_the_cgroup_of_a_unit_and_of_a_container() -> None:
    assert target.unit_path("nginx") == target.unit_path("nginx.service")
    assert target.unit_path("nginx") == "system.slice/nginx.service"
    docker = f"system.slice/docker-{DOCKER_ID}.scope"
    assert {target.container_path(name) for name in ("web", "ab12", DOCKER_ID)} == {docker}
    assert target.container_path("db") == f"machine.slice/libpod-{PODMAN_ID}.scope"
    assert target.container_path("once") == f"libpod_parent/libpod-{ONCE_ID}"
    assert target.container_path("my-box") == "machine.slice/machine-my\\x2dbox.scope"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("options", [("--container", "web"), ("--unit", "nginx")])
def test_a_container_and_a_unit_are_called_as_the_user_does(
    options: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch, "find_cgroup", tmp_path.joinpath)
    args, command = parse(options)
    assert watch.find_target(args, command).name() == f"{options[0][2:]} {options[1]}"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("find", "name", "said"),
    [
        (target.unit_path, "redis", "is in several: kubepods.slice/a/redis.service, kubepods"),
        (target.unit_path, "none", "no process runs in one of that name"),
        (target.container_path, "ef56", "in no cgroup of version 2: use --pid 40"),
        (target.container_path, "ab", "no process runs in one of that name"),
    ],
)
def test_a_cgroup_that_is_not_found_says_what_to_do(find: Any, name: str, said: str) -> None:
    with pytest.raises(RunError, match=re.escape(said)):
        find(name)


@pytest.mark.parametrize(
    ("comm", "said"),
    [
        ("ngin", "did you mean nginx?"),
        ("Postgres", "did you mean postgres?"),
        ("ngnix", "did you mean nginx?"),
        ("haproxy", "ps -eo comm lists names; of a script give the pid (pgrep -f)"),
    ],
)
def test_a_name_that_is_nearly_one_is_asked_back(
    comm: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("nginx", "nginx-exporter", "postgres", "kworker")
    running = [
        processes.Process(pid, name, "S", 1, name == "kworker", 0) for pid, name in enumerate(names, 7)
    ]
    monkeypatch.setattr(processes, "all_processes", lambda: running)
    made = {"target": {"pids": []}, "run": {"measured_s": 1.0}}
    with pytest.raises(RunError, match=re.escape(f"ran in 1.0 s: {said}")):
        check_met(made, SimpleNamespace(comm=comm, json=None, out=None))  # type: ignore[arg-type]
    waiting = beginning(target.Target("comm", comm=comm), comm, 5.0, there=False)
    asked = f"{said} " if "mean" in said else ""
    assert waiting == f"no process called {comm} runs now: {asked}waiting for 5 s"


def short_run(phases: tuple[str, ...], measured_s: float, ended: str = "the command ended") -> dict[str, Any]:
    run = {"measured_s": measured_s, "segments": [{"phase": phase} for phase in phases]}
    target = {"how": "command", "name": "curl", "ended": ended}
    return {"target": target, "run": run, "verdict": {"valid": True}}


def test_a_command_shorter_than_a_second_is_told_of_whole() -> None:
    said = "curl ran for 0.20 s, too short for all instruments in turn: --whole uses all from start to end"
    assert watch.whole_hint(short_run(("unprobed", "ledger"), 0.2)) == said
    for other in (
        short_run(("ledger+calls",), 0.2),
        short_run(("unprobed", "ledger", "calls"), 1.2),
        short_run(("unprobed", "ledger"), 0.5, "the time was over"),
    ):
        assert watch.whole_hint(other) is None


def test_a_name_that_no_process_has_is_one_line() -> None:
    made = {"target": {"pids": []}, "run": {"measured_s": 1.0}}
    args = SimpleNamespace(comm="nosuch", json=None, out=None)
    with pytest.raises(RunError, match=r"^--comm: nosuch: no process of this name ran in 1.0 s: ps -eo comm"):
        check_met(made, args)  # type: ignore[arg-type]
    check_met(made, SimpleNamespace(comm="nosuch", json="x", out=None))  # type: ignore[arg-type]
    check_met({**made, "target": {"pids": [1]}}, args)  # type: ignore[arg-type]
