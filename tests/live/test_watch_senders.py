"""Programs that say what they sent (sends.c): the ledger has every byte of it, and how it was handed over."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from profiling import SLOW, broken_identities, in_all, is_root
from programs import bytes_of, hook_state, known_sender, running, watch

Record = dict[str, Any]

SENDS = paths.OUTPUT / "tests" / "sends"
# A guest that is emulated takes long to start what looks at the path; the senders must still be there then.
SECONDS = str(1.2 if SLOW == 1 else 3 * SLOW)
CANNOT = 77
# Under sudo a watched command is the user's, who needs a user namespace to make the others.
CALLER = os.environ.get("SUDO_UID")
AS_CALLER = ["setpriv", "--reuid", CALLER, "--clear-groups"] if CALLER else []
IN_A_BOX = ["unshare", "--map-root-user", "--net"]
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
    made = subprocess.run([*AS_CALLER, *IN_A_BOX, "true"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"user namespaces: {made.stderr.strip()}")


def sent(report: Path) -> dict[str, int]:
    made: dict[str, int] = json.loads(report.read_text())
    return made


def watch_one(
    how: str, directory: Path, *options: str, seconds: str = SECONDS
) -> tuple[Record, dict[str, int]]:
    report = directory / how
    record = watch(*options, "--", str(SENDS), how, seconds, str(report), check=None)
    if record["target"]["status"] == CANNOT:
        pytest.skip(f"this kernel cannot do {how}")
    return record, sent(report)


def test_every_byte_and_every_buffer(tmp_path: Path) -> None:
    """Five senders at once, children of a shell: what all of them say they sent is what was counted."""
    ways = ("writev", "large", "sendto", "sendmmsg", "vmsplice")
    script = " & ".join(f"{SENDS} {how} {SECONDS} {tmp_path / how}" for how in ways) + " & wait"
    record = watch("--", "sh", "-c", script, check=None)
    assert broken_identities(record) == []
    truth = {how: sent(tmp_path / how) for how in ways}
    if hook_state(record, "volume_sent") == "attached":  # else calls for several messages return no bytes
        assert record["target"]["sent_bytes"] == sum(row["bytes"] for row in truth.values())
        assert record["target"]["send_calls"] == sum(row["messages"] for row in truth.values())
    calls = {(row["protocol"], row["syscall"]) for row in record["volume"] if row["direction"] == "send"}
    told = {("tcp", "writev"), ("tcp", "sendto"), ("udp", "sendto"), ("udp", "sendmmsg")}
    # Before 6.5 the pages are gone from the pipe before anybody sees the send.
    spliced = {("tcp", "splice after vmsplice")} if ("tcp", "splice") not in calls else {("tcp", "splice")}
    assert calls in (told | spliced, (told | spliced) - {("udp", "sendmmsg")})
    shapes = {(row["protocol"], row["syscall"]): row for row in record["shapes"]}
    three, one, two = (shapes[key] for key in (("tcp", "writev"), ("udp", "sendto"), ("udp", "sendmmsg")))
    # One buffer at a page, one at a cache line, one at neither; always the same three.
    assert three["buffers_per_message"] == [[3, three["messages"]]]
    assert three["buffers"] == three["looked"] == 3 * three["messages"] > 0
    assert three["page_aligned"] == three["line_aligned"] == three["messages"]
    assert one["buffers"] == one["page_aligned"] == one["messages"] > 0
    assert two["buffers_per_message"] == [[2, two["messages"]]]
    assert (two["page_aligned"], two["line_aligned"], two["repeated"]) == (two["messages"], 0, 0)
    assert three["messages"] - three["repeated"] <= len(record["run"]["segments"])
    assert sum(row["unreadable"] for row in shapes.values()) == 0
    if hook_state(record, "round") == "missing":  # before 6.16
        assert record["portrait"]["rounds"] is None
        return
    # A packet takes 64 KiB and a page fragment 32 KiB: a send of 1 MiB needs 16 rounds at least.
    large = shapes["tcp", "sendto"]
    assert large["rounds"] >= 16 * (large["sends"] - 1) > 0
    assert three["sends"] <= three["rounds"] < 4 * three["sends"]


def test_many_small_sends_are_exact_in_bytes_and_calls(tmp_path: Path) -> None:
    """A thread of the same program takes what it sends: both directions are known."""
    record, truth = watch_one("small", tmp_path, seconds=str(3.5 * SLOW))
    assert broken_identities(record) == []
    target = record["target"]
    assert target["sent_bytes"] == truth["bytes"] == 64 * truth["messages"]
    assert target["send_calls"] == truth["messages"]
    assert 0 <= target["received_bytes"] <= truth["bytes"]
    copied = next(row for row in record["ledger"] if row["account"] == "copy_in" and row["bytes"])
    assert (copied["bytes_method"], copied["calls_method"]) == ("exact", "exact")


def test_io_uring_is_counted_and_named(tmp_path: Path) -> None:
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
def test_zero_copy_of_io_uring_is_copied_here_after_all(how: str, tmp_path: Path) -> None:
    record, truth = watch_one(how, tmp_path)
    if hook_state(record, "volume_sent") != "attached":
        pytest.skip("no sock_send_length: what io_uring sends is not seen")
    assert broken_identities(record) == []
    assert record["target"]["sent_bytes"] == truth["bytes"]
    assert record["portrait"]["send"]["zerocopy_share"] == pytest.approx(1, abs=0.001)
    assert bytes_of(record, "pin") > 1 << 24 > 1 << 17 > bytes_of(record, "copy_in")
    zerocopy = record["zerocopy"]
    if how == "uring_zc":
        # The two are read one after the other, at both ends of every segment.
        edges = 2 * len(record["run"]["segments"])
        assert zerocopy["copied"] == pytest.approx(zerocopy["completions"], abs=edges)
        assert zerocopy["completions"] > 1000 and zerocopy["untold"] == 0
        assert zerocopy["cause"]["code"] == "local_delivery"
    else:  # it did not ask, so nobody knows
        assert zerocopy["completions"] == 0 < zerocopy["untold"]
        deferred = next(row for row in record["ledger"] if row["account"] == "deferred")
        assert deferred["bytes"] is None and "IORING_SEND_ZC_REPORT_USAGE" in deferred["reasons"]["bytes"]


@pytest.mark.all
def test_a_notification_of_a_refused_request_is_no_completion(tmp_path: Path) -> None:
    """The kernel sends one, and says "copied"."""
    record, truth = watch_one("uring_zc_refused", tmp_path, "--whole")
    if hook_state(record, "volume_sent") != "attached":
        pytest.skip("no sock_send_length: what io_uring sends is not seen")
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["sends"] == zerocopy["completions"] == zerocopy["copied"] == truth["calls"]
    assert (zerocopy["untold"], zerocopy["unseen"]) == (0, 0)


def test_a_packet_socket_on_lo_is_named_and_not_blamed() -> None:
    """lo copies without it, too: to stop who listens would change nothing."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as tap:
        tap.bind(("lo", ETH_P_ALL))
        with known_sender("zerocopy", round(40_000 / SLOW), 1 << 16) as argv:
            record = watch("--advise", "--", *argv, check=None)
    assert broken_identities(record) == []
    zerocopy = record["zerocopy"]
    assert zerocopy["copied"] > 0 and zerocopy["cause"]["code"] == "local_delivery"
    cause = zerocopy["cause"]["sentence"]
    assert "local delivery over lo" in cause and "stop it" not in cause
    assert "a packet socket on lo (" in cause and f"pid {os.getpid()})" in cause
    assert f"copied after all ({cause})" in record["advice"]["text"]


