# SPDX-License-Identifier: GPL-2.0-only
"""Rules for remedies: changes that make a watched program copy less (`advise`). Pure."""

from collections.abc import Callable, Iterator
from functools import partial

from copyscope.base.spelling import format_ns, format_size
from copyscope.judge import bounds
from copyscope.judge.evidence import (
    MOSTLY,
    WORTH_TRYING,
    Evidence,
    Facts,
    is_worth_trying,
    relay_of,
)
from copyscope.judge.findings import Answer, Decision, FindingRule, RemedyTerms
from copyscope.judge.obstacles import FALLBACKS, ON_PATH, OTHER_PROTOCOL, SMALL_CALLS, TO_PAGES
from copyscope.judge.roles import (
    has_small_receives,
    is_receiver,
    pause_ns,
    sends_datagrams,
    sends_per_answer,
)
from copyscope.judge.servers import Setting
from copyscope.ledger.share import MENTIONED_SHARE_MIN, percent
from copyscope.record.portrait import Direction
from copyscope.taxonomy.accounts import saved_by

# Maximum number of plaintext bytes in a TLS record (RFC 8446, 5.1).
TLS_RECORD_BYTES = 16_384
SAVES = "{how} saves {saving}"
NOT_KNOWN: tuple[Answer, str] = ("maybe", "{how}: its saving is not known")
TLS_MODULE = "it needs the kernel's tls module, and OpenSSL built with kTLS"


# Functions that decide about a remedy that is in use already, or that is not available to the program.


def sends_by_reference(evidence: Evidence) -> Decision | None:
    """Decide against a remedy meant for sends that copy, if the program sends by reference."""
    if not evidence.by_reference:
        return None
    return Decision("no", "its bytes are sent by reference already", is_priced=False)


def zerocopy_in_use(evidence: Evidence) -> Decision | None:
    """Decide whether zero-copy pays off for a program that uses it already."""
    if not evidence.by_zerocopy:
        return None
    copied_part, price = evidence.copied_part, evidence.zerocopy_saving
    if copied_part is not None and copied_part >= MOSTLY:
        return Decision("no", f"in use, but the kernel copies {percent(copied_part)} of its sends")
    if price is not None and price.high < WORTH_TRYING:
        return Decision("yes", f"in use, at a cost of {price.shown()}")
    pays = evidence.pays_off("zero_copy")
    if pays is None:
        return Decision("maybe", f"in use; {evidence.crossover_note('zero_copy')}")
    if pays:
        return Decision("yes", "in use, and it pays off on this path")
    return Decision("no", "in use, and costs more than it saves here")


def encrypts(evidence: Evidence) -> Decision | None:
    """Decide against a remedy meant for unencrypted bytes, if the program encrypts."""
    if evidence.tls is None:
        return None
    return Decision("no", "the program encrypts: it sends its cipher's output")


def in_use(part_by_remedy: Callable[[Direction], float], verb: str) -> Callable[[Evidence], Decision | None]:
    """Return a function that decides `yes` if most bytes are sent by the remedy already.

    part_by_remedy: returns the fraction (0..1) of the sent bytes that the remedy moves already
    verb: verb of the sentence `in use: 90 % of its bytes ...`
    """

    def decide(evidence: Evidence) -> Decision | None:
        share = part_by_remedy(evidence.sent) if evidence.sent else 0.0
        text = f"in use: {percent(share)} of its bytes {verb}"
        return Decision("yes", text, is_priced=False) if share >= MOSTLY else None

    return decide


splice_in_use = in_use(lambda sent: sent.socket_share, "go from socket to socket")


def sends_no_files(evidence: Evidence) -> Decision | None:
    """Decide against sendfile if the program does not read files in order to send them."""
    if evidence.by_zerocopy:
        return Decision("no", "its bytes are sent with zero-copy already", is_priced=False)
    if evidence.reads is not None and not evidence.reads_files:
        return Decision("no", "no reads of files seen; mapped files do not show", is_priced=False)
    return None


def sends_large(evidence: Evidence) -> Decision | None:
    """Decide against larger sends if the sends are large already, or are TLS records."""
    size = format_size(evidence.size_bytes)
    if evidence.size_bytes >= bounds.LARGE_BYTES:
        return Decision("no", f"half of its bytes are in calls of {size} or more", is_priced=False)
    if evidence.tls is not None and evidence.size_bytes >= TLS_RECORD_BYTES // 2:
        return Decision("no", "each send is a TLS record, at most 16 KiB", is_priced=False)
    return None


def parts_of_answers(evidence: Evidence) -> Decision | None:
    """Decide against larger sends if each send is an answer, a part of an answer, or a datagram."""
    if sends_datagrams(evidence.run):
        return Decision("no", "each send is a datagram, so it cannot grow", is_priced=False)
    if sends_per_answer(evidence.run) is not None:
        return Decision("no", "each send is a part of an answer, so it cannot grow", is_priced=False)
    if evidence.setting("larger_sends") is None and evidence.sends_answers:
        return Decision("no", "each send answers one request, so it cannot grow", is_priced=False)
    return None


