"""What would help? What is said of invented programs and known servers, by crossovers in results/."""

import argparse
import io
import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from builders import sweep as sweeps
from builders.watched import SIZE, watched_record
from copyscope import paths
from copyscope.commands import crossover, entry, watch
from copyscope.commands.watch import read_crossovers
from copyscope.judge import advice, crossover_file, threshold
from copyscope.judge.crossover_file import Found
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.show import first_screen
from copyscope.show.advice import advice_lines
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
# The clock of the calls segments, in which CALLS calls of 5 us were timed: a quarter of it.
SENDING = 0.25


def derived(*, local: bool = False, files: bool = True, **options: Any) -> Record:
    """Nothing of these decides by itself: it reads files, and nobody listens to its packets."""
    raw = watched_record(**options)
    raw["topology"]["packet_sockets"] = []
    if files:
        row = next(row for row in raw["samples"] if row["side"] == "target")
        raw["samples"].append({**row, "symbol": "filemap_read", "category": "file_read", "kind": "account"})
    if local:
        raw["topology"] |= {"kind": "lo", "local_delivery": True}
        raw["topology"]["devices"] = [{"side": "target", "name": "lo", "driver": "loopback", "features": {}}]
        raw["topology"]["peers"] = [{"address": "127.0.0.1", "device": "lo", "local": True}]
    return derive(raw)


def known(*rows: Record) -> list[Found]:
    return convert(rows, list[Found])


def advised(full: Record, *rows: Record) -> Record:
    made = advice.advise(full, known(*rows) or None)
    assert store.validate(full | {"advice": made}) == []
    return made


def remedies(full: Record, *rows: Record) -> dict[str, Record]:
    return {one["name"]: one for one in advised(full, *rows)["remedies"]}


def said(full: Record, *rows: Record) -> str:
    return str(advised(full, *rows)["text"])


def test_without_a_crossover_one_sentence_says_what_to_run() -> None:
    assert "no crossover was measured on this host: run sudo copyscope crossover (two" in said(derived())


def test_a_crossover_of_another_machine_is_not_believed() -> None:
    """A name such as `vm` has many machines, and git gives every file the time of its checkout."""
    other = CROSSOVER | {"elsewhere": "AMD EPYC, Linux 6.18.44"}
    text = said(derived(), other)
    assert (
        "because the crossover of results/host/crossover/crossover.json was measured on AMD EPYC, Linux "
        "6.18.44: run sudo copyscope crossover --out results/host/crossover-6.18.0-test (two minutes)" in text
    )
    assert "would help" not in text and " times" not in text
    assert advice.advise(derived(), known(other))["crossover"] is None
    assert advice.advise(derived(), known(other, CROSSOVER))["crossover"] == CROSSOVER


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "its calls are larger: it would help on that path"),
        (
            {"size_bytes": 1 << 20, "low_bytes": 1 << 19, "high_bytes": 1 << 21},
            "it would cost more than it saves",
        ),
        ({"high_bytes": None}, "8 KiB to beyond what was measured"),
        ({"high_bytes": 2 * SIZE}, "about where its calls are: no difference to expect"),
        ({"above": "one_copy"}, "pays below 16 KiB"),
        ({"verdict": "never", "size_bytes": None}, "never paid at any size"),
        ({"verdict": "always", "size_bytes": None}, "paid at every size"),
        (
            {"verdict": "undetermined", "evidence": "undetermined: no difference found"},
            "Cannot tell whether zero-copy would pay: no difference found (against one_copy",
        ),
        ({"path": "veth"}, "measured on this host over veth only"),
    ],
)
def test_what_the_crossover_says(change: Record, words: str) -> None:
    text = said(derived(), CROSSOVER | change)
    assert words in text and CROSSOVER["file"] in text


def with_ratio(ratio: float, low: float | None, high: float | None) -> Record:
    return {"measured": [{"size_bytes": SIZE, "ratio": ratio, "low": low, "high": high, "better": None}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            with_ratio(1.4, 1.2, 1.6),
            "With zero-copy for all its sends it would cost 10 % (5 to 15 %) more of its CPU time (by its "
            "send calls alone, 25 % of it).",
        ),
        (with_ratio(0.6, 0.2, 0.8), "it would save 10 % (5 to 20 %) of its CPU time"),
        (
            with_ratio(0.9, 0.8, 1.2),
            "it makes no difference that was found: between 5 % saved and 5 % more of its CPU time",
        ),
        (
            with_ratio(1.4, None, None),
            "it would cost about 10 % of its CPU time (by its send calls alone, 25 % of it) (one repeat",
        ),
    ],
)
def test_what_it_would_save_or_cost(change: Record, words: str) -> None:
    full = derived()
    for sends in (full, derived(receives=4096)):  # its reads are no sends
        assert threshold.sending_share(typed_whole(sends)) == pytest.approx(SENDING, rel=0.01)
    assert words in said(full, CROSSOVER | change)


