# SPDX-License-Identifier: GPL-2.0-only
"""Advice for invented programs and known servers, with invented and committed crossovers."""

import argparse
import io
import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from builders import sweep as sweeps
from builders.advised import named, without_capture
from builders.documents import advise, derive, typed_whole, validate
from builders.samples import sampled, with_file_reads
from builders.watched import SIZE, watched_record
from copyscope.base import paths
from copyscope.commands import crossover, entry, watch
from copyscope.commands.kept_results import read_crossovers
from copyscope.judge import crossover_file, saving
from copyscope.judge.crossover_file import SavedCrossover
from copyscope.show import first_screen
from copyscope.show.findings import advice_lines
from msgspec import convert, to_builtins
from rich.console import Console

Record = dict[str, Any]

CROSSOVER: Record = {
    "pair": ["one_copy", "zero_copy"],
    "by": "impl",
    "threads": 1,
    "quantity": "sender_cpu_ns_per_kib",
    "where": {},
    "verdict": "crosses",
    "above": "zero_copy",
    "size_bytes": 16_384,
    "low_bytes": 8_192,
    "high_bytes": 32_768,
    "level": 0.95,
    "evidence": "they cross",
    "split_ns_per_kib": [],
    "costs": {},
    "measured": [
        {"size_bytes": 4_096, "ratio": 2.5, "low": 2.0, "high": 3.0, "better": "one_copy"},
        {"size_bytes": SIZE, "ratio": 0.8, "low": 0.75, "high": 0.9, "better": "zero_copy"},
        {"size_bytes": 1 << 20, "ratio": None, "low": None, "high": None, "better": None},
    ],
    "path": "nics:eth0,eth1",
    "file": "results/host/crossover/crossover.json",
    "elsewhere": None,
}
SENDFILE = CROSSOVER | {"pair": ["one_copy", "sendfile"], "verdict": "always", "size_bytes": None}
# Share of the CPU time in send calls of 5 us, in the calls segments.
SENDING = 0.25


def derived(*, local: bool = False, files: bool = True, **options: Any) -> Record:
    """Return a program that reads files. No obstacle decides: no other program captures its packets."""
    raw = without_capture(watched_record(**options))
    if files:
        row = next(row for row in raw["samples"] if row["side"] == "target")
        raw["samples"].append({**row, "symbol": "filemap_read", "category": "file_read", "kind": "account"})
    if local:
        raw["topology"] |= {"kind": "lo", "local_delivery": True}
        raw["topology"]["devices"] = [{"side": "target", "name": "lo", "driver": "loopback", "features": {}}]
        raw["topology"]["peers"] = [{"address": "127.0.0.1", "device": "lo", "local": True}]
    return derive(raw)


def saved_crossovers(*rows: Record) -> list[SavedCrossover]:
    return convert(rows, list[SavedCrossover])


def advised(full: Record, *rows: Record) -> Record:
    advice = advise(full, saved_crossovers(*rows) or None)
    assert validate(full | {"advice": advice}) == []
    return advice


def remedies(full: Record, *rows: Record) -> dict[str, Record]:
    return {remedy["name"]: remedy for remedy in advised(full, *rows)["remedies"]}


def advice_text(full: Record, *rows: Record) -> str:
    return str(advised(full, *rows)["text"])


def test_advice_without_a_crossover_names_the_command_to_run() -> None:
    assert "no crossover was measured on this host: run sudo copyscope crossover (two" in advice_text(
        derived()
    )


def test_crossover_of_another_machine_is_not_used() -> None:
    """Host names and file times identify no machine: names repeat, and git changes file times."""
    other = CROSSOVER | {"elsewhere": "AMD EPYC, Linux 6.18.44"}
    text = advice_text(derived(), other)
    assert (
        "because the crossover of results/host/crossover/crossover.json was measured on AMD EPYC, Linux "
        "6.18.44: run sudo copyscope crossover --out results/host/crossover-6.18.0-test (two minutes)" in text
    )
    assert "would help" not in text and " times" not in text
    assert advise(derived(), saved_crossovers(other))["crossover"] is None
    assert advise(derived(), saved_crossovers(other, CROSSOVER))["crossover"] == CROSSOVER


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "send calls are larger: it would help on that path"),
        (
            {"size_bytes": 1 << 20, "low_bytes": 1 << 19, "high_bytes": 1 << 21},
            "it would cost more than it saves",
        ),
        ({"high_bytes": None}, "8 KiB to beyond the measured sizes"),
        ({"high_bytes": 2 * SIZE}, "send calls have about that size: expect no difference"),
        ({"above": "one_copy"}, "pays off below 16 KiB"),
        ({"verdict": "never", "size_bytes": None}, "was worse at every measured size"),
        ({"verdict": "always", "size_bytes": None}, "paid off at every measured size"),
        (
            {"verdict": "undetermined", "evidence": "undetermined: no difference found"},
            "Cannot tell whether zero-copy would pay off: no difference found (compared with one_copy",
        ),
        ({"path": "veth"}, "measured on this host over veth only"),
    ],
)
def test_advice_quotes_the_crossover(change: Record, words: str) -> None:
    text = advice_text(derived(), CROSSOVER | change)
    assert words in text and CROSSOVER["file"] in text


