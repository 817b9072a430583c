# SPDX-License-Identifier: GPL-2.0-only
"""Topologies on this kernel: real namespaces and links, real traffic, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.machine.topology import KINDS, SIDES, LinkSettings, Topology, TopologyError, open_topology
from copyscope.machine.topology.links import PacketSocketUser
from copyscope.machine.topology.namespace import find_privileges
from profiling import SLOW

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make network namespaces"),
]

# Paths that need no NIC. test_nics.py tests the path over two NICs.
WITHOUT_NICS = [kind for kind, path_class in KINDS.items() if not path_class.parameters]
LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
connection, peer = listener.accept()
print(peer[0], connection.recv(64).decode(), flush=True)
"""
CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30).sendall(b"hello")
"""
PIN = """
import ctypes, mmap, os
pages = mmap.mmap(-1, 64 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
libc = ctypes.CDLL(None, use_errno=True)
print(os.strerror(ctypes.get_errno()) if libc.mlock(ctypes.c_void_p(address), 64 << 20) else "pinned")
"""


def namespaces_in_use() -> set[int]:
    inodes: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            inodes.add(entry.stat().st_ino)
        except OSError:  # the process exited meanwhile
            continue
    return inodes


def host_links() -> list[str]:
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return [line.split(":")[1].strip() for line in shown.splitlines()]


def held_namespaces() -> set[int]:
    """Return the namespaces of our child processes. Other programs may be creating namespaces, too."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in children} - {
        Path("/proc/self/ns/net").stat().st_ino
    }


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = host_links()
    yield
    assert host_links() == before
    assert not held_namespaces()


def open_kind(kind: str, settings: LinkSettings | None = None) -> Topology:
    if kind == "veth-xdp" and not paths.XDP_OBJECT.is_file():
        pytest.skip("xdp_pass.bpf.o is not built: run make")
    return open_topology(kind, settings or LinkSettings(), paths.XDP_OBJECT)


def talk(topology: Topology) -> None:
    """Open a TCP connection from the receiver's namespace to the sender's, as the traffic programs do."""
    address = topology.addresses["sender"]
    listener = subprocess.Popen(
        topology.command("sender", ["python3", "-c", LISTEN, address]), stdout=subprocess.PIPE, text=True
    )
    assert listener.stdout is not None
    with listener:
        port = listener.stdout.readline().strip()
        connect = topology.command("receiver", ["python3", "-c", CONNECT, address, port])
        subprocess.run(connect, check=True, timeout=60 * SLOW)
        assert listener.stdout.readline().split() == [topology.addresses["receiver"], "hello"]


@pytest.mark.parametrize("kind", WITHOUT_NICS)
def test_each_kind_carries_tcp_and_describes_itself(kind: str) -> None:
    began = time.monotonic()
    with open_kind(kind) as topology:
        setup_s = time.monotonic() - began
        talk(topology)
        seen = topology.describe()
        assert seen.kind == kind and seen.local_delivery is True
        assert seen.mtu_bytes == topology.default_mtu_bytes
        assert seen.xdp == ("native" if kind == "veth-xdp" else None)
        assert seen.packet_sockets == []
        assert [(row.side, row.name) for row in seen.devices] == list(topology.devices.items())
        assert all(row.features["scatter_gather"] for row in seen.devices)
        # XDP takes segmentation offload away from the device that sends towards it.
        assert seen.offloads["tso"] is (kind != "veth-xdp") and seen.offloads["gso"] is True
    assert setup_s < 1.0 * SLOW  # about 20 ms here; a loose bound, so that a busy machine does not fail


def test_settings_reach_the_devices() -> None:
    settings = LinkSettings(mtu_bytes=9000, tso=False, gso=False, gro=True)
    with open_kind("veth", settings) as topology:
        seen = topology.describe()
        assert seen.mtu_bytes == 9000
        assert seen.offloads == {"tso": False, "gso": False, "gro": True}
        assert [row.mtu_bytes for row in seen.devices] == [9000, 9000]
        talk(topology)


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        ("veth", LinkSettings(mtu_bytes=70_000), "choose an MTU"),
        ("veth", LinkSettings(mtu_bytes=0), "choose an MTU"),
        ("veth-xdp", LinkSettings(tso=True, gro=True), "leave --tso out"),
        ("veth-xdp", LinkSettings(mtu_bytes=9000), "3506"),
    ],
)
def test_impossible_settings_are_one_line(kind: str, settings: LinkSettings, words: str) -> None:
    with pytest.raises(TopologyError) as caught, open_kind(kind, settings):
        pass
    line = str(caught.value)
    assert words in line and "\n" not in line
    # The whole line fits behind the name of the command. Other MTUs are refused before they get here.
    assert len(line) <= 180 or settings.mtu_bytes != 9000


def test_missing_xdp_object_says_make(tmp_path: Path) -> None:
    with (
        pytest.raises(TopologyError, match="run `make` first"),
        open_topology("veth-xdp", LinkSettings(), tmp_path / "absent.o"),
    ):
        pass


def test_a_broken_xdp_program_is_not_taken_for_a_refused_mtu(tmp_path: Path) -> None:
    """The file is named MTU.o, because the error for a refused MTU was once recognised by that word."""
    broken = tmp_path / "MTU.o"
    broken.write_bytes(b"not an ELF file")
    with (
        pytest.raises(TopologyError, match=r"MTU\.o sec xdp: .*; use --topology veth$"),
        open_topology("veth-xdp", LinkSettings(), broken),
    ):
        pass