def test_without_timed_calls_it_is_said_of_the_sends_alone() -> None:
    text = said(derived(phases=("unprobed", "ledger")), CROSSOVER)
    assert "it would save 20 % (10 to 25 %) of the CPU time that its sends take." in text


def test_the_ratio_at_its_size_is_that_of_the_measured_sizes_around_it() -> None:
    """Straight in the logarithm of the size; beyond them it is that of the nearest."""
    for size_bytes, ratio in {1: 2.5, 4_096: 2.5, SIZE: 0.8, 1 << 30: 0.8}.items():
        assert (threshold.ratio_at(known(CROSSOVER)[0], size_bytes) or pytest.fail("none")).value == ratio
    between = threshold.ratio_at(known(CROSSOVER)[0], 16_384) or pytest.fail("no ratio")
    assert between.value == pytest.approx((2.5 * 0.8) ** 0.5)
    assert between.low is not None and between.high is not None
    assert between.low < (2.0 * 0.75) ** 0.5 < between.value < (3.0 * 0.9) ** 0.5 < between.high
    assert threshold.ratio_at(known(CROSSOVER | {"measured": []})[0], SIZE) is None
    assert "for all its sends" not in said(derived(), CROSSOVER | {"measured": []})


def test_only_sends_above_the_crossover_save_and_by_what_they_cost() -> None:
    """75 sends of 4 KiB at 300 ns/KiB, 25 of 64 KiB at 100: these take 64 % of the time, and 0.8 times with
    zero-copy. Its sends take 25 % of its time, so a fifth of 64 % of 25 % is saved."""
    full = derived()
    small, large = 75, 25
    sent = full["portrait"]["send"]
    sent |= {"sizes": [[4_096, small], [SIZE, large]], "bytes": small * 4_096 + large * SIZE}
    text = said(full, CROSSOVER | {"costs": {4_096: 300.0, SIZE: 100.0}})
    assert (
        "25 % of its sends have 16 KiB or more: with zero-copy for these it would save 3 % (2 to 4 %)" in text
    )
    # with zero-copy already, it is the small ones that should go without: 2.5 times 300 ns/KiB
    used = derive(watched_record(zerocopy=True, copied=0))
    used["portrait"]["send"] |= {"sizes": sent["sizes"], "bytes": sent["bytes"]}
    text = said(used, CROSSOVER | {"costs": {4_096: 300.0, SIZE: 100.0}})
    # 225,000 of 353,000 ns are of small ones, of which plain sends save 60 %, of 25 % of its time
    assert (
        "75 % of its sends have 16 KiB or less: with plain sends for these it would save 10 % (8 to 11"
        in text
    )


def test_sendfile_has_its_own_crossover() -> None:
    full = derived()
    text = said(full, CROSSOVER, SENDFILE)
    assert "Sendfile paid at every size" in text and "With sendfile for all its sends it would save" in text
    assert advice.advise(full, known(CROSSOVER, SENDFILE))["sendfile"] == SENDFILE
    # What it saves is in the samples: no crossover is asked for.
    assert remedies(full, CROSSOVER)["sendfile"]["answer"] == "maybe"
    assert advice.advise(full, known(CROSSOVER))["measure"] is None


def test_a_program_that_uses_zero_copy_is_told_what_it_costs() -> None:
    """Over lo: what it pays for the copy after all, and what turning it off would save."""
    never = CROSSOVER | {"path": "loopback", "verdict": "never"} | with_ratio(1.25, 1.0 / 0.88, 1.0 / 0.72)
    full = derived(local=True, files=False, zerocopy=True, copied=100)
    text = said(full, never, SENDFILE)
    assert (
        "all are sent with zero-copy already. 100 % of these sends were copied after all (likely local"
        in text
    )
    assert "notices take 25 % of its CPU time (22 to 29 %): turning zero-copy off here would save" in text
    assert "Zero-copy never paid at any size" in text and "it costs more than it saves" in text
    assert "Turning zero-copy off would save 5 % (3 to 7 %) of its CPU time" in text
    assert "no more than this can be saved" not in text and "Sendfile" not in text
    assert "takes the gain away" not in text  # the cause says it
    most = advice.advise(full, known(never))["most_to_save"]
    assert most == pytest.approx({"share": 0.25, "low": 0.2179, "high": 0.2862}, abs=0.001)


