# SPDX-License-Identifier: GPL-2.0-only
"""Search for the processes that the target options of `watch`, `advise` and `why` name."""

import argparse
from pathlib import Path

from copyscope.base.errors import RunError
from copyscope.base.spelling import one_line
from copyscope.run import processes
from copyscope.run.target import (
    WatchTarget,
    find_cgroup,
    find_container_cgroup,
    find_netns,
    find_unit_cgroup,
    parse_pids,
)

# Next step after a process name without a running process.
NAMES_HINT = "ps -eo comm lists names; for a script, give its pid (pgrep -f)"


def require_running_program(args: argparse.Namespace) -> None:
    """Raise RunError if the NAME of `watch NAME` is a program that is not running.

    There is no error with --comm or --serve, which wait until the program starts.
    """
    name = args.program
    if name is None or args.comm != name or args.serve is not None or processes.processes_named(name):
        return
    raise RunError(f"{name}: no process of this name is running; {suggest_name(name) or NAMES_HINT}")


def suggest_name(comm: str) -> str:
    """Return `did you mean NAME?` for a process name that no running process has, or ''."""
    similar = processes.find_similar_name(comm)
    return "" if similar is None else f"did you mean {one_line(similar)}?"


def find_target(args: argparse.Namespace, command: list[str]) -> WatchTarget:
    """Return the target that the options name. Raises RunError, UsageError.

    command: words after `--`
    """
    selected = {"all": args.all, "command": command, "pid": args.pid, "comm": args.comm}
    how = next((how for how, value in selected.items() if value), "cgroup")
    groups = {"container": args.container, "unit": args.unit}
    return WatchTarget(
        how=how,
        pids=parse_pids(args.pid) if args.pid else (),
        comm=args.comm,
        cgroup=_find_cgroup(args),
        # Screens show the container or unit as the user gave it, because the path of its cgroup is long.
        label=next((f"{kind} {name}" for kind, name in groups.items() if name), None),
        command=tuple(command),
        follow=not args.no_follow,
        netns=find_netns(args.netns) if args.netns else None,
    )


def _find_cgroup(args: argparse.Namespace) -> Path | None:
    """Return the directory of the cgroup that --cgroup, --unit or --container names, or None."""
    if args.unit:
        return find_cgroup(find_unit_cgroup(args.unit))
    if args.container:
        return find_cgroup(find_container_cgroup(args.container))
    return find_cgroup(args.cgroup) if args.cgroup else None


def target_section(target: WatchTarget, name: str, *, with_arguments: bool = False) -> dict[str, object]:
    """Return the section `target` of a record.

    name: name of the target on screens
    with_arguments: keep the arguments of a command, which may be secrets such as passwords
    """
    command = target.command if with_arguments else target.command[:1]
    return {
        "command": list(command) or None,
        "arguments": len(target.command) - 1 if target.command else None,
        "how": target.how,
        "name": name,
        "comm": target.comm,
        "cgroup": str(target.cgroup) if target.cgroup else None,
        "netns": str(target.netns) if target.netns else None,
        "follow": target.follow,
    }
