# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier where the kernel allows function hooks: known bytes pass through known functions."""

import json
import re
import subprocess
from collections import Counter
from functools import cache
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.ledger.checks.exact import retransmitted_bytes
from copyscope.record.measured import Measured
from msgspec import convert
from profiling import SLOW, broken_identities, in_all, is_root, profile, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

SIZE = 40_000
MESSAGES = 23


@cache
def why_not(kind: str = "any") -> str | None:
    """Return why this kernel allows no function hook (of the given kind), or None."""
    argv = [str(paths.COLLECTOR), "--probe", "--functions", "--attach", kind]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["hooks"] if row["instrument"] == "functions"]
    roots = [row for row in rows if row["id"] in ("send", "receive")]
    refused = [row for row in roots if row["state"] != "attached"]
    return f"{refused[0]['symbol']}: {refused[0]['reason']}" if refused else None


def sent_again(record: dict[str, Any]) -> int:
    """Return the number of retransmitted bytes."""
    return retransmitted_bytes(convert(record, Measured))


def lost(record: dict[str, Any]) -> dict[str, int]:
    """Return the losses of a run by name.

    Timed reads that were interrupted are left out in an emulated guest.
    """
    counts = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    return {name: count for name, count in counts.items() if SLOW == 1 or name != "functions_look_stopped"}


def cells(record: dict[str, Any], category: str, key: str) -> int:
    return sum(cell[key] for cell in record["functions"]["cells"] if cell["category"] == category)


def sum_by_side(counts: dict[tuple[str, str | None], int]) -> dict[tuple[str, str | None], int]:
    sums: Counter[tuple[str, str | None]] = Counter()
    for (side, _), count in counts.items():
        sums[side, None] += count
    return dict(sums)


def hooked(record: dict[str, Any]) -> set[str]:
    return {row["how"] for row in record["hooks"] if row["instrument"] == "functions" and row["how"]}


@cache
def probe_call_site(*options: str) -> dict[str, Any]:
    """Return the hook that copy_in has if the collector searches for the call of the copy routine.

    `options` are the words of a command that starts the collector.
    """
    argv = [str(paths.COLLECTOR), "--probe", "--functions", "--copy-in", "call-site"]
    done = subprocess.run([*options, *argv], capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["hooks"] if row["id"].startswith("copy_in_call")]
    return next((row for row in rows if row["state"] == "attached"), rows[0])


def expected_hook_kinds(kind: str) -> set[str]:
    """Return the kinds of hooks for `--attach KIND`.

    A bracket of kprobes is used if no call site is found.
    """
    call_found = kind == "kprobe" and probe_call_site()["state"] == "attached"
    return {kind, "tp_btf", *(["call-site"] if call_found else [])}