def test_a_program_whose_zero_copy_works_is_told_what_it_pays() -> None:
    raw = watched_record(zerocopy=True, copied=0)
    text = said(derive(raw), CROSSOVER)
    assert "0 % of these sends were copied after all; " in text and "the copies that it saves" in text
    assert "its calls are larger: it helps on that path" in text
    assert "Turning zero-copy off would cost 6 % (3 to 8 %) more of its CPU time" in text


def test_a_program_that_sends_pages_has_little_left_to_save() -> None:
    text = said(derived(call="sendfile"), CROSSOVER, SENDFILE)
    assert "all are sent by reference to pages already (sendfile, splice)" in text
    assert "The copy of the rest takes at most 1 % of its CPU time: no more than this can be saved" in text
    assert "Sendfile paid at every size" in text and "it helps on that path" in text
    assert "Zero-copy" not in text and "ETH_P_ALL" not in text and "memlock" not in text


def test_the_path_counts_first_and_then_the_newest_file() -> None:
    """Rows come newest file first."""
    newest = CROSSOVER | {"file": "newest", "path": "veth", "verdict": "never"}
    older = CROSSOVER | {"file": "older", "path": "loopback", "verdict": "never"}
    oldest = older | {"file": "oldest"}
    rows = [newest, older | {"quantity": "goodput_gbps"}, older, oldest]
    near, far = derived(local=True), derived()
    assert advice.advise(near, known(*rows))["crossover"] == older
    assert [crossover_file.distance(row, typed_whole(near)) for row in known(older, newest, CROSSOVER)] == [
        0,
        1,
        2,
    ]
    assert advice.advise(far, known(*rows, CROSSOVER))["crossover"] == CROSSOVER


def test_what_would_stop_it() -> None:
    remote = said(derive(watched_record()))
    assert "lldpd[812] has an ETH_P_ALL socket on eth0" in remote
    raw = watched_record()
    raw["machine"]["limits"]["memlock_bytes"] = 65_536
    for shape in raw["shapes"]:
        shape |= {"repeated": shape["messages"], "buffers": 64 * shape["messages"]}
    text = said(derive(raw))
    assert "memlock limit of 64 KiB holds 0 sends of 18 pages" in text
    assert "100 % of its bytes are in messages that begin at the address of the message before" in text
    assert "its messages are 64 buffers of 1 KiB" in text and "a packet has 17" in text
    assert "writes are small" not in text
    for row in raw["volume"]:
        row["sizes"] = [[1024, row["calls"]]]
    small = said(derive(raw))
    assert "its writes are small: half of its bytes go out in calls of 2 KiB or less" in small
    assert "its peers are on this machine (lo)" in said(derived(local=True))


def test_a_program_that_sends_nothing_has_nothing_to_save() -> None:
    raw = watched_record(receives=SIZE)
    raw["volume"] = [row for row in raw["volume"] if row["direction"] != "send"]
    made = advice.advise(derive(raw), None)
    assert made["text"].startswith("It sends nothing over TCP") and made["reasons"] == [made["text"]]
    assert made.keys() == advice.advise(derived(), None).keys()
    assert {made[key] for key in ("most_to_save", "crossover", "sendfile", "measure")} == {None}


def test_headers_do_not_speak_for_the_bytes() -> None:
    """As many small writes from one buffer as large ones from many: 1.5 % of the bytes are no reason."""
    raw = watched_record()
    (shape,) = raw["shapes"]
    shape |= {"repeated": 0, "buffers": shape["messages"]}
    raw["shapes"].append({**shape, "syscall": "writev", "repeated": shape["messages"]})
    raw["shapes"][1] |= {"buffers": 2 * shape["messages"]}
    for row in [row for row in raw["volume"] if row["direction"] == "send"]:
        raw["volume"].append({**row, "syscall": "writev", "bytes": row["calls"] << 10, "sizes": []})
    text = said(derive(raw))
    assert "address of the message before" not in text and "buffers of" not in text
    for row in raw["volume"]:
        row["bytes"] = row["calls"] * (64 if row["syscall"] == "write" else SIZE)
    assert "100 % of its bytes are in messages that begin" in said(derive(raw))


