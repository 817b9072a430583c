# SPDX-License-Identifier: GPL-2.0-only
"""Finding and reading processes of other users, as far as it needs no root."""

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
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.base.errors import RunError, UsageError
from copyscope.commands import watch, watch_target
from copyscope.commands.watch import describe_begin, describe_slow_start, require_processes
from copyscope.commands.watch_arguments import check_usage, parse, parser, split_command
from copyscope.plan.schedule import watched_segments
from copyscope.record.assemble import zerocopy_limits
from copyscope.run import connections, processes, target
from copyscope.run.target import Followed
from msgspec.structs import replace


def stat(pid: int, comm: str, *, parent: int = 1, flags: int = 4194560, start: int = 0) -> str:
    """Return a line of /proc/PID/stat (proc_pid_stat(5))."""
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
def test_the_host_of_an_address_is_found(address: str, host: str) -> None:
    assert connections.host_of(address) == host


def test_a_record_has_arguments_of_a_command_only_on_request() -> None:
    watched = target.WatchTarget(how="command", command=("curl", "-u", "me:secret"))
    section = watch_target.target_section(watched, "curl")
    assert "secret" not in str(section) and (section["command"], section["arguments"]) == (["curl"], 2)
    section = watch_target.target_section(watched, "curl", with_arguments=True)
    assert section["command"] == ["curl", "-u", "me:secret"]


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        (["curl"], 2, "curl (2 arguments)"),
        (["curl"], 1, "curl (1 argument)"),
        (["curl"], 0, "curl"),
        (["curl", "-v"], 1, "curl -v"),
        (["curl", "-v"], None, "curl -v"),  # a record of an earlier copyscope
        (None, None, None),
    ],
)
def test_screens_name_the_command(command: list[str] | None, arguments: int | None, text: str | None) -> None:
    section = typed_whole(derive(watched_record())).raw.watched
    assert replace(section, command=command, arguments=arguments).command_text == text


def test_the_name_of_a_process_may_contain_parentheses() -> None:
    process = processes.parse_stat(stat(77, "a) b (c)", start=4321))
    assert (process.pid, process.comm, process.parent, process.alive) == (77, "a) b (c)", 1, True)
    assert process.start == 4321
    assert processes.parse_stat(stat(2, "kthreadd", parent=0, flags=2129984)).kernel


def test_a_reused_process_id_is_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children 101 and 102 of 100 exit. Then a foreign process gets id 101, a new child of 100 gets 102."""
    cpu_ns = {100: 7, 101: 1000, 102: 500}
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "cpu_ns", cpu_ns.get)
    monkeypatch.setattr(processes, "count_switches", lambda _: (0, 0))

    def begin(pid: int, *, parent: int, start: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "stat").write_text(stat(pid, "x", parent=parent, start=start))

    begin(100, parent=1, start=10)
    begin(101, parent=100, start=11)
    begin(102, parent=100, start=12)
    watch_target = target.WatchTarget(how="pid", pids=(100,))
    commands: list[str] = []
    collector: Any = SimpleNamespace(ask=lambda line, *_: commands.append(line))
    followed = Followed(watch_target, {}, collector, ExitStack(), None)
    followed.find({"t_ns": 0, "totals": {"births": 0, "exits": 0}, "processes": []})
    assert followed.pids == {100, 101, 102}
    assert followed.cpu.read(followed.pids, fresh=True) == processes.Use()
    cpu_ns |= {101: 1400, 102: 600}
    followed.cpu.update(followed.pids, fresh=True, counted=False)
    begin(101, parent=1, start=20)
    begin(102, parent=100, start=21)
    cpu_ns |= {101: 9999, 102: 650}
    commands.clear()
    followed.find({"t_ns": 0, "totals": {"births": 1, "exits": 2}, "processes": [[100, False], [102, False]]})
    assert followed.pids == {100, 102}
    # The collector has no timer for the new process yet.
    assert commands == ["target target 102"]
    cpu_ns[102] = 680
    assert followed.cpu.read(followed.pids, fresh=True) == processes.Use(400 + 100 + 30)
    begin(100, parent=1, start=30)
    assert watch_target.find_processes({100, 102}) == {102}


def test_cpu_time_of_exited_processes_comes_from_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell had used 7 ns before the watch. Its children exit without being read."""
    clocks = {100: 7}
    monkeypatch.setattr(processes, "cpu_ns", clocks.get)
    monkeypatch.setattr(processes, "count_switches", lambda _: (0, 0))
    times = processes.ProcessCpuTimes()
    times.read([100], fresh=False)
    times.set_reported([100], 0)
    clocks[100] = 10
    times.set_reported([100], 50)  # a child has started and exited
    assert times.read([100], fresh=True).cpu_ns == 3 + 50
    clocks |= {101: 20, 102: 5}
    assert times.find_new([100, 101, 102]) == {101, 102}
    times.update({101}, fresh=True, counted=True)
    times.set_reported([100, 101, 102], 50)
    assert times.used().cpu_ns == 3 + 50 + 20
    # All exit: the child read before had used 30, the other child 6, and the shell 12 in its whole life.
    times.set_reported([], 50 + 30 + 6 + 12)
    assert times.used().cpu_ns == 50 + 30 + 6 + (12 - 7)