def user_copies_stay(evidence: Evidence) -> Decision | None:
    """Decide about the program's own copies if their share is small or uncertain."""
    cost = evidence.share(saved_by("fewer user copies"))
    few = evidence.undecided(cost)
    if cost is None:
        return None
    text = f"its own copies take {cost.shown()}"
    if not is_worth_trying(cost):
        return Decision("n/a", few.briefly(), is_priced=False) if few else Decision("no", text)
    if cost.share is None and (few or cost.low < MENTIONED_SHARE_MIN):
        unnamed = f"{text}: much of its code has no names"
        return Decision("n/a", few.briefly() if few else unnamed, is_priced=False)
    return None


def maps_received_pages(evidence: Evidence) -> Decision | None:
    """Decide `yes` if the program maps most of the received bytes already."""
    mapped = evidence.run.portrait.mapped
    if mapped is None or mapped.mapped_share < MOSTLY:
        return None
    return Decision("yes", f"in use: {percent(mapped.mapped_share)} of the bytes are mapped", is_priced=False)


# Functions that check whether a remedy concerns the program at all.


def any_sender(evidence: Evidence) -> Iterator[Facts]:
    if evidence.sent is not None:
        yield {}


def sent_files(evidence: Evidence) -> Iterator[Facts]:
    library = evidence.changing_library
    if evidence.sent is not None:
        yield {"except_for": "" if library is None else f", except for files that {library} changes"}


def encrypted_bytes(evidence: Evidence) -> Iterator[Facts]:
    if evidence.tls is not None:
        yield {}


def relayed_bytes(evidence: Evidence) -> Iterator[Facts]:
    """Check if the program is a relay: it splices most bytes, or a thread receives and sends most bytes."""
    relay = relay_of(evidence.run)
    if splice_in_use(evidence) or (relay is not None and relay.share >= MOSTLY):
        yield {"amounts": relay.amounts() if relay else ""}


def divided_answers(evidence: Evidence) -> Iterator[Facts]:
    """Check if the program sends each answer in several small pieces."""
    sends = sends_per_answer(evidence.run)
    if sends is not None:
        yield {"sends": f"{sends:.1f}"}


def paused_answers(evidence: Evidence) -> Iterator[Facts]:
    """Check if answers in several pieces wait for delayed acknowledgements."""
    answer_ns = pause_ns(evidence.run)
    if answer_ns is not None:
        yield {"time": format_ns(answer_ns)}


def small_datagrams(evidence: Evidence) -> Iterator[Facts]:
    if sends_datagrams(evidence.run):
        yield {}


def small_receives(evidence: Evidence) -> Iterator[Facts]:
    received = evidence.run.portrait.receive
    if received is not None and has_small_receives(evidence.run):
        yield {"size": format_size(received.mean_bytes)}


def receivers(evidence: Evidence) -> Iterator[Facts]:
    if is_receiver(evidence.run) and not has_small_receives(evidence.run):
        yield {}


def copying_function(evidence: Evidence, use: str) -> str:
    """Return a clause with the function that makes most of the program's own copies, or "" without a name.

    use: predicate about the copy: `feeds a send`
    """
    callers = [row for row in evidence.run.raw.user_callers or [] if row.caller is not None]
    main = max(callers, key=lambda row: row.samples, default=None)
    if main is None:
        return ""
    place = f" ({main.source})" if main.source else ""
    return f", if the copy in {main.caller}{place} {use}"


remedy = partial(FindingRule, "remedy")


def own_copies_remedy(code: str, setting: Setting, *, receives: bool) -> FindingRule:
    """Return the remedy for copies in the own code of a receiver, or of a sender.

    receives: True for a receiver, which copies after its receive calls
    """
    role = "follow its receive calls" if receives else "feed its sends"
    place = "after the receive" if receives else "before the send"

    def own_copies(evidence: Evidence) -> Iterator[Facts]:
        if is_receiver(evidence.run) is receives and (receives or evidence.sent is not None):
            yield {"caller": copying_function(evidence, "follows a receive" if receives else "feeds a send")}

    terms = RemedyTerms(
        setting,
        bounds.fewer_user_copies,
        decisions=(user_copies_stay,),
        unknown=("n/a", "copies in the program itself were not sampled"),
        provided=f"if these copies {role}",
        meaning=f"No memcpy() {place}. Evidence: samples in memcpy() and the like.",
    )
    return remedy(code, own_copies, SAVES + "{caller}", remedy=terms)


