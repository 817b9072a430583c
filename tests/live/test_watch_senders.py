# SPDX-License-Identifier: GPL-2.0-only
"""Programs that report what they sent (sends.c): the ledger has every byte, by the way it was sent."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import SLOW, broken_identities, in_all, is_root
from programs import bytes_of, hook_state, known_sender, running, watch

Record = dict[str, Any]

SENDS = paths.OUTPUT / "tests" / "sends"
# An emulated guest needs long to read the network path, and the senders must still run then.
SECONDS = str(1.2 if SLOW == 1 else 3 * SLOW)
UNSUPPORTED_STATUS = 77
# Under sudo a watched command runs as the user, who needs a user namespace to create the others.
CALLER = os.environ.get("SUDO_UID")
AS_CALLER = ["setpriv", "--reuid", CALLER, "--clear-groups"] if CALLER else []
IN_NETWORK_NAMESPACE = ["unshare", "--map-root-user", "--net"]
ETH_P_ALL = 3

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not SENDS.exists(), reason=f"needs {SENDS.name}: make {SENDS.relative_to(paths.ROOT)}"
    ),
]


@pytest.fixture
def _boxes() -> None:
    """Skip the test if the user cannot create network namespaces."""
    attempt = subprocess.run(
        [*AS_CALLER, *IN_NETWORK_NAMESPACE, "true"], capture_output=True, text=True, check=False
    )
    if attempt.returncode:
        pytest.skip(f"user namespaces: {attempt.stderr.strip()}")


def read_report(report: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads(report.read_text())
    return counts


def watch_one(
    how: str, directory: Path, *options: str, seconds: str = SECONDS
) -> tuple[Record, dict[str, int]]:
    report = directory / how
    record = watch(*options, "--", str(SENDS), how, seconds, str(report), check=None)
    if record["target"]["status"] == UNSUPPORTED_STATUS:
        pytest.skip(f"this kernel cannot do {how}")
    return record, read_report(report)


def test_every_byte_and_every_buffer_is_counted(tmp_path: Path) -> None:
    """Five senders run at once as children of a shell. The counts equal the sum of their reports."""
    ways = ("writev", "large", "sendto", "sendmmsg", "vmsplice")
    script = " & ".join(f"{SENDS} {way} {SECONDS} {tmp_path / way}" for way in ways) + " & wait"
    record = watch("--", "sh", "-c", script, check=None)
    assert broken_identities(record) == []
    truth = {way: read_report(tmp_path / way) for way in ways}
    if hook_state(record, "volume_sent") == "attached":  # else calls for several messages return no bytes
        assert record["target"]["sent_bytes"] == sum(row["bytes"] for row in truth.values())
        assert record["target"]["send_calls"] == sum(row["messages"] for row in truth.values())
    calls = {(row["protocol"], row["syscall"]) for row in record["volume"] if row["direction"] == "send"}
    expected_calls = {("tcp", "writev"), ("tcp", "sendto"), ("udp", "sendto"), ("udp", "sendmmsg")}
    # Before 6.5 the pages are gone from the pipe before anybody sees the send.
    spliced = {("tcp", "splice after vmsplice")} if ("tcp", "splice") not in calls else {("tcp", "splice")}
    assert calls in (expected_calls | spliced, (expected_calls | spliced) - {("udp", "sendmmsg")})
    shapes = {(row["protocol"], row["syscall"]): row for row in record["shapes"]}
    writev_shape, sendto_shape, sendmmsg_shape = (
        shapes[key] for key in (("tcp", "writev"), ("udp", "sendto"), ("udp", "sendmmsg"))
    )
    # The three buffers are always the same: one begins at a page, one at a cache line, one at neither.
    assert writev_shape["buffers_per_message"] == [[3, writev_shape["messages"]]]
    assert writev_shape["buffers"] == writev_shape["looked"] == 3 * writev_shape["messages"] > 0
    assert writev_shape["page_aligned"] == writev_shape["line_aligned"] == writev_shape["messages"]
    assert sendto_shape["buffers"] == sendto_shape["page_aligned"] == sendto_shape["messages"] > 0
    assert sendmmsg_shape["buffers_per_message"] == [[2, sendmmsg_shape["messages"]]]
    assert (sendmmsg_shape["page_aligned"], sendmmsg_shape["line_aligned"], sendmmsg_shape["repeated"]) == (
        sendmmsg_shape["messages"],
        0,
        0,
    )
    assert writev_shape["messages"] - writev_shape["repeated"] <= len(record["run"]["segments"])
    assert sum(row["unreadable"] for row in shapes.values()) == 0
    if hook_state(record, "round") == "missing":  # before 6.16
        assert record["portrait"]["rounds"] is None
        return
    # A packet takes 64 KiB and a page fragment 32 KiB: a send of 1 MiB needs 16 rounds at least.
    large = shapes["tcp", "sendto"]
    assert large["rounds"] >= 16 * (large["sends"] - 1) > 0
    assert writev_shape["sends"] <= writev_shape["rounds"] < 4 * writev_shape["sends"]


@pytest.mark.all
def test_many_small_sends_are_exact_in_bytes_and_calls(tmp_path: Path) -> None:
    """A thread of the program receives what it sends, so both directions are known."""
    record, truth = watch_one("small", tmp_path, seconds=str(3.5 * SLOW))
    assert broken_identities(record) == []
    target = record["target"]
    assert target["sent_bytes"] == truth["bytes"] == 64 * truth["messages"]
    assert target["send_calls"] == truth["messages"]
    assert 0 <= target["received_bytes"] <= truth["bytes"]
    copied = next(row for row in record["ledger"] if row["account"] == "copy_in" and row["bytes"])
    assert (copied["bytes_method"], copied["calls_method"]) == ("exact", "exact")


@pytest.mark.all
def test_sends_by_io_uring_are_counted_and_named(tmp_path: Path) -> None:
    record, truth = watch_one("uring", tmp_path)
    if hook_state(record, "volume_sent") != "attached":
        pytest.skip("no sock_send_length: what io_uring sends is not seen")
    assert broken_identities(record) == []
    assert record["target"]["sent_bytes"] == truth["bytes"]
    send = record["portrait"]["send"]
    assert [row["syscall"] for row in send["by_call"]] == ["io_uring"]
    assert send["io_uring_share"] == 1 and send["zerocopy_share"] == 0
    assert bytes_of(record, "copy_in") > 1 << 24 and bytes_of(record, "pin") == 0


@pytest.mark.parametrize("how", ["uring_zc", in_all("uring_zc_quiet")])
def test_zero_copy_of_io_uring_is_copied_late_over_lo(how: str, tmp_path: Path) -> None:
    record, truth = watch_one(how, tmp_path)
    if hook_state(record, "volume_sent") != "attached":
        pytest.skip("no sock_send_length: what io_uring sends is not seen")
    assert broken_identities(record) == []
    assert record["target"]["sent_bytes"] == truth["bytes"]
    assert record["portrait"]["send"]["zerocopy_share"] == pytest.approx(1, abs=0.001)
    assert bytes_of(record, "pin") > 1 << 24 > 1 << 17 > bytes_of(record, "copy_in")
    zerocopy = record["zerocopy"]
    if how == "uring_zc":
        # The two counters are read one after the other, at the begin and end of every segment.
        segment_ends = 2 * len(record["run"]["segments"])
        assert zerocopy["copied"] == pytest.approx(zerocopy["completions"], abs=segment_ends)
        assert zerocopy["completions"] > 1000 and zerocopy["untold"] == 0
        assert zerocopy["cause"]["code"] == "local_delivery"
    else:  # the program did not request reports of copies, so the number is unknown
        assert zerocopy["completions"] == 0 < zerocopy["untold"]
        deferred = next(row for row in record["ledger"] if row["account"] == "deferred")
        assert deferred["bytes"] is None and "IORING_SEND_ZC_REPORT_USAGE" in deferred["reasons"]["bytes"]


@pytest.mark.all
def test_a_notification_of_a_refused_request_is_not_a_completion(tmp_path: Path) -> None:
    """The kernel sends a notification for a refused request, with the flag "copied"."""
    record, truth = watch_one("uring_zc_refused", tmp_path, "--whole")
    if hook_state(record, "volume_sent") != "attached":
        pytest.skip("no sock_send_length: what io_uring sends is not seen")
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["sends"] == zerocopy["completions"] == zerocopy["copied"] == truth["calls"]
    assert (zerocopy["untold"], zerocopy["unseen"]) == (0, 0)


@pytest.mark.all
def test_a_packet_socket_on_lo_is_named_but_is_not_the_cause() -> None:
    """lo copies anyway, so advice must not suggest to stop the listener."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as tap:
        tap.bind(("lo", ETH_P_ALL))
        with known_sender("zerocopy", round(40_000 / SLOW), 1 << 16) as argv:
            record = watch("--advise", "--", *argv, check=None)
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] > 0 and zerocopy["cause"]["code"] == "local_delivery"
    cause = zerocopy["cause"]["sentence"]
    assert "the receiver is on the same machine (lo)" in cause and "stop it" not in cause
    assert "a packet socket on lo (" in cause and f"pid {os.getpid()})" in cause
    assert f"copied after all ({cause})" in record["advice"]["text"]