@pytest.mark.parametrize("kind", ["fentry", in_all("kprobe.multi"), in_all("kprobe")])
@pytest.mark.parametrize(
    "impl",
    [
        "per_field",
        "two_copy",
        "one_copy",
        "zero_copy",
        "sendfile",
        in_all("relay_copy"),
        in_all("relay_splice"),
    ],
)
def test_every_byte_is_counted_in_the_function_that_moved_it(impl: str, kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    options = ("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE))
    record = record_of(*options, "--instruments", "functions", "--attach", kind, check=None, lossless=True)
    assert hooked(record) == expected_hook_kinds(kind)
    assert broken_identities(record) == []
    assert lost(record) == {}
    sent = MESSAGES * SIZE
    referenced = sent if impl in ("zero_copy", "sendfile", "relay_splice") else 0
    assert cells(record, "copy_in", "bytes") == sent - referenced
    assert cells(record, "pin", "bytes") == referenced
    late_bytes = sent if impl == "zero_copy" else 0
    assert late_bytes <= cells(record, "deferred", "bytes") <= late_bytes + sent_again(record)
    assert cells(record, "copy_out", "bytes") == sent * (1 + (impl == "relay_copy"))
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert {"functions_copy_in", "functions_copy_out"} <= names
    assert ("functions_deferred" in names) == (impl == "zero_copy")
    assert ("functions_pin" in names) == bool(referenced)
    # Functions that these bytes do not pass are not hooked.
    states = {row["id"]: row["state"] for row in record["hooks"]}
    assert states["copy_in_record"] == states["map"] == "unused"
    assert (states["deferred"] == states["zerocopy_use"] == "attached") == (impl == "zero_copy")


@pytest.mark.all
@pytest.mark.parametrize(
    ("kind", "way", "expected_how"),
    [("any", "call-site", "call-site"), ("kprobe", "bracket", "kprobe")],
)
@pytest.mark.parametrize("impl", ["two_copy", "one_copy"])
def test_copy_in_is_hooked_at_its_call_or_by_a_bracket(
    impl: str, kind: str, way: str, expected_how: str
) -> None:
    reason = why_not(kind) or (probe_call_site()["reason"] if way == "call-site" else None)
    if reason:
        pytest.skip(reason)
    record = record_of(
        *("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE)),
        *("--instruments", "functions", "--attach", kind, "--copy-in", way),
        check=None,
    )
    (row,) = [row for row in record["hooks"] if row["id"].startswith("copy_in") and row["how"]]
    assert row["how"] == expected_how
    assert (re.fullmatch(r"tcp_sendmsg_locked(,?\+0x[0-9a-f]+)+", row["symbol"]) is not None) == (
        way == "call-site"
    )
    assert cells(record, "copy_in", "bytes") == MESSAGES * SIZE
    assert broken_identities(record) == []
    assert lost(record) == {}
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert "functions_copy_in" in names


@pytest.mark.all
def test_without_kcore_the_call_site_is_missing_and_the_reason_is_given() -> None:
    reason = why_not() or (None if probe_call_site()["state"] == "attached" else probe_call_site()["reason"])
    if reason:
        pytest.skip(reason)
    hidden = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /proc/kcore && exec "$@"', "sh")
    row = probe_call_site(*hidden)
    assert row["state"] == "missing" and row["reason"].startswith("/proc/kcore: ")


def test_auto_chooses_the_exact_tier_where_possible_and_gives_the_reason() -> None:
    record = record_of("--impl", "one_copy", "--duration", "1" if SLOW == 1 else "2", check=None)
    reason = why_not()
    phases = {segment["phase"] for segment in record["run"]["segments"]}
    assert record["run"]["tier"] == ("sampled" if reason else "exact")
    assert ("functions" in phases) == (record["functions"] is not None) == (reason is None)
    assert record["run"]["tier_reason"].startswith("function hooks: ")
    if reason:
        assert reason in record["run"]["tier_reason"]
    assert broken_identities(record) == []


@pytest.mark.all
def test_a_softirq_that_interrupts_a_hook_breaks_no_measurement() -> None:
    if reason := why_not("fentry"):
        pytest.skip(reason)
    record = record_of(
        *("--impl", "per_field", "--size", "16K", "--gate", "1", "--instruments", "sampler,functions"),
        *("--duration", "1" if SLOW == 1 else "4"),
        check=None,
        lossless=True,
    )
    if any(row["count"] for name, row in record["loss"].items() if name.startswith("recursion_")):
        pytest.skip("the kernel skipped BPF programs here, so the missed calls are unknown")
    assert broken_identities(record) == []
    assert sum(cell["timed_calls"] for cell in record["functions"]["cells"]) > 100
    assert record["loss"]["functions_broken"]["count"] == 0


@pytest.mark.all
@pytest.mark.parametrize("kind", ["fentry", "kprobe"])
@pytest.mark.parametrize("placement", ["split", "same"])
def test_deferred_copies_belong_to_the_sender_whoever_ran_them(placement: str, kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    # A message is larger than the window. The rest is sent when the receiver has read and acknowledges: on
    # the receiver's time, because its acknowledgement reaches the sender's socket, which sends the next
    # packets.
    record = record_of(
        *("--impl", "zero_copy", "--messages", str(MESSAGES), "--size", str(SIZE), "--rcvbuf", "16K"),
        *("--instruments", "sampler,functions", "--placement", placement, "--attach", kind),
        check=None,
    )
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert {"functions_deferred", "functions_completions"} <= names
    functions = record["functions"]
    assert {row["how"] for row in record["hooks"] if row["id"].startswith("zerocopy_") and row["how"]} == {
        kind
    }
    assert functions["owners"], [row for row in record["hooks"] if row["id"].startswith("zerocopy_")]
    assert {row["owner_side"] for row in functions["owners"]} == {"sender"}
    bytes_by_runner: Counter[str] = Counter()
    for row in functions["owners"]:
        bytes_by_runner[row["current_side"]] += row["bytes"]
    assert bytes_by_runner["receiver"] > 0, bytes_by_runner
    print(
        f"\n{record['machine']['kernel']} {placement} {kind}: copied on the time of {dict(bytes_by_runner)}"
    )
    assert bytes_by_runner.total() == cells(record, "deferred", "bytes")
    assert MESSAGES * SIZE <= bytes_by_runner.total() <= MESSAGES * SIZE + sent_again(record)
    # The same copies by context and by the process that ran them, from the call stacks.
    of_stacks = {
        (cell["side"], cell["context"]): cell["bytes"]
        for cell in functions["cells"]
        if cell["category"] == "deferred"
    }
    of_owners = {(row["current_side"], row["context"]): row["bytes"] for row in functions["owners"]}
    if None in {context for _, context in of_owners}:
        # On 5.10 a BPF program cannot find out in which context it runs.
        of_owners, of_stacks = sum_by_side(of_owners), sum_by_side(of_stacks)
    assert of_owners == of_stacks
    assert functions["completions"] == [{"side": "sender", "copied": MESSAGES, "zerocopied": 0}]
    (latency,) = functions["completion_latency"]
    counted = sum(count for _, _, count in latency["histogram"]["buckets"])
    assert 0 < latency["count"] <= MESSAGES and latency["count"] == counted
    assert latency["before_return"] <= latency["count"]


@pytest.mark.all
def test_hidden_copies_of_native_xdp_are_counted_by_hooks() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    record = record_of(
        *("--impl", "zero_copy", "--messages", str(MESSAGES), "--size", str(SIZE), "--topology", "veth-xdp"),
        *("--instruments", "sampler,functions"),
        check=None,
    )
    assert record["functions"]["owners"] == [] and cells(record, "deferred", "calls") == 0
    assert record["functions"]["completions"] == [{"side": "sender", "copied": 0, "zerocopied": MESSAGES}]
    # Headers are copied with the payload
    assert MESSAGES * SIZE < cells(record, "silent", "bytes") < 1.5 * MESSAGES * SIZE


def test_refused_function_hooks_are_an_error_of_one_line() -> None:
    if why_not() is None:
        pytest.skip("this kernel allows function hooks")
    done = profile("--instruments", "functions", "--impl", "one_copy", "--messages", "23", check=1)
    assert "--instruments" in done.stderr and done.stderr.count("\n") == 1
