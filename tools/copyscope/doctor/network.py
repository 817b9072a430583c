# SPDX-License-Identifier: GPL-2.0-only
"""Findings about zero-copy sends and the network: limits on sends, io_uring, kernel TLS, packet sockets."""

import ctypes
import errno
import json
import os
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from copyscope.base import paths
from copyscope.base.errors import BUILD_ADVICE
from copyscope.base.programs import LimitError, run_program
from copyscope.doctor.findings import DoctorFinding, confounder_finding
from copyscope.machine.fingerprint import MachineFacts
from copyscope.machine.processors import ROOT, read_text
from copyscope.machine.topology.links import find_socket_owners, parse_packet_sockets

zero_copy_finding = partial(DoctorFinding, "zero-copy")
SO_ZEROCOPY = 60  # include/uapi/asm-generic/socket.h; not in Python's socket module
SYS_IO_URING_SETUP = 425  # the same number on every architecture
PAGE_BYTES = 4096
# Sizes of sends in the finding about locked memory, by label.
MEMLOCK_EXAMPLE_SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20}
# Upper bound in bytes of the option memory that a zero-copy send in flight holds for its notification: 768 to
# 960 bytes, depending on the kernel (msg_zerocopy_realloc() in net/core/skbuff.c).
NOTIFICATION_BYTES = 1024
# Minimum number of zero-copy sends in flight that option memory should allow.
SENDS_IN_FLIGHT_MIN = 64


