# SPDX-License-Identifier: GPL-2.0-only
"""Bytes that few samples cannot prove, and counts of 0 that nothing counted, are unknown with a reason."""

import io
from typing import Any

import pytest
from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.show import watch
from rich.console import Console

Record = dict[str, Any]


def account(full: Record, name: str) -> Record:
    return next(row for row in full["ledger"] if row["account"] == name)


def with_samples(raw: Record, category: str, samples: int, symbol: str = "skb_copy_bits") -> Record:
    """Return the record with more samples of an account, in softirq work of the program."""
    added = {"category": category, "symbol": symbol, "kind": "account", "context": "softirq"}
    weights = {"samples": samples, "weight": samples * 1_000_000, "weight_squared": samples * 1e12}
    raw["samples"].append(raw["samples"][0] | added | weights)
    return raw


def thinned(raw: Record, samples: int) -> Record:
    """Return the record with this many samples, all in one row."""
    raw["samples"] = raw["samples"][1:2]
    raw["samples"][0] |= {
        "samples": samples,
        "weight": samples * 20_000_000,
        "weight_squared": samples * 4e14,
    }
    return raw


@pytest.mark.parametrize(("samples", "is_known"), [(1, False), (4, False), (5, True)])
def test_hidden_bytes_need_five_samples_of_hidden_copies(samples: int, is_known: bool) -> None:
    """The bytes are few, so that even one sample would suffice to copy them all."""
    raw = with_samples(watched_record(call="sendfile", size=1024), "silent", samples)
    row = account(derive(raw), "silent")
    assert row["bytes"] == (3 * 10_000 * 1024 if is_known else None)
    assert is_known or "of these copies: too few to derive bytes" in row["reasons"]["bytes"]


@pytest.mark.parametrize(("samples", "hidden_bytes"), [(29, None), (30, 0)])
@pytest.mark.parametrize("call", ["write", "sendfile"])
def test_no_hidden_byte_is_said_of_a_run_with_enough_samples(
    call: str, samples: int, hidden_bytes: int | None
) -> None:
    row = account(derive(thinned(watched_record(call=call), samples)), "silent")
    assert row["bytes"] == hidden_bytes
    assert hidden_bytes == 0 or row["reasons"]["bytes"] == "29 samples of CPU time: too few to derive bytes"


def udp(copied: int) -> Record:
    """Return a program that sends over UDP with MSG_ZEROCOPY, with no device at its socket."""
    raw = watched_record(zerocopy=True, copied=copied, protocol="udp", size=60_000)
    raw["connections"] = []
    raw["topology"] |= {"local_delivery": True}
    return raw


def test_a_late_copy_of_udp_needs_a_sample() -> None:
    full = derive(udp(100))
    row, cause = account(full, "deferred"), full["zerocopy"]["cause"]
    assert row["bytes"] is None and "no sample shows whether" in row["reasons"]["bytes"]
    assert cause["code"] == "unknown" and "no sample shows whether" in cause["sentence"]
    assert "likely" not in full["verdict"]["sentence"]


def test_samples_show_the_place_of_the_copy_of_udp() -> None:
    sent = 3 * 10_000 * 60_000
    late = derive(with_samples(udp(100), "deferred", 5, "skb_copy_ubufs"))
    assert account(late, "deferred")["bytes"] == sent
    in_call = derive(with_samples(udp(100), "copy_in", 5, "_copy_from_iter"))
    assert (account(in_call, "deferred")["bytes"], account(in_call, "copy_in")["bytes"]) == (0, sent)
    assert in_call["zerocopy"]["cause"]["code"] == "at_call"


def test_udp_without_a_copy_has_no_late_byte() -> None:
    assert account(derive(udp(0)), "deferred")["bytes"] == 0


def test_a_program_that_moved_bytes_only_in_other_segments_has_no_row_of_0() -> None:
    raw = watched_record(receives=4096)
    raw["volume"] = [row for row in raw["volume"] if row["phase"] != "ledger"]
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            moved = ("bytes", "bytes_sent", "bytes_received")
            segment["sides"]["target"] |= dict.fromkeys(moved, 0)
    rows = [account(derive(raw), name) for name in ("copy_in", "pin", "copy_out", "deferred")]
    assert [row["bytes"] for row in rows] == [None] * 4
    assert all("only outside of the ledger segments" in row["reasons"]["bytes"] for row in rows)


