"""Doctor's rows about zero-copy and the network: limits with their arithmetic, and who else listens."""

import ctypes
import errno
import json
import os
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from copyscope import paths
from copyscope.asking import LimitError, ask
from copyscope.doctor.findings import Finding, disturbing
from copyscope.errors import BUILD
from copyscope.machine.files import ROOT, read_text
from copyscope.topology.inspection import find_socket_owners, parse_packet_sockets

zero_copy = partial(Finding, "zero-copy")
SO_ZEROCOPY = 60  # include/uapi/asm-generic/socket.h; not in Python's socket module
SYS_IO_URING_SETUP = 425  # the same number on every architecture
PAGE_BYTES = 4096
SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20}
# Each zero-copy send holds one notification buffer of the socket's option memory; its true size is 768 to 960
# bytes, depending on the kernel (msg_zerocopy_realloc() in net/core/skbuff.c).
NOTIFICATION_BYTES = 1024
ENOUGH_IN_FLIGHT = 64


def sends_in_flight(memlock_bytes: int, size_bytes: int) -> int:
    """How many zero-copy sends of a size fit into RLIMIT_MEMLOCK at the same time.

    The kernel charges (size >> 12) + 2 pages for each, all of a user's sockets together
    (mm_account_pinned_pages() in net/core/skbuff.c).
    """
    return (memlock_bytes // PAGE_BYTES) // ((size_bytes >> 12) + 2)


def check_zero_copy(machine: Mapping[str, Any]) -> Iterable[Finding]:
    yield _msg_zerocopy()
    yield memlock_finding(machine["limits"]["memlock_bytes"])
    yield optmem_finding(machine["sysctls"].get("net.core.optmem_max"))
    yield _io_uring()
    yield tls_finding(read_text(ROOT, "proc/sys/net/ipv4/tcp_available_ulp"))


def _msg_zerocopy() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        except OSError as error:
            advice = "use Linux 4.14 or newer; --impl zero_copy cannot run here"
            return zero_copy("MSG_ZEROCOPY", "limited", f"SO_ZEROCOPY: {error.strerror}", advice)
    return zero_copy("MSG_ZEROCOPY", "ok", "SO_ZEROCOPY is accepted")


def memlock_finding(memlock_bytes: int | None) -> Finding:
    """The locked-memory limit as the traffic meets it, in numbers of sends."""
    name = "locked memory"
    if memlock_bytes is None:
        return zero_copy(name, "ok", "unlimited")
    fits = {label: sends_in_flight(memlock_bytes, size) for label, size in SIZES.items()}
    listed = ", ".join(f"{count} of {label}" for label, count in fits.items())
    fact = f"{memlock_bytes >> 10} KiB = sends in flight, (size>>12)+2 pages each: {listed}"
    impossible = [label for label, count in fits.items() if count == 0]
    if impossible:
        advice = (
            f"zero-copy sends from {impossible[0]} on fail: raise `ulimit -l` (limits.conf), log in again"
        )
        return zero_copy(name, "limited", fact, advice)
    if fits["1 MiB"] < 2:
        advice = "few fit: expect ENOBUFS waits at large sizes; raise `ulimit -l`"
        return zero_copy(name, "limited", fact, advice)
    return zero_copy(name, "ok", fact)


def optmem_finding(optmem_max: str | None) -> Finding:
    if optmem_max is None or not optmem_max.isdecimal():
        return zero_copy("option memory", "ok", "net.core.optmem_max is not known")
    sends = int(optmem_max) // NOTIFICATION_BYTES
    fact = f"net.core.optmem_max {optmem_max}: at least {sends} sends in flight per socket"
    if sends < ENOUGH_IN_FLIGHT:
        return zero_copy("option memory", "limited", fact, "sysctl net.core.optmem_max=131072")
    return zero_copy("option memory", "ok", fact)


def tls_finding(protocols: str | None) -> Finding:
    """Whether programs can give TLS to the kernel; asked of a list, for a socket's question would load it."""
    if "tls" in (protocols or "").split():
        return zero_copy("tls", "ok", "the kernel's TLS is there (tcp_available_ulp)")
    advice = "no action needed, but for programs that use kTLS: modprobe tls"
    return zero_copy("tls", "limited", "the kernel's TLS is not loaded, or not built", advice)


def _io_uring() -> Finding:
    """What uring_send and uring_zc need: the kernel's part, and a build with liburing."""
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(SYS_IO_URING_SETUP, 1, parameters)
    if ring >= 0:
        os.close(ring)
        return _uring_strategies(paths.TRAFFIC)
    why = os.strerror(ctypes.get_errno())
    if ctypes.get_errno() == errno.EPERM:
        why = "switched off (kernel.io_uring_disabled, or seccomp)"
    advice = "--impl uring_send and uring_zc cannot run here; allow io_uring, or use one_copy and zero_copy"
    return zero_copy("io_uring", "limited", why, advice)


def _uring_strategies(traffic: Path) -> Finding:
    """Which of the strategies that this build has send through io_uring."""
    try:
        said = ask([str(traffic), "list"]).output
        names = [row["name"] for row in json.loads(said) if row.get("in_ring")]
    except (OSError, LimitError, ValueError) as error:
        return zero_copy("io_uring", "limited", f"traffic list: {error}", BUILD)
    if not names:
        advice = "tools/deps.sh installs liburing-dev; then make"
        return zero_copy("io_uring", "limited", "this build has no liburing (2.3 or newer)", advice)
    return zero_copy("io_uring", "ok", f"available: --impl {', '.join(names)}")


def check_disturbances(machine: Mapping[str, Any]) -> Iterable[Finding]:
    yield congestion_finding(machine["sysctls"])
    yield from packet_socket_findings()


def congestion_finding(sysctls: Mapping[str, str | None]) -> Finding:
    default = sysctls.get("net.ipv4.tcp_congestion_control")
    if default in ("cubic", "reno"):
        return disturbing("congestion control", "ok", f"default {default}")
    effect = ": it paces, and changes results up to 3x" if default == "bbr" else ""
    advice = (
        "compare runs of one congestion control only: --congestion sets it, each record says which it was"
    )
    fact = f"the host's default is {default}{effect}"
    return disturbing("congestion control", "confounder", fact, advice)


def packet_socket_findings(root: Path = ROOT) -> Iterable[Finding]:
    """Who taps every packet on the host: a zero-copy send through a tapped real device becomes a copy."""
    sockets = parse_packet_sockets(read_text(root, "proc/net/packet") or "")
    owners = find_socket_owners((one.inode for one in sockets), root / "proc")
    for one in sockets:
        pid, comm = owners.get(one.inode, (None, None))
        who = f"{comm} (pid {pid})" if pid is not None else "a process that cannot be seen"
        where = (
            "all devices" if one.interface_index == 0 else f"device {_device_name(root, one.interface_index)}"
        )
        fact = f"{who} taps every packet of {where}: zero-copy sends there become copies"
        advice = "stop it for measurements on real devices; copyscope's own namespaces are not touched"
        yield disturbing("packet socket", "confounder", fact, advice)
    if not sockets:
        yield disturbing("packet sockets", "ok", "no packet socket taps this host")


def _device_name(root: Path, index: int) -> str:
    devices = (root / "sys/class/net").glob("*")
    names = (device.name for device in devices if read_text(device, "ifindex") == str(index))
    return next(names, f"index {index}")
