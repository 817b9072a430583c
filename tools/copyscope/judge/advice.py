# SPDX-License-Identifier: GPL-2.0-only
"""The table of all findings, and two sections of a record made from the table: `advice` and `why`. Pure.

The cost of the copy into the kernel is the largest saving that zero-copy can bring. If a program already uses
zero-copy, the overhead of zero-copy is the largest saving from turning it off. The record of a run lacks the
cost of the alternative strategy. A crossover that was measured on this machine contains that cost.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec import structs, to_builtins

from copyscope.base.spelling import counted, format_bytes, format_percent, format_size
from copyscope.judge.bounds import SavingBounds
from copyscope.judge.crossover_file import (
    SavedCrossover,
    SizeQuestion,
    answer_sentence,
    nearest_crossover,
)
from copyscope.judge.evidence import MOSTLY, WORTH_TRYING, Evidence, relay_of
from copyscope.judge.findings import Finding, FindingRule, find
from copyscope.judge.obstacles import OBSTACLES
from copyscope.judge.problems import PROBLEMS
from copyscope.judge.remedies import REMEDIES
from copyscope.judge.roles import is_idle
from copyscope.judge.saving import saving_sentence, zerocopy_gain_clause
from copyscope.judge.stand_in import StandInPlan, plan_of
from copyscope.ledger.share import MENTIONED_SHARE_MIN, Share, TooFew, percent
from copyscope.ledger.waiting import waiting
from copyscope.record.portrait import Advice, Bounds, Direction, Problem, Remedy, Saving, StandIn, Why
from copyscope.record.run import Run
from copyscope.taxonomy.accounts import RECEIVE_COPIES, ZEROCOPY_PRICE, saved_by

MEASURE_COMMAND = "sudo copyscope crossover"
FINDINGS: tuple[FindingRule, ...] = (*PROBLEMS, *OBSTACLES, *REMEDIES)


def rule_of(code: str) -> FindingRule | None:
    """Return the rule with a code, or None for a code that another version of copyscope wrote."""
    return next((rule for rule in FINDINGS if rule.code == code), None)


def why_section(run: Run, crossovers: Sequence[SavedCrossover] | None = None) -> Why:
    """Return the section `why`: a sentence on the most expensive problem, and all problems.

    crossovers: saved crossovers of all machines, the newest file first
    """
    evidence = Evidence(run)
    if not evidence.zerocopy_sends and not any(
        row.flag_only_calls or row.enobufs for row in evidence.buffers
    ):
        return Why("the program sends nothing with MSG_ZEROCOPY or io_uring's SEND_ZC", [])
    findings = find(FINDINGS, evidence, "problem")
    if findings:
        return Why(findings[0].summary, [_problem(finding) for finding in findings])
    price = evidence.share(ZEROCOPY_PRICE)
    sends = counted(evidence.zerocopy_sends, "zero-copy send")
    text = f"nothing is wrong: none of {sends} was copied"
    if price is not None:
        text = f"{text}; pinning and notifications take {price.spoken()} of its CPU time"
    return Why(f"{text}{zerocopy_gain_clause(run, crossovers or ())}", [])


def _problem(finding: Finding) -> Problem:
    """Return the finding as a row of the section `why`."""
    return Problem(
        finding.rule.code,
        finding.summary,
        finding.evidence,
        finding.change or "",
        finding.wall_share,
        _saving(finding.cost),
    )


def advice_section(run: Run, crossovers: Sequence[SavedCrossover] | None) -> Advice:
    """Return the section `advice`: every remedy with its saving, and the reasons in sentences.

    crossovers: saved crossovers of all machines, the newest file first
    """
    evidence = Evidence(run, [row for row in crossovers or () if row.elsewhere is None])
    if is_idle(run):
        text = _idle_sentence(run)
        return Advice(text, [], None, None, None, answer=text, reasons=[text], remedies=[])
    remedies = find(FINDINGS, evidence, "remedy")
    needs_crossover = any(finding.is_open for finding in remedies)
    stoppers = _stoppers(evidence) if evidence.sent else []
    reasons = [
        *(_sending_sentences(evidence, evidence.sent) if evidence.sent else _receiving_sentences(evidence)),
        *_crossover_sentences(evidence, remedies, crossovers),
        *_stopper_sentence(evidence, stoppers),
    ]
    return Advice(
        answer=_answer(evidence, remedies),
        text=" ".join(reasons),
        reasons=reasons,
        stoppers=stoppers,
        most_to_save=_saving(evidence.zerocopy_saving),
        crossover=to_builtins(evidence.crossovers.get("zero_copy")),
        sendfile=to_builtins(evidence.crossovers.get("sendfile")),
        remedies=[_remedy(finding) for finding in remedies],
        measure=_measure_command(evidence.saved or crossovers or (), run) if needs_crossover else None,
    )


def _idle_sentence(run: Run) -> str:
    """Return the reason why a program that moves almost no bytes gets no advice."""
    sent, received = run.portrait.send, run.portrait.receive
    if sent is None and received is None:
        return "It moves nothing over TCP, MPTCP, UDP or UNIX sockets: there is nothing to optimise."
    moved = format_bytes(sum(row.bytes for row in (sent, received) if row))
    return f"It moved {moved} in {run.raw.run.measured_s:.1f} s: too little to optimise."


def leading_remedy(advice: Advice) -> Remedy | None:
    """Return the remedy of the one-sentence answer, or None if no remedy may help."""
    for certainty in ("yes", "maybe"):
        helping = [row for row in advice.remedies or () if row.answer == certainty and row.how and row.saves]
        if helping:
            return max(helping, key=lambda row: row.saves.most_share if row.saves else 0.0)
    return None


def stand_in_plan(run: Run) -> StandInPlan | None:
    """Return the stand-in traffic that would measure a run's first remedy, or None if there is none."""
    remedy = None if run.derived.advice is None else leading_remedy(run.derived.advice)
    return None if remedy is None else plan_of(Evidence(run), remedy.name)


