"""Would zero-copy or sendfile help this program on this path? A line for each remedy, and the reasons. Pure.

What could be saved at most is the program's own copy_in; of a program that sends with zero-copy already, what
it pays for that. What the other way would cost is not in this record: a crossover that was measured on this
machine and on such a path (copyscope crossover) says so (nearest.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from copyscope.crossover import obstacles
from copyscope.crossover.nearest import Question, Row, answer, nearest
from copyscope.crossover.obstacles import MOSTLY
from copyscope.crossover.relays import COPIES, relay_of
from copyscope.crossover.remedies import Sends, reference_share, remedies, time_share, too_few_samples
from copyscope.ledger.attribution import side_times
from copyscope.ledger.headline import file_reads
from copyscope.ledger.portrait import median_slot
from copyscope.ledger.share import WORTH_SAYING, Share, percent
from copyscope.record.check import Whole, typed_whole
from copyscope.record.portrait import Direction
from copyscope.units import format_size

MEASURE = "sudo copyscope crossover"
# What stands for the saved copy when a program sends with MSG_ZEROCOPY.
PRICE_OF_ZEROCOPY = ("pin", "deferred", "silent", "completion")
# The remedies that a crossover can judge, and the strategies that it names them by.
STRATEGIES = {"MSG_ZEROCOPY": "zero_copy", "sendfile": "sendfile"}


def advise(record: Mapping[str, Any], crossovers: Sequence[Row] | None) -> dict[str, Any]:
    """The advice section: remedies, reasons, and what they rest on.

    `crossovers`: newest file first; `elsewhere` names the machine of those that were measured on another.
    """
    run = typed_whole(record)
    sent, zerocopy = run.portrait.send, run.derived.zerocopy
    made: dict[str, Any] = {"most_to_save": None, "stoppers": [], "crossover": None, "sendfile": None}
    if sent is None:
        text = "It sends nothing over TCP, MPTCP, UDP or UNIX sockets: there is no send to make cheaper."
        return made | {"text": text, "reasons": [text], "remedies": [], "measure": None}
    here = [row for row in crossovers or () if row["elsewhere"] is None]
    # The size of call that half of the bytes go through: the lower end of its power of two.
    size_bytes = median_slot([[low, low * count] for low, count in sent.sizes])
    accounts: tuple[str, ...] = ("copy_in",)
    way, share = _way(sent)
    if sent.zerocopy_share >= MOSTLY:
        accounts = PRICE_OF_ZEROCOPY
        made["stoppers"] = [one.text for one in obstacles.of_zerocopy(run)]
        questions = [Question("zero_copy", size_bytes, True)]
    elif reference_share(sent) >= MOSTLY:
        made["stoppers"] = [one.text for one in obstacles.of_pages(run)]
        # Of other pages than those of files there is no crossover.
        questions = [Question("sendfile", size_bytes, True)] if sent.page_share >= MOSTLY else []
    else:
        made["stoppers"] = [one.text for one in obstacles.of_zerocopy(run)]
        made["stoppers"] += obstacles.in_the_program(run, size_bytes)
        questions = [Question("zero_copy", size_bytes, False), Question("sendfile", size_bytes, False)]
    few = too_few_samples(run)
    most = None if few else time_share(run, accounts)
    made["most_to_save"] = None if most is None else asdict(most)
    rows = {asked.strategy: nearest(here, run, asked.strategy) for asked in questions}
    made["crossover"], made["sendfile"] = rows.get("zero_copy"), rows.get("sendfile")
    used = max(sent.zerocopy_share, reference_share(sent)) >= MOSTLY
    sends = Sends(run, size_bytes, most, sent, few)
    found = remedies(sends, {str(name): row for name, row in rows.items()})
    asks = {STRATEGIES[one.name] for one in found if one.open}
    calls = f"Half of its bytes go out in calls of {format_size(size_bytes)} or more"
    sentences = [f"{calls}, {percent(share)} of them {way}."]
    if accounts == PRICE_OF_ZEROCOPY:
        sentences.append(_price_of_zerocopy(run, most))
    elif few is None:
        sentences += [*_relays(run), _left_to_save(most, rest=used), *_files(run)]
    if few is not None:
        sentences.append(f"What its copies cost is not known: {few.sentence()}.")
    for asked in questions:
        row = rows[asked.strategy]
        if row is not None:
            sentences.append(answer(row, asked, run))
        elif here and asked.strategy in asks:
            sentences.append(_not_among(here, asked, run))
    if not here and asks:
        sentences.append(_no_crossover(run, crossovers))
    # Where sends were copied, the cause has been said.
    if made["stoppers"] and not (used and zerocopy and zerocopy.cause):
        what = "What takes the gain away" if used else "What would stop it"
        sentences.append(f"{what}: {'; '.join(made['stoppers'])}.")
    measure = _command(here or crossovers or (), run) if asks else None
    made |= {"remedies": [asdict(one) for one in found], "measure": measure}
    return made | {"reasons": sentences, "text": " ".join(sentences)}


def _way(sent: Direction) -> tuple[str, float]:
    """How most of its bytes go, and how many of them."""
    ways = (
        ("with zero-copy already", sent.zerocopy_share),
        ("by reference to its own memory already (vmsplice)", sent.memory_share),
        ("by reference to pages already (sendfile, splice)", sent.page_share),
        ("by reference from socket to socket already (splice)", sent.socket_share),
    )
    copied = "by a copy into the kernel", 1 - sum(share for _, share in ways)
    return next((way for way in ways if way[1] >= MOSTLY), copied)


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


def _files(run: Whole) -> list[str]:
    """Where it reads files to send them, sendfile saves a copy more, and needs no completion."""
    share = file_reads(run.raw.samples, side_times(run.raw)["target"])
    if share is None or share.low < WORTH_SAYING:
        return []
    return [
        f"Reading files into its memory takes {share.spoken()} more: if it sends what it reads as it is, "
        "sendfile spares both copies."
    ]


def _relays(run: Whole) -> list[str]:
    """What it receives and sends in like amounts, splice(2) may move without a copy."""
    relay = relay_of(run)
    if relay is None:
        return []
    both = time_share(run, COPIES)
    price = "what these cost was not sampled" if both is None else f"these take {_of_its_time(both)}"
    return [relay.sentence(price)]


def _no_crossover(run: Whole, elsewhere: Sequence[Row] | None) -> str:
    """Why nothing of this machine is known, and how to get it."""
    cannot = "Cannot tell whether zero-copy or sendfile would pay, because"
    if not elsewhere:
        return f"{cannot} no crossover was measured on this host: run {MEASURE} (two minutes) and ask again."
    row = nearest(elsewhere, run, "zero_copy") or elsewhere[0]
    return (
        f"{cannot} the crossover of {row['file']} was measured on {row['elsewhere']}: run "
        f"{_command(elsewhere, run)} (two minutes) and ask again."
    )


def _not_among(here: Sequence[Row], asked: Question, run: Whole) -> str:
    return (
        f"Cannot tell what {asked.name} {'saves' if asked.used else 'would save'}: it is not in the "
        f"crossover that was measured on this host ({here[0]['file']}): run {_command(here, run)} (two "
        "minutes) and ask again."
    )


def _command(there: Sequence[Row], run: Whole) -> str:
    """What measures it. Beside what is there, of another machine or of other strategies: one sweep does not
    go into another."""
    if not there:
        return MEASURE
    row = nearest(there, run, "zero_copy") or there[0]
    return f"{MEASURE} --out {PurePath(row['file']).parent.parent / f'crossover-{run.raw.machine.kernel}'}"


def _of_its_time(share: Share) -> str:
    if share.share is None or share.low < WORTH_SAYING:
        return f"{share.spoken()} of its CPU time"
    return f"{percent(share.share)} of its CPU time ({share.low * 100:.0f} to {percent(share.high)})"