def test_what_the_kernel_does_with_a_veth_depends_on_its_version() -> None:
    """A container whose peers are elsewhere: forwarded packets are copied before 6.17 only."""
    for kernel, copies in (("6.12.107+deb13-amd64", True), ("6.18.0", False), ("7.2.13", False)):
        raw = watched_record()
        raw["topology"]["packet_sockets"] = []
        raw["topology"]["devices"][0]["driver"] = "veth"
        raw["machine"]["kernel"] = kernel
        stoppers = advice.advise(derive(raw), None)["stoppers"]
        assert ("eth0, a veth: before 6.17" in " ".join(stoppers)) == copies
        assert "on this machine" not in " ".join(stoppers)


@pytest.mark.parametrize(
    ("driver", "words"), [("wireguard", "eth0 encrypts"), ("tun", "from eth0, as a copy")]
)
def test_a_device_behind_which_nothing_stays_by_reference_is_named(driver: str, words: str) -> None:
    raw = watched_record()
    raw["topology"]["devices"][0]["driver"] = driver
    assert words in advice.advise(derive(raw), None)["text"]


def test_only_those_peers_are_here_that_are() -> None:
    raw = watched_record()
    raw["topology"]["peers"] = [{"address": "10.0.0.1", "device": "eth0", "local": True}] * 2
    assert "its peers are on this machine" in advice.advise(derive(raw), None)["text"]
    raw["topology"]["peers"] = [*raw["topology"]["peers"], {"address": "h", "device": "eth0", "local": None}]
    assert "2 of its 3 peers are on this machine" in advice.advise(derive(raw), None)["text"]


def test_what_was_not_copied_has_nothing_in_its_way() -> None:
    raw = watched_record(zerocopy=True, copied=0)
    raw["topology"]["peers"][0]["local"] = True
    assert advice.advise(derive(raw), None)["stoppers"] == []


def test_a_device_or_xdp_that_copies_is_named() -> None:
    raw = watched_record(call="sendfile")
    raw["topology"]["devices"][0]["features"]["scatter_gather"] = False
    raw["topology"]["xdp"] = "native"
    assert advice.advise(derive(raw), None)["stoppers"] == [
        "eth0 has no scatter-gather: the kernel copies packets before they leave",
        "XDP (native) on its device",
    ]


def test_a_server_that_reads_files_is_told_of_sendfile() -> None:
    assert ["sendfile avoids both copies" in said(derived(files=files)) for files in (True, False)] == [
        True,
        False,
    ]


NAMES = ("sendfile", "MSG_ZEROCOPY", "io_uring", "larger sends", "fewer user copies")


def test_each_remedy_has_an_answer_and_a_crossover_is_asked_for_where_nothing_else_decides() -> None:
    found = remedies(derived())
    assert tuple(found) == NAMES
    for name, saves in (("MSG_ZEROCOPY", "saves up to"), ("sendfile", "`sendfile(2)` saves both copies,")):
        assert (found[name]["answer"], found[name]["open"]) == ("maybe", name == "MSG_ZEROCOPY")
        most = found[name]["most"]
        assert found[name]["why"].startswith(f"{saves} {100 * most['share']:.0f} % (")
        assert found[name]["why"].endswith("); a crossover would tell") == found[name]["open"]
    # sendfile would spare the copy of the file to the program, too
    assert found["sendfile"]["most"]["share"] > found["MSG_ZEROCOPY"]["most"]["share"] > 0.15
    assert found["larger sends"]["answer"] == "no" and "64 KiB or more" in found["larger sends"]["why"]
    assert found["fewer user copies"]["answer"] == "no"
    made = advice.advise(derived(), None)
    assert made["measure"] == "sudo copyscope crossover" and " ".join(made["reasons"]) == made["text"]


