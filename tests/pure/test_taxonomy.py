# SPDX-License-Identifier: GPL-2.0-only
"""The taxonomy: results of rules, messages about wrong files, and the coverage of captured stacks."""

import random
import re
import time
from collections import Counter
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest
from copyscope.taxonomy.accounts import ACCOUNTS, STAGES
from copyscope.taxonomy.samples import folded_stacks, to_record
from copyscope.taxonomy.taxonomy import (
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


def from_folded(text: str, period: int) -> list[Any]:
    """Return rows like the collector's from folded stacks. A line begins with sender, receiver or other."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        side, *frames = stack.split(";")
        kernel = [] if frames == [USER_SYMBOL] else frames[::-1]
        weight = int(count) * period
        rows.append(_sample(side, " ".join(kernel)) | {"samples": int(count), "weight": weight})
    return rows


def read_cases() -> list[tuple[str, str, str, list[str]]]:
    """Return the rows of data/stacks/cases.tsv, with names in capitals replaced by their stacks."""
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
def test_a_stack_is_classified_by_its_rule(
    category: str, symbol: str, context: str, frames: list[str]
) -> None:
    kind = TAXONOMY.classify(frames)
    assert (kind.category, kind.symbol, kind.context) == (category, symbol, context)


def test_every_account_and_stage_has_a_case() -> None:
    """Work in user mode and the owner of a packet have no case, because kernel stacks do not show them."""
    without_case = {"gather", "user_encrypt", "other_packets"}
    assert {category for category, *_ in read_cases()} == {*ACCOUNTS, *STAGES} - without_case


@pytest.mark.parametrize("path", sorted(STACKS.glob("*.folded")), ids=lambda p: p.stem)
def test_captured_stacks_are_classified(path: Path) -> None:
    """At most 1 % of the samples of sender and receiver may stay unattributed."""
    samples: Counter[str] = Counter()
    unattributed: Counter[str] = Counter()
    for row in from_folded(path.read_text(), 200_040):
        samples[row["side"]] += row["samples"]
        if TAXONOMY.classify(row["frames"]).category == "unattributed":
            unattributed[row["side"]] += row["samples"]
    assert {"sender", "receiver"} <= samples.keys()
    for side in ("sender", "receiver"):
        assert unattributed[side] <= 0.01 * samples[side]


@pytest.mark.parametrize(
    ("capture", "present", "absent"),
    [
        ("copy_lo", {"copy_in", "copy_out"}, {"pin", "deferred", "completion"}),
        ("zero_copy_veth", {"pin", "deferred", "completion", "copy_out"}, {"copy_in"}),
        ("zero_copy_veth_xdp", {"pin", "silent", "completion", "copy_out"}, {"copy_in", "deferred"}),
        ("sendfile_lo", {"pin", "copy_out"}, {"copy_in", "deferred"}),
    ],
)
def test_captured_stacks_have_the_expected_copies(capture: str, present: set[str], absent: set[str]) -> None:
    rows = to_record(from_folded((STACKS / f"{capture}.folded").read_text(), 1), TAXONOMY)
    accounts = {row["category"] for row in rows if row["kind"] == "account"}
    assert present <= accounts
    assert not absent & accounts


def test_every_rule_of_the_file_can_decide() -> None:
    """A row below a glob that matches all its names never decides."""
    dead = []
    globs: list[tuple[str, re.Pattern[str]]] = []
    for rule in TAXONOMY.rules:
        fills = ("", "zz") if "*" in rule.pattern else ("",)
        names = [rule.pattern.replace("*", fill) for fill in fills]
        dead += [f"{rule.pattern} is below {text}" for text, glob in globs if all(map(glob.match, names))]
        if is_glob(rule.pattern):
            globs.append((rule.pattern, re.compile(translate(rule.pattern))))
    assert dead == [], "in taxonomy.tsv, move the first row of each pair above the second"


HEAD = "version\t7\n"
VALID_ROW = "leaf\ttcp_*\ttcp_ip\t5.10-\tprotocol\n"


def test_a_taxonomy_file_is_parsed() -> None:
    taxonomy = parse("# comment\n\n" + HEAD + VALID_ROW, "t.tsv")
    assert taxonomy.version == "7"
    assert taxonomy.rules[0].note == "protocol"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VALID_ROW, "t.tsv: no version line"),
        (HEAD + "leef\ttcp_*\ttcp_ip\tall\n", "t.tsv:2: unknown kind 'leef'"),
        (HEAD + "leaf\ttcp_*\ttcp\tall\n", "t.tsv:2: unknown category 'tcp'"),
        (HEAD + VALID_ROW + "leaf\ttcp_*\tdevice\tall\n", "t.tsv:3: pattern 'tcp_*' is on line 2 already"),
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
def test_a_wrong_taxonomy_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(TaxonomyError) as caught:
        parse(text, "t.tsv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("frame", ["__pi___x86_indirect_thunk_rax", "memcpy", "_raw_spin_unlock_irqrestore"])
def test_a_helper_without_a_caller_belongs_to_no_stage(frame: str) -> None:
    """System calls and softirqs both call such a helper, so its stage is unknown without the caller."""
    kind = TAXONOMY.classify([frame])
    assert (kind.kind, kind.category, kind.symbol) == ("stage", "unattributed", frame)


def test_a_missing_taxonomy_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaxonomyError, match=r"gone\.tsv: cannot be read"):
        Taxonomy.load(tmp_path / "gone.tsv")


@pytest.mark.parametrize("suffix", ["", ".cold", ".isra.0", ".constprop.12", ".part.0", ".isra.0.cold"])
def test_compiler_suffixes_are_stripped(suffix: str) -> None:
    assert strip_suffix("tcp_ack" + suffix) == "tcp_ack"


def test_other_dots_in_a_name_are_kept() -> None:
    assert strip_suffix("x.y") == "x.y"


def test_classification_is_fast() -> None:
    """Classify 5000 distinct stacks of 40 frames. The best CPU time of three runs counts."""
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


def _sample(side: str, frames: str, samples: int = 3, owner: str | None = None) -> Any:
    return {
        "side": side,
        "owner": owner,
        "event": "cpu-clock",
        "frames": frames.split(),
        "samples": samples,
        "weight": samples * 10,
        "weight_squared": samples * 100.0,
    }


def test_samples_of_other_programs_are_left_out() -> None:
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
        # the timer of another program, shortly after a packet of the run on the same CPU
        ("other", TIMER, "target", None),
    ],
)
def test_softirq_work_charged_to_other_tasks_needs_a_packet_of_the_run(
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
def test_no_sample_is_lost_in_the_record(samples: list[Any]) -> None:
    rows = to_record(samples, TAXONOMY)
    of_the_run = [s for s in samples if s["side"] != "other" or in_softirq(s["frames"])]
    assert sum(row["samples"] for row in rows) == sum(int(str(s["samples"])) for s in of_the_run)
    sums = ("samples", "weight", "weight_squared")
    keys = [tuple(sorted((k, v) for k, v in r.items() if k not in sums and v)) for r in rows]
    assert len(keys) == len(set(keys))


@given(samples_)
def test_folded_stacks_have_all_weights(samples: list[Any]) -> None:
    text = folded_stacks(samples)
    assert sum(int(line.rpartition(" ")[2]) for line in text.splitlines()) == sum(
        int(str(s["weight"])) for s in samples
    )
    again = from_folded(text, 1)
    assert folded_stacks(again) == text


def test_only_one_event_is_folded() -> None:
    two_events = [_sample("sender", "b a"), {**_sample("sender", "b a"), "event": "cycles"}]
    assert folded_stacks(two_events) == "sender;a;b 30\n"
    assert folded_stacks([]) == ""