def with_ratio(ratio: float, low: float | None, high: float | None) -> Record:
    return {"measured": [{"size_bytes": SIZE, "ratio": ratio, "low": low, "high": high, "better": None}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            with_ratio(1.4, 1.2, 1.6),
            "With zero-copy for all its sends it would add 10 % (5 to 15 %) to its CPU time (its "
            "send calls take 25 % of it).",
        ),
        (with_ratio(0.6, 0.2, 0.8), "it would save 10 % (5 to 20 %) of its CPU time"),
        (
            with_ratio(0.9, 0.8, 1.2),
            "it would make no measurable difference to its CPU time (its send calls take 25 % of it): "
            "between 5 % less and 5 % more",
        ),
        (
            with_ratio(1.4, None, None),
            "it would add about 10 % to its CPU time (its send calls take 25 % of it) (one repeat",
        ),
    ],
)
def test_advice_quantifies_the_saving_or_cost(change: Record, words: str) -> None:
    full = derived()
    for sends in (full, derived(receives=4096)):  # receive calls do not count
        assert saving.sending_share(typed_whole(sends)) == pytest.approx(SENDING, rel=0.01)
    assert words in advice_text(full, CROSSOVER | change)


def test_saving_without_timed_calls_refers_to_the_sends() -> None:
    text = advice_text(derived(phases=("unprobed", "ledger")), CROSSOVER)
    assert "it would save 20 % (10 to 25 %) of the CPU time that its sends take." in text


def test_ratio_is_interpolated_between_measured_sizes() -> None:
    """It is linear in the logarithm of the size. Beyond the measured sizes it is that of the nearest."""
    for size_bytes, ratio in {1: 2.5, 4_096: 2.5, SIZE: 0.8, 1 << 30: 0.8}.items():
        assert (
            saving.ratio_at(saved_crossovers(CROSSOVER)[0], size_bytes) or pytest.fail("none")
        ).value == ratio
    between = saving.ratio_at(saved_crossovers(CROSSOVER)[0], 16_384) or pytest.fail("no ratio")
    assert between.value == pytest.approx((2.5 * 0.8) ** 0.5)
    assert between.low is not None and between.high is not None
    assert between.low < (2.0 * 0.75) ** 0.5 < between.value < (3.0 * 0.9) ** 0.5 < between.high
    assert saving.ratio_at(saved_crossovers(CROSSOVER | {"measured": []})[0], SIZE) is None
    assert "for all its sends" not in advice_text(derived(), CROSSOVER | {"measured": []})


def test_only_sends_above_the_crossover_change_weighted_by_cost() -> None:
    """75 sends of 4 KiB at 300 ns/KiB, 25 of 64 KiB at 100: these take 64 % of the time, and 0.8 times with
    zero-copy. Its sends take 25 % of its time, so a fifth of 64 % of 25 % is saved."""
    full = derived()
    small, large = 75, 25
    sent = full["portrait"]["send"]
    sent |= {"sizes": [[4_096, small], [SIZE, large]], "bytes": small * 4_096 + large * SIZE}
    text = advice_text(full, CROSSOVER | {"costs": {4_096: 300.0, SIZE: 100.0}})
    assert (
        "25 % of its sends have 16 KiB or more: with zero-copy for these it would save 3 % (2 to 4 %)" in text
    )
    # With zero-copy in use, the small sends should change back: they cost 2.5 times 300 ns/KiB.
    used = derive(watched_record(zerocopy=True, copied=0))
    used["portrait"]["send"] |= {"sizes": sent["sizes"], "bytes": sent["bytes"]}
    text = advice_text(used, CROSSOVER | {"costs": {4_096: 300.0, SIZE: 100.0}})
    # Small sends take 225,000 of 353,000 ns. Plain sends save 60 % of that, in 25 % of its time.
    assert (
        "75 % of its sends have 16 KiB or less: with plain sends for these it would save 10 % (8 to 11"
        in text
    )


def test_sendfile_has_its_own_crossover() -> None:
    full = derived()
    text = advice_text(full, CROSSOVER, SENDFILE)
    assert (
        "Sendfile paid off at every measured size" in text
        and "With sendfile for all its sends it would save" in text
    )
    assert advise(full, saved_crossovers(CROSSOVER, SENDFILE))["sendfile"] == SENDFILE
    # Samples give the saving of sendfile, so no crossover is needed.
    assert remedies(full, CROSSOVER)["sendfile"]["answer"] == "maybe"
    assert advise(full, saved_crossovers(CROSSOVER))["measure"] is None


def test_advice_shows_the_cost_of_zero_copy_that_is_copied() -> None:
    """Over lo the kernel copies: the advice has the cost, and what turning zero-copy off would save."""
    never = CROSSOVER | {"path": "loopback", "verdict": "never"} | with_ratio(1.25, 1.0 / 0.88, 1.0 / 0.72)
    full = derived(local=True, files=False, zerocopy=True, copied=100)
    text = advice_text(full, never, SENDFILE)
    assert "all are sent with zero-copy already. 100 % of these sends were copied after all (likely " in text
    assert (
        "notifications take 25 % of its CPU time (22 to 29 %): turning zero-copy off here would save" in text
    )
    assert "Zero-copy was worse at every measured size" in text and "it costs more than it saves" in text
    assert "Turning zero-copy off would save 5 % (3 to 7 %) of its CPU time" in text
    assert "the most that can be saved" not in text and "Sendfile" not in text
    assert "gains little" not in text  # the cause is reported instead
    most = advise(full, saved_crossovers(never))["most_to_save"]
    assert most == pytest.approx({"share": 0.25, "low": 0.2179, "high": 0.2862}, abs=0.001)


