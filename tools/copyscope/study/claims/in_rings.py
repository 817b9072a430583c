"""The same claims of the same sends through io_uring. Pure.

Its SENDMSG stands in the place of sendmsg(), its SENDMSG_ZC in that of MSG_ZEROCOPY.
"""

from collections.abc import Sequence
from typing import Any

from copyscope.record.segments import Record
from copyscope.study.claims.model import Claim, Finding

# Which strategy stands for which.
STANDS_FOR = {"uring_zc": "zero_copy", "uring_send": "one_copy"}
WORDS = {
    **{ours: ring for ring, ours in STANDS_FOR.items()},
    "reads of the error queue": "calls of io_uring_enter(2) beyond one a request",
}


def stand_ins(claim: Claim, records: Sequence[Record]) -> list[Record]:
    """The runs through a ring as if they were those that the claim is about, beside the others that it needs.

    Empty if the claim is about neither, or nothing was sent through a ring.
    """
    wanted = claim.needs.get("impl")
    if wanted is not None and not set(wanted) & set(STANDS_FOR.values()):
        return []
    rings = [_as_another(record) for record in records if record["workload"]["impl"] in STANDS_FOR]
    if not rings or wanted is None:
        return rings
    return rings + [r for r in records if r["workload"]["impl"] not in (*STANDS_FOR, *STANDS_FOR.values())]


def _as_another(record: Record) -> Record:
    work = record["workload"]
    # Where the request is handled at once, a call is what it is elsewhere: the settings are the same.
    issue = None if work.get("issue") == "inline" else work.get("issue")
    return {**record, "workload": {**work, "impl": STANDS_FOR[work["impl"]], "issue": issue}}


def said(finding: Finding) -> Finding:
    """With the names of the strategies that were measured."""
    return Finding(finding.verdict, _renamed(finding.evidence), _renamed(finding.rows))


def _renamed(value: Any) -> Any:
    if isinstance(value, str):
        for ours, ring in WORDS.items():
            value = value.replace(ours, ring)
        return value
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if isinstance(value, dict):
        return {name: _renamed(one) if name not in ("run", "runs") else one for name, one in value.items()}
    return value