def relaying(sent_share: float) -> Record:
    """One thread receives and sends like amounts: this part of what it sends in calls segments."""
    raw = watched_record(receives=SIZE)
    sent = sum(r["bytes"] for r in raw["volume"] if (r["phase"], r["direction"]) == ("calls", "send"))
    moved = round(sent * sent_share)
    raw["relays"] = {"threads": 1, "received_bytes": moved, "sent_bytes": moved}
    return derive(raw)


def test_what_passes_on_what_it_receives_is_told_of_splice() -> None:
    full = relaying(1.0)
    found = remedies(full)["splice"]
    assert found["answer"] == "maybe"
    assert found["why"].startswith("`splice(2)` saves both copies, 25 % (")
    # Nothing of copy_out was sampled: both copies take what copy_in does.
    assert found["most"] == remedies(full)["MSG_ZEROCOPY"]["most"]
    text = advice.advise(full, None)["text"]
    assert "1 thread received 1.83 GiB and sent 1.83 GiB by calls that copy (calls segments)" in text
    assert "splice(2) would save both copies; these take 25 % of its CPU time (" in text
    # Little of what it sends comes from elsewhere: said, and no remedy.
    little = relaying(0.3)
    assert "splice" not in remedies(little) and "splice(2)" in advice.advise(little, None)["text"]
    assert "splice" not in remedies(relaying(0.0))


def test_what_is_spliced_from_socket_to_socket_are_no_pages_of_files() -> None:
    full = derived(call="splice between sockets", files=False)
    found = remedies(full)
    assert found["splice"]["answer"] == "yes"
    assert found["splice"]["why"] == "in use: 100 % of its bytes go from socket to socket"
    assert found["sendfile"]["why"] == found["MSG_ZEROCOPY"]["why"] == "its bytes go by reference already"
    made = advice.advise(full, None)
    assert "all are sent by reference from socket to socket already (splice)" in made["text"]
    assert made["measure"] is None and "sendfile" not in made["text"]
    memory = remedies(derived(call="splice after vmsplice"))
    assert memory["sendfile"]["why"] == "its bytes go by reference already" and "splice" not in memory


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("local", "peers are on this machine, the kernel copies anyway"),
        ("listened", "lldpd[812] listens on eth0: a copy for it"),
        ("small", "half of its bytes go in calls of 2 KiB or less"),
        ("cheap", "saves at most 1 %"),
    ],
)
def test_where_something_decides_already_no_crossover_is_asked_for(kind: str, why: str) -> None:
    full = derived(local=kind == "local", files=False)
    if kind == "listened":
        full = derive(watched_record())
    if kind == "small":
        raw = watched_record()
        raw["topology"]["packet_sockets"] = []
        for row in raw["volume"]:
            row["sizes"] = [[1024, row["calls"]]]
        full = derive(raw)
    if kind == "cheap":
        (row,) = (one for one in full["ledger"] if one["account"] == "copy_in" and one["share"])
        row |= {"share": 0.0, "samples": 0}
    found = remedies(full)
    assert found["MSG_ZEROCOPY"]["answer"] == "no" and found["MSG_ZEROCOPY"]["why"].startswith(why)
    assert found["sendfile"]["answer"] == "no" and "not seen to read files" in found["sendfile"]["why"]
    made = advice.advise(full, None)
    assert made["measure"] is None and "crossover" not in made["text"]


def test_a_crossover_of_this_machine_answers() -> None:
    assert remedies(derived(), CROSSOVER, SENDFILE)["MSG_ZEROCOPY"]["answer"] == "yes"
    never = CROSSOVER | {"verdict": "never", "size_bytes": None}
    found = remedies(derived(), never, SENDFILE)
    assert found["MSG_ZEROCOPY"]["answer"] == "no" and not found["MSG_ZEROCOPY"]["open"]
    # That it pays is known; not that it sends files unchanged.
    assert found["sendfile"]["answer"] == "maybe"
    costs = SENDFILE | {"verdict": "never", "size_bytes": None}
    assert remedies(derived(), CROSSOVER, costs)["sendfile"]["answer"] == "no"
    undecided = CROSSOVER | {"verdict": "undetermined"}
    found = remedies(derived(), undecided, SENDFILE)
    assert (found["MSG_ZEROCOPY"]["answer"], found["MSG_ZEROCOPY"]["open"]) == ("maybe", False)