def test_advice_shows_the_price_of_zero_copy_that_works() -> None:
    raw = watched_record(zerocopy=True, copied=0)
    text = advice_text(derive(raw), CROSSOVER)
    assert "0 % of these sends were copied after all; " in text and "the copies that zero-copy saves" in text
    assert "send calls are larger: it helps on that path" in text
    assert "Turning zero-copy off would add 6 % (3 to 8 %) to its CPU time" in text


def test_program_that_sends_pages_can_save_little() -> None:
    text = advice_text(derived(call="sendfile"), CROSSOVER, SENDFILE)
    assert "all are sent by reference to pages already (sendfile, splice)" in text
    assert (
        "Copying the bytes that are not sent by reference takes less than 1 % of its CPU time, which is"
        in text
    )
    assert "Sendfile paid off at every measured size" in text and "it helps on that path" in text
    assert "Zero-copy" not in text and "ETH_P_ALL" not in text and "memlock" not in text


def test_crossover_is_chosen_by_path_then_by_age() -> None:
    """The rows of the newest file come first."""
    newest = CROSSOVER | {"file": "newest", "path": "veth", "verdict": "never"}
    older = CROSSOVER | {"file": "older", "path": "loopback", "verdict": "never"}
    oldest = older | {"file": "oldest"}
    rows = [newest, older | {"quantity": "goodput_gbps"}, older, oldest]
    near, far = derived(local=True), derived()
    assert advise(near, saved_crossovers(*rows))["crossover"] == older
    assert [
        crossover_file.path_distance(row, typed_whole(near))
        for row in saved_crossovers(older, newest, CROSSOVER)
    ] == [
        0,
        1,
        2,
    ]
    assert advise(far, saved_crossovers(*rows, CROSSOVER))["crossover"] == CROSSOVER


def test_obstacles_to_zero_copy_are_reported() -> None:
    remote = advice_text(derive(watched_record()))
    assert "lldpd[812] has an ETH_P_ALL socket on eth0, so" in remote
    raw = watched_record()
    raw["machine"]["limits"]["memlock_bytes"] = 65_536
    for shape in raw["shapes"]:
        shape |= {"repeated": shape["messages"], "buffers": 64 * shape["messages"]}
    text = advice_text(derive(raw))
    assert "memlock limit of 64 KiB allows only 0 sends of 18 pages" in text
    assert "100 % of its bytes are in messages that begin at the same address as the message before" in text
    assert "its messages consist of 64 buffers of 1 KiB" in text and "a packet has room for 17" in text
    assert "writes are small" not in text
    for row in raw["volume"]:
        row["sizes"] = [[1024, row["calls"]]]
    small = advice_text(derive(raw))
    assert "its writes are small: half of its bytes are sent in calls of 2 KiB or less" in small
    assert "its peers are on this machine (lo)" in advice_text(derived(local=True))


def test_program_that_moves_nothing_gets_no_advice() -> None:
    raw = watched_record()
    raw["volume"] = []
    advice = advise(derive(raw), None)
    assert advice["text"].startswith("It moves nothing") and advice["reasons"] == [advice["text"]]
    assert advice.keys() == advise(derived(), None).keys()
    assert {advice[key] for key in ("most_to_save", "crossover", "sendfile", "measure")} == {None}


def test_program_that_moves_few_bytes_gets_no_advice() -> None:
    raw = watched_record(size=1)
    for row in raw["volume"]:
        row |= {"calls": 1, "bytes": 157, "sizes": [[128, 1]]}
    assert advise(derive(raw), None)["answer"] == "It moved 471 B in 2.7 s: too little to optimise."


def test_call_kinds_are_weighted_by_bytes() -> None:
    """Half of the writes are small and reuse a buffer, but have only 1.5 % of the bytes."""
    raw = watched_record()
    (shape,) = raw["shapes"]
    shape |= {"repeated": 0, "buffers": shape["messages"]}
    raw["shapes"].append({**shape, "syscall": "writev", "repeated": shape["messages"]})
    raw["shapes"][1] |= {"buffers": 2 * shape["messages"]}
    for row in [row for row in raw["volume"] if row["direction"] == "send"]:
        raw["volume"].append({**row, "syscall": "writev", "bytes": row["calls"] << 10, "sizes": []})
    text = advice_text(derive(raw))
    assert "same address as the message before" not in text and "buffers of" not in text
    for row in raw["volume"]:
        row["bytes"] = row["calls"] * (64 if row["syscall"] == "write" else SIZE)
    assert "100 % of its bytes are in messages that begin" in advice_text(derive(raw))


def test_veth_is_an_obstacle_before_linux_6_17_only() -> None:
    """The peers of a container are on other machines: the veth forwards packets, and copies before 6.17."""
    for kernel, copies in (("6.12.107+deb13-amd64", True), ("6.18.0", False), ("7.2.13", False)):
        raw = without_capture(watched_record())
        raw["topology"]["devices"][0]["driver"] = "veth"
        raw["machine"]["kernel"] = kernel
        stoppers = advise(derive(raw), None)["stoppers"]
        assert ("eth0, a veth: before Linux 6.17" in " ".join(stoppers)) == copies
        assert "on this machine" not in " ".join(stoppers)


@pytest.mark.parametrize(("driver", "words"), [("wireguard", "eth0 encrypts"), ("tun", "of eth0, as copies")])
def test_device_that_copies_is_reported(driver: str, words: str) -> None:
    raw = watched_record()
    raw["topology"]["devices"][0]["driver"] = driver
    assert words in advise(derive(raw), None)["text"]