def with_stand_in(advice: Advice, stand_in: StandIn) -> Advice:
    """Return the advice, completed by the saving that a stand-in measured."""
    saves = stand_in.saves
    ends = sorted(abs(end) * 100 for end in (saves.low, saves.high))
    amount = f"{format_percent(abs(saves.share))} ({ends[0]:.1f} to {ends[1]:.1f}) of"
    if saves.low > 0:
        effect = f"saved {amount}"
    elif saves.high < 0:
        effect = f"added {amount}"
    else:
        more, less = format_percent(-saves.low), format_percent(saves.high)
        effect = f"made no clear difference: {more} more to {less} less"
    text = f"In copyscope's own traffic ({stand_in.traffic}), {stand_in.remedy} {effect} CPU time per byte."
    return structs.replace(
        advice,
        answer=f"{advice.answer} {text}",
        text=f"{advice.text} {text}",
        reasons=[*(advice.reasons or []), text],
        stand_in=stand_in,
    )


def _remedy(finding: Finding) -> Remedy:
    """Return the finding as a row of the section `advice`."""
    return Remedy(
        finding.rule.code,
        finding.answer,
        finding.summary,
        finding.is_open,
        None if finding.saving is None else _bounds(finding.saving),
        finding.change,
    )


def _bounds(saving: Share) -> Bounds:
    """Return the bounds of a saving, and the likely saving if it is known."""
    return Bounds(saving.low, saving.high, saving.likely if isinstance(saving, SavingBounds) else None)


def _saving(share: Share | None) -> Saving | None:
    if share is None or share.share is None:
        return None
    return Saving(share.share, share.low, share.high)


