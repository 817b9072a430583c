"""The cgroup of a container or of a unit, from /proc and from the runtimes' files: no daemon is asked."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from copyscope.errors import RunError
from copyscope.files import regular_file
from copyscope.run.program import processes

# docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope; docker/ID with cgroupfs.
_ID = re.compile(r"(?:^|-)([0-9a-f]{64})(?:\.scope)?$")
# A name is looked up where docker and podman keep it: ID and name of each container.
DOCKER = Path("/var/lib/docker/containers")
# Podman: below DRIVER-containers/, and in /run those that are gone after a boot (containers-storage).
PODMAN = (Path("/var/lib/containers/storage"), Path("/run/containers/storage"))
_SHORTEST = 4


def unit_path(name: str) -> str:
    """The path of a unit's cgroup below the mount of version 2."""
    unit = name if "." in name else f"{name}.service"
    return _path_of("--unit", name, lambda part: part == unit, "systemctl status says if it runs")


def container_path(name: str) -> str:
    """The same of a container, by the beginning of its ID, or by its name."""
    ids = {known for known, called in _named() if called == name}
    # systemd writes a hyphen of a name as \x2d (systemd.unit(5)).
    machines = {f"lxc.payload.{name}", f"machine-{name}.scope", f"systemd-nspawn@{name}.service"}

    def is_it(part: str) -> bool:
        found = _ID.search(part)
        if found is None:
            return part.replace("\\x2d", "-") in machines
        return found[1] in ids or (len(name) >= _SHORTEST and found[1].startswith(name))

    return _path_of("--container", name, is_it, "give its ID, or its name in docker, podman, LXC or nspawn")


def _path_of(option: str, name: str, is_it: Callable[[str], bool], advice: str) -> str:
    """Of the processes that run now: where their path has the part. Raises RunError for none, or several."""
    found: set[str] = set()
    elsewhere: set[int] = set()
    for process in processes.all_processes():
        for version, path in _cgroups(process.pid):
            parts = path.strip("/").split("/")
            place = next((n for n, part in enumerate(parts, 1) if is_it(part)), None)
            if place is not None and version == 2:
                found.add("/".join(parts[:place]))
            elif place is not None:
                elsewhere.add(process.pid)
    if not found and elsewhere:
        pids = ",".join(map(str, sorted(elsewhere)))
        raise RunError(f"{option}: {name}: its processes are in no cgroup of version 2: use --pid {pids}")
    if not found:
        raise RunError(f"{option}: {name}: no process runs in one of that name: {advice}")
    if len(found) > 1:
        raise RunError(f"{option}: {name}: is in several: {', '.join(sorted(found))}: give one as --cgroup")
    return found.pop()


def _cgroups(pid: int) -> Iterator[tuple[int, str]]:
    """(version, path) of each hierarchy that a process is in; cgroups(7): `0::` is version 2."""
    try:
        lines = (processes.PROC / str(pid) / "cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        yield (2 if number == "0" and not controllers else 1), path


def _named() -> Iterator[tuple[str, str]]:
    """(ID, name) of the containers that docker and podman know; what cannot be read is no container."""
    for file in DOCKER.glob("*/config.v2.json"):
        known = _read(file)
        if isinstance(known, dict):
            yield file.parent.name, str(known.get("Name", "")).lstrip("/")
    for file in (file for storage in PODMAN for file in storage.glob("*-containers/*containers.json")):
        rows = _read(file)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                yield from ((str(row.get("id")), str(called)) for called in row.get("names") or ())


def _read(file: Path) -> object:
    try:
        return json.loads(regular_file.read(file))
    except (OSError, ValueError, RecursionError):
        return None
