"""--stacks on this kernel: what was sampled is in the record, and its export adds up to the ledger."""

from __future__ import annotations

from copyscope.exports import FORMATS
from copyscope.record.check import typed_whole
from profiling import record_of


def test_stacks_of_a_run_add_up_to_its_ledger() -> None:
    record = record_of("--impl", "one_copy", "--duration", "1", "--frequency", "999", "--stacks")
    folded = [
        line.rsplit(" ", 1) for line in FORMATS["folded"].make(typed_whole(record)).decode().splitlines()
    ]
    copied = [stack for stack, _ in folded if stack.endswith("_copy_from_iter")]
    assert copied and all("tcp_sendmsg" in stack and stack.startswith("sender;") for stack in copied)
    spent = sum(row["cpu_ns"] or 0 for row in (*record["ledger"], *record["stages"]))
    assert abs(sum(int(ns) for _, ns in folded) - spent) <= len(folded) + 10
    assert sum(one["samples"] for one in record["stacks"]) == sum(
        one["samples"] for one in record["samples"] if one["side"] != "other" or one["tie"]
    )
