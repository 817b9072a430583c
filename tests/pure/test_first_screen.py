"""What a verb says first: one screen of any size from 80 by 24 on, in which all shares are of one whole.

COPYSCOPE_GOLDEN=1 writes the golden screens anew; read the difference before it is kept.
"""

import fcntl
import io
import os
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import did, raw_record, write
from builders.simulated import simulated_record
from builders.watched import watched_record
from copyscope import paths
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole
from copyscope.show import first_screen
from copyscope.show.account_words import COPIES, WORK
from copyscope.show.explain import IN_A_LINE
from copyscope.show.ledger_table import kib_factor
from copyscope.taxonomy.taxonomy import ACCOUNTS
from rich.console import Console
from test_render import RECORDS, Record

GOLDEN = Path(__file__).parent / "data" / "first_screen"
MODELLED = simulated_record()["simulated"]
ALL: dict[str, Callable[[], Record]] = {
    **RECORDS,
    "zero_copy_pmu": lambda: derive(raw_record("zero_copy", pmu=True)),
    "two_copy_pmu": lambda: derive(raw_record("two_copy", pmu=True)),
    "modelled": lambda: {**derive(raw_record("one_copy", size_bytes=1024)), "modelled": MODELLED},
    "watched": lambda: derive(watched_record()),
}
# Of these there is a golden screen; that of a receiver that drops is one_copy's.
GOLDEN_80X24 = sorted(set(ALL) - {"trunc"})
LARGER = ("zero_copy_xdp", "zero_copy_pmu", "invalid", "watched")


