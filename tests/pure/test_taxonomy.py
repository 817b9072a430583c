"""The taxonomy: what each rule decides, what a bad file is told, and how much of real stacks it names."""

import random
import re
import time
from collections import Counter
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest
from copyscope.taxonomy.samples import folded_stacks, to_record
from copyscope.taxonomy.taxonomy import (
    ACCOUNTS,
    STAGES,
    USER_SYMBOL,
    Taxonomy,
    TaxonomyError,
    is_glob,
    parse,
    strip_suffix,
)
from hypothesis import given
from hypothesis import strategies as st

STACKS = Path(__file__).parent / "data" / "stacks"
TAXONOMY = Taxonomy.load()


def from_folded(text: str, period: int) -> list[dict[str, Any]]:
    """Folded text with counts of samples as rows of the collector; a line begins with its side."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        side, *frames = stack.split(";")
        kernel = [] if frames == [USER_SYMBOL] else frames[::-1]
        weight = int(count) * period
        rows.append(_sample(side, " ".join(kernel)) | {"samples": int(count), "weight": weight})
    return rows


def read_cases() -> list[tuple[str, str, str, list[str]]]:
    """Rows of data/stacks/cases.tsv with the names in capitals filled in."""
    tails: dict[str, list[str]] = {}
    cases = []
    for line in (STACKS / "cases.tsv").read_text().splitlines():
        if " = " in line and "\t" not in line and not line.startswith("#"):
            name, _, frames = line.partition(" = ")
            tails[name] = [part for frame in frames.split() for part in tails.get(frame, [frame])]
        elif line and not line.startswith("#"):
            category, symbol, context, *stack = line.split("\t")
            written = " ".join(stack).split()
            full = [part for frame in written for part in tails.get(frame, [frame])]
            cases.append((category, symbol, context, full))
    return cases


@pytest.mark.parametrize(("category", "symbol", "context", "frames"), read_cases())
def test_classifies(category: str, symbol: str, context: str, frames: list[str]) -> None:
    found = TAXONOMY.classify(frames)
    assert (found.category, found.symbol, found.context) == (category, symbol, context)


def test_every_account_and_stage_has_a_case() -> None:
    """What a program does itself no kernel stack shows."""
    assert {category for category, *_ in read_cases()} == ({*ACCOUNTS, *STAGES}) - {"gather", "user_encrypt"}


@pytest.mark.parametrize("path", sorted(STACKS.glob("*.folded")), ids=lambda p: p.stem)
def test_names_captured_stacks(path: Path) -> None:
    """At most 1 % of either side may stay without a name."""
    seen: Counter[str] = Counter()
    nameless: Counter[str] = Counter()
    for row in from_folded(path.read_text(), 200_040):
        seen[row["side"]] += row["samples"]
        if TAXONOMY.classify(row["frames"]).category == "unattributed":
            nameless[row["side"]] += row["samples"]
    assert {"sender", "receiver"} <= seen.keys()
    for side in ("sender", "receiver"):
        assert nameless[side] <= 0.01 * seen[side]


@pytest.mark.parametrize(
    ("capture", "present", "absent"),
    [
        ("copy_lo", {"copy_in", "copy_out"}, {"pin", "deferred", "completion"}),
        ("zero_copy_veth", {"pin", "deferred", "completion", "copy_out"}, {"copy_in"}),
        ("zero_copy_veth_xdp", {"pin", "silent", "completion", "copy_out"}, {"copy_in", "deferred"}),
        ("sendfile_lo", {"pin", "copy_out"}, {"copy_in", "deferred"}),
    ],
)
def test_tells_the_copies_of_captures_apart(capture: str, present: set[str], absent: set[str]) -> None:
    rows = to_record(from_folded((STACKS / f"{capture}.folded").read_text(), 1), TAXONOMY)
    accounts = {row["category"] for row in rows if row["kind"] == "account"}
    assert present <= accounts
    assert not absent & accounts


def test_file_has_no_rule_that_never_decides() -> None:
    """A row behind a glob that matches all of its names is dead."""
    dead = []
    globs: list[tuple[str, re.Pattern[str]]] = []
    for rule in TAXONOMY.rules:
        fills = ("", "zz") if "*" in rule.pattern else ("",)
        names = [rule.pattern.replace("*", fill) for fill in fills]
        dead += [f"{rule.pattern} behind {text}" for text, glob in globs if all(map(glob.match, names))]
        if is_glob(rule.pattern):
            globs.append((rule.pattern, re.compile(translate(rule.pattern))))
    assert dead == []


HEAD = "version\t7\n"
GOOD = "leaf\ttcp_*\ttcp_ip\t5.10-\tprotocol\n"


def test_parses() -> None:
    taxonomy = parse("# comment\n\n" + HEAD + GOOD, "t.tsv")
    assert taxonomy.version == "7"
    assert taxonomy.rules[0].note == "protocol"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD, "t.tsv: no version line"),
        (HEAD + "leef\ttcp_*\ttcp_ip\tall\n", "t.tsv:2: unknown kind 'leef'"),
        (HEAD + "leaf\ttcp_*\ttcp\tall\n", "t.tsv:2: unknown category 'tcp'"),
        (HEAD + GOOD + "leaf\ttcp_*\tdevice\tall\n", "t.tsv:3: pattern 'tcp_*' is on line 2 already"),
        (HEAD + "leaf\ttcp_*\ttcp_ip\t5.x\n", "t.tsv:2: kernels '5.x'"),
        (HEAD + "leaf\ttcp_*\ttcp_ip\t6.12-5.10\n", "t.tsv:2: kernels '6.12-5.10'"),
        (HEAD + "leaf\ttcp_*\ttcp_ip\n", "t.tsv:2: 3 columns"),
        (HEAD + "leaf\t*\ttcp_ip\tall\n", "t.tsv:2: pattern '*'"),
        (HEAD + "leaf\t\ttcp_ip\tall\n", "t.tsv:2: pattern ''"),
        (
            HEAD + "transparent\tmemcpy\tmemory\tall\n",
            "t.tsv:2: unknown category 'memory' of a rule of kind transparent",
        ),
    ],
)
def test_refuses_a_bad_file(text: str, message: str) -> None:
    with pytest.raises(TaxonomyError) as caught:
        parse(text, "t.tsv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("frame", ["__pi___x86_indirect_thunk_rax", "memcpy", "_raw_spin_unlock_irqrestore"])
def test_a_helper_whose_caller_is_not_seen_is_given_to_no_stage(frame: str) -> None:
    """It is called in system calls and in softirqs alike, and the kernel's unwinder knows no more."""
    found = TAXONOMY.classify([frame])
    assert (found.kind, found.category, found.symbol) == ("stage", "unattributed", frame)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TaxonomyError, match=r"gone\.tsv: cannot be read"):
        Taxonomy.load(tmp_path / "gone.tsv")