def _answer(evidence: Evidence, remedies: Sequence[Finding]) -> str:
    """Return a sentence with the best remedy and its saving, or one that says why no remedy is worthwhile."""
    name = _program_name(evidence)
    headline = next((row.headline for row in remedies if row.headline and row.change), None)
    if headline is not None:
        return f"{name}: {headline}."
    for certainty, saves in (("yes", "saves"), ("maybe", "may save")):
        if helping := _helping(remedies, certainty):
            best = max(helping, key=lambda row: row.saving.high if row.saving else 0.0)
            return f"{name}: {best.change} {saves} {_saving_words(evidence, best)}."
    few, waits = _too_few_to_tell(evidence, remedies), waiting(evidence.run.raw)
    if few is not None and waits is not None and waits.is_most:
        return f"{name}: it waits {waits.sentence()}."
    if few is not None:
        names = ", ".join(row.rule.code for row in remedies if row.answer == "n/a")
        return f"{name}: {few.for_advice('any change' if evidence.is_thin else names)}."
    least = percent(WORTH_TRYING)
    in_use = next((row.rule.code for row in remedies if row.answer == "yes"), None)
    if in_use is None:
        return f"{name}: no change in this list would save {least} of its CPU time."
    return f"{name}: {in_use} is in use; no other change in this list would save {least} of its CPU time."


def _helping(remedies: Sequence[Finding], answer: str) -> list[Finding]:
    """Return the remedies that have this answer, a change to make, and a known saving."""
    return [row for row in remedies if row.answer == answer and row.change and row.saving]


def _too_few_to_tell(evidence: Evidence, remedies: Sequence[Finding]) -> TooFew | None:
    """Return how to get enough samples if no remedy helps so far and one needs more samples, or None."""
    has_answer = _helping(remedies, "yes") or _helping(remedies, "maybe")
    is_open = any(row.answer == "n/a" for row in remedies)
    return evidence.few_samples if is_open and not has_answer else None


def seconds_to_tell(run: Run) -> float | None:
    """Return the duration in s of a watch that would allow advice, or None if a longer one would not help.

    Saved crossovers are not used: they show whether a change pays off, not how much CPU time it concerns.
    """
    evidence, waits = Evidence(run), waiting(run.raw)
    if evidence.sent is None or (waits is not None and waits.is_most):
        return None
    few = _too_few_to_tell(evidence, find(FINDINGS, evidence, "remedy"))
    return None if few is None else few.needed_s


def _saving_words(evidence: Evidence, remedy: Finding) -> str:
    """Return the saving of a remedy in words, followed by its condition unless the saving is certain."""
    saving, terms = remedy.saving, remedy.rule.remedy
    if saving is None or terms is None:
        return ""
    is_certain = remedy.answer == "yes" or (terms.setting == "sendfile" and evidence.server.serves_files)
    text = f"{saving.spoken()} of its CPU time"
    return text if is_certain or not terms.provided else f"{text}, {terms.provided}"


def _program_name(evidence: Evidence) -> str:
    """Return the name of the process, with its server or language in brackets unless the name says so."""
    watched, server = evidence.run.raw.watched, evidence.server
    name = watched.comm or (watched.pids[0].comm if watched.pids else watched.name)
    return name if server.runs_as(name) or not server.name else f"{name} ({server.name})"


def _stoppers(evidence: Evidence) -> list[str]:
    """Return the obstacles to the program's way of sending, or to zero-copy if its sends are copied."""
    if evidence.by_reference and not evidence.by_zerocopy:
        rows = find(FINDINGS, evidence, "pages")
    elif evidence.by_zerocopy:
        rows = find(FINDINGS, evidence, "path", "pages")
    else:
        rows = find(FINDINGS, evidence, "path", "pages", "program")
    return [row.evidence for row in rows]


def _stopper_sentence(evidence: Evidence, stoppers: Sequence[str]) -> Iterator[str]:
    """Yield a sentence with all obstacles, unless an earlier sentence names the cause of copied sends.

    stoppers: obstacles in words
    """
    avoids_copy, zerocopy = evidence.by_zerocopy or evidence.by_reference, evidence.run.derived.zerocopy
    is_explained = avoids_copy and zerocopy is not None and zerocopy.cause is not None
    if stoppers and (avoids_copy or _could_use_zerocopy(evidence)) and not is_explained:
        effect = "Its way of sending gains little" if avoids_copy else "Zero-copy would gain little"
        yield f"{effect}: {'; '.join(stoppers)}."


