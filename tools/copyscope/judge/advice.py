"""What would make this program copy less here? One sentence, a line for each remedy, the reasons. Pure.

What zero-copy could save at most is the program's own copy_in; of a program that uses it already, what it
pays for that. What the other way would cost is not in this record: a crossover that was measured on this
machine and on such a path (copyscope crossover) says so (crossover_file.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from msgspec import to_builtins

from copyscope.judge import threshold
from copyscope.judge.crossover_file import Found, Question, Strategy, answer, nearest
from copyscope.judge.obstacles import MOSTLY, in_the_program, of_pages, of_zerocopy
from copyscope.judge.remedies import (
    COPIES,
    WORTH_TRYING,
    Remedy,
    Sends,
    relay_of,
    remedies,
    sends_of,
)
from copyscope.ledger.share import WORTH_SAYING, Share, percent
from copyscope.record.check import Whole, typed_whole
from copyscope.units import format_size

MEASURE = "sudo copyscope crossover"
# The remedies that a crossover can judge, and the strategies that it names them by.
STRATEGIES = {"MSG_ZEROCOPY": "zero_copy", "sendfile": "sendfile"}
# What the share of a remedy is.
SAVED = {
    "MSG_ZEROCOPY": "the copy into the kernel:",
    "sendfile": "both copies:",
    "kTLS": "all copies but the cipher:",
    "splice": "both copies:",
    "larger sends": "system calls:",
}
# What a record does not say of a remedy that may help.
CONDITIONS = {
    "MSG_ZEROCOPY": "; a crossover would tell",
    "sendfile": ", if files are sent unchanged",
    "kTLS": ", if the kernel has its tls module and OpenSSL was built for it",
    "splice": ", if it passes on what it receives as it is",
    "io_uring": ", and no copy",
    "larger sends": ", and work for each packet",
}


def advise(record: Mapping[str, Any], crossovers: Sequence[Found] | None) -> dict[str, Any]:
    """The advice section: remedies, reasons, and what they rest on.

    `crossovers`: newest file first; `elsewhere` names the machine of those that were measured on another.
    """
    run = typed_whole(record)
    sent = run.portrait.send
    made: dict[str, Any] = {"most_to_save": None, "stoppers": [], "crossover": None, "sendfile": None}
    if sent is None:
        text = "It sends nothing over TCP, MPTCP, UDP or UNIX sockets: there is nothing to optimise."
        return made | {"answer": text, "text": text, "reasons": [text], "remedies": [], "measure": None}
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
            sentences += [answer(row, one, run), *filter(None, [threshold.sentence(row, one, run)])]
        elif here and one.strategy in asks:
            sentences.append(_not_among(here, one, run))
    if not here and asks:
        sentences.append(_no_crossover(run, crossovers))
    used, zerocopy = sends.by_zerocopy or sends.by_reference, run.derived.zerocopy
    # Where sends were copied, the cause has been said.
    possible = used or sends.could_zerocopy
    if stoppers and possible and not (used and zerocopy and zerocopy.cause):
        what = "What takes the gain away" if used else "What would stop zero-copy"
        sentences.append(f"{what}: {'; '.join(stoppers)}.")
    return {
        "answer": _answer(sends, found),
        "text": " ".join(sentences),
        "reasons": sentences,
        "stoppers": stoppers,
        "most_to_save": sends.most and asdict(sends.most),
        "crossover": to_builtins(rows.get("zero_copy")),
        "sendfile": to_builtins(rows.get("sendfile")),
        "remedies": [asdict(one) for one in found],
        "measure": _command(here or crossovers or (), run) if asks else None,
    }


def _answer(sends: Sends, found: Sequence[Remedy]) -> str:
    """The one sentence: what to change and what that saves, or why nobody knows, or that nothing would."""
    name = _called(sends)
    for said, saves in (("yes", "saves"), ("maybe", "may save")):
        best = [(one.most, one) for one in found if one.answer == said and one.how and one.most]
        if best:
            most, one = max(best, key=lambda pair: pair[0].high)
            known = said == "yes" or (one.name == "sendfile" and sends.server.serves_files)
            unless = "" if known else CONDITIONS.get(one.name, "")
            part = most.spoken().removeprefix("at most ")
            share = f"{SAVED[one.name]} {part}" if one.name in SAVED else f"up to {percent(most.high)}"
            return f"{name}: {one.how} {saves} {share} of its CPU time{unless}."
    if sends.few is not None:
        return f"{name}: {sends.few.for_advice()}."
    used = next((f"{one.name} is in use; " for one in found if one.answer == "yes"), "")
    least = percent(WORTH_TRYING)
    return (
        f"{name}: {used}no{' other' if used else ''} change in this list would save {least} of its CPU time."
    )


def _called(sends: Sends) -> str:
    """The name of its process, and what it is made with where that does not say so."""
    target, server = sends.run.raw.watched, sends.server
    name = target.comm or (target.pids[0].comm if target.pids else target.name)
    return name if server.is_called(name) or not server.name else f"{name} ({server.name})"


def _questions(sends: Sends) -> list[Question]:
    """What a crossover is asked: of what the program does, or could do."""
    size_bytes = sends.size_bytes
    if sends.by_zerocopy:
        return [Question("zero_copy", size_bytes, True)]
    if sends.tls is not None:
        return []
    if sends.by_reference:
        # Of other pages than those of files there is no crossover.
        return [Question("sendfile", size_bytes, True)] if sends.sent.page_share >= MOSTLY else []
    could: list[tuple[Strategy, str | None]] = [
        ("zero_copy", sends.server.zerocopy),
        ("sendfile", sends.server.sendfile),
    ]
    return [Question(strategy, size_bytes, False) for strategy, how in could if how is not None]


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
        ("sent with zero-copy already", sends.sent.zerocopy_share),
        ("sent by reference to its own memory already (vmsplice)", sends.sent.memory_share),
        ("sent by reference to pages already (sendfile, splice)", sends.sent.page_share),
        ("sent by reference from socket to socket already (splice)", sends.sent.socket_share),
    )
    copied = 1 - sum(share for _, share in ways)
    way, share = next((way for way in ways if way[1] >= MOSTLY), ("copied into the kernel", copied))
    all_of_it = "all" if share >= 1 - WORTH_SAYING else percent(share)
    size = format_size(sends.size_bytes)
    sentences = [f"At least half of its bytes are sent in calls of {size} or more; {all_of_it} are {way}."]
    if sends.by_zerocopy:
        sentences.append(_price_of_zerocopy(run, most))
    elif sends.few is None:
        left = _left_to_save(most, rest=sends.by_reference, possible=sends.could_zerocopy)
        sentences += [*_fallback(sends), *_relays(sends), left, *_files(sends)]
    return sentences


def _left_to_save(most: Share | None, *, rest: bool, possible: bool) -> str:
    """rest: of a program that sends by reference; possible: whether it could use zero-copy."""
    what = "The copy of the rest" if rest else "That copy"
    if most is None:
        return f"{what}: what it costs was not sampled."
    text = f"{what} takes {_of_its_time(most)}"
    if rest:
        return f"{text}: no more than this can be saved."
    if not possible:
        return f"{text}."
    return f"{text}: zero-copy saves no more, and pinning and releasing pages uses up part of that."


def _price_of_zerocopy(run: Whole, price: Share | None) -> str:
    """What a program pays for zero-copy; to turn it off saves that, and costs one copy into the kernel."""
    zerocopy = run.derived.zerocopy
    text = "Whether these sends were copied is not known"
    copied = 0.0
    if zerocopy is not None and zerocopy.completions:
        copied = (zerocopy.copied or 0) / zerocopy.completions
        text = f"{percent(copied)} of these sends were copied after all"
        if zerocopy.cause is not None:
            text += f" ({zerocopy.cause.sentence})"
    if price is None:
        return f"{text}; what page pinning, late copies and completion notices cost is not known."
    text += f"; page pinning, late copies and completion notices take {_of_its_time(price)}"
    if copied >= MOSTLY:
        return (
            f"{text}: turning zero-copy off here would save that, and cost one copy into the kernel instead."
        )
    return f"{text}: that is the cost of the copies that it saves."


def _files(sends: Sends) -> list[str]:
    """Where it reads files to send them, sendfile saves a copy more, and needs no completion."""
    share = sends.reads
    if share is None or share.low < WORTH_SAYING:
        return []
    text = f"Another {share.spoken()} is reading files"
    if sends.server.sendfile is None or sends.fallback is not None:
        return [f"{text}."]
    return [f"{text}; if they are sent unchanged, sendfile avoids both copies, at some cost of its own."]


def _fallback(sends: Sends) -> list[str]:
    """Why sendfile is not in use."""
    why = sends.fallback
    return [] if why is None else [f"{why.text[0].upper()}{why.text[1:]}."]


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
    cannot = "Cannot tell whether zero-copy would pay, because"
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