@pytest.mark.usefixtures("_boxes")
def test_only_the_namespace_that_was_asked_for(tmp_path: Path) -> None:
    """Two senders of the target at once, one of them in a network namespace of its own."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    lasting = [*IN_A_BOX, "sh", "-c", "ip link set lo up; exec sleep 600"]
    with running([*AS_CALLER, *lasting]) as box:
        enter = f"nsenter --target {box.pid} --user --net --preserve-credentials"
        script = f"{enter} {SENDS} writev {SECONDS} {inside} & {SENDS} sendto {SECONDS} {outside} & wait"
        time.sleep(0.3 * SLOW)
        record = watch("--netns", str(box.pid), "--", "sh", "-c", script, check=None)
    assert broken_identities(record) == []
    assert sent(outside)["bytes"] > 0
    assert record["target"]["sent_bytes"] == sent(inside)["bytes"] > 0
    assert {row["protocol"] for row in record["volume"]} - {"file"} == {"tcp"}


@pytest.mark.all
@pytest.mark.usefixtures("_boxes")
def test_a_container_is_seen_into(tmp_path: Path) -> None:
    """Network, pid, mount and cgroup namespaces of its own, as a container has them."""
    report = tmp_path / "inside"
    mine = f"ip link set lo up; exec {SENDS} writev {SECONDS} {report}"
    box = [
        *IN_A_BOX,
        "--pid",
        "--cgroup",
        "--mount-proc",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        mine,
    ]
    record = watch("--", *box, check=None)
    assert broken_identities(record) == []
    assert record["target"]["sent_bytes"] == sent(report)["bytes"] > 0
    assert "sends" in {row["comm"] for row in record["target"]["pids"]}
