# SPDX-License-Identifier: GPL-2.0-only
"""Texts about the outcomes: the printed table, docs/reference/kernels.md and results/kernels/README.md."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from outcome import IDLE, TRACEPOINT, Outcome


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table that is also readable as text."""
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
    """Return the number of attached hooks by the way in which they attach, such as `21 fentry`."""
    ways = [hook["how"] for hook in outcome.hooks if hook["state"] == "attached"]
    counts = Counter(way for way in ways if (way != TRACEPOINT) is functions)
    return ", ".join(f"{count} {way}" for way, count in sorted(counts.items())) or "none"


def in_state(outcome: Outcome, state: str) -> str:
    return str(sum(hook["state"] == state for hook in outcome.hooks))


def kernel_of(outcome: Outcome) -> str:
    return outcome.release if outcome.release != "?" else f"{outcome.name} ({outcome.arch})"


def summary(outcomes: Iterable[Outcome]) -> str:
    """Return the printed table: a row for each kernel, with the seconds that its guest ran."""
    return table([[*row, *seconds] for row, seconds in _summary_rows(outcomes)])


def _summary_rows(outcomes: Iterable[Outcome]) -> Iterator[tuple[list[str], tuple[str, str]]]:
    """Yield the row of each kernel, and its elapsed and CPU seconds; first the headings."""
    yield (
        [
            *("kernel", "tier", "functions hooked", "tracepoints", "missing", "refused"),
            *("sampler", "unattributed", "passed", "failed", "skipped", "result"),
        ],
        ("s", "CPU s"),
    )
    for outcome in outcomes:
        sampled = [event["name"] for event in outcome.sampler_events if event["status"] == "sampled"]
        others = Counter(hook["state"] for hook in outcome.hooks) - Counter(
            {state: len(outcome.hooks) for state in ("attached", "missing", "refused", *IDLE)}
        )
        yield (
            [
                kernel_of(outcome),
                outcome.tier,
                attached(outcome, True),
                ", ".join(
                    [attached(outcome, False), *(f"{count} {state}" for state, count in others.items())]
                ),
                in_state(outcome, "missing"),
                in_state(outcome, "refused"),
                ", ".join(sampled) or "none",
                ", ".join(f"{share:.1%}" for share in outcome.unattributed.values()) or "-",
                *(str(outcome.count(result)) for result in ("passed", "failed", "skipped")),
                "FAILED" if outcome.problems else "marked" if outcome.remarks else "ok",
            ],
            (f"{outcome.seconds:.0f}", f"{outcome.cpu_seconds:.0f}"),
        )


def hook_table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of how each hook attaches on each kernel."""
    names = list(
        dict.fromkeys((hook["instrument"], hook["id"]) for outcome in outcomes for hook in outcome.hooks)
    )
    rows = [["instrument", "hook", *(outcome.name for outcome in outcomes)]]
    for instrument, name in names:
        cells = []
        for outcome in outcomes:
            rows_of_hook = [
                hook for hook in outcome.hooks if (hook["instrument"], hook["id"]) == (instrument, name)
            ]
            cells.append(hook_cell(rows_of_hook[0]) if rows_of_hook else "-")
        rows.append([instrument, name, *cells])
    return table(rows)


def hook_cell(hook: Mapping[str, Any]) -> str:
    if hook["state"] == "attached":
        return f"{hook['how']} {hook['symbol']}"
    return str(hook["state"])


def problems_of(outcomes: Iterable[Outcome]) -> list[str]:
    return [f"{outcome.name}: {problem}" for outcome in outcomes for problem in outcome.problems]


def skipped_of(outcomes: Iterable[Outcome]) -> list[str]:
    reasons = Counter(
        (outcome.name, row["said"])
        for outcome in outcomes
        for row in outcome.tests
        if row["outcome"] == "skipped"
    )
    return [f"{name}: {count} x {reason}" for (name, reason), count in reasons.items()]


def limits_of(outcome: Outcome) -> str:
    """Return the result of doctor in one line."""
    if outcome.doctor is None:
        return f"{outcome.name}: not asked: no Python in that guest"
    limited = [row["name"] for row in outcome.doctor["findings"] if row["status"] in ("limited", "missing")]
    names = f". Limited: {', '.join(dict.fromkeys(limited))}." if limited else ""
    return f"{outcome.name}: {outcome.doctor['sentence']}{names}"


MADE = "<!-- Made by `make check-kernels` from results/kernels/*.json; the next run overwrites it. -->\n"
OVERVIEW = """\
# Kernels: what works where

This page shows which tier and which hooks to expect on your kernel.

    make check-kernels KERNELS=6.1      # one row; without KERNELS all of them

The command boots the newest kernel of each Debian suite in QEMU and runs the live tests inside. The emulated
x86-64 machine has no PMU; the arm64 machine counts cycles and instructions.