def sends_in_flight(memlock_bytes: int, size_bytes: int) -> int:
    """Return how many zero-copy sends of a given size fit into RLIMIT_MEMLOCK at the same time.

    The kernel charges (size >> 12) + 2 pages for each send, summed over all of a user's sockets
    (mm_account_pinned_pages() in net/core/skbuff.c).
    """
    return (memlock_bytes // PAGE_BYTES) // ((size_bytes >> 12) + 2)


def check_zero_copy(machine: MachineFacts) -> Iterable[DoctorFinding]:
    """Yield findings about MSG_ZEROCOPY, its limits, io_uring and kernel TLS."""
    yield _msg_zerocopy()
    yield memlock_finding(machine.limits["memlock_bytes"])
    yield optmem_finding(machine.sysctls.get("net.core.optmem_max"))
    yield _io_uring()
    yield tls_finding(read_text(ROOT, "proc/sys/net/ipv4/tcp_available_ulp"))


def _msg_zerocopy() -> DoctorFinding:
    """Return the finding about SO_ZEROCOPY: whether sockets accept it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        except OSError as error:
            advice = "use Linux 4.14 or newer; --impl zero_copy cannot run here"
            return zero_copy_finding("MSG_ZEROCOPY", "limited", f"SO_ZEROCOPY: {error.strerror}", advice)
    return zero_copy_finding("MSG_ZEROCOPY", "ok", "SO_ZEROCOPY is accepted")


def memlock_finding(memlock_bytes: int | None) -> DoctorFinding:
    """Return the finding about RLIMIT_MEMLOCK: whether it allows enough zero-copy sends in flight."""
    name = "locked memory"
    if memlock_bytes is None:
        return zero_copy_finding(name, "ok", "unlimited")
    sends = {label: sends_in_flight(memlock_bytes, size) for label, size in MEMLOCK_EXAMPLE_SIZES.items()}
    examples = ", ".join(f"{count} of {label}" for label, count in sends.items())
    fact = f"{memlock_bytes >> 10} KiB = sends in flight, (size>>12)+2 pages each: {examples}"
    impossible = [label for label, count in sends.items() if count == 0]
    if impossible:
        advice = (
            f"zero-copy sends of {impossible[0]} and more fail: raise `ulimit -l` (limits.conf), log in again"
        )
        return zero_copy_finding(name, "limited", fact, advice)
    if sends["1 MiB"] < 2:
        advice = "few sends fit: expect ENOBUFS waits at large sizes; raise `ulimit -l`"
        return zero_copy_finding(name, "limited", fact, advice)
    return zero_copy_finding(name, "ok", fact)


def optmem_finding(optmem_max: str | None) -> DoctorFinding:
    """Return the finding about net.core.optmem_max: whether it allows enough zero-copy sends in flight."""
    if optmem_max is None or not optmem_max.isdecimal():
        return zero_copy_finding("option memory", "ok", "net.core.optmem_max is unknown")
    sends = int(optmem_max) // NOTIFICATION_BYTES
    fact = f"net.core.optmem_max {optmem_max}: at least {sends} sends in flight per socket"
    if sends < SENDS_IN_FLIGHT_MIN:
        return zero_copy_finding("option memory", "limited", fact, "sysctl net.core.optmem_max=131072")
    return zero_copy_finding("option memory", "ok", fact)


def tls_finding(tcp_available_ulp: str | None) -> DoctorFinding:
    """Return the finding about kernel TLS: available or not.

    `tcp_available_ulp`: list of the loaded upper layer protocols. It is used because trying setsockopt()
    would load the module.
    """
    if "tls" in (tcp_available_ulp or "").split():
        return zero_copy_finding("tls", "ok", "kernel TLS is available (tcp_available_ulp)")
    advice = "no action needed; only programs that use kTLS need it: modprobe tls"
    return zero_copy_finding("tls", "limited", "kernel TLS is not loaded, or not built", advice)


def _io_uring() -> DoctorFinding:
    """Return the finding about io_uring in this kernel and build (strategies `uring_send`, `uring_zc`)."""
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(SYS_IO_URING_SETUP, 1, parameters)
    if ring >= 0:
        os.close(ring)
        return _uring_strategies(paths.TRAFFIC)
    reason = os.strerror(ctypes.get_errno())
    if ctypes.get_errno() == errno.EPERM:
        reason = "switched off (kernel.io_uring_disabled, or seccomp)"
    advice = "--impl uring_send and uring_zc cannot run here; allow io_uring, or use one_copy and zero_copy"
    return zero_copy_finding("io_uring", "limited", reason, advice)


def _uring_strategies(traffic: Path) -> DoctorFinding:
    """Return the finding about which of this build's strategies send through io_uring."""
    try:
        strategies = json.loads(run_program([str(traffic), "list"]).output)
        names = [row["name"] for row in strategies if row.get("in_ring")]
    except (OSError, LimitError, ValueError) as error:
        return zero_copy_finding("io_uring", "limited", f"traffic list: {error}", BUILD_ADVICE)
    if not names:
        advice = "tools/deps.sh installs liburing-dev; then make"
        return zero_copy_finding("io_uring", "limited", "this build has no liburing (2.3 or newer)", advice)
    return zero_copy_finding("io_uring", "ok", f"available: --impl {', '.join(names)}")


def check_disturbances(machine: MachineFacts) -> Iterable[DoctorFinding]:
    """Yield findings about network confounders: congestion control and packet sockets."""
    yield congestion_finding(machine.sysctls)
    yield from packet_socket_findings()


def congestion_finding(sysctls: Mapping[str, str | None]) -> DoctorFinding:
    """Return the finding about the default congestion control: whether it is a common algorithm."""
    default = sysctls.get("net.ipv4.tcp_congestion_control")
    if default in ("cubic", "reno"):
        return confounder_finding("congestion control", "ok", f"default {default}")
    effect = ": it paces, and changes results up to 3x" if default == "bbr" else ""
    advice = (
        "compare only runs with the same congestion control: --congestion sets it, and each record names it"
    )
    fact = f"the host's default is {default}{effect}"
    return confounder_finding("congestion control", "confounder", fact, advice)


def packet_socket_findings(root: Path = ROOT) -> Iterable[DoctorFinding]:
    """Yield a finding for each packet socket on the host that receives all of a device's packets.

    Data sent with zero-copy through such a device is copied after all.
    """
    sockets = parse_packet_sockets(read_text(root, "proc/net/packet") or "")
    owners = find_socket_owners((row.inode for row in sockets), root / "proc")
    for row in sockets:
        pid, comm = owners.get(row.inode, (None, None))
        owner = f"{comm} (pid {pid})" if pid is not None else "an unknown process"
        index = row.interface_index
        device = "all devices" if index == 0 else f"device {_device_name(root, index)}"
        fact = f"{owner} taps every packet of {device}: zero-copy sends there become copies"
        advice = "stop this process to measure on real devices; copyscope's own namespaces are not affected"
        yield confounder_finding("packet socket", "confounder", fact, advice)
    if not sockets:
        yield confounder_finding("packet sockets", "ok", "no packet socket taps this host")


def _device_name(root: Path, index: int) -> str:
    """Return the name of the device with this index, or `index N` if it is unknown."""
    devices = (root / "sys/class/net").glob("*")
    names = (device.name for device in devices if read_text(device, "ifindex") == str(index))
    return next(names, f"index {index}")
