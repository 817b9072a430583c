"""Two of the six questions, answered from a simulated machine. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from copyscope.grouping import grouped
from copyscope.study.modelled import LEVELS, TITLES, ModelPoint, change, clear, copies, pairs
from copyscope.study.questions import Answer
from copyscope.study.wording import listed
from copyscope.units import format_bytes, format_whole_size

CACHE_LEVEL = "Which cache level gains most from fewer copies?"
THREADS = "How do threads and cache contention interact?"
# Lines per KiB: a copy of 1 KiB moves 32.
LEAST = 1.0
SMALLEST = 1024
# Whose threads are compared.
SHOWN = ("two_copy", "one_copy", "zero_copy")


def modelled_answers(points: Sequence[ModelPoint]) -> list[Answer]:
    """Those that can be given; each says that it is one of a model."""
    return [answer for answer in (_cache_level(points), _threads(points)) if answer is not None]


def beside(found: Sequence[Answer], points: Sequence[ModelPoint]) -> list[Answer]:
    """Measured answers, and behind each what the model says of the same question."""
    of_model = {answer.question: answer for answer in modelled_answers(points)}
    return [
        replace(answer, text=f"{answer.text} {more.text}", bullets=(*answer.bullets, *more.bullets))
        if (more := of_model.get(answer.question))
        else answer
        for answer in found
    ]


def _named(point: ModelPoint) -> str:
    return f"In the model ({point.setting.cache}, {point.setting.path}, Linux {point.setting.kernel}"


def _cache_level(points: Sequence[ModelPoint]) -> Answer | None:
    """two_copy against one_copy, with as small a ring of messages as there is."""
    found = _smallest_ring(pairs(points, "two_copy", "one_copy"))
    if not found:
        return None
    bullets = []
    for two, one in (pair for pair in found if pair[0].size >= SMALLEST):
        gains = {level: change(two.misses(level), one.misses(level)) for level in LEVELS}
        known = {level: gain for level, gain in gains.items() if clear(gain, LEAST) and gain.value < 0}
        most = min(known, key=lambda level: known[level].value) if known else None
        shown = ", ".join(f"{TITLES[level]} {gain.value:+.1f}" for level, gain in gains.items())
        said = f"most in {TITLES[most]}" if most else "in no level clearly"
        bullets.append(f"{format_whole_size(two.size)}: {shown} lines per KiB: {said}.")
    text = f"{_named(found[0][0])}; misses of one_copy minus those of two_copy, all sides). The saved"
    text += " copy reads 16 lines per KiB and writes 16: most of them no longer miss L1D; L2 gains where a"
    text += " message and its copy do not fit in it, the last level nothing while messages fit in it."
    return Answer(CACHE_LEVEL, text, (), tuple(bullets))


def _threads(points: Sequence[ModelPoint]) -> Answer | None:
    """From the fewest threads to the most; of one thread alone, what threads would share."""
    found = [pair for impl in SHOWN for pair in _thread_pairs(points, impl)]
    if not found:
        return _one_thread(points)
    few, many = found[0]
    text = (
        f"{_named(few)}; {format_whole_size(few.size)}, each thread with a core and"
        f" {format_bytes(few.working_set_bytes)} of messages of its own on each side):"
        f" {many.setting.threads} threads instead of {few.setting.threads} share the last level of"
        f" {format_bytes(few.model.llc_bytes)} and nothing else, so that its misses are what changes."
    )
    return Answer(THREADS, text, (), tuple(_of_threads(*pair) for pair in found))


def _thread_pairs(points: Sequence[ModelPoint], impl: str) -> list[tuple[ModelPoint, ModelPoint]]:
    """The points with the fewest and the most threads of the first setting that has several."""
    mine = [point for point in points if point.impl == impl]
    groups = grouped(mine, lambda point: (replace(point.setting, threads=1), point.size))
    several = (sorted(g, key=lambda p: p.setting.threads) for g in groups.values() if len(g) > 1)
    return [(group[0], group[-1]) for group in several][:1]


def _of_threads(few: ModelPoint, many: ModelPoint) -> str:
    changes = {level: change(copies(few, level), copies(many, level)) for level in LEVELS}
    shown = ", ".join(
        f"{TITLES[level]} {fmean(copies(few, level)):.1f} -> {fmean(copies(many, level)):.1f}"
        for level in LEVELS
    )
    moved = [TITLES[level] for level in LEVELS if clear(changes[level], LEAST)]
    said = f"{listed(moved)} clearly" if moved else "none clearly"
    return f"{few.impl}, misses of its copies in lines per KiB: {shown}: {said}."


def _one_thread(points: Sequence[ModelPoint]) -> Answer | None:
    veth = [p for p in points if p.impl == "one_copy" and (p.setting.path, p.setting.threads) == ("veth", 1)]
    rings = [p for p in veth if p.setting.cache == veth[0].setting.cache]
    size = max((p.size for p in rings if sum(q.size == p.size for q in rings) > 1), default=None)
    if size is None:
        return None
    rings = sorted((p for p in rings if p.size == size), key=lambda p: p.working_set_bytes)
    remote = [fmean(p.values(("remote_lines",), lambda row: row.category == "copy_out")) for p in rings]
    llc = rings[0].model.llc_bytes
    missed = [f"{format_bytes(p.working_set_bytes)} {fmean(copies(p, 'llc')):.1f}" for p in rings]
    lines = listed([f"{value:.1f}" for value in dict.fromkeys(round(value, 1) for value in remote)])
    text = (
        f"{_named(rings[0])}; one_copy at {format_whole_size(size)}, one thread on each side). The copy"
        f" to the receiver finds {lines} lines per KiB in the other CPU's caches, the rest in the shared last"
        " level."
        " Misses of the copies in the last level, by the sender's working set:"
        f" {', '.join(missed)} lines per KiB. Each thread has a working set of its own, and all share one"
        f" last level: {_fit(rings, llc)}"
    )
    return Answer(THREADS, text)


def _fit(rings: Sequence[ModelPoint], llc: int) -> str:
    inside = [p for p in rings if p.working_set_bytes < llc]
    if not inside or not llc:
        return "no simulated ring fits in it."
    largest = inside[-1].working_set_bytes
    return (
        f"its {format_bytes(llc)} hold {llc // largest} rings of {format_bytes(largest)};"
        " with more threads misses begin. More than one thread was not simulated."
    )


def _smallest_ring(found: Sequence[tuple[ModelPoint, ModelPoint]]) -> list[tuple[ModelPoint, ModelPoint]]:
    """Of the first model over veth, or over what there is, with one thread."""
    found = [pair for pair in found if pair[0].setting.threads == 1]
    wanted = [pair for pair in found if pair[0].setting.path == "veth"] or found
    if not wanted:
        return []
    ring = min(pair[0].setting.working_set_messages for pair in wanted)
    cache = wanted[0][0].setting.cache
    return [p for p in wanted if (p[0].setting.working_set_messages, p[0].setting.cache) == (ring, cache)]