@pytest.mark.parametrize("suffix", ["", ".cold", ".isra.0", ".constprop.12", ".part.0", ".isra.0.cold"])
def test_strips_what_the_compiler_adds(suffix: str) -> None:
    assert strip_suffix("tcp_ack" + suffix) == "tcp_ack"


def test_keeps_dots_that_belong_to_a_name() -> None:
    assert strip_suffix("x.y") == "x.y"


def test_is_fast_enough() -> None:
    """5000 distinct stacks of 40 frames; CPU time, best of three, so that a busy machine is not slow code."""
    names = sorted(
        {
            frame
            for path in STACKS.glob("*.folded")
            for line in path.read_text().splitlines()
            for frame in line.rpartition(" ")[0].split(";")[1:]
        }
    )
    generator = random.Random(1)
    stacks = [generator.choices(names, k=40) for _ in range(5000)]
    best = min(_time_classifying(stacks) for _ in range(3))
    assert best < 0.15


def _time_classifying(stacks: list[list[str]]) -> float:
    fresh = Taxonomy(TAXONOMY.version, TAXONOMY.rules)
    begin = time.process_time()
    for stack in stacks:
        fresh.classify(stack)
    return time.process_time() - begin


def _sample(side: str, frames: str, samples: int = 3, owner: str | None = None) -> dict[str, object]:
    return {
        "side": side,
        "owner": owner,
        "event": "cpu-clock",
        "frames": frames.split(),
        "samples": samples,
        "weight": samples * 10,
        "weight_squared": samples * 100.0,
    }


