# SPDX-License-Identifier: GPL-2.0-only
"""The first screen of a run: it fits every terminal from 80x24 on, and its shares add up to 100 %.

COPYSCOPE_GOLDEN=1 records the golden screens anew; read the difference before you commit it.
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
from builders import phase_total, raw_record, write
from builders.documents import derive, typed_whole
from builders.simulated import simulated_record
from builders.watched import watched_record
from copyscope.base import paths
from copyscope.show import first_screen
from copyscope.show.explain import SHORT_MEANING
from copyscope.show.ledger_rows import kib_factor
from copyscope.taxonomy.accounts import ACCOUNTS, STAGES
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
# Runs with a golden screen. A receiver that discards has the screen of one_copy.
GOLDEN_80X24 = sorted(set(ALL) - {"trunc"})
LARGER = ("zero_copy_xdp", "zero_copy_pmu", "invalid", "watched")


def screen(record: Record, width: int = 80, height: int = 24, *, explain: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    first_screen.render(typed_whole(record), console, explain=explain)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def fits(record: Record, width: int, height: int, golden: str | None, *, explain: bool = False) -> str:
    """Check that a screen leaves a line for the prompt, and equals its golden screen, if that exists."""
    text = screen(record, width, height, explain=explain)
    lines = text.splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    if golden is not None:
        path = GOLDEN / f"{golden}.txt"
        if os.environ.get("COPYSCOPE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text(), f"{path.name}: differs: `make golden` writes it anew"
    return text


@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_run_fits_one_screen_and_equals_its_golden_screen(name: str) -> None:
    """The verdict comes last."""
    record = ALL[name]()
    verdict = record["verdict"]
    last = verdict["sentence"] if verdict["valid"] else verdict["next"] or verdict["reasons"][0]
    assert max(map(len, screen(record, 60).splitlines())) <= 60
    for width, height, golden in (
        (80, 24, name if name in GOLDEN_80X24 else "one_copy"),
        (100, 30, f"{name}-100x30"),
        (160, 50, f"{name}-160x50"),
    ):
        text = fits(record, width, height, golden if width == 80 or name in LARGER else None)
        assert last.split()[-1] == text.split()[-1]


@pytest.mark.parametrize("name", ALL)
def test_the_explained_screen_fits_and_equals_its_golden_screen(name: str) -> None:
    record = ALL[name]()
    for width, height in ((80, 24), (100, 30), (160, 50)):
        golden = f"{name}-explained-{width}x{height}" if name in LARGER and width < 160 else None
        fits(record, width, height, golden, explain=True)


def test_every_account_and_stage_has_a_short_meaning() -> None:
    assert set(SHORT_MEANING) == {*ACCOUNTS, *STAGES}
    assert max(map(len, SHORT_MEANING.values())) <= 78


BUSY = {"sentence": "machine busy: others used 84 %: repeat when idle", "others_share": 0.84}
UNSTEADY = {"disturbance": "unsteady", "sentence": "unsteady: varied: repeat", "spread_share": 0.25}
ON_BUSY = " on a busy machine (other programs used 84 % of the CPUs)"


@pytest.mark.parametrize(
    ("state", "low", "high", "title", "note"),
    [
        (
            {"disturbance": None, "sentence": None},
            *(0.96, 0.99, "", "; machine quiet; nothing lost"),
        ),
        # Older records lack the kind of the disturbance.
        (
            {"disturbance": None, **BUSY},
            *(
                0.96,
                0.99,
                ON_BUSY,
                "; repeat when idle; nothing lost",
            ),
        ),
        (
            {"disturbance": "busy", **BUSY},
            *(0.7, 1.9, ON_BUSY, "; repeat when idle; nothing lost"),
        ),
        (
            UNSTEADY,
            0.97,
            0.98,
            " unsteady (goodput varied 25 %)",
            "; repeat; nothing lost",
        ),
    ],
)
def test_noise_is_in_the_title(state: dict[str, Any], low: float, high: float, title: str, note: str) -> None:
    """The line on trust does not repeat the disturbance, but says what to do."""
    record = ALL["one_copy"]()
    record["machine_state"] |= {"others_share": None, "steal_share": None, "spread_share": None, **state}
    record["overhead"] |= {"ratio": 0.97, "low": low, "high": high}
    shown = screen(record).replace("\n  ", " ")
    assert shown.startswith(f"one_copy, 64 KiB, 1 thread, veth: 17.5 Gb/s{title}, 3.60 s measured\n"), shown
    assert f"{note}\nmore: " in shown and shown.count("% of the CPUs") <= 1


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_copy_has_a_row(account: str) -> None:
    """The cipher of kTLS has a row, too, though no golden record has it."""
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
def test_rows_add_up_to_all_cpu_time(name: str) -> None:
    shares = [
        float(share) for share in re.findall(r" ([0-9.]+) % ", screen(ALL[name]()).partition("PATH")[2])
    ]
    *rows, total = shares[: shares.index(100.0) + 1]
    assert 3 <= len(rows) <= 8 and total == 100.0
    assert sum(rows) == pytest.approx(100.0, abs=0.05 * len(rows))


def test_all_cpu_time_includes_softirqs_charged_to_other_tasks() -> None:
    """5.4 s of softirqs that interrupted other tasks are nine tenths of all, beside 600 ms of its own."""
    record = ALL["watched"]()
    row = next(row for row in record["stages"] if row["stage"] == "tcp_ip")
    record["stages"].append({**row, "side": "other", "context": "softirq", "cpu_ns": 5.4e9})
    lines = screen(record).splitlines()
    (total,) = [line for line in lines if line.startswith("all ")]
    (tcp,) = [line for line in lines if line.startswith("TCP/IP")]
    assert total.split()[:4] == ["all", "3,125.0", "0.0", "100.0"] and tcp.split()[2:4] == ["95.0", "%"]
    assert "90.0 % of all CPU time: softirq work for its packets, charged to other tasks" in lines


def test_a_copy_without_a_sample_has_an_upper_bound() -> None:
    """The copy happened, because its bytes were counted."""
    record = ALL["one_copy"]()
    for row in record["ledger"]:
        if row["account"] == "copy_in" and row["cpu_ns"]:
            row |= {"cpu_ns": 0.0, "ns_per_kib": 0.0, "share": 0.0, "samples": 0}
            row["ci"] = {"low_ns": 0.0, "high_ns": 2e6, "level": 0.95}
    (line,) = [line for line in screen(record).splitlines() if line.startswith("copy into the kernel")]
    assert re.search(r"sender +<[0-9.]+ +<0\.[1-9] %$", line), line


def test_send_call_and_bottleneck_of_a_watched_program_follow_the_title() -> None:
    record = ALL["watched"]()
    evidence = "on CPU 12 % of the time; connections waited"
    record["verdict"]["limit"] = {"who": "peer", "evidence": evidence, "decisive": "connections waited"}
    assert screen(record).splitlines()[1:3] == [
        "sends: write, 64 KiB, 33,333/s, MSG_ZEROCOPY 0.0 %",
        "bottleneck: peer (connections waited)",
    ]


def test_goodput_of_a_proxy_is_in_and_out() -> None:
    record = ALL["watched"]()
    record["target"]["received_bytes"] = record["target"]["sent_bytes"]
    assert "Gb/s in and out, 5.50 GiB sent, 5.50 GiB received" in screen(record).splitlines()[0]


def test_cores_at_10_gbps() -> None:
    """10 Gb/s are 1,220,703 KiB a second: at 901.7 ns each 1.10 s of CPU time."""
    (row,) = [line for line in screen(ALL["zero_copy"]()).splitlines() if line.startswith("all ")]
    assert row.split()[:5] == ["all", "901.7", "23", "100.0", "%"] and row.split()[5] == "1.10"


def test_a_terminal_without_a_size_gets_80_by_24(tmp_path: Path) -> None:
    """`copyscope show` prints no escape sequence, and all tables with -v."""
    write(derive(raw_record("zero_copy")), tmp_path / "run.json")
    front: list[str | Path] = [paths.ROOT / "bin" / "copyscope", "show", tmp_path / "run.json"]
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    subprocess.run(front, stdout=theirs, stdin=theirs, env=environment, check=True, timeout=30)
    os.close(theirs)
    printed = b""
    while True:
        try:
            printed += os.read(ours, 65536)
        except OSError:  # EIO: the other end of the terminal is closed
            break
    os.close(ours)
    assert b"\x1b" not in printed
    assert printed.decode().replace("\r\n", "\n") == (GOLDEN / "zero_copy.txt").read_text()
    piped = subprocess.run(
        [*front, "-v"], capture_output=True, text=True, env=environment, check=True, timeout=30
    )
    assert piped.stdout == (GOLDEN.parent / "render" / "zero_copy.txt").read_text()


def crafted(impl: str, misses: dict[str, tuple[int, int]], cycles: dict[str, int]) -> Record:
    """Return a run with known cache misses of each copy.

    `misses`: account -> LLC and L1D samples of 1024 events each. The rest of a side is one stage.
    `cycles`: account -> samples of 100,000 cycles each. Other rows have ten samples.
    """
    raw = raw_record(impl, pmu=True)
    delivered = phase_total(raw, "receiver", "bytes", "ledger") / 1024
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
        samples_of = misses.get(category, (0, 0))
        count = {"LLC-load-misses": samples_of[0], "L1-dcache-load-misses": samples_of[1]}.get(
            event, cycles.get(category, 10)
        )
        each = kinds[event]
        if count:
            weights = {"samples": count, "weight": count * each, "weight_squared": count * each**2}
            raw["samples"].append({**row, **weights})
    for side in ("sender", "receiver"):
        for event in kinds:
            event_weights = [
                row["weight"] for row in raw["samples"] if (row["side"], row["event"]) == (side, event)
            ]
            raw["counters"][side][event]["value"] = round(sum(event_weights) * delivered / 1024)
    return derive(raw)


def columns(record: Record, width: int) -> dict[str, dict[str, str]]:
    """Return the cells of hardware events on a screen: row -> title -> cell."""
    lines = screen(record, width).splitlines()
    head = next(line for line in lines if line.startswith("what "))
    titles = [title for title in ("cycles", "LLC miss", "L1D miss", "LLC sim", "L1D sim") if title in head]
    table = lines[lines.index(head) + 1 :]
    return {
        line[:20].strip(): {
            title: line[: head.index(title) + len(title)].rsplit(None, 1)[-1] for title in titles
        }
        for line in table[: next(at for at, line in enumerate(table) if line.startswith("all ")) + 1]
    }


@pytest.mark.parametrize("width", [80, 140])
def test_cycles_and_misses_of_each_copy_are_the_known_counts(width: int) -> None:
    """Samples x 1024 events of delivered x 1 KiB: as many events per KiB as samples."""
    of_one_copy = columns(
        crafted("one_copy", {"copy_in": (4, 16), "copy_out": (1, 17)}, {"copy_in": 30, "copy_out": 20}), width
    )
    of_zero_copy = columns(
        crafted("zero_copy", {"deferred": (6, 18), "pin": (0, 1), "copy_out": (2, 16)}, {"deferred": 50}),
        width,
    )
    assert of_one_copy["copy into the kernel"]["LLC miss"] == "4.00"
    assert of_one_copy["copy to the receiver"]["LLC miss"] == "1.00"
    assert of_one_copy["all"]["LLC miss"] == "5.00"
    assert of_zero_copy["late copy"]["LLC miss"] == "6.00" and of_zero_copy["all"]["LLC miss"] == "8.00"
    # No sample of six is in this copy: its share is at most 0.39 (Wilson, 3.84 / (6 + 3.84)).
    assert of_zero_copy["page pinning"]["LLC miss"] == "<2.34"
    # 30 samples of 100,000 cycles are 3e6 cycles for 1024 KiB.
    assert of_one_copy["copy into the kernel"]["cycles"] == f"{3e6 / 1024:,.0f}" == "2,930"
    # On 80 columns, a row with "softirq" leaves no room for L1D misses.
    assert "L1D miss" in of_one_copy["all"] and ("L1D miss" in of_zero_copy["all"]) == (width == 140)
    if width == 140:
        assert [
            of_one_copy[row]["L1D miss"] for row in ("copy into the kernel", "copy to the receiver", "all")
        ] == [*("16.00", "17.00", "33.00")]
        assert of_zero_copy["page pinning"]["L1D miss"] == "1.00"


def test_a_timed_copy_has_no_events_but_the_whole_run_has() -> None:
    """Samples cannot tell which events in user mode are memcpy; the counters have the total."""
    record = ALL["two_copy_pmu"]()
    rows = columns(record, 80)
    assert rows["program's own memcpy"]["cycles"] == rows["program's other work"]["cycles"] == "n/a"
    counted = sum(record["counters"][side]["cycles"]["value"] for side in ("sender", "receiver"))
    beside = sum(row["cycles"] for row in record["stages"] if row["side"] == "other")
    per_kib = kib_factor(typed_whole(record)) or 0.0
    assert rows["all"]["cycles"] == f"{(counted + beside) * per_kib:,.0f}"


@pytest.mark.parametrize(
    ("arch", "model", "note"),
    [
        (
            "x86_64",
            "13th Gen Intel(R) Core(TM) i7-13700H",
            "LLC miss: demand loads only, no prefetches; L1D miss: demand loads; before Golden Cove all",
        ),
        ("x86_64", "AMD EPYC 9B14", "LLC miss: demand fills from memory; L1D miss: requests to L2"),
        ("aarch64", "ARM implementer 0x41 part 0xd40", "LLC miss: reads; L1D miss: refills"),
        ("x86_64", "QEMU Virtual CPU", "LLC miss, L1D miss: as this PMU defines them"),
    ],
)
def test_a_note_states_what_this_pmu_counts(arch: str, model: str, note: str) -> None:
    record = ALL["zero_copy_pmu"]()
    record["machine"] |= {"arch": arch, "cpu_model": model}
    assert note in " ".join(screen(record).split())


def test_a_note_names_the_cpus_of_an_event_that_some_cpus_lack() -> None:
    record = ALL["zero_copy_pmu"]()
    for event in record["sampler"]["events"]:
        if event["name"] == "L1-dcache-load-misses":
            event |= {"status": "partial", "reason": "only on CPUs 0-11: cpu_atom has no such event"}
    assert "; L1D miss only on CPUs 0-11" in screen(record, 140, 40)


def test_without_a_pmu_a_note_names_the_command_that_simulates_misses() -> None:
    line = "cycles, cache misses: no PMU here; modelled: copyscope simulate zero_copy"
    assert line in screen(ALL["zero_copy"]()).splitlines()
    other = screen(derive(raw_record("zero_copy", size_bytes=1 << 20)))
    assert f"{line} --size 1M" in " ".join(other.split())
    assert "cycles, cache misses: no PMU here" in screen(ALL["watched"]()).splitlines()


def test_a_note_explains_a_pmu_without_counts() -> None:
    raw = raw_record("one_copy", pmu=True)
    raw["samples"] = [{**row, "event": "cpu-clock"} for row in raw["samples"] if row["event"] == "cycles"]
    for event in raw["sampler"]["events"]:
        dumb = {"status": "unsupported", "reason": "this PMU does not interrupt"}
        event.update({"status": "sampled", "reason": None} if event["name"] == "cpu-clock" else dumb)
    text = " ".join(screen(derive(raw)).split())
    assert "cycles, cache misses n/a: counted for the sender as a whole: this PMU does not interrupt" in text
    assert "no PMU" not in text


def test_simulated_misses_have_their_own_columns() -> None:
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
