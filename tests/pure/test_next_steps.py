"""What to do next fits what went wrong: a tool that is missing, no memory, an option behind `--`."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.commands.watch_arguments import misplaced
from copyscope.errors import RunError, why_not_executed, why_not_started
from copyscope.record.session_result import Totals
from copyscope.run import processes
from copyscope.run.child import Child
from copyscope.run.followed import Followed
from copyscope.topology.shell import Command, describe_failure

MTU = "choose an MTU of 68 to 65535 bytes"


@pytest.mark.parametrize(
    ("line", "said", "step"),
    [
        ("link set s mtu 9\n", "Error: mtu less than device minimum.\nCommand failed -:1\n", MTU),
        (
            "link add s mtu 99999 type veth\n",
            "RTNETLINK answers: Invalid argument\nCommand failed -:1\n",
            MTU,
        ),
        ("addr add 198.18.0.1/24 dev s\n", "RTNETLINK answers: File exists\nCommand failed -:1\n", "doctor"),
        (
            "link set s mtu 1500\n",
            "RTNETLINK answers: Cannot allocate memory\nCommand failed -:1\n",
            "memory.max",
        ),
        (
            "link set s up\n",
            "RTNETLINK answers: Operation not permitted\nCommand failed -:1\n",
            "CAP_NET_ADMIN",
        ),
    ],
)
def test_an_mtu_is_to_be_chosen_where_it_was_the_cause(line: str, said: str, step: str) -> None:
    told = describe_failure(Command(("ip", "-batch", "-"), MTU, line, about="mtu"), 1, said)
    assert step in told and (MTU in told) == (step == MTU)


@pytest.mark.parametrize(
    ("program", "number", "step"),
    [
        ("setpriv", errno.ENOENT, "install util-linux (tools/deps.sh run)"),
        ("/opt/copyscope/.output/traffic", errno.ENOENT, "build it with make"),
        ("nsenter", errno.ENOMEM, "memory.max"),
        ("/opt/copyscope/.output/collector", errno.EAGAIN, "pids.max"),
    ],
)
def test_what_could_not_be_started(program: str, number: int, step: str) -> None:
    said = why_not_started(program, OSError(number, os.strerror(number)))
    assert said.startswith(f"{program}: {os.strerror(number)}: ") and step in said
    assert ("make" in said) == (step == "build it with make")


def test_a_missing_tool_before_a_program_of_ours_is_named() -> None:
    with pytest.raises(
        RunError, match=r"^traffic: no-such-setpriv: No such file .*: install no-such-setpriv"
    ):
        Child("traffic", ["no-such-setpriv", "--", "/bin/true"])
    said = "nsenter: failed to execute setpriv: No such file or directory"
    assert why_not_executed(said) == (
        "setpriv: No such file or directory: install util-linux (tools/deps.sh run)"
    )
    assert why_not_executed("traffic: --size: 0: out of range") is None


@pytest.mark.parametrize(
    "script",
    [
        """echo '{"event": "error", "message": "load: Cannot allocate memory"}'; cat""",
        "echo 'collector: map: Cannot allocate memory' >&2; exit 1",
    ],
)
def test_a_program_of_ours_without_memory_is_told_whose_limit_that_is(script: str) -> None:
    child = Child("collector", ["sh", "-c", script])
    try:
        with pytest.raises(
            RunError, match=r"Cannot allocate memory: free memory, or raise .* \(memory.max\)$"
        ):
            child.expect("ready")
    finally:
        child.end()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["nginx", "--duration", "10"], "--duration"),
        (["sh", "-c", "x", "--live", "--json=run.json"], "--live, --json"),
        (["iperf3", "-c", "192.0.2.1", "-t", "10"], None),
        (["curl", "--help", "--verbose", "-v"], None),
        (["--duration"], None),
        ([], None),
    ],
)
def test_an_option_of_ours_behind_the_command_gets_one_hint(command: list[str], named: str | None) -> None:
    said = misplaced(command)
    assert (said is None) == (named is None)
    if said is not None:
        assert said == (
            f"{named}: given to {command[0]}, because it comes after --; options of copyscope go before it"
        )


def test_threads_of_children_that_nobody_has_looked_for_are_under_way_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server forks workers in its first segment: each of their threads may be inside a call at its end."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    for pid, threads in ((100, 1), (101, 17), (102, 17)):
        for thread in range(threads):
            (tmp_path / str(pid) / "task" / str(pid + thread)).mkdir(parents=True)
    whom: Any = SimpleNamespace(find_processes=lambda *_: {100}, how="command")
    followed = Followed(whom, {}, SimpleNamespace(), None, None)  # type: ignore[arg-type]
    alone: Totals = {"t_ns": 0, "processes": [[100, False]]}
    forked: Totals = {"t_ns": 0, "processes": [[100, False], [101, True], [102, True]]}
    assert followed.threads(alone) == 1
    assert followed.threads(forked) == 35
    # At the begin of the next segment they were there.
    assert followed.threads(alone) == 35
    assert followed.threads(alone) == 1


def test_perf_counts_on_while_processes_come_and_go() -> None:
    """Of what it counted of children that lived for 0.1 s /proc says nothing to scale it by."""
    whom: Any = SimpleNamespace(find_processes=lambda *_: set(), how="pid")
    followed = Followed(whom, {}, SimpleNamespace(), None, None)  # type: ignore[arg-type]

    def volume(births: int, exits: int, *pids: int) -> Totals:
        totals = {"births": births, "exits": exits}
        return {"t_ns": 0, "totals": totals, "processes": [[pid, True] for pid in pids]}

    assert not followed.same_processes(volume(0, 0, 100))
    followed.find(volume(0, 0, 100))
    assert followed.same_processes(volume(0, 0, 100))
    assert followed.same_processes(volume(7, 0, 100))  # threads
    assert not followed.same_processes(volume(7, 0, 100, 101))
    assert not followed.same_processes(volume(7, 1, 100))
