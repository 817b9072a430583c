"""How many bytes each account of a watched program moved, in the ledger segments, and who says so. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from copyscope.ledger import late_copies
from copyscope.ledger.flows import FASTEST_COPY_BYTES_PER_NS, NO_SILENT_CALLS, NOTHING, Flow, unknown
from copyscope.record.hooks import ABSENT, find
from copyscope.record.instruments import Hook
from copyscope.record.program.raw import RawProgramRun, Volume
from copyscope.record.program.volume import BY_REFERENCE, SOCKMAP, TAKEN, added, volume
from copyscope.record.segments import select, total, why_no_ledger

OF_OTHERS = (
    "sent by others with zero-copy, and copied on the time of this program: no hook counts their bytes"
)
ITS_OWN = "in the program's own memory: no hook counts what it copies there"


def zerocopy_totals(raw: RawProgramRun, arm: str | None = None) -> dict[str, int]:
    """Sends with MSG_ZEROCOPY, and what the error queues said of them, in one arm or in all segments."""
    segments = raw.run.segments if arm is None else select(raw.run.segments, arm)
    sent = volume(raw.volume, "send", arm)
    found = {"sends": added(sent, "zerocopy_calls"), "bytes_sent": added(sent, "zerocopy_bytes")}
    keys = ("completions", "copied", "notifications", "unseen", "untold")
    return found | {key: total(segments, "target", key) for key in keys}


def flows(raw: RawProgramRun, silent_high_ns: float) -> dict[str, Flow]:
    """Bytes and calls of each account; of the program's own copies in user memory nobody counts these."""
    gather = {} if raw.user_code is UNSET else {"gather": unknown(ITS_OWN)}
    absent = why_no_ledger(raw.run)
    if absent:
        accounts = ("copy_in", "pin", "deferred", "silent", "completion", "copy_out", "mapped")
        return gather | dict.fromkeys(accounts, unknown(absent))
    sent = volume(raw.volume, "send", "ledger")
    pages = [row for row in sent if row.syscall in BY_REFERENCE]
    zerocopy = zerocopy_totals(raw, "ledger")
    blind = why_no_completions(raw.hooks)
    referenced = added(pages, "bytes") + zerocopy["bytes_sent"]
    references = added(pages, "calls") + zerocopy["sends"]
    # io_uring says that a send was zero-copy when it ends: at an edge that is after its bytes were counted.
    copied = max(0, added(sent, "bytes") - referenced)
    late = _deferred(zerocopy, blind)
    if not zerocopy["sends"] and late_copies.sampled(raw, "deferred"):
        late = unknown(OF_OTHERS)
    if late.bytes and late_copies.at_call(raw):
        copied, referenced, late = copied + late.bytes, referenced - late.bytes, NOTHING
    return gather | {
        "copy_in": Flow(copied, "exact", max(0, added(sent, "calls") - references)),
        "pin": Flow(referenced, "exact", references),
        "deferred": late,
        "silent": _silent(zerocopy, silent_high_ns),
        "completion": Flow(0, "exact", None if blind else zerocopy["completions"], calls_reason=blind),
        "copy_out": _copied_out(raw.volume),
        "mapped": _counted(volume(raw.volume, "mapped", "ledger")),
    }


def _deferred(zerocopy: dict[str, int], blind: str | None) -> Flow:
    """The flag is per send; the bytes follow exactly where all sends or none carried it."""
    if zerocopy["sends"] == 0:
        return NOTHING
    if zerocopy["completions"] == 0 or zerocopy["untold"] > zerocopy["completions"]:
        reason = "no completion of a zero-copy send was seen" + (f": {blind}" if blind else "")
        if zerocopy["untold"]:
            asks = "where a send asks for it (IORING_SEND_ZC_REPORT_USAGE)"
            reason = f"io_uring says whether it copied only {asks}, and these did not"
        return unknown(reason)
    # The two totals are read one after the other: a completion may come in between.
    share = min(1.0, zerocopy["copied"] / zerocopy["completions"])
    return Flow(round(share * zerocopy["bytes_sent"]), "derived", zerocopy["copied"])


def _silent(zerocopy: dict[str, int], silent_high_ns: float) -> Flow:
    uncopied = zerocopy["bytes_sent"]
    if zerocopy["completions"]:
        uncopied = round(uncopied * (1 - zerocopy["copied"] / zerocopy["completions"]))
    plausible = 0 < uncopied <= silent_high_ns * FASTEST_COPY_BYTES_PER_NS
    return Flow(uncopied if plausible else 0, "derived", calls_reason=NO_SILENT_CALLS)


def why_no_completions(hooks: Iterable[Hook]) -> str | None:
    """Why the error queues of its sockets were not looked at; None where they were."""
    hook = find(hooks, "completion")
    if hook is None:
        return "no such hook"
    return f"{hook.symbol}: {hook.reason}" if hook.state in ABSENT else None


def copied_out_rows(rows: Sequence[Volume]) -> list[Volume]:
    """What was copied to its memory. Where no hook sees that, it is what its calls returned: of a datagram of
    UDP in one piece (copy_linear_skb(), net/ipv4/udp.c), of a message that came through a sockmap
    (sk_msg_recvmsg(), net/core/skmsg.c)."""
    unseen = ("udp", SOCKMAP)
    hooked = [row for row in volume(rows, "copy_out", "ledger") if row.protocol not in unseen]
    looked = volume(rows, "receive", "ledger") + volume(rows, "peek", "ledger")
    return hooked + [row for row in looked if row.protocol in unseen and row.syscall not in TAKEN]


def _copied_out(rows: Sequence[Volume]) -> Flow:
    if any(row.protocol == "udp" for row in volume(rows, "truncated", "ledger")):
        return unknown(
            "its calls with MSG_TRUNC told the length of datagrams of UDP, not how much was copied"
        )
    return _counted(copied_out_rows(rows))


def _counted(rows: Sequence[Volume]) -> Flow:
    return Flow(added(rows, "bytes"), "exact", added(rows, "calls"))