def test_number_of_local_peers_is_reported() -> None:
    raw = watched_record()
    raw["topology"]["peers"] = [{"address": "10.0.0.1", "device": "eth0", "local": True}] * 2
    assert "its peers are on this machine" in advise(derive(raw), None)["text"]
    raw["topology"]["peers"] = [*raw["topology"]["peers"], {"address": "h", "device": "eth0", "local": None}]
    assert "2 of its 3 peers are on this machine" in advise(derive(raw), None)["text"]


def test_zero_copy_that_works_has_no_obstacles() -> None:
    raw = watched_record(zerocopy=True, copied=0)
    raw["topology"]["peers"][0]["local"] = True
    assert advise(derive(raw), None)["stoppers"] == []


def test_missing_offload_and_xdp_are_reported() -> None:
    raw = watched_record(call="sendfile")
    raw["topology"]["devices"][0]["features"]["scatter_gather"] = False
    raw["topology"]["xdp"] = "native"
    assert advise(derive(raw), None)["stoppers"] == [
        "eth0 has no scatter-gather, so the kernel copies packets before they leave: "
        "ethtool -K eth0 sg on tx on",
        "an XDP program (native) is attached to its device, so the kernel copies packets for it",
    ]


def test_advice_mentions_sendfile_to_servers_that_read_files() -> None:
    assert [
        "sendfile avoids both copies" in advice_text(derived(files=files)) for files in (True, False)
    ] == [
        True,
        False,
    ]


NAMES = ("sendfile", "MSG_ZEROCOPY", "larger sends", "fewer user copies", "io_uring")


def test_every_remedy_has_an_answer_and_only_zero_copy_needs_a_crossover() -> None:
    by_name = remedies(derived())
    assert tuple(by_name) == NAMES
    for name, saves in (
        ("MSG_ZEROCOPY", "saves at most"),
        ("sendfile", "`sendfile(2)` saves about"),
    ):
        assert (by_name[name]["answer"], by_name[name]["open"]) == ("maybe", name == "MSG_ZEROCOPY")
        assert by_name[name]["why"].startswith(saves)
        assert by_name[name]["why"].endswith("; measure a crossover") == by_name[name]["open"]
    # sendfile also avoids the copy of the file to the program.
    assert by_name["sendfile"]["saves"]["most_share"] > by_name["MSG_ZEROCOPY"]["saves"]["most_share"] > 0.2
    assert by_name["larger sends"]["answer"] == "no" and "64 KiB or more" in by_name["larger sends"]["why"]
    assert by_name["fewer user copies"]["answer"] == "no"
    advice = advise(derived(), None)
    assert advice["measure"] == "sudo copyscope crossover" and " ".join(advice["reasons"]) == advice["text"]


def relaying(sent_share: float) -> Record:
    """Return a program with a thread that relays this part of the bytes sent in the calls segments."""
    raw = watched_record(receives=SIZE)
    sent = sum(r["bytes"] for r in raw["volume"] if (r["phase"], r["direction"]) == ("calls", "send"))
    moved = round(sent * sent_share)
    raw["relays"] = {"threads": 1, "received_bytes": moved, "sent_bytes": moved}
    return derive(raw)


def test_advice_recommends_splice_to_a_relay() -> None:
    full = relaying(1.0)
    splice = remedies(full)["splice"]
    assert splice["answer"] == "maybe"
    # No sample is in copy_out, so no copy certainly goes. A quarter of the samples is in copy_in.
    assert splice["why"].startswith("`splice(2)` saves about ")
    assert splice["saves"]["least_share"] == 0.0 and splice["saves"]["most_share"] > 0.25
    text = advise(full, None)["text"]
    assert "1 thread received 1.83 GiB and sent 1.83 GiB by calls that copy (in the calls segments)" in text
    assert "splice(2) would save both copies; both copies take 25 % of its CPU time (" in text
    # A program that relays only a part gets a sentence, but no remedy.
    little = relaying(0.3)
    assert "splice" not in remedies(little) and "splice(2)" in advise(little, None)["text"]
    assert "splice" not in remedies(relaying(0.0))


def test_splice_between_sockets_is_not_counted_as_sendfile() -> None:
    full = derived(call="splice between sockets", files=False)
    by_name = remedies(full)
    assert by_name["splice"]["answer"] == "yes"
    assert by_name["splice"]["why"] == "in use: 100 % of its bytes go from socket to socket"
    assert (
        by_name["sendfile"]["why"]
        == by_name["MSG_ZEROCOPY"]["why"]
        == "its bytes are sent by reference already"
    )
    advice = advise(full, None)
    assert "all are sent by reference from socket to socket already (splice)" in advice["text"]
    assert advice["measure"] is None and "sendfile" not in advice["text"]
    memory = remedies(derived(call="splice after vmsplice"))
    assert memory["sendfile"]["why"] == "its bytes are sent by reference already" and "splice" not in memory


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("local", "peers are on this machine: the kernel copies anyway"),
        ("listened", "lldpd[812] listens on eth0: a copy for it"),
        ("small", "half of its bytes are sent in calls of 2 KiB or less"),
        ("cheap", "saves at most 1 %"),
    ],
)
def test_no_crossover_is_needed_if_an_obstacle_decides(kind: str, why: str) -> None:
    full = derived(local=kind == "local", files=False)
    if kind == "listened":
        full = derive(watched_record())
    if kind == "small":
        raw = without_capture(watched_record())
        for row in raw["volume"]:
            row["sizes"] = [[1024, row["calls"]]]
        full = derive(raw)
    if kind == "cheap":
        (row,) = (row for row in full["ledger"] if row["account"] == "copy_in" and row["share"])
        row |= {"share": 0.0, "samples": 0}
    by_name = remedies(full)
    assert by_name["MSG_ZEROCOPY"]["answer"] == "no" and by_name["MSG_ZEROCOPY"]["why"].startswith(why)
    assert by_name["sendfile"]["answer"] == "no" and "no reads of files seen" in by_name["sendfile"]["why"]
    advice = advise(full, None)
    assert advice["measure"] is None and "crossover" not in advice["text"]