def test_leaves_out_what_is_not_of_this_run() -> None:
    samples = [
        _sample("other", "default_idle do_idle"),
        _sample("other", "tcp_v4_rcv net_rx_action handle_softirqs run_ksoftirqd kthread"),
        _sample("other", "", 5),
        _sample("sender", ""),
    ]
    rows = to_record(samples, TAXONOMY)
    assert [(row["side"], row["category"]) for row in rows] == [("other", "tcp_ip"), ("sender", "user")]
    assert sum(row["samples"] for row in rows) == 6


KSOFTIRQD = "net_rx_action handle_softirqs run_ksoftirqd kthread"
RECEIVE = f"tcp_v4_rcv __netif_receive_skb_core.constprop.0 process_backlog {KSOFTIRQD}"
TIMER = "rcu_core handle_softirqs irq_exit_rcu default_idle"


@pytest.mark.parametrize(
    ("side", "frames", "owner", "tie"),
    [
        ("sender", RECEIVE, None, "process"),
        ("receiver", "", None, "process"),
        ("other", RECEIVE, "target", "packet"),
        ("other", RECEIVE, "others", None),
        ("other", RECEIVE, None, None),
        ("other", f"veth_poll {KSOFTIRQD}", "target", "batch"),
        ("other", f"skb_release_data {KSOFTIRQD}", "others", None),
        ("other", "tcp_wfree tcp_tasklet_func tasklet_action_common handle_softirqs", "target", "batch"),
        # the timer of somebody, a moment after a packet of ours on the same CPU
        ("other", TIMER, "target", None),
    ],
)
def test_work_on_the_time_of_others_needs_a_packet_of_ours(
    side: str, frames: str, owner: str | None, tie: str | None
) -> None:
    assert [row["tie"] for row in to_record([_sample(side, frames, 3, owner)], TAXONOMY)] == [tie]


EXACT = sorted(rule.pattern for rule in TAXONOMY.rules if not is_glob(rule.pattern))
names = st.sampled_from([*EXACT, "unknown_name"])
sides = st.sampled_from(["sender", "receiver", "other"])
samples_ = st.lists(
    st.fixed_dictionaries(
        {
            "side": sides,
            "event": st.just("cpu-clock"),
            "frames": st.lists(names, max_size=8),
            "samples": st.integers(1, 9),
            "weight": st.integers(1, 999),
            "weight_squared": st.just(1.0),
        }
    ),
    max_size=30,
)


def in_softirq(frames: Any) -> bool:
    return TAXONOMY.classify(frames).context == "softirq"


@given(samples_)
def test_loses_no_sample(samples: list[dict[str, object]]) -> None:
    rows = to_record(samples, TAXONOMY)
    ours = [s for s in samples if s["side"] != "other" or in_softirq(s["frames"])]
    assert sum(row["samples"] for row in rows) == sum(int(str(s["samples"])) for s in ours)
    sums = ("samples", "weight", "weight_squared")
    keys = [tuple(sorted((k, v) for k, v in r.items() if k not in sums and v)) for r in rows]
    assert len(keys) == len(set(keys))


@given(samples_)
def test_folds_all_weights(samples: list[dict[str, object]]) -> None:
    text = folded_stacks(samples)
    assert sum(int(line.rpartition(" ")[2]) for line in text.splitlines()) == sum(
        int(str(s["weight"])) for s in samples
    )
    again = from_folded(text, 1)
    assert folded_stacks(again) == text


def test_folds_only_one_event() -> None:
    both = [_sample("sender", "b a"), {**_sample("sender", "b a"), "event": "cycles"}]
    assert folded_stacks(both) == "sender;a;b 30\n"
    assert folded_stacks([]) == ""
