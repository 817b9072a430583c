"""The exact tier of the newer ways: rings, pages that are mapped, splice out of a socket, records of kTLS."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from profiling import SLOW, broken_identities, is_root, record_of
from test_functions import MESSAGES, SIZE, cells, sent_again, why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]
HOOKED = ("--instruments", "functions", "--attach", "fentry")


def refused(*options: str) -> str | None:
    """Why the traffic program cannot do this here."""
    argv = [str(paths.TRAFFIC), *options, "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else None


def hooked(*options: str) -> dict[str, Any]:
    if reason := why_not("fentry"):
        pytest.skip(reason)
    record = record_of(*options, *HOOKED, check=None, lossless=True)
    assert record["run"]["errors"] == [] and broken_identities(record) == []
    return record


def while_hooked(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [segment for segment in record["run"]["segments"] if segment["phase"] == "functions"]


def held(record: dict[str, Any]) -> set[str]:
    return {row["name"] for row in record["identities"] if row["holds"]}


@pytest.mark.parametrize("impl", ["uring_send", "uring_zc"])
def test_the_bytes_of_a_request_of_a_ring_are_where_they_were_moved(impl: str) -> None:
    if reason := refused("send", "--impl", impl):
        pytest.skip(reason)
    record = hooked("--impl", impl, "--messages", str(MESSAGES), "--size", str(SIZE))
    expected = MESSAGES * SIZE
    referenced = expected if impl == "uring_zc" else 0
    assert cells(record, "copy_in", "bytes") == expected - referenced
    assert cells(record, "pin", "bytes") == referenced
    assert referenced <= cells(record, "deferred", "bytes") <= referenced + sent_again(record)
    assert cells(record, "copy_out", "bytes") == expected


def test_pages_that_are_mapped_are_counted_where_they_are_inserted() -> None:
    record = hooked(
        *("--impl", "zero_copy", "--receiver", "map", "--size", "64K", "--mtu", "4148", "--sndbuf", "128K"),
        *("--fields", "1", "--duration", "1" if SLOW == 1 else "4"),
    )
    assert {"functions_mapped", "functions_copy_out"} <= held(record)
    mapped = sum(segment["sides"]["receiver"]["mapped"]["bytes"] for segment in while_hooked(record))
    assert 0 < cells(record, "mapped", "bytes") == mapped
    assert mapped > cells(record, "copy_out", "bytes")


def test_what_splice_takes_out_of_a_socket_is_not_copied() -> None:
    record = hooked(
        *("--impl", "one_copy", "--receiver", "splice", "--messages", str(MESSAGES), "--size", str(SIZE))
    )
    assert cells(record, "copy_in", "bytes") == MESSAGES * SIZE and cells(record, "copy_out", "bytes") == 0
    assert "functions_copy_out" in held(record)


@pytest.mark.parametrize(
    ("options", "copied"),
    [
        (("--impl", "one_copy", "--size", "64K"), False),
        (("--impl", "sendfile", "--size", "64K"), False),
        (("--impl", "per_field", "--push", "more", "--size", "8K"), True),
    ],
)
def test_the_plaintext_of_a_record_is_pinned_or_copied_and_every_byte_counted(
    options: tuple[str, ...], copied: bool
) -> None:
    if reason := refused("send", "--tls", "1.3", *options):
        pytest.skip(reason)
    record = hooked("--tls", "--messages", str(MESSAGES), *options)
    assert "functions_plaintext" in held(record)
    assert (cells(record, "copy_in", "bytes") > 0) == copied
    sent = sum(segment["sides"]["sender"]["bytes"] for segment in while_hooked(record))
    pinned = cells(record, "pin", "bytes")
    spliced = sent if "sendfile" in options else 0
    assert cells(record, "copy_in", "bytes") + pinned + spliced == sent


def test_with_the_hooks_the_ledger_knows_what_a_record_copied() -> None:
    if reason := why_not("fentry") or refused("send", "--tls", "1.3", "--impl", "one_copy"):
        pytest.skip(reason)
    record = record_of(
        *("--impl", "per_field", "--push", "more", "--size", "8K", "--tls", "--duration", "4"),
        *("--instruments", "sampler,functions", "--attach", "fentry"),
        check=None,
    )
    (row,) = [row for row in record["ledger"] if row["account"] == "copy_in" and row["bytes"] is not None]
    assert row["bytes"] > 0


HOOKS = {
    "copy_in_record": ("sk_msg_memcopy_from_iter",),
    "pin_record": ("sk_msg_zerocopy_from_iter",),
    "map": ("tcp_zerocopy_receive",),
    "map_pages": ("vm_insert_pages",),
}


def test_a_function_that_this_kernel_does_not_have_is_named_and_said_to_be_absent() -> None:
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
