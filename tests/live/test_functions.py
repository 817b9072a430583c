"""The exact tier on a kernel that allows function hooks: known bytes through known functions."""

import json
import re
import subprocess
from collections import Counter
from functools import cache
from typing import Any

import pytest
from copyscope import paths
from copyscope.ledger.checks.exact import retransmitted_bytes
from copyscope.record.measured import Measured
from msgspec import convert
from profiling import SLOW, broken_identities, in_all, is_root, profile, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

SIZE = 40_000
MESSAGES = 23


@cache
def why_not(kind: str = "any") -> str | None:
    """Why this kernel takes no function hook (of this kind); None when it does."""
    argv = [str(paths.COLLECTOR), "--probe", "--functions", "--attach", kind]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["hooks"] if row["instrument"] == "functions"]
    roots = [row for row in rows if row["id"] in ("send", "receive")]
    refused = [row for row in roots if row["state"] != "attached"]
    return f"{refused[0]['symbol']}: {refused[0]['reason']}" if refused else None


def sent_again(record: dict[str, Any]) -> int:
    return retransmitted_bytes(convert(record, Measured))


def lost(record: dict[str, Any]) -> dict[str, int]:
    """By name; an emulated processor waits for its host in the middle of anything, so of looks, too."""
    counts = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    return {name: count for name, count in counts.items() if SLOW == 1 or name != "functions_look_stopped"}


def cells(record: dict[str, Any], category: str, key: str) -> int:
    return sum(cell[key] for cell in record["functions"]["cells"] if cell["category"] == category)


def sum_by_side(found: dict[tuple[str, str | None], int]) -> dict[tuple[str, str | None], int]:
    sums: Counter[tuple[str, str | None]] = Counter()
    for (side, _), count in found.items():
        sums[side, None] += count
    return dict(sums)


def hooked(record: dict[str, Any]) -> set[str]:
    return {row["how"] for row in record["hooks"] if row["instrument"] == "functions" and row["how"]}


@cache
def call_site(*options: str) -> dict[str, Any]:
    """The hook on the call of the copy routine, if the collector is told to look for it."""
    argv = [str(paths.COLLECTOR), "--probe", "--functions", "--copy-in", "call-site"]
    done = subprocess.run([*options, *argv], capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["hooks"] if row["id"].startswith("copy_in_call")]
    return next((row for row in rows if row["state"] == "attached"), rows[0])