def test_sizes_around_the_sends_decide_if_not_every_size_does() -> None:
    """Sends of 64 KiB lie between 64 KiB and 256 KiB, where the same strategy must be better for certain."""
    around = [{"size_bytes": size, "ratio": 0.8, "low": 0.7, "high": 0.9} for size in (4096, SIZE, 4 * SIZE)]
    for better, answer in (
        ((None, "zero_copy", "zero_copy"), "yes"),
        ((None, "one_copy", "one_copy"), "no"),
        (("zero_copy", "zero_copy", None), "maybe"),
        (("zero_copy", None, "zero_copy"), "maybe"),
        (("zero_copy", "zero_copy", "one_copy"), "maybe"),
    ):
        measured = [{**at, "better": name} for at, name in zip(around, better, strict=True)]
        row = CROSSOVER | {"verdict": "undetermined", "measured": measured}
        assert remedies(derived(), row, SENDFILE)["MSG_ZEROCOPY"]["answer"] == answer
    beyond = CROSSOVER | {"verdict": "undetermined", "measured": [{**around[0], "better": "zero_copy"}]}
    assert remedies(derived(), beyond, SENDFILE)["MSG_ZEROCOPY"]["answer"] == "maybe"


def test_crossover_of_this_machine_decides() -> None:
    assert remedies(derived(), CROSSOVER, SENDFILE)["MSG_ZEROCOPY"]["answer"] == "yes"
    never = CROSSOVER | {"verdict": "never", "size_bytes": None}
    by_name = remedies(derived(), never, SENDFILE)
    assert by_name["MSG_ZEROCOPY"]["answer"] == "no" and not by_name["MSG_ZEROCOPY"]["open"]
    # The crossover shows that sendfile pays off, but not that the files are sent unchanged.
    assert by_name["sendfile"]["answer"] == "maybe"
    costs = SENDFILE | {"verdict": "never", "size_bytes": None}
    assert remedies(derived(), CROSSOVER, costs)["sendfile"]["answer"] == "no"
    undecided = CROSSOVER | {"verdict": "undetermined"}
    by_name = remedies(derived(), undecided, SENDFILE)
    assert (by_name["MSG_ZEROCOPY"]["answer"], by_name["MSG_ZEROCOPY"]["open"]) == ("maybe", False)


def test_remedies_in_use_are_judged_by_their_effect() -> None:
    assert "in use" in remedies(derived(call="sendfile"))["sendfile"]["why"]
    copied = remedies(derived(local=True, zerocopy=True, copied=100))["MSG_ZEROCOPY"]
    assert (copied["answer"], copied["why"]) == ("no", "in use, but the kernel copies 100 % of its sends")
    assert remedies(derived(zerocopy=True, copied=0))["MSG_ZEROCOPY"]["open"]


def served(comm: str, file: str = "/opt/server", **changes: Any) -> Record:
    """Return a program with this name and code. It spends a quarter of its time in copies into the kernel,
    and a quarter in reads of files."""
    raw = without_capture(named(watched_record(), comm))
    for row in raw["user_code"]:
        row |= {"file": file, **changes}
    return derive(with_file_reads(raw))


# A fifth of the samples reads files, and a fifth copies into the kernel: the page look-up takes a quarter of
# that. Calls of 64 KiB do not become fewer, but the rest of the time may go with the calls.
BOTH = "saves about 35 % (0 to 78): both copies"


@pytest.mark.parametrize(
    ("comm", "file", "answer", "why"),
    [
        ("nginx", "/usr/sbin/nginx", "maybe", f"`sendfile on;` {BOTH}"),
        ("apache2", "/usr/sbin/apache2", "maybe", f"`EnableSendfile On` {BOTH}"),
        ("httpd", "/usr/bin/httpd", "maybe", f"`EnableSendfile On` {BOTH}"),
        ("python3.11", "/usr/bin/python3.11", "maybe", f"`socket.sendfile()` {BOTH}"),
        ("my-service", "/usr/lib/jvm/lib/server/libjvm.so", "maybe", f"`FileChannel.transferTo()` {BOTH}"),
        ("MainThread", "/opt/node/bin/node", "no", "Node has no such setting"),
        ("postgres", "/usr/lib/postgresql/15/bin/postgres", "no", "PostgreSQL has no such setting"),
        ("haproxy", "/usr/sbin/haproxy", "no", "HAProxy has no such setting"),
        ("redis-server", "/usr/bin/redis-server", "no", "Redis has no such setting"),
        ("fileserver", "/usr/local/bin/fileserver", "maybe", f"`sendfile(2)` {BOTH}"),
        # A name that only begins like that of a server is another program. A distribution installed it.
        (
            "nginx-exporter",
            "/usr/bin/nginx-exporter",
            "no",
            "nginx-exporter has no such setting (in its code:",
        ),
        ("nginx", "/usr/lib/libcrypto.so.3", "maybe", f"`sendfile on;` {BOTH}, except for files that"),
    ],
)
def test_known_server_gets_its_own_setting(comm: str, file: str, answer: str, why: str) -> None:
    sendfile = remedies(served(comm, file))["sendfile"]
    assert (sendfile["answer"], sendfile["why"][: len(why)]) == (answer, why)


