"""The table that is printed, docs/reference/kernels.md and results/kernels/README.md: outcomes only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from outcome import IDLE, TRACEPOINT, Outcome


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as text."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines) or "- none\n"


def attached(outcome: Outcome, functions: bool) -> str:
    """How many hooks are in place, by the way in which they attach: `21 fentry`."""
    found = [hook["how"] for hook in outcome.hooks if hook["state"] == "attached"]
    hows = Counter(how for how in found if (how != TRACEPOINT) is functions)
    return ", ".join(f"{count} {how}" for how, count in sorted(hows.items())) or "none"


def in_state(outcome: Outcome, state: str) -> str:
    return str(sum(hook["state"] == state for hook in outcome.hooks))


def kernel_of(outcome: Outcome) -> str:
    return outcome.release if outcome.release != "?" else f"{outcome.name} ({outcome.arch})"


def summary(outcomes: Iterable[Outcome]) -> str:
    rows = [
        [
            *("kernel", "tier", "functions hooked", "tracepoints", "missing", "refused"),
            *("sampler", "unattributed", "passed", "failed", "skipped", "result", "s", "CPU s"),
        ]
    ]
    for one in outcomes:
        sampled = [event["name"] for event in one.sampler_events if event["status"] == "sampled"]
        others = Counter(hook["state"] for hook in one.hooks) - Counter(
            {state: len(one.hooks) for state in ("attached", "missing", "refused", *IDLE)}
        )
        rows.append(
            [
                kernel_of(one),
                one.tier,
                attached(one, True),
                ", ".join([attached(one, False), *(f"{count} {state}" for state, count in others.items())]),
                in_state(one, "missing"),
                in_state(one, "refused"),
                ", ".join(sampled) or "none",
                ", ".join(f"{share:.1%}" for share in one.unattributed.values()) or "-",
                *(str(one.count(what)) for what in ("passed", "failed", "skipped")),
                "FAILED" if one.problems else "marked" if one.remarks else "ok",
                f"{one.seconds:.0f}",
                f"{one.cpu_seconds:.0f}",
            ]
        )
    return table(rows)


def hook_table(outcomes: Sequence[Outcome]) -> str:
    """How each hook attaches, kernel by kernel."""
    names = list(dict.fromkeys((hook["instrument"], hook["id"]) for one in outcomes for hook in one.hooks))
    rows = [["instrument", "hook", *(one.name for one in outcomes)]]
    for instrument, name in names:
        cells = []
        for one in outcomes:
            found = [hook for hook in one.hooks if (hook["instrument"], hook["id"]) == (instrument, name)]
            cells.append(hook_cell(found[0]) if found else "-")
        rows.append([instrument, name, *cells])
    return table(rows)


def hook_cell(hook: Mapping[str, Any]) -> str:
    if hook["state"] == "attached":
        return f"{hook['how']} {hook['symbol']}"
    return str(hook["state"])


def problems_of(outcomes: Iterable[Outcome]) -> list[str]:
    return [f"{one.name}: {problem}" for one in outcomes for problem in one.problems]


def skipped_of(outcomes: Iterable[Outcome]) -> list[str]:
    said = Counter(
        (one.name, row["said"]) for one in outcomes for row in one.tests if row["outcome"] == "skipped"
    )
    return [f"{name}: {count} x {reason}" for (name, reason), count in said.items()]


def limits_of(one: Outcome) -> str:
    """What doctor says of it, in one line."""
    if one.doctor is None:
        return f"{one.name}: not asked: no Python in that guest"
    limited = [row["name"] for row in one.doctor["findings"] if row["status"] in ("limited", "missing")]
    names = f". Limited: {', '.join(dict.fromkeys(limited))}." if limited else ""
    return f"{one.name}: {one.doctor['sentence']}{names}"


MADE = "<!-- Made by `make check-kernels` from results/kernels/*.json; the next run overwrites it. -->\n"
OVERVIEW = """\
# Kernels: what works where

`make check-kernels` boots the newest kernel of each Debian suite in QEMU and runs this tree's live tests
inside. This table is made from what came of it (`results/kernels/`). The emulator of x86-64 has no PMU; that
of arm64 counts cycles and instructions.

"""
COLUMNS = """
- *tier*: `exact` where the kernel lets functions be hooked, else `sampled`. Kprobes are taken only when they
  are asked for: `--instruments sampler,functions`.
- *missing*, *refused*: hooks that this kernel does not have, or does not allow.
- *unattributed*: the share of both sides' CPU time that no rule of the taxonomy names, in one run of 12 s
  with one_copy and one with zero_copy.
- *passed*, *failed*, *skipped*: live tests. *result*: `marked` when a profile called itself not valid because
  of losses.
- *s*: from power-on to power-off; *CPU s*: what the emulator used meanwhile.

