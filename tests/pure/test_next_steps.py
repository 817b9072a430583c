# SPDX-License-Identifier: GPL-2.0-only
"""Suggested next steps fit the failure: a missing tool, no memory, an option of copyscope after `--`."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from copyscope.base.errors import RunError, why_not_executed, why_not_started
from copyscope.commands.watch_arguments import misplaced_options_hint
from copyscope.machine.topology.namespace import NamespaceCommand, describe_failure
from copyscope.record.messages import TotalsMessage
from copyscope.run import processes
from copyscope.run.child import Child
from copyscope.run.target import Followed

MTU = "choose an MTU of 68 to 65535 bytes"


@pytest.mark.parametrize(
    ("line", "error", "step"),
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
def test_another_mtu_is_suggested_only_if_the_mtu_was_the_cause(line: str, error: str, step: str) -> None:
    message = describe_failure(NamespaceCommand(("ip", "-batch", "-"), MTU, line, about="mtu"), 1, error)
    assert step in message and (MTU in message) == (step == MTU)


@pytest.mark.parametrize(
    ("program", "error_number", "step"),
    [
        ("setpriv", errno.ENOENT, "install util-linux (tools/deps.sh run)"),
        ("/opt/copyscope/.output/traffic", errno.ENOENT, "build it with make"),
        ("nsenter", errno.ENOMEM, "memory.max"),
        ("/opt/copyscope/.output/collector", errno.EAGAIN, "pids.max"),
    ],
)
def test_a_program_that_cannot_be_started_has_a_fitting_next_step(
    program: str, error_number: int, step: str
) -> None:
    message = why_not_started(program, OSError(error_number, os.strerror(error_number)))
    assert message.startswith(f"{program}: {os.strerror(error_number)}; ") and step in message
    assert ("make" in message) == (step == "build it with make")


def test_a_missing_wrapper_of_a_copyscope_program_is_named() -> None:
    with pytest.raises(
        RunError, match=r"^traffic: no-such-setpriv: No such file .*; install no-such-setpriv"
    ):
        Child("traffic", ["no-such-setpriv", "--", "/bin/true"])
    error = "nsenter: failed to execute setpriv: No such file or directory"
    assert why_not_executed(error) == (
        "setpriv: No such file or directory; install util-linux (tools/deps.sh run)"
    )
    assert why_not_executed("traffic: --size 0: out of range") is None


@pytest.mark.parametrize(
    "script",
    [
        """echo '{"event": "error", "message": "load: Cannot allocate memory"}'; cat""",
        "echo 'collector: map: Cannot allocate memory' >&2; exit 1",
    ],
)
def test_a_copyscope_program_without_memory_gets_the_limit_to_raise(script: str) -> None:
    child = Child("collector", ["sh", "-c", script])
    try:
        with pytest.raises(
            RunError, match=r"Cannot allocate memory; free memory, or raise .* \(memory.max\)$"
        ):
            child.expect("ready")
    finally:
        child.end()


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["nginx", "--duration", "10"], "--duration"),
        (["sh", "-c", "x", "--live", "--json=run.json"], "--live, --json"),
        (["iperf3", "-c", "192.0.2.1", "-t", "10"], None),
        (["curl", "--help", "--verbose", "-v"], None),
        (["--duration"], None),
        ([], None),
    ],
)
def test_copyscope_options_after_the_command_get_one_hint(command: list[str], names: str | None) -> None:
    hint = misplaced_options_hint(command)
    assert (hint is None) == (names is None)
    if hint is not None:
        assert hint == (
            f"{names}: passed to {command[0]}, because everything after -- belongs to it; "
            "write options of copyscope before --"
        )


def test_threads_of_new_children_count_before_the_next_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server forks workers in the first segment. Each of their threads may be inside a call at its end."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    for pid, threads in ((100, 1), (101, 17), (102, 17)):
        for thread in range(threads):
            (tmp_path / str(pid) / "task" / str(pid + thread)).mkdir(parents=True)
    target: Any = SimpleNamespace(find_processes=lambda *_: {100}, how="command")
    followed = Followed(target, {}, SimpleNamespace(), None, None)  # type: ignore[arg-type]
    alone: TotalsMessage = {"t_ns": 0, "processes": [[100, False]]}
    forked: TotalsMessage = {"t_ns": 0, "processes": [[100, False], [101, True], [102, True]]}
    assert followed.count_threads(alone) == 1
    assert followed.count_threads(forked) == 35
    # The workers existed at the beginning of the next segment.
    assert followed.count_threads(alone) == 35
    assert followed.count_threads(alone) == 1


def test_processes_that_start_or_exit_are_noticed_and_new_threads_are_not() -> None:
    """Counts of a child that lived for 0.1 s cannot be scaled: /proc has no CPU time of the child."""
    target: Any = SimpleNamespace(find_processes=lambda *_: set(), how="pid")
    followed = Followed(target, {}, SimpleNamespace(), None, None)  # type: ignore[arg-type]

    def volume(births: int, exits: int, *pids: int) -> TotalsMessage:
        totals = {"births": births, "exits": exits}
        return {"t_ns": 0, "totals": totals, "processes": [[pid, True] for pid in pids]}

    assert not followed.has_same_processes(volume(0, 0, 100))
    followed.find(volume(0, 0, 100))
    assert followed.has_same_processes(volume(0, 0, 100))
    assert followed.has_same_processes(volume(7, 0, 100))  # births of threads
    assert not followed.has_same_processes(volume(7, 0, 100, 101))
    assert not followed.has_same_processes(volume(7, 1, 100))