def test_what_is_in_use_is_judged_by_what_it_comes_to() -> None:
    assert "in use" in remedies(derived(call="sendfile"))["sendfile"]["why"]
    copied = remedies(derived(local=True, zerocopy=True, copied=100))["MSG_ZEROCOPY"]
    assert (copied["answer"], copied["why"]) == ("no", "in use, but 100 % of its sends are copied after all")
    assert remedies(derived(zerocopy=True, copied=0))["MSG_ZEROCOPY"]["open"]


def served(comm: str, file: str = "/usr/sbin/server", **changes: Any) -> Record:
    """The same program under another name, or with other code: a quarter of its time copies to the kernel,
    and as much reads files."""
    raw = watched_record()
    raw["topology"]["packet_sockets"] = []
    raw["target"] |= {"pids": [{"pid": 4711, "comm": comm}], "comm": comm}
    for row in raw["user_code"]:
        row |= {"file": file, **changes}
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    raw["samples"].append({**copy, "symbol": "filemap_read", "category": "file_read", "kind": "account"})
    return derive(raw)


# 150 of 600 samples copy into the kernel, 150 read files: 150 of 750 each, the clock says for how long.
BOTH = "saves both copies, 40 % (37 to 44)"


@pytest.mark.parametrize(
    ("comm", "file", "answer", "why"),
    [
        ("nginx", "/usr/sbin/nginx", "maybe", f"`sendfile on;` {BOTH}"),
        ("apache2", "/usr/sbin/apache2", "maybe", f"`EnableSendfile On` {BOTH}"),
        ("httpd", "/usr/bin/httpd", "maybe", f"`EnableSendfile On` {BOTH}"),
        ("python3.11", "/usr/bin/python3.11", "maybe", f"`socket.sendfile()` {BOTH}"),
        ("my-service", "/usr/lib/jvm/lib/server/libjvm.so", "maybe", f"`FileChannel.transferTo()` {BOTH}"),
        ("MainThread", "/opt/node/bin/node", "no", "Node cannot do this"),
        ("postgres", "/usr/lib/postgresql/15/bin/postgres", "no", "PostgreSQL cannot do this"),
        ("haproxy", "/usr/sbin/haproxy", "no", "HAProxy cannot do this"),
        ("redis-server", "/usr/bin/redis-server", "no", "Redis cannot do this"),
        ("fileserver", "/usr/local/bin/fileserver", "maybe", f"`sendfile(2)` {BOTH}"),
        # What merely begins so is another program.
        ("nginx-exporter", "/usr/bin/nginx-exporter", "maybe", f"`sendfile(2)` {BOTH}"),
        ("nginx", "/usr/lib/libcrypto.so.3", "maybe", f"`sendfile on;` {BOTH}, but not of what"),
    ],
)
def test_a_known_server_is_told_its_own_setting(comm: str, file: str, answer: str, why: str) -> None:
    found = remedies(served(comm, file))["sendfile"]
    assert (found["answer"], found["why"][: len(why)]) == (answer, why)


def test_sendfile_saves_the_copy_of_as_many_bytes_as_are_read_from_files() -> None:
    """A server that reads its log and little else is not told of sendfile; a small share of reads counts."""
    saved = {}
    for part in (1.0, 0.1):
        full = served("apache2")
        rows = {row["account"]: row for row in full["ledger"] if row["side"] == "target" and row["share"]}
        rows["file_read"] |= {"share": 0.03, "bytes": round(rows["copy_in"]["bytes"] * part)}
        rows["copy_in"] |= {"share": 0.2}
        saved[part] = remedies(full)["sendfile"]
    assert saved[1.0]["answer"] == "maybe" and saved[1.0]["most"]["share"] == pytest.approx(0.23)
    assert saved[0.1]["most"]["share"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("comm", "receives", "answer", "why"),
    [
        ("nginx", 0, "maybe", "`output_buffers 2 256k;` saves calls, "),
        # An answer for each request: no buffer makes it larger, a client that asks for several does.
        ("nginx", 20, "no", "it sends no more often than it receives: a message is a call"),
        ("redis-server", 20, "maybe", "pipelining in its clients saves calls, "),
        ("redis-server", 0, "no", "Redis cannot do this"),
    ],
)
def test_larger_sends_need_messages_that_are_larger(comm: str, receives: int, answer: str, why: str) -> None:
    raw = watched_record(size=1024, receives=receives)
    raw["target"] |= {"pids": [{"pid": 4711, "comm": comm}], "comm": comm}
    (copy,) = (row for row in raw["samples"] if row["category"] == "copy_in")
    raw["samples"].append({**copy, "symbol": "do_syscall_64", "category": "syscall", "kind": "stage"})
    made = advised(derive(raw))
    (found,) = (one for one in made["remedies"] if one["name"] == "larger sends")
    assert (found["answer"], found["why"][: len(why)]) == (answer, why)
    assert ("system calls: 17 to 23 %" in made["answer"]) == (answer == "maybe")


