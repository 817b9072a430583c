"""Would zero-copy or sendfile help this program on this path? A line for each remedy, and the reasons. Pure.

What could be saved at most is the program's own copy_in; of a program that sends with zero-copy already, what
it pays for that. What the other way would cost is not in this record: a crossover that was measured on this
machine and on such a path (copyscope crossover) says so (nearest.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from msgspec import to_builtins

from copyscope.judge.crossover_file import Found, Question, answer, nearest
from copyscope.judge.remedies import (
    COPIES,
    MOSTLY,
    Sends,
    in_the_program,
    of_pages,
    of_zerocopy,
    relay_of,
    remedies,
    sends_of,
)
from copyscope.ledger.headline import file_reads
from copyscope.ledger.share import WORTH_SAYING, Share, percent
from copyscope.record.check import Whole, typed_whole
from copyscope.units import format_size

MEASURE = "sudo copyscope crossover"
# The remedies that a crossover can judge, and the strategies that it names them by.
STRATEGIES = {"MSG_ZEROCOPY": "zero_copy", "sendfile": "sendfile"}


def advise(record: Mapping[str, Any], crossovers: Sequence[Found] | None) -> dict[str, Any]:
    """The advice section: remedies, reasons, and what they rest on.

    `crossovers`: newest file first; `elsewhere` names the machine of those that were measured on another.
    """
    run = typed_whole(record)
    sent = run.portrait.send
    made: dict[str, Any] = {"most_to_save": None, "stoppers": [], "crossover": None, "sendfile": None}
    if sent is None:
        text = "It sends nothing over TCP, MPTCP, UDP or UNIX sockets: there is no send to make cheaper."
        return made | {"text": text, "reasons": [text], "remedies": [], "measure": None}
    sends = sends_of(run, sent)
    here = [row for row in crossovers or () if row.elsewhere is None]
    asked = _questions(sends)
    rows = {one.strategy: nearest(here, run, one.strategy) for one in asked}
    found = remedies(sends, rows)
    asks = {STRATEGIES[one.name] for one in found if one.open}
    stoppers = _stoppers(sends)
    sentences = _of_its_copies(sends)
    for one in asked:
        if (row := rows[one.strategy]) is not None:
            sentences.append(answer(row, one, run))
        elif here and one.strategy in asks:
            sentences.append(_not_among(here, one, run))
    if not here and asks:
        sentences.append(_no_crossover(run, crossovers))
    used, zerocopy = sends.by_zerocopy or sends.by_reference, run.derived.zerocopy
    # Where sends were copied, the cause has been said.
    if stoppers and not (used and zerocopy and zerocopy.cause):
        what = "What takes the gain away" if used else "What would stop it"
        sentences.append(f"{what}: {'; '.join(stoppers)}.")
    return {
        "text": " ".join(sentences),
        "reasons": sentences,
        "stoppers": stoppers,
        "most_to_save": sends.most and asdict(sends.most),
        "crossover": to_builtins(rows.get("zero_copy")),
        "sendfile": to_builtins(rows.get("sendfile")),
        "remedies": [asdict(one) for one in found],
        "measure": _command(here or crossovers or (), run) if asks else None,
    }


def _questions(sends: Sends) -> list[Question]:
    """What a crossover is asked."""
    size_bytes = sends.size_bytes
    if sends.by_zerocopy:
        return [Question("zero_copy", size_bytes, True)]
    if sends.by_reference:
        # Of other pages than those of files there is no crossover.
        return [Question("sendfile", size_bytes, True)] if sends.sent.page_share >= MOSTLY else []
    return [Question("zero_copy", size_bytes, False), Question("sendfile", size_bytes, False)]


def _stoppers(sends: Sends) -> list[str]:
    """What takes the gain away, of what it does or of what it could do."""
    if sends.by_reference and not sends.by_zerocopy:
        return [one.text for one in of_pages(sends.run)]
    found = [one.text for one in of_zerocopy(sends.run)]
    return found if sends.by_zerocopy else found + in_the_program(sends.run, sends.size_bytes)


def _of_its_copies(sends: Sends) -> list[str]:
    """How its bytes go, and what that costs."""
    run, most = sends.run, sends.most
    ways = (
        ("with zero-copy already", sends.sent.zerocopy_share),
        ("by reference to its own memory already (vmsplice)", sends.sent.memory_share),
        ("by reference to pages already (sendfile, splice)", sends.sent.page_share),
        ("by reference from socket to socket already (splice)", sends.sent.socket_share),
    )
    copied = "by a copy into the kernel", 1 - sum(share for _, share in ways)
    way, share = next((way for way in ways if way[1] >= MOSTLY), copied)
    calls = f"Half of its bytes go out in calls of {format_size(sends.size_bytes)} or more"
    sentences = [f"{calls}, {percent(share)} of them {way}."]
    if sends.by_zerocopy:
        sentences.append(_price_of_zerocopy(run, most))
    elif sends.few is None:
        sentences += [*_relays(sends), _left_to_save(most, rest=sends.by_reference), *_files(sends)]
    if sends.few is not None:
        sentences.append(f"What its copies cost is not known: {sends.few.sentence()}.")
    return sentences


def _left_to_save(most: Share | None, *, rest: bool) -> str:
    what = "The copy of the rest" if rest else "That copy"
    if most is None:
        return f"{what}: what it costs was not sampled."
    text = f"{what} takes {_of_its_time(most)}: no more than this can be saved"
    return f"{text}." if rest else f"{text}, and taking and giving back the pages costs a part of it."


def _price_of_zerocopy(run: Whole, price: Share | None) -> str:
    """What a program pays for zero-copy; to turn it off saves that, and costs one copy into the kernel."""
    zerocopy = run.derived.zerocopy
    text = "What became of these sends is not known"
    copied = 0.0
    if zerocopy is not None and zerocopy.completions:
        copied = (zerocopy.copied or 0) / zerocopy.completions
        text = f"{percent(copied)} of these sends were copied after all"
        if zerocopy.cause is not None:
            text += f" ({zerocopy.cause.sentence})"
    if price is None:
        return f"{text}; what taking pages, copying them after all and completions cost is not known."
    text += f"; taking pages, copying them after all and completions take {_of_its_time(price)}"
    if copied >= MOSTLY:
        return (
            f"{text}: to turn zero-copy off here would save that, and cost one copy into the kernel instead."
        )
    return f"{text}: that is the price of the copies that it spares."


def _files(sends: Sends) -> list[str]:
    """Where it reads files to send them, sendfile saves a copy more, and needs no completion."""
    share = file_reads(sends.run.raw.samples, sends.time)
    if share is None or share.low < WORTH_SAYING:
        return []
    return [
        f"Reading files into its memory takes {share.spoken()} more: if it sends what it reads as it is, "
        "sendfile spares both copies."
    ]


def _relays(sends: Sends) -> list[str]:
    """What it receives and sends in like amounts, splice(2) may move without a copy."""
    relay = relay_of(sends.run)
    if relay is None:
        return []
    both = sends.share(COPIES)
    price = "what these cost was not sampled" if both is None else f"these take {_of_its_time(both)}"
    return [relay.sentence(price)]


def _no_crossover(run: Whole, elsewhere: Sequence[Found] | None) -> str:
    """Why nothing of this machine is known, and how to get it."""
    cannot = "Cannot tell whether zero-copy or sendfile would pay, because"
    if not elsewhere:
        return f"{cannot} no crossover was measured on this host: run {MEASURE} (two minutes) and ask again."
    row = nearest(elsewhere, run, "zero_copy") or elsewhere[0]
    return (
        f"{cannot} the crossover of {row.file} was measured on {row.elsewhere}: run "
        f"{_command(elsewhere, run)} (two minutes) and ask again."
    )


def _not_among(here: Sequence[Found], asked: Question, run: Whole) -> str:
    return (
        f"Cannot tell what {asked.name} {'saves' if asked.used else 'would save'}: it is not in the "
        f"crossover that was measured on this host ({here[0].file}): run {_command(here, run)} (two "
        "minutes) and ask again."
    )


def _command(there: Sequence[Found], run: Whole) -> str:
    """What measures it. Beside what is there, of another machine or of other strategies: one sweep does not
    go into another."""
    if not there:
        return MEASURE
    row = nearest(there, run, "zero_copy") or there[0]
    return f"{MEASURE} --out {PurePath(row.file).parent.parent / f'crossover-{run.raw.machine.kernel}'}"


def _of_its_time(share: Share) -> str:
    if share.share is None or share.low < WORTH_SAYING:
        return f"{share.spoken()} of its CPU time"
    return f"{percent(share.share)} of its CPU time ({share.low * 100:.0f} to {percent(share.high)})"