def test_an_unreported_exit_leaves_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's list lacks processes of a cgroup that never used a socket."""
    clocks = {7: 1, 8: 1}
    monkeypatch.setattr(processes, "cpu_ns", clocks.get)
    monkeypatch.setattr(processes, "count_switches", lambda _: (0, 0))
    times = processes.ProcessCpuTimes()
    times.read([7, 8], fresh=False)
    times.set_reported([7], 0)
    clocks |= {7: 11, 8: 21}
    assert times.read([7, 8], fresh=True).cpu_ns == 10 + 20
    del clocks[8], clocks[7]
    times.set_reported([], 15)
    assert times.read([], fresh=True).cpu_ns == (15 - 1) + 20


def test_the_own_process_is_alive_and_has_cpu_time() -> None:
    own_pid = os.getpid()
    assert processes.is_alive(own_pid) and os.getppid() in processes.with_descendants([os.getppid()])
    times = processes.ProcessCpuTimes()
    assert times.read([own_pid], fresh=False) == processes.Use()
    sum(range(1_000_000))
    assert times.read([own_pid], fresh=False).cpu_ns > 0


def test_voluntary_and_involuntary_switches_equal_those_of_the_kernel() -> None:
    """The counts of a waiting child lie between its getrusage(2) before and after the wait."""
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
        switches = processes.count_switches(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        after = tuple(map(int, child.stdout.readline().split()))
    assert 50 <= before[0] < switches[0] <= after[0] <= before[0] + 4
    assert before[1] <= switches[1] <= after[1]


def test_a_memlock_limit_that_does_not_apply_is_unknown() -> None:
    limit_bytes, reason = processes.read_memlock_limit(os.getpid())
    capabilities = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    capable = capabilities is not None and int(capabilities[1], 16) >> 14 & 1
    assert (limit_bytes is None) == bool(reason) and (not capable or limit_bytes is None)
    assert processes.read_memlock_limit(2**22 - 3) == (
        None,
        "the process had ended before its limit was read",
    )


def test_the_smallest_limit_of_several_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {7: (None, "unlimited"), 8: (8_388_608, ""), 9: (65_536, "")}
    monkeypatch.setattr(processes, "read_memlock_limit", limits.__getitem__)
    machine: Any = SimpleNamespace(limits={}, reasons={}, sysctls={"net.core.optmem_max": "131072"})
    processes.set_memlock_limit(machine, {7, 8, 9})
    assert zerocopy_limits(machine) == {"memlock_limit_bytes": 65_536, "optmem_limit_bytes": 131_072}
    processes.set_memlock_limit(machine, {7})
    assert zerocopy_limits(machine)["memlock_limit_bytes"] is None
    assert machine.reasons["limits.memlock_bytes"] == "unlimited"


@pytest.mark.parametrize(
    ("pid", "message"),
    [(2**22 - 3, "no such process"), (2, "is a kernel thread")],
)
def test_a_process_that_cannot_be_watched_has_a_reason(pid: int, message: str) -> None:
    process = processes.read_process(pid)
    if pid == 2 and (process is None or not process.kernel):
        pytest.skip("pid 2 is no kernel thread in this pid namespace")
    with pytest.raises(RunError, match=message):
        target.check_pid(pid)


@pytest.mark.parametrize("text", ["", "0", "12,x", "-1"])
def test_a_malformed_pid_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a process id"):
        target.parse_pids(text)


def test_a_directory_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a cgroup v2"):
        target.find_cgroup(str(tmp_path))
    with pytest.raises(RunError, match="no such directory"):
        target.find_cgroup("no/such/thing")


def test_the_command_follows_the_first_double_dash() -> None:
    argv = ["--duration", "3", "--", "iperf3", "-c", "host", "--", "x"]
    assert split_command(argv) == (argv[:2], argv[3:])


@pytest.mark.parametrize(
    ("options", "command", "message"),
    [
        ([], [], "nothing to watch; give a name, a pid"),
        (["--pid", "1", "--comm", "x"], [], "--pid and --comm"),
        (["--pid", "1"], ["ls"], "--pid and -- COMMAND"),
        (["--pid", "1", "--duration", "0"], [], "--duration 0: out of range"),
        (["--pid", "1", "--live", "--json", "-"], [], "stdout is used by --json -"),
    ],
)
def test_wrong_usage_is_one_line(options: list[str], command: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_usage(parser().parse_args(options), command)


def test_an_endless_watch_begins_with_short_blocks_of_all_phases() -> None:
    segments = list(islice(watched_segments(None, ("unprobed", "ledger", "calls"), 7), 15))
    for block in range(5):
        assert {s.phase for s in segments if s.block == block} == {"unprobed", "ledger", "calls"}
    lengths = [sum(s.length_s for s in segments if s.block == block) for block in range(5)]
    assert lengths == pytest.approx([0.5, 0.5, 1.0, 2.0, 2.0])
    assert [s.index for s in segments] == list(range(15))
    assert segments == list(islice(watched_segments(None, ("unprobed", "ledger", "calls"), 7), 15))


def test_a_slow_start_is_mentioned() -> None:
    assert describe_slow_start(1.9) == ""
    assert describe_slow_start(28.3).startswith("; getting ready took 28 s: attaching waits")


DOCKER_ID, PODMAN_ID, OLD_ID = "ab12" + "0" * 60, "cd34" + "1" * 60, "ef56" + "2" * 60
ONCE_ID = "0a9b" + "3" * 60


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invent a host with systemd, docker, podman and nspawn. One container uses only cgroups of version 1."""
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
    for file, container_id, name in (
        ("lib/vfs-containers/containers.json", PODMAN_ID, "db"),
        ("run/overlay-containers/volatile-containers.json", ONCE_ID, "once"),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(f'[{{"id": "{container_id}", "names": ["{name}"]}}]')


@pytest.mark.usefixtures("host")
def test_cgroups_of_units_and_containers_are_found() -> None:
    assert target.find_unit_cgroup("nginx") == target.find_unit_cgroup("nginx.service")
    assert target.find_unit_cgroup("nginx") == "system.slice/nginx.service"
    docker = f"system.slice/docker-{DOCKER_ID}.scope"
    assert {target.find_container_cgroup(name) for name in ("web", "ab12", DOCKER_ID)} == {docker}
    assert target.find_container_cgroup("db") == f"machine.slice/libpod-{PODMAN_ID}.scope"
    assert target.find_container_cgroup("once") == f"libpod_parent/libpod-{ONCE_ID}"
    assert target.find_container_cgroup("my-box") == "machine.slice/machine-my\\x2dbox.scope"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("options", [("--container", "web"), ("--unit", "nginx")])
def test_a_container_and_a_unit_are_named_as_typed(
    options: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch_target, "find_cgroup", tmp_path.joinpath)
    args, command = parse(options)
    assert watch_target.find_target(args, command).name() == f"{options[0][2:]} {options[1]}"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (target.find_unit_cgroup, "redis", "ambiguous: kubepods.slice/a/redis.service, kubepods"),
        (target.find_unit_cgroup, "none", "no process runs in a cgroup of that name"),
        (target.find_container_cgroup, "ef56", "not in a cgroup v2; use --pid 40"),
        (target.find_container_cgroup, "ab", "no process runs in a cgroup of that name"),
    ],
)
def test_an_ambiguous_or_missing_cgroup_is_an_error_with_a_next_step(
    find: Any, name: str, message: str
) -> None:
    with pytest.raises(RunError, match=re.escape(message)):
        find(name)


@pytest.mark.parametrize(
    ("comm", "suggestion"),
    [
        ("ngin", "did you mean nginx?"),
        ("Postgres", "did you mean postgres?"),
        ("ngnix", "did you mean nginx?"),
        ("haproxy", "ps -eo comm lists names; for a script, give its pid (pgrep -f)"),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(
    comm: str, suggestion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("nginx", "nginx-exporter", "postgres", "kworker")
    running = [
        processes.ProcessStat(pid, name, "S", 1, name == "kworker", 0) for pid, name in enumerate(names, 7)
    ]
    monkeypatch.setattr(processes, "all_processes", lambda: running)
    raw = SimpleNamespace(watched=SimpleNamespace(pids=[]), run=SimpleNamespace(measured_s=1.0))
    measured: Any = SimpleNamespace(raw=raw)
    with pytest.raises(RunError, match=re.escape(f"ran in 1.0 s; {suggestion}")):
        require_processes(measured, SimpleNamespace(program=None, comm=comm, json=None, out=None))  # type: ignore[arg-type]
    waiting = describe_begin(target.WatchTarget("comm", comm=comm), comm, 5.0, has_process=False)
    suggested = f"{suggestion} " if "mean" in suggestion else ""
    assert waiting == f"no process called {comm} runs now; {suggested}waiting for 5 s"


def short_run(phases: tuple[str, ...], measured_s: float, ended: str = "the command ended") -> Any:
    run = SimpleNamespace(measured_s=measured_s, segments=[SimpleNamespace(phase=phase) for phase in phases])
    watched = SimpleNamespace(how="command", name="curl", ended=ended)
    verdict = SimpleNamespace(valid=True)
    return SimpleNamespace(
        raw=SimpleNamespace(watched=watched, run=run), derived=SimpleNamespace(verdict=verdict)
    )


def test_a_command_shorter_than_a_second_is_told_of_whole() -> None:
    said = (
        "curl ran for 0.20 s, too short for all instruments in turn; --whole uses all instruments from start"
        " to end"
    )
    assert watch.suggest_whole(short_run(("unprobed", "ledger"), 0.2)) == said
    for other in (
        short_run(("ledger+calls",), 0.2),
        short_run(("unprobed", "ledger", "calls"), 1.2),
        short_run(("unprobed", "ledger"), 0.5, "the time was over"),
    ):
        assert watch.suggest_whole(other) is None


def test_a_name_without_a_process_is_an_error_in_one_line() -> None:
    raw = SimpleNamespace(watched=SimpleNamespace(pids=[]), run=SimpleNamespace(measured_s=1.0))
    measured: Any = SimpleNamespace(raw=raw)
    args = SimpleNamespace(program=None, comm="nosuch", json=None, out=None)
    with pytest.raises(RunError, match=r"^--comm nosuch: no process of this name ran in 1.0 s; ps -eo comm"):
        require_processes(measured, args)  # type: ignore[arg-type]
    require_processes(measured, SimpleNamespace(program=None, comm="nosuch", json="x", out=None))  # type: ignore[arg-type]
    raw.watched.pids.append(1)
    require_processes(measured, args)  # type: ignore[arg-type]