"""
COLUMNS = """
- *tier*: `exact` where the kernel allows function hooks, and `sampled` elsewhere. *exact by name*: only with
  `--instruments sampler,functions`, because plain kprobes are slow.
- *missing*, *refused*: hooks that this kernel lacks, or does not allow.
- *unattributed*: CPU time in functions without a rule, with one_copy and with zero_copy.
- *passed*, *failed*, *skipped*: numbers of live tests. *result*: `marked` if losses made a run invalid.

The [log](../../results/kernels/README.md) has each hook of each kernel, failures and losses.
"""
HEAD = """\
# Kernels: the log of the last runs

The table of what works where is in [reference/kernels.md](../../docs/reference/kernels.md).

`make check-kernels` downloads the newest kernel of each Debian suite (`tests/kernels/fetch.sh`), boots it
in QEMU and runs the live tests inside, unchanged (`tests/kernels/matrix.py`). The results
are in `results/kernels/NAME.json`, the output of `copyscope doctor` in `NAME.doctor.txt` beside it;
this page is made from those files. The emulator of x86-64 has no PMU. That of arm64 counts cycles and
instructions; its guest has no Python: it runs the programs, `tests/kernels/cross/test_cross.py` checks their
output on the host, and doctor does not run.

    make check-kernels                        all kernels, all live tests
    make check-kernels KERNELS="6.1 7.x"      some kernels; the other rows stay as they are
    make check-kernels MATRIX=--brief         tests that may differ between kernels; --keep writes both pages
    make check-kernels MATRIX=--least         what CI runs: exact bytes and calls; writes nothing
    make check-kernels KERNELS=7.x MATRIX="--only test_nics.py"    some tests again; the others stay
    make check-kernels MATRIX=--page          writes both pages from kept results; runs nothing
    COPYSCOPE_ACCEL=kvm make check-kernels    with KVM, where it works

CI (`.ci/run`) runs `--least` on all five kernels. The kept results are those of longer runs.

One kernel by hand, with this machine's files, read-only (writes go to memory), and without a network:

    root=$(tests/kernels/fetch.sh trixie amd64)
    run="tests/kernels/boot.sh $root"
    $run 'modprobe veth; copyscope doctor'
    $run 'modprobe veth; copyscope run --impl zerocopy --duration 2'
    $run 'modprobe veth; .venv/bin/python3 -P -B -m pytest tests/live/test_functions.py'

arm64 by hand, once `make check-kernels KERNELS=6.12-arm64` has built its programs:

    export COPYSCOPE_GUEST_ARCH=arm64 COPYSCOPE_GUEST_TREE=$PWD/.output/arm64/tree
    tests/kernels/boot.sh $(tests/kernels/fetch.sh trixie arm64) '/guest/collector --probe --functions'

A boot that did not come up is tried once more; a test that ran is never repeated. A kernel that cannot be
downloaded is a failure.

"""


def overview(outcomes: Sequence[Outcome]) -> str:
    """Return the page docs/reference/kernels.md, a table."""
    return MADE + OVERVIEW + table([row for row, _ in _summary_rows(outcomes)]) + COLUMNS


def log(outcomes: Sequence[Outcome], left_out: Mapping[str, str]) -> str:
    """Return the page results/kernels/README.md: everything else."""
    circumstances = [
        f"{outcome.name}: {kernel_of(outcome)} ({outcome.suite}), {outcome.made}, "
        f"{outcome.processors} CPU, {outcome.emulator}, "
        + ("all live tests" if outcome.extent == "all" else f"the tests of --{outcome.extent}")
        + "".join(f"; {count} run alone on {day}" for day, count in Counter(outcome.again.values()).items())
        for outcome in outcomes
    ]
    reasons = [
        f"{outcome.name}: {hook['id']}: {hook['state']}: {hook['reason']}"
        for outcome in outcomes
        for hook in outcome.hooks
        if hook["state"] not in ("attached", *IDLE)
    ]
    figures = [
        f"{outcome.name}: {name}: {value}" for outcome in outcomes for name, value in outcome.figures.items()
    ]
    unknown = []
    for outcome in outcomes:
        symbols = ", ".join(f"{name} ({n})" for name, n in list(outcome.unknown_symbols.items())[:12])
        unknown += [f"{outcome.name}: {symbols}"] if symbols else []
    return (
        MADE
        + HEAD
        + f"""## Made on

{bullets(circumstances)}
`again` in results/kernels/NAME.json lists tests that were run again alone.

## Hooks

{hook_table(outcomes)}
Hooks that are missing or refused, and why:

{bullets(reasons)}
## Failures

{bullets(problems_of(outcomes))}
## Runs that were not valid

{bullets(f"{outcome.name}: {remark}" for outcome in outcomes for remark in outcome.remarks)}
## Figures

amd64: figures of the survey's two runs (messages of 1 MiB, each call timed, one CPU). arm64: counters in
copies, compared with all counts of the sender's threads in kernel mode, which
`tests/kernels/cross/thread_counter.c` reads (that guest has no perf).

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