@pytest.mark.all
@pytest.mark.usefixtures("_boxes")
def test_netns_counts_only_senders_in_that_namespace(tmp_path: Path) -> None:
    """The target has two senders, one of them in another network namespace."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    namespace_command = [*IN_NETWORK_NAMESPACE, "sh", "-c", "ip link set lo up; exec sleep 600"]
    with running([*AS_CALLER, *namespace_command]) as namespace_holder:
        enter = f"nsenter --target {namespace_holder.pid} --user --net --preserve-credentials"
        script = f"{enter} {SENDS} writev {SECONDS} {inside} & {SENDS} sendto {SECONDS} {outside} & wait"
        time.sleep(0.3 * SLOW)
        record = watch("--netns", str(namespace_holder.pid), "--", "sh", "-c", script, check=None)
    assert broken_identities(record) == []
    assert read_report(outside)["bytes"] > 0
    assert record["target"]["sent_bytes"] == read_report(inside)["bytes"] > 0
    assert {row["protocol"] for row in record["volume"]} - {"file"} == {"tcp"}


@pytest.mark.all
@pytest.mark.usefixtures("_boxes")
def test_sends_inside_a_container_are_counted(tmp_path: Path) -> None:
    """The command has network, pid, mount and cgroup namespaces, as a container has them."""
    report = tmp_path / "inside"
    script = f"ip link set lo up; exec {SENDS} writev {SECONDS} {report}"
    container_command = [
        *IN_NETWORK_NAMESPACE,
        "--pid",
        "--cgroup",
        "--mount-proc",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]
    record = watch("--", *container_command, check=None)
    assert broken_identities(record) == []
    assert record["target"]["sent_bytes"] == read_report(report)["bytes"] > 0
    assert "sends" in {row["comm"] for row in record["target"]["pids"]}
