"""The exact tier on a kernel that allows function hooks: known bytes through known functions."""

import json
import subprocess
from typing import Any

import pytest
from copyscope import paths
from profiling import is_root, profile, record_of

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]

SIZE = 40_000
MESSAGES = 23


def why_not() -> str | None:
    """Why this kernel takes no function hook; None when it does."""
    argv = [str(paths.COLLECTOR), "--probe", "--functions"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(done.stdout)["hooks"] if row["instrument"] == "functions"]
    roots = [row for row in rows if row["id"] in ("send", "receive")]
    refused = [row for row in roots if row["state"] != "attached"]
    return f"{refused[0]['symbol']}: {refused[0]['reason']}" if refused else None


def cells(record: dict[str, Any], category: str, key: str) -> int:
    return sum(cell[key] for cell in record["functions"]["cells"] if cell["category"] == category)


@pytest.mark.parametrize("impl", ["per_field", "two_copy", "one_copy", "zero_copy"])
def test_every_byte_is_in_the_function_that_moved_it(impl: str) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    record = record_of(
        *("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE)),
        *("--instruments", "sampler,functions"),
        check=None,
    )
    bad = [row for row in record["identities"] if row["holds"] is False]
    assert bad == []
    expected = MESSAGES * SIZE
    referenced = expected if impl == "zero_copy" else 0
    assert cells(record, "copy_in", "bytes") == expected - referenced
    assert cells(record, "pin", "bytes") == referenced
    assert cells(record, "deferred", "bytes") == referenced
    assert cells(record, "copy_out", "bytes") == expected
    # tcp_sendmsg and tcp_sendmsg_locked, each once per call
    calls = MESSAGES * (8 if impl == "per_field" else 1)
    assert cells(record, "send", "calls") == 2 * calls
    names = {row["name"] for row in record["identities"] if row["holds"]}
    assert {"functions_copy_in", "functions_deferred", "functions_copy_out", "functions_sender_self"} <= names


@pytest.mark.parametrize("placement", ["split", "same"])
def test_deferred_copies_name_the_sender_whoever_ran_them(placement: str) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    record = record_of(
        *("--impl", "zero_copy", "--messages", str(MESSAGES), "--size", str(SIZE)),
        *("--instruments", "sampler,functions", "--placement", placement),
        check=None,
    )
    functions = record["functions"]
    assert functions["owners"], [row for row in record["hooks"] if row["id"].startswith("zerocopy_")]
    assert {row["owner_side"] for row in functions["owners"]} == {"sender"}
    owned = sum(row["bytes"] for row in functions["owners"])
    assert owned == cells(record, "deferred", "bytes") == MESSAGES * SIZE
    # the same copies by context and by whose time, from the shadow stacks
    of_shadows = {
        (cell["side"], cell["context"]): cell["bytes"]
        for cell in functions["cells"]
        if cell["category"] == "deferred"
    }
    assert {(row["current_side"], row["context"]): row["bytes"] for row in functions["owners"]} == of_shadows
    assert functions["completions"] == [{"side": "sender", "copied": MESSAGES, "zerocopied": 0}]
    (latency,) = functions["completion_latency"]
    counted = sum(count for _, _, count in latency["histogram"]["buckets"])
    assert 0 < latency["count"] <= MESSAGES and latency["count"] == counted
    assert latency["before_return"] <= latency["count"]
    # whole pages, and enough of them
    assert cells(record, "pin_pages", "bytes") % functions["page_bytes"] == 0
    assert cells(record, "pin_pages", "bytes") >= MESSAGES * SIZE


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
