# SPDX-License-Identifier: GPL-2.0-only
"""`watch --all --serve`: which programs metrics name, what they have moved, and where they run."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from copyscope.commands import watch
from copyscope.machine.cgroups import place_of, read_cgroup_paths
from copyscope.record.messages import ProgramMessage
from copyscope.report.served_counts import ServedCounts
from copyscope.report.served_programs import OTHER, NamedPrograms, Program
from copyscope.run.cgroup_names import CgroupNames
from copyscope.taxonomy.samples import StackSample
from copyscope.taxonomy.taxonomy import Taxonomy

NGINX, REDIS = 7, 8
PATHS = {1: "", NGINX: "system.slice/nginx.service", REDIS: "system.slice/redis.service"}
ID = "0123456789abcdef" * 4


def program(cgroup: int, comm: str) -> Program:
    return place_of(PATHS[cgroup]), comm


def row(cgroup: int, comm: str, size: int, *, zerocopy: int = 0, is_last: bool = False) -> ProgramMessage:
    """Return a row of the collector: calls of sendmsg(2) with 100 bytes each."""
    calls = size // 100, size, zerocopy // 100, zerocopy
    return ProgramMessage(cgroup, comm, "tcp", "send", "sendmsg", *calls, is_last)


def named(names_max: int) -> NamedPrograms:
    return NamedPrograms(names_max, CgroupNames(lambda: PATHS))


def sent(counts: ServedCounts) -> Mapping[Program, float]:
    """Return the sent bytes of each program on the page of metrics."""
    (family,) = (family for family in counts.families() if family.name == "socket_bytes")
    return {(labels["place"], labels["program"]): value or 0.0 for labels, value in family.samples}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "/"),
        ("a/b", "/a/b"),
        ("system.slice/nginx.service", "nginx.service"),
        ("user.slice/user-1.slice/user@1.service/app.slice/fire.service/sub", "fire.service"),
        (f"system.slice/docker-{ID}.scope/init.scope", ID[:12]),
        (f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", ID[:12]),
        (f"kubepods/burstable/pod1/{ID}", ID[:12]),
        ("lxc.payload.web/system.slice/nginx.service", "web"),
        ("machine.slice/machine-my\\x2dbox.scope", "my-box"),
        ("machine.slice/systemd-nspawn@web.service/payload", "web"),
    ],
)
def test_a_cgroup_is_named_by_its_container_or_unit(path: str, place: str) -> None:
    assert place_of(path) == place


def test_ids_of_cgroups_are_inodes(tmp_path: Path) -> None:
    (tmp_path / "a.slice" / "b.service").mkdir(parents=True)
    (tmp_path / "cgroup.procs").touch()
    expected = {
        "": tmp_path,
        "a.slice": tmp_path / "a.slice",
        "a.slice/b.service": tmp_path / "a.slice/b.service",
    }
    assert read_cgroup_paths(tmp_path) == {folder.stat().st_ino: path for path, folder in expected.items()}


def test_names_are_read_only_for_unknown_cgroups() -> None:
    reads = []

    def read() -> Mapping[int, str]:
        reads.append(1)
        return PATHS

    names = CgroupNames(read)
    for _ in range(3):
        names.update([NGINX, 99])
    assert (names.find(NGINX), names.find(99), len(reads)) == ("nginx.service", "unknown", 1)


def test_counts_beyond_the_top_are_summed_and_never_fall() -> None:
    counts = ServedCounts(programs := named(2))
    counts.begin_session()
    counts.read_programs([row(NGINX, "nginx", 5000), row(REDIS, "redis", 300), row(1, "sshd", 200)])
    nginx, redis, sshd = program(NGINX, "nginx"), program(REDIS, "redis"), program(1, "sshd")
    # Without samples, the programs that have moved most are named.
    assert sent(counts) == {nginx: 5000, redis: 300, OTHER: 200}
    # sshd has used most CPU time: redis loses its name and its count, and later bytes are those of others.
    assert programs.rank({nginx: 5e9, redis: 1e6, sshd: 9e9}) == {redis}
    counts._forget(redis)
    counts.read_programs([row(NGINX, "nginx", 6000), row(REDIS, "redis", 400), row(1, "sshd", 900)])
    assert sent(counts) == {nginx: 6000, sshd: 700, OTHER: 300}


def test_a_name_changes_only_for_a_clear_lead() -> None:
    programs = named(1)
    list(programs.read([row(NGINX, "nginx", 100), row(REDIS, "redis", 200)]))
    nginx, redis = program(NGINX, "nginx"), program(REDIS, "redis")
    assert programs.label(redis) == redis and programs.label(nginx) == OTHER
    assert programs.rank({nginx: 12e6, redis: 10e6}) == set()
    assert programs.rank({nginx: 90e6, redis: 10e6}) == {redis}
    # A program without sockets gets no name, whatever its CPU time.
    assert programs.rank({program(1, "cc1"): 1e12}) == set()


def test_deleted_rows_and_a_new_collector_start_at_zero() -> None:
    counts = ServedCounts(named(2))
    nginx = program(NGINX, "nginx")
    counts.begin_session()
    counts.read_programs([row(NGINX, "nginx", 1000)])
    counts.read_programs([row(NGINX, "nginx", 1000, is_last=True)])
    counts.read_programs([row(NGINX, "nginx", 400)])
    assert sent(counts) == {nginx: 1400}
    counts.begin_session()
    counts.read_programs([row(NGINX, "nginx", 600)])
    assert sent(counts) == {nginx: 2000}


def test_programs_without_room_in_the_map_are_others() -> None:
    counts = ServedCounts(named(2))
    counts.begin_session()
    counts.read_programs([row(0, "", 700), row(NGINX, "nginx", 100)])
    assert sent(counts) == {program(NGINX, "nginx"): 100, OTHER: 700}


def test_samples_are_divided_among_programs() -> None:
    def sample(comm: str, frames: list[str], weight: int, cgroup: int = NGINX) -> StackSample:
        return StackSample(
            side="target", event="cpu-clock", frames=frames, samples=1, weight=weight, weight_squared=0.0,
            thread=comm, cgroup=cgroup,
        )  # fmt: skip

    copy = ["_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg"]
    samples = [sample("nginx", copy, 3), sample("redis", copy, 1, REDIS), sample("nginx", [], 5)]
    samples.append({**sample("nginx", copy, 100), "event": "LLC-load-misses"})
    weights = named(2).weights(samples, Taxonomy.load())
    nginx, redis = program(NGINX, "nginx"), program(REDIS, "redis")
    assert weights["copy_in"] == {nginx: 3, redis: 1}
    assert sum(weight for by_program in weights.values() for weight in by_program.values()) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--all",), "--all: needs --serve"),
        (("nginx", "--all", "--serve", ":9464"), "nginx and --all: several targets"),
        (("nginx", "--top", "5", "--serve", ":9464"), "--top: needs --all"),
        (("--all", "--top", "0", "--serve", ":9464"), "--top 0: out of range; choose 1 to 1000"),
    ],
)
def test_options_of_all_programs(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch.main([*options]) == 2
    assert message in capsys.readouterr().err