# All remedies. Remedies with equal answers are reported in this order, and the first of equal savings leads.
REMEDIES = (
    remedy(
        "TCP_NODELAY",
        paused_answers,
        remedy=RemedyTerms(
            "nodelay",
            lambda _: None,
            unknown=("maybe", "{how}, or one send: an answer takes {time}"),
            headline="{how} may end the wait for delayed acknowledgements: each answer takes {time}",
            meaning="The last piece need not wait. Evidence: sends, receives and time of an answer.",
        ),
    ),
    remedy(
        "sendfile",
        sent_files,
        SAVES + ": both copies{except_for}",
        remedy=RemedyTerms(
            "sendfile",
            bounds.sendfile,
            decisions=(
                in_use(lambda sent: sent.page_share, "are sent by reference"),
                sends_by_reference,
                sends_no_files,
            ),
            stopped_by=(*FALLBACKS, *TO_PAGES),
            unknown=NOT_KNOWN,
            strategy="sendfile",
            is_certain=lambda evidence: evidence.server.serves_files and evidence.changing_library is None,
            provided="if files are sent unchanged",
            meaning="The kernel sends pages of the file itself. Evidence: samples in file reads.",
        ),
    ),
    remedy(
        "UDP batches",
        small_datagrams,
        SAVES + ": calls and work per packet",
        remedy=RemedyTerms(
            "udp_segment",
            bounds.larger_sends,
            unknown=NOT_KNOWN,
            provided="if datagrams of equal size go to one peer",
            meaning="Many datagrams per call and packet. Evidence: sizes of datagrams, samples.",
        ),
    ),
    remedy(
        "one send",
        divided_answers,
        SAVES + ": {sends} sends an answer",
        remedy=RemedyTerms(
            "one_send",
            bounds.one_send_per_answer,
            unknown=NOT_KNOWN,
            provided="if the pieces of an answer are ready together",
            meaning="One call and packet for each answer. Evidence: sends for each receive.",
        ),
    ),
    remedy(
        "MSG_ZEROCOPY",
        any_sender,
        SAVES,
        remedy=RemedyTerms(
            "zerocopy",
            bounds.zerocopy,
            decisions=(zerocopy_in_use, sends_by_reference, encrypts),
            stopped_by=(*ON_PATH, *TO_PAGES, OTHER_PROTOCOL, SMALL_CALLS),
            unknown=NOT_KNOWN,
            strategy="zero_copy",
            needs_crossover=True,
            provided="if a measured crossover confirms it",
            meaning="The kernel sends the program's own pages. Evidence: samples in the copy.",
        ),
    ),
    remedy(
        "kTLS",
        encrypted_bytes,
        SAVES + ": all but the cipher; " + TLS_MODULE,
        remedy=RemedyTerms(
            "ktls",
            # Same as sendfile, although the cipher of kTLS may be slower than the program's cipher.
            bounds.sendfile,
            unknown=NOT_KNOWN,
            provided="if the kernel has the tls module and OpenSSL was built with kTLS",
            meaning="The kernel encrypts, even pages of files. Evidence: samples in ciphers.",
        ),
    ),
    remedy(
        "splice",
        relayed_bytes,
        SAVES + ": both copies",
        remedy=RemedyTerms(
            "splice",
            bounds.splice,
            decisions=(splice_in_use, encrypts),
            unknown=("maybe", "{amounts}; the cost of both copies was not sampled"),
            provided="if the program forwards received bytes unchanged",
            meaning="The kernel forwards received packets. Evidence: bytes that each thread moved.",
        ),
    ),
    remedy(
        "larger sends",
        any_sender,
        SAVES + ": calls, packets",
        remedy=RemedyTerms(
            "larger_sends",
            bounds.larger_sends,
            decisions=(sends_by_reference, sends_large, parts_of_answers),
            unknown=NOT_KNOWN,
            meaning="Fewer calls for equal bytes. Evidence: sizes of calls, and samples in calls.",
        ),
    ),
    remedy(
        "larger receives",
        small_receives,
        SAVES + ": it receives {size} a call",
        remedy=RemedyTerms(
            "larger_receives",
            bounds.larger_receives,
            unknown=NOT_KNOWN,
            provided="if more bytes wait in the socket",
            meaning="Fewer calls for equal bytes. Evidence: sizes of calls, and samples in calls.",
        ),
    ),
    remedy(
        "mapped receives",
        receivers,
        SAVES + "; MSG_TRUNC if it drops the data",
        remedy=RemedyTerms(
            "mapped_receives",
            bounds.mapped_receives,
            decisions=(maps_received_pages,),
            unknown=NOT_KNOWN,
            provided="if packets hold whole pages",
            meaning="The kernel maps pages of packets. Evidence: samples in that copy.",
        ),
    ),
    own_copies_remedy("fewer user copies", "fewer_user_copies", receives=False),
    own_copies_remedy("receive in place", "receive_in_place", receives=True),
    # io_uring comes last, because it never leads if another remedy may save as much.
    remedy(
        "io_uring",
        any_sender,
        SAVES + ": system calls, no copy",
        remedy=RemedyTerms(
            "io_uring",
            bounds.io_uring,
            decisions=(in_use(lambda sent: sent.io_uring_share, "are sent by io_uring"),),
            unknown=("n/a", "the cost of its system calls was not sampled"),
            provided="and no copy",
            meaning="Many sends per call; each still copies. Evidence: samples in system calls.",
        ),
    ),
)