def test_saving_of_sendfile_is_limited_to_bytes_read_from_files() -> None:
    """A server that reads few bytes from files saves only their part of the copy."""
    saved = {}
    for part in (1.0, 0.1):
        full = served("apache2")
        rows = {row["account"]: row for row in full["ledger"] if row["side"] == "target" and row["share"]}
        rows["file_read"] |= {"share": 0.03, "bytes": round(rows["copy_in"]["bytes"] * part)}
        rows["copy_in"] |= {"share": 0.2}
        saved[part] = remedies(full)["sendfile"]
    assert saved[1.0]["answer"] == "maybe"
    # Three quarters of the copy of 20 %, of all bytes and of a tenth.
    difference = saved[1.0]["saves"]["most_share"] - saved[0.1]["saves"]["most_share"]
    assert difference == pytest.approx(0.2 * (0.75 - 0.075), abs=0.02)


@pytest.mark.parametrize(
    ("comm", "receives", "answer", "why"),
    [
        ("nginx", 0, "maybe", "`output_buffers 2 256k;` saves about 94 % (13 to 97)"),
        # Each send answers a request. Only a client that batches requests makes it larger.
        ("nginx", 20, "no", "each send answers one request, so it cannot grow"),
        ("redis-server", 20, "maybe", "pipelining in its clients saves about 90 % (6 to 97)"),
        ("redis-server", 0, "no", "Redis has no such setting (in its code: at most "),
    ],
)
def test_larger_sends_are_impossible_if_each_send_answers_a_request(
    comm: str, receives: int, answer: str, why: str
) -> None:
    raw = watched_record(size=1024, receives=receives)
    raw = named(raw, comm)
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    raw["samples"].append({**copy, "symbol": "do_syscall_64", "category": "syscall", "kind": "stage"})
    advice = advised(derive(raw))
    (larger_sends,) = (remedy for remedy in advice["remedies"] if remedy["name"] == "larger sends")
    assert (larger_sends["answer"], larger_sends["why"][: len(why)]) == (answer, why)
    # The entry of system calls has a quarter of the samples. The calls of both directions share this time.
    assert (larger_sends["saves"] is not None) == (larger_sends["why"] != why)


def test_sends_by_reference_get_no_advice_on_larger_sends() -> None:
    """A larger buffer would add the copy that sendfile avoids."""
    raw = watched_record(call="sendfile", size=32_768)
    assert remedies(derive(raw))["larger sends"]["why"] == "its bytes are sent by reference already"


def test_server_is_added_to_a_name_that_does_not_show_it() -> None:
    """The name `mongod` contains `go`, but does not show the language."""
    go = served("mongod", made_with="Go")
    assert advised(go)["answer"].startswith("mongod (Go): `http.ServeContent()` or `io.Copy(conn, file)` may")
    assert advised(served("apache2"))["answer"].startswith("apache2: `EnableSendfile On` may save")


def test_go_program_is_recognised_by_its_code() -> None:
    """The build information shows it, or in older records Go's own memmove()."""
    assert "`io.Copy(conn, file)` saves about " in remedies(served("any", made_with="Go"))["sendfile"]["why"]
    named = served("any")
    (row,) = (row for row in named["samples"] if row["context"] == "user")
    row |= {"category": "gather", "kind": "account", "symbol": "runtime.memmove"}
    assert "`io.Copy(conn, file)` saves about " in remedies(derive(named))["sendfile"]["why"]


def test_answer_is_one_sentence_with_the_setting_of_the_program() -> None:
    nginx = advised(served("nginx", "/usr/sbin/nginx"))
    assert nginx["answer"] == "nginx: `sendfile on;` may save about 35 % (0 to 78) of its CPU time."
    assert nginx["measure"] is None and "crossover" not in nginx["text"]
    java = advised(served("my-service", "/opt/libjvm.so"))["answer"]
    assert java == (
        "my-service (Java): `FileChannel.transferTo()` may save about 35 % (0 to 78) of its CPU time, if "
        "files are sent unchanged."
    )
    on = advised(derived(call="sendfile", files=False))["answer"]
    assert on == "server: sendfile is in use; no other change in this list would save 5 % of its CPU time."


def test_maybe_requires_a_measurable_saving() -> None:
    """A single sample of 60 in the program's own copies means 0.3 to 9 %, which is no finding."""
    for full in (derived(), derived(files=False), derived(call="sendfile"), served("nginx")):
        for remedy in advised(full)["remedies"]:
            if remedy["answer"] == "maybe":
                assert remedy["saves"]["most_share"] >= 0.05, remedy


def with_samples_in_copy(in_copy: int, others: int) -> Record:
    """Return a record of a program with this many samples in the copy into the kernel, and elsewhere."""
    period_ns = 600_000_000 / (in_copy + others)
    raw = sampled({"copy_in": in_copy, "tcp_ip": others}, period_ns, size=SIZE)
    return derive(without_capture(raw))