Each hook of each kernel, failures and losses are in the [log](../../results/kernels/README.md).
"""
HEAD = """\
# Kernels: the log of the last runs

The table of what works where is in [reference/kernels.md](../../docs/reference/kernels.md).

`make check-kernels` downloads the newest kernel of each Debian suite (`tests/kernels/fetch.sh`), boots it
in QEMU and runs the live tests inside, unchanged (`tests/kernels/matrix.py`). The results
are in `results/kernels/NAME.json`, the output of `copyscope doctor` in `NAME.doctor.txt` beside it;
this page is made from those files. The emulator of x86-64 has no PMU. That of arm64 counts cycles and
instructions; its guest has no Python: it runs the programs, `tests/kernels/cross/test_cross.py` judges the
output outside, and doctor is not asked.

    make check-kernels                        all kernels, all live tests
    make check-kernels KERNELS="6.1 7.x"      some of them; the other rows stay as they are
    make check-kernels MATRIX=--brief         what differs between kernels; with --keep it makes both pages
    make check-kernels MATRIX=--least         what CI runs: bytes and calls, exactly; nothing is written
    make check-kernels KERNELS=7.x MATRIX="--only test_nics.py"    some tests again; the others stay
    make check-kernels MATRIX=--page          both pages again, of what is kept; nothing is run
    COPYSCOPE_ACCEL=kvm make check-kernels    with KVM, where it works

CI (`.ci/run`) runs `--least` on all five kernels. The times in reference/kernels.md are those of
the longer runs that are kept.

One kernel by hand, with this machine's files, read-only (writes go to memory), and without a network:

    root=$(tests/kernels/fetch.sh trixie amd64)
    run="tests/kernels/boot.sh $root"
    $run 'modprobe veth; copyscope doctor'
    $run 'modprobe veth; copyscope run --impl zerocopy --duration 2'
    $run 'modprobe veth; .venv/bin/python3 -P -B -m pytest tests/live/test_functions.py'

arm64 by hand, once `make check-kernels KERNELS=6.12-arm64` has built its programs:

    export COPYSCOPE_GUEST_ARCH=arm64 COPYSCOPE_GUEST_TREE=$PWD/.output/arm64/tree
    tests/kernels/boot.sh $(tests/kernels/fetch.sh trixie arm64) '/guest/collector --probe --functions'

A boot that never reached its marker is tried once more; a test that ran is never run again. A kernel that
cannot be downloaded is a failure.

"""


def overview(outcomes: Sequence[Outcome]) -> str:
    """docs/reference/kernels.md: one table."""
    return MADE + OVERVIEW + summary(outcomes) + COLUMNS


def log(outcomes: Sequence[Outcome], left_out: Mapping[str, str]) -> str:
    """results/kernels/README.md: everything else."""
    made = [
        f"{one.name}: {kernel_of(one)} ({one.suite}), {one.made}, {one.processors} CPU, {one.emulator}, "
        + ("all live tests" if one.extent == "all" else f"the tests of --{one.extent}")
        + "".join(f"; {count} run alone on {day}" for day, count in Counter(one.again.values()).items())
        for one in outcomes
    ]
    reasons = [
        f"{one.name}: {hook['id']}: {hook['state']}: {hook['reason']}"
        for one in outcomes
        for hook in one.hooks
        if hook["state"] not in ("attached", *IDLE)
    ]
    figures = [f"{one.name}: {name}: {value}" for one in outcomes for name, value in one.figures.items()]
    unknown = [
        f"{one.name}: {', '.join(f'{name} ({n})' for name, n in list(one.unknown_symbols.items())[:12])}"
        for one in outcomes
        if one.unknown_symbols
    ]
    return (
        MADE
        + HEAD
        + f"""## Made on

{bullets(made)}
Which were run alone is in `again` of results/kernels/NAME.json.

## Hooks

{hook_table(outcomes)}
Not there, and why:

{bullets(reasons)}
## Failures

{bullets(problems_of(outcomes))}
## Runs that were not valid

{bullets(f"{one.name}: {remark}" for one in outcomes for remark in one.remarks)}
## Figures

Of the runs of the survey (messages of 1 MiB, each call timed, one processor): self times over inclusive time.
Of arm64: counters per copy against those of the sender's threads from outside, which is
perf_event_open(2) by `tests/kernels/cross/thread_counter.c`; there is no perf in that guest.

{bullets(figures)}
## What doctor says

{bullets(map(limits_of, outcomes))}
## Skipped tests

{bullets(skipped_of(outcomes))}
Left out of the guests, see `LEFT_OUT` in tests/kernels/selection.py:

{bullets(f"`{begin}`: {reason}" for begin, reason in left_out.items())}
## Symbols that the taxonomy does not know (samples)

{bullets(unknown)}"""
    )