def ways(kind: str) -> set[str]:
    """How functions are hooked if told so: a bracket of kprobes is only for where the call is not found."""
    at_call = kind == "kprobe" and call_site()["state"] == "attached"
    return {kind, "tp_btf", *(["call-site"] if at_call else [])}


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
def test_every_byte_is_in_the_function_that_moved_it(impl: str, kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    options = ("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE))
    record = record_of(*options, "--instruments", "functions", "--attach", kind, check=None, lossless=True)
    assert hooked(record) == ways(kind)
    assert broken_identities(record) == []
    assert lost(record) == {}
    expected = MESSAGES * SIZE
    referenced = expected if impl in ("zero_copy", "sendfile", "relay_splice") else 0
    assert cells(record, "copy_in", "bytes") == expected - referenced
    assert cells(record, "pin", "bytes") == referenced
    late = expected if impl == "zero_copy" else 0
    assert late <= cells(record, "deferred", "bytes") <= late + sent_again(record)
    assert cells(record, "copy_out", "bytes") == expected * (1 + (impl == "relay_copy"))
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert {"functions_copy_in", "functions_copy_out"} <= names
    assert ("functions_deferred" in names) == (impl == "zero_copy")
    assert ("functions_pin" in names) == bool(referenced)
    # Nothing is hooked that these bytes do not pass.
    states = {row["id"]: row["state"] for row in record["hooks"]}
    assert states["copy_in_record"] == states["map"] == "unused"
    assert (states["deferred"] == states["zerocopy_use"] == "attached") == (impl == "zero_copy")


@pytest.mark.all
@pytest.mark.parametrize(
    ("kind", "way", "how"),
    [("any", "call-site", "call-site"), ("kprobe", "bracket", "kprobe")],
)
@pytest.mark.parametrize("impl", ["two_copy", "one_copy"])
def test_the_copy_is_seen_at_its_call_or_between_brackets(impl: str, kind: str, way: str, how: str) -> None:
    reason = why_not(kind) or (call_site()["reason"] if way == "call-site" else None)
    if reason:
        pytest.skip(reason)
    record = record_of(
        *("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE)),
        *("--instruments", "functions", "--attach", kind, "--copy-in", way),
        check=None,
    )
    (row,) = [row for row in record["hooks"] if row["id"].startswith("copy_in") and row["how"]]
    assert row["how"] == how
    assert (re.fullmatch(r"tcp_sendmsg_locked(,?\+0x[0-9a-f]+)+", row["symbol"]) is not None) == (
        way == "call-site"
    )
    assert cells(record, "copy_in", "bytes") == MESSAGES * SIZE
    assert broken_identities(record) == []
    assert lost(record) == {}
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert "functions_copy_in" in names


@pytest.mark.all
def test_without_the_kernels_text_the_copy_is_bracketed_and_says_why() -> None:
    reason = why_not() or (None if call_site()["state"] == "attached" else call_site()["reason"])
    if reason:
        pytest.skip(reason)
    hidden = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /proc/kcore && exec "$@"', "sh")
    row = call_site(*hidden)
    assert row["state"] == "missing" and row["reason"].startswith("/proc/kcore: ")


def test_auto_takes_the_exact_tier_where_it_can_and_says_why() -> None:
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
def test_a_softirq_that_interrupts_a_program_breaks_nothing() -> None:
    if reason := why_not("fentry"):
        pytest.skip(reason)
    record = record_of(
        *("--impl", "per_field", "--size", "16K", "--gate", "1", "--instruments", "sampler,functions"),
        *("--duration", "1" if SLOW == 1 else "4"),
        check=None,
        lossless=True,
    )
    if any(row["count"] for name, row in record["loss"].items() if name.startswith("recursion_")):
        pytest.skip("programs met themselves here: what they missed is not known")
    assert broken_identities(record) == []
    assert sum(cell["timed_calls"] for cell in record["functions"]["cells"]) > 100
    assert record["loss"]["functions_broken"]["count"] == 0


@pytest.mark.all
@pytest.mark.parametrize("kind", ["fentry", "kprobe"])
@pytest.mark.parametrize("placement", ["split", "same"])
def test_deferred_copies_name_the_sender_whoever_ran_them(placement: str, kind: str) -> None:
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    # A message is larger than the window. The rest goes out when the receiver has read and says so: on its
    # time, for its acknowledgement goes all the way to the sender's socket and takes the next packets along.
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
    ran: Counter[str] = Counter()
    for row in functions["owners"]:
        ran[row["current_side"]] += row["bytes"]
    assert ran["receiver"] > 0, ran
    print(f"\n{record['machine']['kernel']} {placement} {kind}: copied on the time of {dict(ran)}")
    assert ran.total() == cells(record, "deferred", "bytes")
    assert MESSAGES * SIZE <= ran.total() <= MESSAGES * SIZE + sent_again(record)
    # the same copies by context and by whose time, from the call stacks
    of_stacks = {
        (cell["side"], cell["context"]): cell["bytes"]
        for cell in functions["cells"]
        if cell["category"] == "deferred"
    }
    of_owners = {(row["current_side"], row["context"]): row["bytes"] for row in functions["owners"]}
    if None in {context for _, context in of_owners}:
        # 5.10 does not tell a program in which context it runs.
        of_owners, of_stacks = sum_by_side(of_owners), sum_by_side(of_stacks)
    assert of_owners == of_stacks
    assert functions["completions"] == [{"side": "sender", "copied": MESSAGES, "zerocopied": 0}]
    (latency,) = functions["completion_latency"]
    counted = sum(count for _, _, count in latency["histogram"]["buckets"])
    assert 0 < latency["count"] <= MESSAGES and latency["count"] == counted
    assert latency["before_return"] <= latency["count"]


@pytest.mark.all
def test_native_xdp_copies_in_silence_and_the_hooks_count_it() -> None:
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
    # headers are copied with the payload
    assert MESSAGES * SIZE < cells(record, "silent", "bytes") < 1.5 * MESSAGES * SIZE


def test_a_kernel_that_refuses_says_why_and_what_to_do() -> None:
    if why_not() is None:
        pytest.skip("this kernel allows function hooks")
    done = profile("--instruments", "functions", "--impl", "one_copy", "--messages", "23", check=1)
    assert "--instruments" in done.stderr and done.stderr.count("\n") == 1