def test_two_paths_at_once_have_separate_namespaces() -> None:
    with ExitStack() as stack:
        pair = [stack.enter_context(open_kind("veth")) for _ in range(2)]
        for topology in pair:
            talk(topology)
        inodes = {Path(topology.namespaces[side].path).stat().st_ino for topology in pair for side in SIDES}
        assert len(inodes) == 4


@pytest.mark.parametrize("user", ["0", "65534"])
def test_traffic_has_no_capabilities_and_obeys_memlock(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    monkeypatch.setenv("SUDO_GID", user)
    with open_kind("loopback") as topology:
        status = subprocess.check_output(topology.command("sender", ["cat", "/proc/self/status"]), text=True)
        assert find_privileges(status) == []
        assert f"Uid:\t{user}\t{user}\t{user}\t{user}\n" in status
        pin = ["sh", "-c", 'ulimit -l 64 && exec python3 -c "$0"', PIN]
        assert (
            subprocess.check_output([*topology.namespaces["sender"].enter(), *pin], text=True).strip()
            == "pinned"
        )
        error = subprocess.check_output(topology.command("sender", pin), text=True).strip()
        assert error in ("Cannot allocate memory", "Operation not permitted")


def test_a_packet_socket_is_listed_with_its_owner() -> None:
    tap = "import socket; s = socket.socket(17, 3, socket.htons(3)); print(flush=True); input()"
    with open_kind("veth") as topology:
        argv = [*topology.namespaces["receiver"].enter(), "python3", "-c", tap]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
            assert owner.stdout is not None
            owner.stdout.readline()
            assert topology.describe().packet_sockets == [
                PacketSocketUser("receiver", "any", "ETH_P_ALL", owner.pid, "python3")
            ]
            owner.communicate("\n")
        assert topology.describe().packet_sockets == []


CONGESTION = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
near = socket.create_connection(listener.getsockname())
print(near.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""


@pytest.mark.parametrize(
    "name", Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
)
def test_route_gives_an_unprivileged_program_any_congestion_control(name: str) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = allowed.read_text()
    with open_kind("loopback", LinkSettings(congestion=name)) as topology:
        argv = topology.command("sender", ["python3", "-c", CONGESTION, topology.addresses["sender"]])
        assert subprocess.check_output(argv, text=True).strip() == name
        assert topology.describe().route_congestion_control == name
    with open_kind("veth", LinkSettings(congestion=name)) as topology:
        shown = subprocess.check_output([*topology.namespaces["receiver"].enter(), "ip", "route"], text=True)
        assert f"congctl {name}" in shown
        talk(topology)
    assert allowed.read_text() == before


def test_unknown_congestion_control_is_one_line() -> None:
    with (
        pytest.raises(TopologyError, match="choose one that net"),
        open_kind("veth", LinkSettings(congestion="nonsense")),
    ):
        pass


def test_sysctls_are_read_in_the_namespace() -> None:
    with open_kind("veth") as topology:
        write = ["sh", "-c", "echo 4096 20000 30000 >/proc/sys/net/ipv4/tcp_wmem"]
        subprocess.run([*topology.namespaces["sender"].enter(), *write], check=True)
        names = ["net.ipv4.tcp_wmem", "net.ipv4.no_such"]
        assert topology.sysctls("sender", names) == {
            "net.ipv4.tcp_wmem": "4096 20000 30000",
            "net.ipv4.no_such": None,
        }
        assert topology.sysctls("receiver", names)["net.ipv4.tcp_wmem"] != "4096 20000 30000"


HOLD = """
import sys, time
from pathlib import Path
from copyscope.machine.topology import LinkSettings, open_topology
with open_topology(sys.argv[1], LinkSettings(), Path(sys.argv[2])) as topology:
    print(*{Path(namespace.path).stat().st_ino for namespace in topology.namespaces.values()}, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("kind", WITHOUT_NICS)
def test_namespaces_disappear_when_their_owner_dies(kind: str, signal_number: signal.Signals) -> None:
    if kind == "veth-xdp" and not paths.XDP_OBJECT.is_file():
        pytest.skip("xdp_pass.bpf.o is not built: run make")
    argv = [sys.executable, "-P", "-c", HOLD, kind, str(paths.XDP_OBJECT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout is not None
        inodes = {int(inode) for inode in owner.stdout.readline().split()}
        assert len(inodes) == (1 if kind == "loopback" else 2) and inodes <= namespaces_in_use()
        owner.send_signal(signal_number)
        owner.wait(5 * SLOW)
    deadline = time.monotonic() + 1 * SLOW
    while inodes & namespaces_in_use() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not inodes & namespaces_in_use()


def test_kept_namespaces_can_be_inspected_and_deleted() -> None:
    name = f"copyscope-test-{os.getpid()}"
    with open_kind("veth") as topology:
        kept = topology.keep(name)
        with pytest.raises(TopologyError, match="choose another name"):
            topology.keep(name)
    try:
        assert kept.names == (f"{name}-sender", f"{name}-receiver")
        shown = subprocess.check_output(kept.inspect[0].removeprefix("sudo ").split(), text=True)
        assert "198.18.0.1" in shown and "sender0" in shown
    finally:
        for command in kept.delete:
            subprocess.run(command.removeprefix("sudo ").split(), check=True)
    assert not any(Path(f"/run/netns/{kept_name}").exists() for kept_name in kept.names)


def test_keep_refuses_impossible_names() -> None:
    with open_kind("loopback") as topology, pytest.raises(TopologyError, match="not a namespace name"):
        topology.keep("../etc/passwd")
