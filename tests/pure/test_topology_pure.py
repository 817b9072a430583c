# SPDX-License-Identifier: GPL-2.0-only
"""Parsers and messages of the topology, with recorded output of ip, ethtool and /proc."""

import os
import socket
from pathlib import Path

import pytest
from copyscope.machine.topology import KINDS, LinkSettings, TopologyError, invoking_user, open_topology
from copyscope.machine.topology.links import (
    find_socket_owners,
    parse_features,
    parse_links,
    parse_packet_sockets,
)
from copyscope.machine.topology.namespace import (
    NamespaceCommand,
    describe_failure,
    find_privileges,
    run,
    run_together,
)

DATA = Path(__file__).parent / "data" / "topology"


def test_links_are_parsed_from_ip() -> None:
    lo, veth, xdp = parse_links((DATA / "links.json").read_text())
    assert (lo.name, lo.driver, lo.mtu_bytes, lo.xdp) == ("lo", "loopback", 65536, None)
    assert (veth.name, veth.driver, veth.mtu_bytes, veth.qdisc) == ("sender0", "veth", 9000, "noqueue")
    assert (xdp.name, xdp.xdp, xdp.up, xdp.gso_max_bytes) == ("receiver0", "native", True, 65536)
    assert parse_links("[{}]") == [] and parse_links("") == []


def test_features_are_parsed_from_ethtool() -> None:
    features = parse_features((DATA / "features-veth.txt").read_text())
    assert features == {
        "rx_checksum": True,
        "tx_checksum": True,
        "scatter_gather": True,
        "tso": True,
        "gso": True,
        "gro": False,
        "lro": False,
        "highdma": True,
        "tx_nocache_copy": False,
    }
    assert set(parse_features("").values()) == {None}


def test_packet_sockets_are_parsed_from_proc() -> None:
    sockets = parse_packet_sockets((DATA / "packet.txt").read_text())
    assert [(row.interface_index, row.inode) for row in sockets] == [(0, 21756), (2, 21758)]
    assert parse_packet_sockets("sk  RefCnt Type Proto  Iface R Rmem   User   Inode\n") == []


def test_the_owner_of_a_socket_is_found() -> None:
    with socket.socket() as opened_socket:
        inode = os.fstat(opened_socket.fileno()).st_ino
        pid, comm = find_socket_owners([inode])[inode]
    assert (pid, comm) == (os.getpid(), Path("/proc/self/comm").read_text().strip())
    assert find_socket_owners([inode]) == {} and find_socket_owners([]) == {}


def test_the_name_of_a_socket_owner_may_be_invalid_utf_8(tmp_path: Path) -> None:
    (tmp_path / "77" / "fd").mkdir(parents=True)
    (tmp_path / "77" / "fd" / "3").symlink_to("socket:[5]")
    (tmp_path / "77" / "comm").write_bytes(b"s\xffniff\n")
    assert find_socket_owners([5], tmp_path) == {5: (77, "s\ufffdniff")}


def test_remaining_privileges_are_found() -> None:
    bare = "".join(f"Cap{name}:\t0000000000000000\n" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb"))
    assert find_privileges(bare + "NoNewPrivs:\t1\n") == []
    assert find_privileges(bare) == ["NoNewPrivs=0"]
    left = find_privileges(bare.replace("CapBnd:\t0000000000000000", "CapBnd:\t0000000000004000"))
    assert left == ["CapBnd=0000000000004000", "NoNewPrivs=0"]
    assert find_privileges("NoNewPrivs:\t1\n") != []  # missing lines count as privileges


def test_the_invoking_user_is_read_from_sudo() -> None:
    root = invoking_user({"SUDO_UID": "0", "SUDO_GID": "0"})
    assert root.has_passwd_entry and "--init-groups" in root.argv()
    without_entry = invoking_user({"SUDO_UID": "4242424", "SUDO_GID": "4242424"})
    assert "--clear-groups" in without_entry.argv() and "--reuid=4242424" in without_entry.argv()
    assert invoking_user({"SUDO_UID": "1000"}).uid == os.getuid()  # without SUDO_GID, SUDO_UID is ignored
    assert {"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"} <= set(without_entry.argv())


def test_a_failed_batch_names_its_line() -> None:
    command = NamespaceCommand(
        ("ip", "-batch", "-"), "choose another MTU", "link set lo up\nlink set x mtu 9\n"
    )
    line = describe_failure(command, 1, "Error: mtu less than device minimum.\nCommand failed -:2\n")
    assert line == (
        "ip -batch - (link set x mtu 9): Error: mtu less than device minimum.; choose another MTU"
    )


def test_a_module_that_is_not_loaded_is_named_as_the_cause() -> None:
    pair = NamespaceCommand(("ip", "-batch", "-"), "choose an MTU", "link add s type veth peer name r\n")
    # Output of ip in a guest with Linux 6.12 that loads no modules on demand.
    line = describe_failure(pair, 1, "Error: Unknown device type.\nCommand failed -:1\n")
    assert line == "veth: this kernel does not know the device type; load its module (modprobe veth)"


def test_failures_are_one_line_with_the_next_step() -> None:
    with pytest.raises(TopologyError, match=r"^sh -c 'echo no >&2; exit 3': no; do it$"):
        run(NamespaceCommand(("sh", "-c", "echo no >&2; exit 3"), "do it"))
    with pytest.raises(TopologyError, match="exit status 3; do it"):
        run(NamespaceCommand(("sh", "-c", "exit 3"), "do it"))
    with pytest.raises(TopologyError, match=r"no-such-program: .+; install"):
        run_together([NamespaceCommand(("true",), ""), NamespaceCommand(("no-such-program",), "")])
    message = describe_failure(
        NamespaceCommand(("nsenter", "x"), ""), 127, "nsenter: failed to execute ip: No such file"
    )
    assert message == "ip: No such file; install iproute2 (tools/deps.sh run)"


def test_commands_run_at_the_same_time_and_answer_in_order() -> None:
    first = NamespaceCommand(("sh", "-c", "sleep 0.1; cat"), "", "slow")
    assert run_together([first, NamespaceCommand(("cat",), "", "fast")]) == ["slow", "fast"]


def test_each_topology_has_a_description_addresses_devices_and_routes() -> None:
    assert list(KINDS) == ["veth", "loopback", "veth-xdp", "nics"]
    for kind, topology in KINDS.items():
        assert (
            topology.kind == kind
            and topology.description
            and set(topology.addresses) == {"sender", "receiver"}
        )
        opened = open_topology(
            f"{kind}:eth1,eth2" if topology.parameters else kind, LinkSettings(), Path("x")
        )
        assert set(opened.devices) == set(opened.routes) == {"sender", "receiver"}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("moon", "unknown topology; choose veth, loopback, veth-xdp or nics:IFA,IFB"),
        ("veth:eth1", "write veth alone"),
    ],
)
def test_an_unknown_topology_is_refused(written: str, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        open_topology(written, LinkSettings(), Path("x"))


def test_without_root_a_topology_asks_for_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with (
        pytest.raises(TopologyError, match="run copyscope with sudo"),
        open_topology("veth", LinkSettings(), Path("x")),
    ):
        pass