@pytest.mark.parametrize(
    ("in_copy", "others", "answer", "why"),
    [
        # Wilson's intervals: 38 to 62 % (30 of 60), 2 to 14 % (3 of 60), at most 4 % (2 of 200).
        (30, 30, "maybe", "saves at most 63 %"),
        (3, 57, "n/a", "at most 14 %: too few samples"),
        (2, 198, "no", "saves at most 4 %"),
        (3, 20, "n/a", "too few samples"),
        (100, 285, "maybe", "saves at most 31 %"),
    ],
)
def test_advice_decides_as_soon_as_the_interval_does(
    in_copy: int, others: int, answer: str, why: str
) -> None:
    """A saving is worth a change from 5 % on. 385 samples give any share within 5 points."""
    advice = advised(with_samples_in_copy(in_copy, others))
    (remedy,) = [row for row in advice["remedies"] if row["name"] == "MSG_ZEROCOPY"]
    assert remedy["answer"] == answer and why in remedy["why"], remedy
    assert ("may save" in advice["answer"]) == (answer == "maybe"), advice["answer"]


def test_advice_that_cannot_tell_says_how_long_to_watch() -> None:
    """The run has 60 samples in 2.7 s, so 385 samples need 17.3 s."""
    answer = advised(with_samples_in_copy(3, 57))["answer"]
    words = r"server: 60 samples in 2.7 s: too few to judge .*MSG_ZEROCOPY.*: watch longer \(--duration 20s\)"
    assert re.match(words, answer), answer


@pytest.mark.parametrize(
    ("in_copy", "others", "more_s"),
    # 385 of 60 samples in 2.7 s take 17.3 s, and of 12 samples 87 s: too long to go on without being asked.
    [(3, 57, 20.0), (3, 9, None), (30, 30, None), (100, 285, None)],
)
def test_advise_goes_on_by_itself_only_if_that_gives_an_answer(
    in_copy: int, others: int, more_s: float | None
) -> None:
    run = typed_whole(with_samples_in_copy(in_copy, others))
    options = argparse.Namespace(advise=True, live=False, interval=None)
    assert watch.seconds_to_add(run, options) == more_s
    assert watch.seconds_to_add(run, argparse.Namespace(advise=False, live=False, interval=None)) is None
    # copyscope waits for the end of a command, which then cannot be measured again.
    run.raw.watched.how = "command"
    assert watch.seconds_to_add(run, options) is None


def test_the_screen_explains_each_remedy() -> None:
    """On a terminal of 80x24, the screen shows the effect of each remedy, and the evidence for it."""
    full = served("nginx", "/usr/sbin/nginx")
    full["advice"] = advise(full, None)
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None, force_terminal=True)
    first_screen.render(typed_whole(full), console, explain=True)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 24 and lines[-1].strip()
    for name, words in (("sendfile", "pages of the file itself"), ("io_uring", "each still copies")):
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name} "))
        assert words in lines[at + 1] and "samples in" in lines[at + 1]


def test_screen_has_a_line_per_remedy_and_the_next_command() -> None:
    full = derived()
    full["advice"] = advise(full, None)
    lines = [line.plain for line in advice_lines(typed_whole(full), 80)]
    assert max(map(len, lines)) <= 80
    # Remedies that may help come first.
    starts = sorted(next(at for at, line in enumerate(lines) if line.startswith(name)) for name in NAMES)
    why = lines.index("why:")
    assert starts == list(range(starts[0], starts[0] + len(NAMES))) and starts[-1] < why
    assert all(line.startswith(("- ", "  ")) for line in lines[why + 1 :])
    assert "To find out: sudo copyscope crossover (two minutes), or --crossover with this" in " ".join(
        lines[:why]
    )


@pytest.mark.parametrize(
    "rows", [[], [CROSSOVER | {"elsewhere": "AMD EPYC, Linux 6.18.44"}], [CROSSOVER, SENDFILE]]
)
@pytest.mark.parametrize(
    "options",
    [{}, {"local": True}, {"zerocopy": True, "copied": 100, "local": True}, {"call": "sendfile"}],
)
def test_answer_fits_one_screen_and_counts_the_reasons_without_room(
    rows: list[Record], options: Record
) -> None:
    """The screen leaves one line for the shell's prompt. A taller screen shows all reasons."""
    full = derived(**options)
    advice = full["advice"] = advise(full, saved_crossovers(*rows) or None)
    screens = {}
    for height in (24, 60):
        console = Console(file=io.StringIO(), width=80, height=height, color_system=None, force_terminal=True)
        first_screen.render(typed_whole(full), console)
        assert isinstance(console.file, io.StringIO)
        screens[height] = console.file.getvalue()
    lines = screens[24].splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    for remedy in advice["remedies"]:
        (line,) = (line for line in lines if line.startswith(f"{remedy['name']} "))
        assert line.removeprefix(remedy["name"]).split() == [remedy["answer"], *remedy["why"].split()]
    shown = [line for line in lines if line.startswith("- ")]
    more = re.search(r"^and (\d+) more: -v$", screens[24], re.MULTILINE)
    none = "why: -v" in lines
    assert none or 1 <= len(shown) == len(advice["reasons"]) - (int(more[1]) if more else 0)
    assert screens[60].count("\n- ") == len(advice["reasons"]) and "more: -v\n" not in screens[60]
    verdict = full["verdict"]
    last = verdict["sentence"] if verdict["valid"] else verdict["next"] or verdict["reasons"][0]
    assert lines[-1].split()[-1] == last.split()[-1]