def screen(record: Record, width: int = 80, height: int = 24, *, explain: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    first_screen.render(typed_whole(record), console, explain=explain)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def fits(record: Record, width: int, height: int, golden: str | None, *, explain: bool = False) -> str:
    """The screen, which leaves a line for the prompt, and is the golden one where there is one."""
    said = screen(record, width, height, explain=explain)
    lines = said.splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    if golden is not None:
        path = GOLDEN / f"{golden}.txt"
        if os.environ.get("COPYSCOPE_GOLDEN"):
            path.write_text(said)
        assert said == path.read_text(), path.name
    return said


@pytest.mark.parametrize("name", ALL)
def test_it_is_one_screen_and_the_golden_one(name: str) -> None:
    """The last that is said is the verdict's."""
    record = ALL[name]()
    verdict = record["verdict"]
    last = verdict["sentence"] if verdict["valid"] else verdict["next"] or verdict["reasons"][0]
    assert max(map(len, screen(record, 60).splitlines())) <= 60
    for width, height, golden in (
        (80, 24, name if name in GOLDEN_80X24 else "one_copy"),
        (100, 30, f"{name}-100x30"),
        (160, 50, f"{name}-160x50"),
    ):
        said = fits(record, width, height, golden if width == 80 or name in LARGER else None)
        assert last.split()[-1] == said.split()[-1]


@pytest.mark.parametrize("name", ALL)
def test_what_each_row_means_is_on_one_screen_too(name: str) -> None:
    record = ALL[name]()
    for width, height in ((80, 24), (100, 30), (160, 50)):
        golden = f"{name}-explained-{width}x{height}" if name in LARGER and width < 160 else None
        fits(record, width, height, golden, explain=True)


def test_every_row_has_its_meaning_in_one_line() -> None:
    assert set(IN_A_LINE) == {*COPIES, *WORK} == {*ACCOUNTS, *WORK}
    assert max(map(len, IN_A_LINE.values())) <= 78


@pytest.mark.parametrize(
    ("state", "low", "high", "said"),
    [
        (
            {"disturbance": None, "sentence": None},
            *(0.96, 0.99, "overhead 3 % (1 to 4); machine quiet; nothing lost"),
        ),
        (
            {"disturbance": None, "sentence": "machine busy: ...", "others_share": 0.84},  # an older record
            *(0.96, 0.99, "overhead 3 % (1 to 4); busy: others took 84 %; nothing lost"),
        ),
        (
            {"disturbance": "busy", "sentence": "machine busy: ...", "others_share": 0.84},
            *(0.7, 1.9, "overhead unclear; busy: others took 84 %; nothing lost"),
        ),
        (
            {"disturbance": "unsteady", "sentence": "unsteady: ...", "spread_share": 0.25},
            *(0.97, 0.98, "overhead 3 % (2 to 3); goodput varied 25 %; nothing lost"),
        ),
    ],
)
def test_trust_is_one_line_on_a_noisy_machine_too(
    state: dict[str, Any], low: float, high: float, said: str
) -> None:
    record = ALL["one_copy"]()
    record["machine_state"] |= {"others_share": None, "steal_share": None, "spread_share": None, **state}
    record["overhead"] |= {"ratio": 0.97, "low": low, "high": high}
    assert f"\nvalid; {said}\nmore: " in screen(record)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_copy_has_a_row(account: str) -> None:
    """Also the cipher of kTLS, which no golden record has."""
    record = derive(raw_record("one_copy"))
    row = next(row for row in record["ledger"] if row["account"] == "copy_in" and row["cpu_ns"])
    record["ledger"] = [{**row, "account": account}]
    first = screen(record).partition("share\n")[2].splitlines()[0]
    assert re.match(r"[a-z][a-z', ]+ sender +172\.6 ", first), first


def test_a_pipe_gets_the_smallest_screen() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    first_screen.render(typed_whole(ALL["one_copy"]()), console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == screen(ALL["one_copy"]())


@pytest.mark.parametrize("name", ["one_copy", "two_copy", "zero_copy", "watched"])
def test_what_it_shows_adds_up_to_all_of_it(name: str) -> None:
    shares = [
        float(found) for found in re.findall(r" ([0-9.]+) % ", screen(ALL[name]()).partition("PATH")[2])
    ]
    *rows, whole = shares[: shares.index(100.0) + 1]
    assert 3 <= len(rows) <= 8 and whole == 100.0
    assert sum(rows) == pytest.approx(100.0, abs=0.05 * len(rows))


def test_all_is_what_the_program_cost_wherever_it_ran() -> None:
    """Nine times its own 600 ms in softirqs that interrupted other tasks: nine tenths of all."""
    record = ALL["watched"]()
    row = next(row for row in record["stages"] if row["stage"] == "tcp_ip")
    record["stages"].append({**row, "side": "other", "context": "softirq", "cpu_ns": 5.4e9})
    lines = screen(record).splitlines()
    (whole,) = [line for line in lines if line.startswith("all ")]
    (tcp,) = [line for line in lines if line.startswith("TCP/IP")]
    assert whole.split()[:4] == ["all", "3,125.0", "100.0", "%"] and tcp.split()[2:4] == ["95.0", "%"]
    assert "of all, 90.0 % was softirq work for its packets, charged to other tasks" in lines


def test_a_copy_without_a_sample_says_below_which_share_it_is() -> None:
    """Its bytes were counted: it happened."""
    record = ALL["one_copy"]()
    for row in record["ledger"]:
        if row["account"] == "copy_in" and row["cpu_ns"]:
            row |= {"cpu_ns": 0.0, "ns_per_kib": 0.0, "share": 0.0, "samples": 0}
            row["ci"] = {"low_ns": 0.0, "high_ns": 2e6, "level": 0.95}
    (line,) = [line for line in screen(record).splitlines() if line.startswith("copy into the kernel")]
    assert re.search(r"sender +<[0-9.]+ +<0\.[1-9] %$", line), line


def test_how_a_watched_program_sends_and_the_bottleneck_stand_below_the_title() -> None:
    record = ALL["watched"]()
    evidence = "on CPU 12 % of the time; connections waited"
    record["verdict"]["limit"] = {"who": "peer", "evidence": evidence, "decisive": "connections waited"}
    assert screen(record).splitlines()[1:3] == [
        "sends: write, 64 KiB, 33,333/s, MSG_ZEROCOPY 0.0 %",
        "bottleneck: peer (connections waited)",
    ]


def test_of_a_proxy_goodput_is_said_to_be_in_and_out() -> None:
    record = ALL["watched"]()
    record["target"]["received_bytes"] = record["target"]["sent_bytes"]
    assert "Gb/s in and out, 5.50 GiB sent, 5.50 GiB received" in screen(record).splitlines()[0]


def test_a_core_is_a_second_of_cpu_time_in_a_second() -> None:
    """10 Gb/s are 1,220,703 KiB a second: at 901.7 ns each 1.10 s of CPU time."""
    (row,) = [line for line in screen(ALL["zero_copy"]()).splitlines() if line.startswith("all ")]
    assert row.split()[:5] == ["all", "901.7", "100.0", "%", "1.10"]


def test_a_terminal_of_24_lines_that_knows_nothing(tmp_path: Path) -> None:
    """Through the command: no escape sequence, and -v is all tables."""
    write(derive(raw_record("zero_copy")), tmp_path / "run.json")
    front: list[str | Path] = [paths.ROOT / "bin" / "copyscope", "show", tmp_path / "run.json"]
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    subprocess.run(front, stdout=theirs, stdin=theirs, env=environment, check=True, timeout=30)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # EIO: nobody writes any more
            break
    os.close(ours)
    assert b"\x1b" not in said
    assert said.decode().replace("\r\n", "\n") == (GOLDEN / "zero_copy.txt").read_text()
    whole = subprocess.run(
        [*front, "-v"], capture_output=True, text=True, env=environment, check=True, timeout=30
    )
    assert whole.stdout == (GOLDEN.parent / "render" / "zero_copy.txt").read_text()


def crafted(impl: str, misses: dict[str, tuple[int, int]], cycles: dict[str, int]) -> Record:
    """A run of which is known by hand what each copy missed.

    `misses`: account -> LLC and L1D samples; one sample is of 1024 events. All else of its side is one stage.
    `cycles`: account -> samples; one is of 100,000, and all else has ten.
    """
    raw = raw_record(impl, pmu=True)
    delivered = did(raw, "receiver", "bytes", "ledger") / 1024
    kinds = {"LLC-load-misses": 1024, "L1-dcache-load-misses": 1024, "cycles": 100_000}
    kept: dict[tuple[str, str, str], Record] = {}
    for row in raw["samples"]:
        wanted = (
            row["category"]
            if row["category"] in misses
            else "tcp_ip"
            if row["category"] == "tcp_ip"
            else None
        )
        if wanted is not None:
            kept.setdefault((row["event"], row["side"], wanted), row)
    raw["samples"] = []
    for (event, _, category), row in kept.items():
        known = misses.get(category, (0, 0))
        count = {"LLC-load-misses": known[0], "L1-dcache-load-misses": known[1]}.get(
            event, cycles.get(category, 10)
        )
        each = kinds[event]
        if count:
            weights = {"samples": count, "weight": count * each, "weight_squared": count * each**2}
            raw["samples"].append({**row, **weights})
    for side in ("sender", "receiver"):
        for event in kinds:
            found = [row["weight"] for row in raw["samples"] if (row["side"], row["event"]) == (side, event)]
            raw["counters"][side][event]["value"] = round(sum(found) * delivered / 1024)
    return derive(raw)


def columns(record: Record, width: int) -> dict[str, dict[str, str]]:
    """The table of a screen: what -> title -> cell, of the columns of events."""
    lines = screen(record, width).splitlines()
    head = next(line for line in lines if line.startswith("what "))
    titles = [one for one in ("cycles", "LLC miss", "L1D miss", "LLC sim", "L1D sim") if one in head]
    table = lines[lines.index(head) + 1 :]
    return {
        line[:20].strip(): {one: line[: head.index(one) + len(one)].rsplit(None, 1)[-1] for one in titles}
        for line in table[: next(at for at, line in enumerate(table) if line.startswith("all ")) + 1]
    }


@pytest.mark.parametrize("width", [80, 140])
def test_cycles_and_misses_of_each_copy_are_those_known_by_hand(width: int) -> None:
    """Samples x 1024 events of delivered x 1 KiB: as many events per KiB as samples."""
    one = columns(
        crafted("one_copy", {"copy_in": (4, 16), "copy_out": (1, 17)}, {"copy_in": 30, "copy_out": 20}), width
    )
    zero = columns(
        crafted("zero_copy", {"deferred": (6, 18), "pin": (0, 1), "copy_out": (2, 16)}, {"deferred": 50}),
        width,
    )
    assert one["copy into the kernel"]["LLC miss"] == "4.00"
    assert one["copy to the receiver"]["LLC miss"] == "1.00"
    assert one["all"]["LLC miss"] == "5.00"
    assert zero["late copy"]["LLC miss"] == "6.00" and zero["all"]["LLC miss"] == "8.00"
    # No sample of six: at most 0.39 of them are its own (Wilson, 3.84 / (6 + 3.84)).
    assert zero["page pinning"]["LLC miss"] == "<2.34"
    # 30 samples of 100,000 cycles, of which one in 1024 is for each KiB.
    assert one["copy into the kernel"]["cycles"] == f"{3e6 / 1024:,.0f}" == "2,930"
    # Where "softirq" stands there is no room for it on 80 columns.
    assert "L1D miss" in one["all"] and ("L1D miss" in zero["all"]) == (width == 140)
    if width == 140:
        assert [one[row]["L1D miss"] for row in ("copy into the kernel", "copy to the receiver", "all")] == [
            *("16.00", "17.00", "33.00")
        ]
        assert zero["page pinning"]["L1D miss"] == "1.00"


def test_a_copy_that_was_timed_has_no_events_and_the_whole_has_them() -> None:
    """Samples cannot say what of the sender's time in user mode is memcpy; the counter's whole is known."""
    record = ALL["two_copy_pmu"]()
    rows = columns(record, 80)
    assert rows["program's own memcpy"]["cycles"] == rows["program's other work"]["cycles"] == "n/a"
    counted = sum(record["counters"][side]["cycles"]["value"] for side in ("sender", "receiver"))
    beside = sum(row["cycles"] for row in record["stages"] if row["side"] == "other")
    per_kib = kib_factor(typed_whole(record)) or 0.0
    assert rows["all"]["cycles"] == f"{(counted + beside) * per_kib:,.0f}"


@pytest.mark.parametrize(
    ("arch", "model", "said"),
    [
        (
            "x86_64",
            "13th Gen Intel(R) Core(TM) i7-13700H",
            "LLC miss: demand loads only, no prefetches; L1D miss: demand loads; before Golden Cove all",
        ),
        ("x86_64", "AMD EPYC 9B14", "LLC miss: demand fills from memory; L1D miss: requests to L2"),
        ("aarch64", "PHASE implementer 0x41 part 0xd40", "LLC miss: reads; L1D miss: refills"),
        ("x86_64", "QEMU Virtual CPU", "LLC miss, L1D miss: as this PMU counts them"),
    ],
)
def test_what_this_pmu_counts_is_said_below(arch: str, model: str, said: str) -> None:
    record = ALL["zero_copy_pmu"]()
    record["machine"] |= {"arch": arch, "cpu_model": model}
    assert said in " ".join(screen(record).split())


def test_an_event_of_some_cpus_only_is_said_to_be_one() -> None:
    record = ALL["zero_copy_pmu"]()
    for event in record["sampler"]["events"]:
        if event["name"] == "L1-dcache-load-misses":
            event |= {"status": "partial", "reason": "only on CPUs 0-11: cpu_atom has no such event"}
    assert "; L1D miss only on CPUs 0-11" in screen(record, 140, 40)


def test_without_a_pmu_one_line_says_what_models_the_misses() -> None:
    line = "cycles, cache misses: no PMU here; modelled: copyscope simulate zero_copy"
    assert line in screen(ALL["zero_copy"]()).splitlines()
    other = screen(derive(raw_record("zero_copy", size_bytes=1 << 20)))
    assert f"{line} --size 1M" in " ".join(other.split())
    assert "cycles, cache misses: no PMU here" in screen(ALL["watched"]()).splitlines()


def test_a_pmu_that_gave_nothing_is_said_with_its_reason() -> None:
    raw = raw_record("one_copy", pmu=True)
    raw["samples"] = [{**row, "event": "cpu-clock"} for row in raw["samples"] if row["event"] == "cycles"]
    for event in raw["sampler"]["events"]:
        dumb = {"status": "unsupported", "reason": "this PMU does not interrupt"}
        event.update({"status": "sampled", "reason": None} if event["name"] == "cpu-clock" else dumb)
    text = " ".join(screen(derive(raw)).split())
    assert "cycles, cache misses n/a: counted for the sender as a whole: this PMU does not interrupt" in text
    assert "no PMU" not in text


def test_what_was_modelled_stands_in_columns_of_its_own() -> None:
    """Load misses of three boots: 17, 16 and 16 lines of 16 in copy_in."""
    record = ALL["modelled"]()
    rows = columns(record, 80)
    assert rows["copy into the kernel"] == {"LLC sim": "0.00", "L1D sim": "16.33"}
    assert rows["all"]["L1D sim"] == "16.33" and rows["copy to the receiver"]["L1D sim"] == "0.00"
    kernel = {**MODELLED["kernel"], "release": "6.12.117+deb13-amd64"}
    named = {**record, "modelled": {**MODELLED, "kernel": kernel}}
    line = "sim: simulated load misses (caches: generic, Linux 6.12.117+deb13-amd64)"
    assert line in screen(named).splitlines()
    assert record["ledger"] == derive(raw_record("one_copy", size_bytes=1024))["ledger"]
