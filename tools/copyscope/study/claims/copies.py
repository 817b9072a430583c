"""C4 to C7: which copies are made, by whom. Judged by the bytes and the functions of the ledger."""

from collections import Counter
from collections.abc import Sequence

from copyscope.ledger.attribution import tied
from copyscope.record.segments import Record, samples_of
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED, Finding, Row, Runs
from copyscope.units import format_size

# fewer samples than this in a copy, or in everything else, prove nothing
FEW = 5
MANY = 200
WITHOUT_DMA = frozenset(("veth", "lo", "loopback", None))


def copied_where(runs: Runs) -> Finding:
    """C4: on veth MSG_ZEROCOPY data is copied in tcp_sendmsg_locked: in the call, in process context."""
    records = runs.of("zero_copy")
    late, early = samples(records, ("deferred", "silent")), samples(records, ("copy_in",))
    deferred, at_once = sum(late.values()), sum(early.values())
    sent = sum(int((r["zerocopy"] or {})["bytes_sent"]) for r in records)
    flagged = sum(int((r["zerocopy"] or {})["bytes_copied"]) for r in records)
    rows = sample_rows(records, ("deferred", "silent", "copy_in")) + account_rows(
        records, "copy_in", "deferred"
    )
    share = (
        f"{flagged / sent:.0%} of {format_size(sent)} came back flagged as copied" if sent else "nothing sent"
    )
    where = f"{share}; samples in {_names(late)}: {deferred}; in the copy of tcp_sendmsg_locked: {at_once}"
    if deferred >= FEW and at_once * 20 <= deferred:
        return Finding(REFUTED, f"it is copied, but later and elsewhere: {where}", rows)
    if at_once >= FEW and deferred * 20 <= at_once:
        return Finding(HOLDS, where, rows)
    if flagged == 0 and deferred == 0 and at_once == 0 and _sampled(records) >= MANY:
        return Finding(REFUTED, f"it is not copied at all: {where}", rows)
    return Finding(UNDETERMINED, f"too few samples in either copy: {where}", rows)


def socket_buffer_then_dma(runs: Runs) -> Finding:
    """C5: the two copies of a plain send() are user -> socket buffer and socket buffer -> NIC by DMA."""
    records = runs.records
    moved = _moved(records)
    rows = account_rows(records, "gather", "copy_in")
    devices = {device["driver"] for r in records for device in r["topology"]["devices"]}
    said = (
        f"sent {format_size(moved['sent'])}: gather {format_size(moved['gather'])}, "
        f"copy_in {format_size(moved['copy_in'])}"
    )
    if moved["copy_in"] != moved["sent"]:
        return Finding(REFUTED, f"not even the first copy is made of every byte: {said}", rows)
    if devices <= WITHOUT_DMA:
        names = ", ".join(sorted(str(name) for name in devices if name)) or "lo"
        return Finding(REFUTED, f"{said}; {names} has no DMA: a second copy was never made", rows)
    return Finding(UNDETERMINED, f"{said}; DMA of the device is not visible to the CPU", rows)


def gather_then_socket_buffer(runs: Runs) -> Finding:
    """C6: two_copy copies every byte in user memory, and again into the socket buffer."""
    records = runs.of("two_copy")
    moved = _moved(records)
    rows = account_rows(records, "gather", "copy_in") + sample_rows(records, ("copy_in",))
    seen = sum(samples(records, ("copy_in",)).values())
    timed_ns = sum(s["sender"]["gather_timed_ns"] for r in records for s in r["run"]["segments"])
    said = (
        f"sent {format_size(moved['sent'])}: gather {format_size(moved['gather'])} (timed by the program), "
        f"copy_in {format_size(moved['copy_in'])} ({seen} samples in it)"
    )
    if moved["gather"] != moved["sent"] or moved["copy_in"] != moved["sent"]:
        return Finding(REFUTED, said, rows)
    if timed_ns <= 0 or seen < FEW:
        return Finding(UNDETERMINED, f"the bytes say so, the times do not yet: {said}", rows)
    return Finding(HOLDS, said, rows)


def iovec_without_copy(runs: Runs) -> Finding:
    """C7: sendmsg() with an iovec makes no copy from user to kernel."""
    records = runs.of("one_copy")
    found = samples(records, ("copy_in",))
    seen, moved = sum(found.values()), _moved(records)
    rows = sample_rows(records, ("copy_in",)) + account_rows(records, "copy_in")
    copied, sent = (format_size(moved[key]) for key in ("copy_in", "sent"))
    said = f"{seen} samples in {_names(found)}, {copied} of {sent} sent"
    if seen >= FEW:
        return Finding(REFUTED, f"the kernel copies from user memory: {said}", rows)
    if seen == 0 and _sampled(records) >= MANY:
        return Finding(HOLDS, f"of {_sampled(records)} samples of the sender none was in the copy", rows)
    return Finding(UNDETERMINED, f"too few samples: {said}", rows)


def samples(records: Sequence[Record], categories: tuple[str, ...]) -> Counter[str]:
    """Symbol -> samples of the sender and of softirq work, in these accounts."""
    found: Counter[str] = Counter()
    for record in records:
        for row in tied(samples_of(record)):
            if row.category in categories and row.side != "receiver":
                found[row.symbol] += row.samples
    return found


def sample_rows(records: Sequence[Record], categories: tuple[str, ...]) -> list[Row]:
    """The same as rows of evidence."""
    found = samples(records, categories)
    runs = [record["run"]["id"] for record in records]
    return [{"what": "samples", "symbol": s, "samples": n, "runs": runs} for s, n in found.most_common(10)]


def account_rows(records: Sequence[Record], *accounts: str) -> list[Row]:
    """The ledger's rows with bytes, of these accounts."""
    return [
        {
            "what": "ledger",
            "run": record["run"]["id"],
            **{key: row[key] for key in ("account", "side", "context", "bytes", "calls", "ns_per_kib")},
        }
        for record in records
        for row in record["ledger"]
        if row["account"] in accounts and row["bytes"] is not None
    ]


def _moved(records: Sequence[Record]) -> dict[str, int]:
    """Bytes sent, gathered and copied into the socket in the ledger segments."""
    found = {"sent": 0, "gather": 0, "copy_in": 0}
    for record in records:
        probed = [s for s in record["run"]["segments"] if "ledger" in s["arm"].split("+")]
        found["sent"] += sum(s["sender"]["bytes"] for s in probed)
        for row in record["ledger"]:
            if row["account"] in found and row["bytes"] is not None:
                found[row["account"]] += row["bytes"]
    return found


def _sampled(records: Sequence[Record]) -> int:
    return sum(int(record["sides"]["sender"]["samples"] or 0) for record in records)


def _names(found: Counter[str]) -> str:
    return ", ".join(name for name, _ in found.most_common(2)) or "no copy function"