@pytest.mark.parametrize(("samples", "read_bytes"), [(4, 0), (5, None)])
def test_samples_of_file_reads_contradict_0_bytes_of_read_calls(samples: int, read_bytes: int | None) -> None:
    """sendfile(2) from a file system without splice copies from the page cache, and no read call is made."""
    raw = watched_record(call="sendfile", phases=("ledger+calls",))
    raw["hooks"].append(raw["hooks"][0] | {"id": "file_read", "state": "attached", "reason": None})
    added = with_samples(raw, "file_read", samples, "filemap_read")
    row = account(derive(added), "file_read")
    assert row["bytes"] == read_bytes
    assert read_bytes == 0 or "without a read call" in row["reasons"]["bytes"]


@pytest.mark.parametrize(("calls", "method"), [(29, None), (30, "scaled")])
def test_few_file_reads_are_not_scaled(calls: int, method: str | None) -> None:
    """A program reads its libraries once. The reads of one segment do not stand for the whole run."""
    raw = watched_record(phases=("unprobed", "ledger", "calls"))
    raw["hooks"].append(raw["hooks"][0] | {"id": "file_read", "state": "attached", "reason": None})
    (sent,) = (r for r in raw["volume"] if (r["phase"], r["direction"]) == ("calls", "send"))
    read = {
        "protocol": "file",
        "direction": "file_read",
        "syscall": "read",
        "calls": calls,
        "bytes": 800 * calls,
    }
    raw["volume"].append(sent | read)
    row = account(derive(raw), "file_read")
    assert row["bytes_method"] == method
    assert (
        (row["bytes"] is None) is (method is None) is ("too few; watch with --whole" in str(row["reasons"]))
    )


@pytest.mark.parametrize("calls", [0, 1])
def test_no_sentence_names_an_account_of_0_calls_and_0_bytes(calls: int) -> None:
    """24 of 624 samples are in page pinning, as of a futex. A pinning call would explain them."""
    raw = with_samples(watched_record(), "pin", 24, "get_user_pages_fast")
    raw["samples"][-1]["context"] = "process"
    (sent,) = (r for r in raw["volume"] if (r["phase"], r["direction"]) == ("ledger", "send"))
    raw["volume"].append(sent | {"syscall": "sendfile", "calls": calls, "bytes": 4096 * calls})
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert "the copy into the kernel takes" in full["verdict"]["sentence"]
    assert ("page pinning takes" in full["verdict"]["sentence"]) is bool(calls)


def report(full: Record) -> str:
    """Return the report of -v as one line of text."""
    stream = io.StringIO()
    console = Console(file=stream, width=100, color_system=None)
    watch.render(typed_whole(full), verbose=False, console=console)
    return " ".join(stream.getvalue().split())


# Table of shares -> heading after it.
TABLES = {"COPY LEDGER": "ALL CPU TIME", "ALL CPU TIME": "SYSTEM CALLS", "BY THREAD": "PORTRAIT"}


@pytest.mark.parametrize(("samples", "has_shares"), [(29, False), (30, True)])
def test_tables_of_shares_need_samples_of_the_program(samples: int, has_shares: bool) -> None:
    """Samples of softirq work in the time of other tasks do not replace samples of the program."""
    raw = thinned(watched_record(), samples)
    own = raw["samples"][0]
    raw["samples"].append(own | {"side": "other", "context": "softirq", "samples": 500, "tie": "packet"})
    thread = {"event": "cpu-clock", "samples": samples, "weights": {"tcp_ip": samples}}
    raw["threads"] = [thread | {"thread": name} for name in ("main", "worker")]
    text = report(derive(raw))
    # Each table begins with its name, and the next table follows.
    tables = {name: text.partition(name)[2].partition(end)[0] for name, end in TABLES.items()}
    assert all(("too few for shares" in table) is not has_shares for table in tables.values())
    assert ("main" in tables["BY THREAD"]) is has_shares


def test_tables_say_which_part_of_the_run_they_cover() -> None:
    """Each phase has 3 of the 9 segments of 0.3 s."""
    text = report(derive(watched_record(maps=True)))
    assert "COPY LEDGER ledger segments, 0.90 s of 2.70 s" in text
    assert "ALL CPU TIME ledger segments, 0.90 s of 2.70 s" in text
    assert "SYSTEM CALLS calls segments, 0.90 s of 2.70 s" in text
    assert "buffers, rounds and packets: calls segments, 0.90 s of 2.70 s" in text
    # The first segment, which is not a ledger segment, does not count mapped bytes.
    assert "bytes received by splice(2) or mapping were not counted in 0.30 s of 2.70 s" in text
    assert "5.50 GiB sent, at least 946 MiB received" in text
    assert "at least" not in report(derive(watched_record(receives=4096)))
    whole = report(derive(watched_record(blocks=1, phases=("ledger+calls",))))
    assert "COPY LEDGER the whole run" in whole and "SYSTEM CALLS the whole run" in whole