def _could_use_zerocopy(evidence: Evidence) -> bool:
    """Return True if MSG_ZEROCOPY is available to the program, and the program does not encrypt its sends."""
    return evidence.setting("zerocopy") is not None and evidence.tls is None


def _sending_sentences(evidence: Evidence, sent: Direction) -> Iterator[str]:
    """Yield sentences about how the program sends its bytes, and about the cost of sending."""
    ways = (
        ("sent with zero-copy already", sent.zerocopy_share),
        ("sent by reference to its own memory already (vmsplice)", sent.memory_share),
        ("sent by reference to pages already (sendfile, splice)", sent.page_share),
        ("sent by reference from socket to socket already (splice)", sent.socket_share),
    )
    copied_share = 1 - sum(share for _, share in ways)
    way, share = next((row for row in ways if row[1] >= MOSTLY), ("copied into the kernel", copied_share))
    part = "all" if share >= 1 - MENTIONED_SHARE_MIN else percent(share)
    size = format_size(evidence.size_bytes)
    yield f"At least half of its bytes are sent in calls of {size} or more; {part} are {way}."
    if evidence.by_zerocopy:
        yield _zerocopy_sentence(evidence)
    elif not evidence.is_thin:
        fallbacks = find(FINDINGS, evidence, "fallback", "guess")[:1]
        yield from (f"{row.evidence[0].upper()}{row.evidence[1:]}." for row in fallbacks)
        yield from _relay_sentence(evidence)
        yield _copy_sentence(evidence)
        yield from _file_sentence(evidence, fallbacks)


def _receiving_sentences(evidence: Evidence) -> Iterator[str]:
    """Yield sentences about how the program receives its bytes, and about the cost of copying them."""
    received = evidence.run.portrait.receive
    if received is None:
        return
    yield f"It sends nothing; it receives {format_size(received.mean_bytes)} a call on average."
    cost = None if evidence.few_samples else evidence.share(RECEIVE_COPIES)
    if cost is not None:
        yield f"The copy to the program takes {_with_interval(cost)}."


def _copy_sentence(evidence: Evidence) -> str:
    """Return a sentence with the cost of the copy into the kernel, as the largest saving from a change."""
    subject = "The copy into the kernel"
    if evidence.by_reference:
        subject = "Copying the bytes that are not sent by reference"
    if evidence.zerocopy_saving is None:
        return f"{subject} was not sampled: its cost is not known."
    text = f"{subject} takes {_with_interval(evidence.zerocopy_saving)}"
    if evidence.by_reference:
        return f"{text}, which is the most that can be saved."
    if not _could_use_zerocopy(evidence):
        return f"{text}."
    return f"{text}: zero-copy saves at most this, less the cost of pinning and releasing pages."


def _zerocopy_sentence(evidence: Evidence) -> str:
    """Return a sentence with the overhead of zero-copy, which a copy into the kernel could replace."""
    zerocopy, price = evidence.run.derived.zerocopy, evidence.zerocopy_saving
    text = "It is not known how many of these sends the kernel copied"
    if zerocopy is not None and evidence.copied_part is not None:
        text = f"{percent(evidence.copied_part)} of these sends were copied after all"
        if zerocopy.cause is not None:
            text += f" ({zerocopy.cause.sentence})"
    if price is None:
        return f"{text}; the cost of page pinning, late copies and notifications is not known."
    text += f"; page pinning, late copies and notifications take {_with_interval(price)}"
    if evidence.copied_part is not None and evidence.copied_part >= MOSTLY:
        return (
            f"{text}: turning zero-copy off here would save this overhead, at the cost of a copy into the "
            "kernel."
        )
    return f"{text}. This overhead replaces the copies that zero-copy saves."