def test_what_goes_by_reference_has_no_larger_sends() -> None:
    """A buffer would copy what sendfile does not."""
    raw = watched_record(call="sendfile", size=32_768)
    assert remedies(derive(raw))["larger sends"]["why"] == "its bytes go by reference already"


def test_a_name_says_what_it_is_only_where_it_is_that_name() -> None:
    """`mongod` has `go` in it, and may be in C++."""
    go = served("mongod", made_with="Go")
    assert advised(go)["answer"].startswith("mongod (Go): `http.ServeContent()` or `io.Copy(conn, file)` may")
    assert advised(served("apache2"))["answer"].startswith("apache2: `EnableSendfile On` may save")


def test_a_program_in_go_is_known_by_its_code() -> None:
    """Its file says so; in older records its memmove(), which copied."""
    assert "`io.Copy(conn, file)` saves both" in remedies(served("any", made_with="Go"))["sendfile"]["why"]
    named = served("any")
    (row,) = (one for one in named["samples"] if one["context"] == "user")
    row |= {"category": "gather", "kind": "account", "symbol": "runtime.memmove"}
    assert "`io.Copy(conn, file)` saves both" in remedies(derive(named))["sendfile"]["why"]


def test_the_answer_is_one_sentence_in_the_words_of_the_program() -> None:
    nginx = advised(served("nginx", "/usr/sbin/nginx"))
    assert nginx["answer"] == "nginx: `sendfile on;` may save both copies: 37 to 44 % of its CPU time."
    assert nginx["measure"] is None and "crossover" not in nginx["text"]
    java = advised(served("my-service", "/opt/libjvm.so"))["answer"]
    assert java == (
        "my-service (Java): `FileChannel.transferTo()` may save both copies: 37 to 44 % of its CPU time, if "
        "files are sent unchanged."
    )
    on = advised(derived(call="sendfile", files=False))["answer"]
    assert on == "server: sendfile is in use; no other change in this list would save 5 % of its CPU time."


def test_what_has_no_sign_is_no_and_never_maybe_nothing() -> None:
    """One sample of 60 in copies of its own: 0.3 to 9 %, which is no finding."""
    for full in (derived(), derived(files=False), derived(call="sendfile"), served("nginx")):
        for one in advised(full)["remedies"]:
            if one["answer"] == "maybe":
                assert one["most"]["low"] >= 0.005 and one["most"]["share"] >= 0.05, one


def test_an_interval_of_five_points_has_enough_samples() -> None:
    """385: 1.96 * sqrt(0.25 / 385) is 0.05. Of fewer the answer is for how long to watch."""
    answers = {}
    for samples in (384, 385):
        raw = watched_record()
        rows = [row for row in raw["samples"] if row["side"] == "target"]
        for row, count in zip(rows, (100, 200, samples - 300), strict=True):
            weight = 600_000_000 // samples
            row |= {"samples": count, "weight": count * weight, "weight_squared": float(count * weight**2)}
        answers[samples] = advised(derive(raw))["answer"]
    longer = "384 samples in 2.7 s: too few for shares to ±5 points: watch longer (--duration 5s)"
    assert longer in answers[384]
    assert "too few" not in answers[385]


def test_the_screen_explains_each_remedy() -> None:
    """On 80x24 as well: what it is, and by what it was judged."""
    full = served("nginx", "/usr/sbin/nginx")
    full["advice"] = advice.advise(full, None)
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None, force_terminal=True)
    first_screen.render(typed_whole(full), console, explain=True)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 24 and lines[-1].strip()
    for name, words in (("sendfile", "pages of the file itself"), ("io_uring", "each still copies")):
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name} "))
        assert words in lines[at + 1] and "samples in" in lines[at + 1]