HERE = {"hostname": "vm", "kernel": "6.18", "cpu_model": "Xeon", "cpus_online": 2}


def keep(file: Path, **document: Any) -> None:
    file.parent.mkdir(parents=True)
    rows = document.pop("crossovers", [{**CROSSOVER, "where": {}}])
    crossover_document = {
        "schema": 2,
        "kind": "crossover",
        "experiment": "x",
        "runs": 1,
        "valid_runs": 1,
        "sentence": "",
    }
    crossover_document |= {"started": None, "costs": []}
    file.write_text(
        json.dumps(
            {**crossover_document, "topology": "veth", "machine": HERE, "crossovers": rows, **document}
        )
    )


def test_newest_crossover_comes_first_and_broken_files_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are sorted by the date inside them. A file without a date is the oldest."""
    loopback = [{**CROSSOVER, "where": {"topology": "loopback"}}]
    keep(
        tmp_path / "host" / "new" / "crossover.json", started="2026-02-01T00:00:00+00:00", crossovers=loopback
    )
    keep(tmp_path / "host" / "older" / "crossover.json", started="2026-01-01T00:00:00+00:00")
    keep(tmp_path / "host" / "undated" / "crossover.json")
    keep(tmp_path / "host" / "broken" / "crossover.json")
    (tmp_path / "host" / "broken" / "crossover.json").write_text("{")
    rows = read_crossovers([tmp_path / "host"], HERE)
    assert rows is not None
    assert [Path(row.file).parent.name for row in rows] == ["new", "older", "undated"]
    assert [row.path for row in rows] == ["loopback", "veth", "veth"]
    assert rows[0].file.endswith("host/new/crossover.json")
    assert ".json: left out, not a crossover file" in capsys.readouterr().err  # long names are cut
    assert read_crossovers([tmp_path / "nobody"], HERE) is None


@pytest.mark.parametrize(
    ("machine", "elsewhere"),
    [
        (HERE, None),
        ({"hostname": "vm", "kernel": "6.18", "cpu_model": "Xeon"}, None),  # all that older files have
        (HERE | {"kernel": "6.17", "cpu_model": "AMD EPYC"}, "AMD EPYC, Linux 6.17"),
        (HERE | {"cpus_online": 8}, "cpus_online 8"),
    ],
)
def test_crossover_belongs_to_a_machine_not_to_a_host_name(
    machine: Record, elsewhere: str | None, tmp_path: Path
) -> None:
    keep(tmp_path / "vm" / "some" / "crossover.json", machine=machine)
    rows = read_crossovers([tmp_path / "vm"], HERE)
    assert rows is not None and [row.elsewhere for row in rows] == [elsewhere]


def test_committed_results_give_usable_crossovers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They apply on the machine where they were measured, and not on another."""
    host = tmp_path / "vm"
    runs = sweeps.kept(paths.RESULTS / "vm" / "ways")
    # At 1 MiB, three runs of each strategy do not show which is better.
    clear = [
        run for run in runs if run["workload"]["threads"] == 1 and run["workload"]["size_bytes"] <= 256 << 10
    ]
    sweep = sweeps.store(clear, tmp_path / "of one connection")
    assert crossover.main([str(sweep), "--out", str(host / "ways"), "--json", "-"]) == 0
    machine = json.loads(capsys.readouterr().out)["machine"]
    rows = read_crossovers([host], machine)
    assert rows and all(set(row.costs) >= {at.size_bytes for at in row.measured} for row in rows)
    advice = advice_text(derived(local=True), *to_builtins(rows))
    assert "Zero-copy was worse at every measured size" in advice
    assert "At sizes like those of its send calls it would help on that path: sendfile is better" in advice
    assert "Cannot tell whether zero-copy would pay off" in advice_text(derived(), *to_builtins(rows))
    strange = read_crossovers([host], machine | {"cpu_model": "another"})
    assert strange and f"measured on {machine['cpu_model']}: run" in advice_text(
        derived(), *to_builtins(strange)
    )


@pytest.mark.parametrize("interrupted", [False, True])
def test_crossover_option_measures_and_an_interrupt_keeps_the_advice(
    interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = derived()
    here = full["machine"]
    monkeypatch.setattr(watch, "all_results", lambda _: [tmp_path])
    monkeypatch.setattr(watch, "host_results", lambda *_: tmp_path)

    def measured(argv: list[str]) -> int:
        assert argv == ["--out", str(tmp_path / "crossover")]
        if interrupted:
            return entry.INTERRUPTED
        rows = [{**row, "where": {}} for row in (CROSSOVER, SENDFILE)]
        keep(
            tmp_path / "crossover" / "crossover.json",
            machine=here,
            topology=CROSSOVER["path"],
            crossovers=rows,
        )
        return 0

    monkeypatch.setattr(crossover, "main", measured)
    arguments = argparse.Namespace(advise=True, crossover=True, why=False, measure=False)
    run = typed_whole(full)
    assert watch.add_advice(run, arguments, nullcontext()) is not interrupted
    assert run.derived.advice is not None
    answers = {remedy.name: remedy.answer for remedy in run.derived.advice.remedies or ()}
    assert answers["MSG_ZEROCOPY"] == ("maybe" if interrupted else "yes")
    errors = capsys.readouterr().err
    assert errors.startswith("copyscope: --crossover: measuring (99 short runs); Ctrl-C prints")
    assert ("the same command resumes" in errors) is interrupted
