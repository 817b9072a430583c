# SPDX-License-Identifier: GPL-2.0-only
"""--stacks on this kernel: the record has the sampled stacks, and their export adds up to the ledger."""

from __future__ import annotations

from copyscope.report.exports import FORMATS
from profiling import record_of, typed_run


def test_stacks_of_a_run_add_up_to_its_ledger() -> None:
    record = record_of("--impl", "one_copy", "--duration", "1", "--frequency", "999", "--stacks")
    folded = [
        line.rsplit(" ", 1) for line in FORMATS["folded"].write_run(typed_run(record)).decode().splitlines()
    ]
    copy_stacks = [stack for stack, _ in folded if stack.endswith("_copy_from_iter")]
    assert copy_stacks and all(
        "tcp_sendmsg" in stack and stack.startswith("sender;") for stack in copy_stacks
    )
    ledger_ns = sum(row["cpu_ns"] or 0 for row in (*record["ledger"], *record["stages"]))
    assert abs(sum(int(ns) for _, ns in folded) - ledger_ns) <= len(folded) + 10
    assert sum(row["samples"] for row in record["stacks"]) == sum(
        row["samples"] for row in record["samples"] if row["side"] != "other" or row["tie"]
    )