def test_the_screen_has_a_line_for_each_remedy_and_the_next_command() -> None:
    full = derived()
    full["advice"] = advice.advise(full, None)
    lines = [line.plain for line in advice_lines(typed_whole(full), 80)]
    assert max(map(len, lines)) <= 80
    starts = [next(at for at, line in enumerate(lines) if line.startswith(name)) for name in NAMES]
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
def test_an_answer_fits_one_screen_and_says_how_many_reasons_it_has_no_room_for(
    rows: list[Record], options: Record
) -> None:
    """A line is left for the prompt; with room for them all reasons are there."""
    full = derived(**options)
    made = full["advice"] = advice.advise(full, known(*rows) or None)
    screens = {}
    for height in (24, 60):
        console = Console(file=io.StringIO(), width=80, height=height, color_system=None, force_terminal=True)
        first_screen.render(typed_whole(full), console)
        assert isinstance(console.file, io.StringIO)
        screens[height] = console.file.getvalue()
    lines = screens[24].splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    for one in made["remedies"]:
        (line,) = (line for line in lines if line.startswith(f"{one['name']} "))
        assert line.removeprefix(one["name"]).split() == [one["answer"], *one["why"].split()]
    shown = [line for line in lines if line.startswith("- ")]
    more = re.search(r"^and (\d+) more: -v$", screens[24], re.MULTILINE)
    none = "why: -v" in lines
    assert none or 1 <= len(shown) == len(made["reasons"]) - (int(more[1]) if more else 0)
    assert screens[60].count("\n- ") == len(made["reasons"]) and "more: -v\n" not in screens[60]
    verdict = full["verdict"]
    last = verdict["sentence"] if verdict["valid"] else verdict["next"] or verdict["reasons"][0]
    assert lines[-1].split()[-1] == last.split()[-1]


HERE = {"hostname": "vm", "kernel": "6.18", "cpu_model": "Xeon", "cpus_online": 2}


def keep(file: Path, **document: Any) -> None:
    file.parent.mkdir(parents=True)
    rows = document.pop("crossovers", [{**CROSSOVER, "where": {}}])
    made = {"schema": 2, "kind": "crossover", "experiment": "x", "runs": 1, "valid_runs": 1, "sentence": ""}
    made |= {"started": None, "costs": []}
    file.write_text(json.dumps({**made, "topology": "veth", "machine": HERE, "crossovers": rows, **document}))


def test_the_newest_comes_first_and_a_broken_one_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the date in the file, whatever order they were written in; one without a date is the oldest."""
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
def test_the_name_of_a_host_is_not_the_machine(
    machine: Record, elsewhere: str | None, tmp_path: Path
) -> None:
    keep(tmp_path / "vm" / "some" / "crossover.json", machine=machine)
    rows = read_crossovers([tmp_path / "vm"], HERE)
    assert rows is not None and [row.elsewhere for row in rows] == [elsewhere]


def test_the_crossovers_of_this_tree_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the machine that they were measured on; on another one they say nothing."""
    host = tmp_path / "vm"
    runs = sweeps.kept(paths.RESULTS / "vm" / "mt25082")
    sweep = sweeps.store(
        [run for run in runs if run["workload"]["threads"] == 1], tmp_path / "of one connection"
    )
    assert crossover.main([str(sweep), "--out", str(host / "mt25082"), "--json", "-"]) == 0
    machine = json.loads(capsys.readouterr().out)["machine"]
    rows = read_crossovers([host], machine)
    assert rows and all(set(row.costs) >= {at.size_bytes for at in row.measured} for row in rows)
    assert "Zero-copy never paid" in said(derived(local=True), *to_builtins(rows))
    assert "Cannot tell whether zero-copy would pay" in said(derived(), *to_builtins(rows))
    strange = read_crossovers([host], machine | {"cpu_model": "another"})
    assert strange and f"measured on {machine['cpu_model']}: run" in said(derived(), *to_builtins(strange))


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_only_a_crossover_tells_is_measured_and_an_end_of_it_loses_nothing(
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
    arguments = argparse.Namespace(advise=True, crossover=True, why=False)
    assert watch.add_advice(full, arguments, nullcontext()) is not interrupted
    answers = {one["name"]: one["answer"] for one in full["advice"]["remedies"]}
    assert answers["MSG_ZEROCOPY"] == ("maybe" if interrupted else "yes")
    said = capsys.readouterr().err
    assert said.startswith("copyscope: --crossover: measuring (99 short runs); Ctrl-C prints")
    assert ("the same command resumes" in said) is interrupted
