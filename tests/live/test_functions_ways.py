# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier for io_uring, mapped pages, splice from a socket, and kTLS."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import SLOW, broken_identities, is_root, record_of
from test_functions import MESSAGES, SIZE, cells, sent_again, why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
HOOKED = ("--instruments", "functions", "--attach", "fentry")


def refused(*options: str) -> str | None:
    """Return the traffic program's error for these options, or None if it accepts them."""
    argv = [str(paths.TRAFFIC), *options, "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else None


def run_with_hooks(*options: str) -> dict[str, Any]:
    if reason := why_not("fentry"):
        pytest.skip(reason)
    record = record_of(*options, *HOOKED, check=None, lossless=True)
    assert record["run"]["errors"] == [] and broken_identities(record) == []
    return record


def hooked_segments(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [segment for segment in record["run"]["segments"] if segment["phase"] == "functions"]


def holding_identities(record: dict[str, Any]) -> set[str]:
    return {row["name"] for row in record["identities"] if row["holds"]}


@pytest.mark.parametrize("impl", ["uring_send", "uring_zc"])
def test_bytes_of_an_io_uring_request_are_counted_where_they_were_moved(impl: str) -> None:
    if reason := refused("send", "--impl", impl):
        pytest.skip(reason)
    record = run_with_hooks("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE))
    expected = MESSAGES * SIZE
    referenced = expected if impl == "uring_zc" else 0
    assert cells(record, "copy_in", "bytes") == expected - referenced
    assert cells(record, "pin", "bytes") == referenced
    assert referenced <= cells(record, "deferred", "bytes") <= referenced + sent_again(record)
    assert cells(record, "copy_out", "bytes") == expected


def test_mapped_pages_are_counted_where_they_are_inserted() -> None:
    record = run_with_hooks(
        *("--impl", "zero_copy", "--receiver", "map", "--size", "64K", "--mtu", "4148", "--sndbuf", "128K"),
        *("--fields", "1", "--duration", "1" if SLOW == 1 else "4"),
    )
    assert {"functions_mapped", "functions_copy_out"} <= holding_identities(record)
    mapped = sum(segment["sides"]["receiver"]["mapped"]["bytes"] for segment in hooked_segments(record))
    assert 0 < cells(record, "mapped", "bytes") == mapped
    assert mapped > cells(record, "copy_out", "bytes")


def test_splice_from_a_socket_does_not_copy_out() -> None:
    record = run_with_hooks(
        *("--impl", "one_copy", "--receiver", "splice", "--messages", str(MESSAGES), "--size", str(SIZE))
    )
    assert cells(record, "copy_in", "bytes") == MESSAGES * SIZE and cells(record, "copy_out", "bytes") == 0
    assert "functions_copy_out" in holding_identities(record)


@pytest.mark.parametrize(
    ("options", "copied"),
    [
        (("--impl", "one_copy", "--size", "64K"), False),
        (("--impl", "sendfile", "--size", "64K"), False),
        (("--impl", "per_field", "--push", "more", "--size", "8K"), True),
    ],
)
def test_plaintext_of_kernel_tls_is_pinned_or_copied_and_counted_to_the_byte(
    options: tuple[str, ...], copied: bool
) -> None:
    if reason := refused("send", "--tls", "1.3", *options):
        pytest.skip(reason)
    record = run_with_hooks("--tls", "--messages", str(MESSAGES), *options)
    assert "functions_plaintext" in holding_identities(record)
    assert (cells(record, "copy_in", "bytes") > 0) == copied
    sent = sum(segment["sides"]["sender"]["bytes"] for segment in hooked_segments(record))
    pinned = cells(record, "pin", "bytes")
    spliced = sent if "sendfile" in options else 0
    assert cells(record, "copy_in", "bytes") + pinned + spliced == sent


def test_with_hooks_the_ledger_has_the_bytes_that_kernel_tls_copied() -> None:
    if reason := why_not("fentry") or refused("send", "--tls", "1.3", "--impl", "one_copy"):
        pytest.skip(reason)
    record = record_of(
        *("--impl", "per_field", "--push", "more", "--size", "8K", "--tls", "--duration", "4"),
        *("--instruments", "sampler,functions", "--attach", "fentry"),
        check=None,
    )
    (row,) = [row for row in record["ledger"] if row["account"] == "copy_in" and row["bytes"] is not None]
    assert row["bytes"] > 0


# Hook -> kernel functions, one of which it attaches to.
HOOKS = {
    "copy_in_record": ("sk_msg_memcopy_from_iter",),
    "pin_record": ("sk_msg_zerocopy_from_iter",),
    "map": ("tcp_zerocopy_receive",),
    "map_pages": ("vm_insert_pages",),
}


def test_a_function_that_this_kernel_lacks_is_named_as_absent() -> None:
    argv = [str(paths.COLLECTOR), "--probe", "--functions"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    rows = {row["id"]: row for row in json.loads(done.stdout)["hooks"] if row["instrument"] == "functions"}
    symbols = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    for name, functions in HOOKS.items():
        row = rows[name]
        print(f"{name}: {row['symbol']}: {row['state']}: {row['reason']}")
        if symbols.isdisjoint(functions):
            assert (row["state"], row["reason"]) == ("missing", "inlined or absent in this kernel")
        elif row["state"] == "attached":
            assert row["symbol"] in functions
        else:
            assert row["reason"]