def _file_sentence(evidence: Evidence, fallbacks: Sequence[Finding]) -> Iterator[str]:
    """Yield a sentence with the cost of reading files, which sendfile saves, too.

    fallbacks: reasons why the program does not use sendfile
    """
    if evidence.reads is None or not evidence.reads_files:
        return
    text = f"Reading files takes another {evidence.reads.spoken()} of its CPU time"
    if evidence.setting("sendfile") is None or fallbacks:
        yield f"{text}."
    else:
        yield f"{text}; if it sends them unchanged, sendfile avoids both copies, at some cost of its own."


def _relay_sentence(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence with the bytes that the program relays, which splice(2) could move without a copy."""
    relay = relay_of(evidence.run)
    if relay is not None:
        cost = evidence.share(saved_by("splice"))
        price = (
            "the cost of both copies was not sampled"
            if cost is None
            else f"both copies take {_with_interval(cost)}"
        )
        yield relay.sentence(price)


def _crossover_sentences(
    evidence: Evidence, remedies: Sequence[Finding], crossovers: Sequence[SavedCrossover] | None
) -> Iterator[str]:
    """Yield sentences on what saved crossovers answer, or with the command that measures a crossover."""
    run = evidence.run
    open_strategies = {row.rule.remedy.strategy for row in remedies if row.is_open and row.rule.remedy}
    for question in evidence.questions:
        crossover = evidence.crossovers[question.strategy]
        if crossover is not None:
            yield answer_sentence(crossover, question, run)
            yield from filter(None, [saving_sentence(crossover, question, run)])
        elif evidence.saved and question.strategy in open_strategies:
            yield _missing_strategy(evidence.saved, question, run)
    if not evidence.saved and open_strategies:
        yield _missing_crossover(run, crossovers or ())


def _missing_crossover(run: Run, foreign: Sequence[SavedCrossover]) -> str:
    """Return a sentence on why no crossover applies to this machine, and on how to measure one.

    foreign: crossovers of other machines
    """
    doubt = "Cannot tell whether zero-copy would pay off, because"
    if foreign:
        row = nearest_crossover(foreign, run, "zero_copy") or foreign[0]
        reason = f"the crossover of {row.file} was measured on {row.elsewhere}"
    else:
        reason = "no crossover was measured on this host"
    command = _measure_command(foreign, run)
    return f"{doubt} {reason}: run {command} (two minutes), then repeat this command."


def _missing_strategy(rows: Sequence[SavedCrossover], question: SizeQuestion, run: Run) -> str:
    """Return a sentence on a strategy that no crossover of this machine contains, and on how to measure it.

    rows: saved crossovers of this machine
    question: the missing strategy
    """
    verb = "saves" if question.used else "would save"
    return (
        f"Cannot tell what {question.name} {verb}, because the crossover of this host ({rows[0].file}) does "
        f"not contain it: run {_measure_command(rows, run)} (two minutes), then repeat this command."
    )


def _measure_command(rows: Sequence[SavedCrossover], run: Run) -> str:
    """Return the command that measures a crossover.

    If there are crossovers already, the command uses a new directory beside theirs, because a sweep of
    another machine or of other strategies cannot be extended.
    """
    if not rows:
        return MEASURE_COMMAND
    row = nearest_crossover(rows, run, "zero_copy") or rows[0]
    directory = PurePath(row.file).parent.parent / f"crossover-{run.raw.machine.kernel}"
    return f"{MEASURE_COMMAND} --out {directory}"


def _with_interval(share: Share) -> str:
    """Return a share as `25 % of its CPU time (22 to 29 %)`, or only its bounds if the share is uncertain."""
    if share.high < 0.01:
        return "less than 1 % of its CPU time"
    if share.share is None or share.low < MENTIONED_SHARE_MIN:
        return f"{share.spoken()} of its CPU time"
    return f"{percent(share.share)} of its CPU time ({share.low * 100:.0f} to {percent(share.high)})"
