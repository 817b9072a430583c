"""The tables of a report: results, copies, where the saved copy went, crossovers, claims."""

from collections.abc import Sequence

from copyscope.judge.crossover import PAIRS, Crossover
from copyscope.judge.metrics import METRICS
from copyscope.report.blocks import Cell, Table, Tone
from copyscope.report.cells import estimates_table, spell
from copyscope.show.account_words import COPIES
from copyscope.stats import Missing
from copyscope.study.claims.judge import HOLDS, REFUTED, Judgement
from copyscope.study.cost_waterfall import PARTS, REST, Waterfall
from copyscope.study.facets import describe, varied
from copyscope.study.questions import SHORT, Answer
from copyscope.study.study import Study
from copyscope.study.table import Row
from copyscope.taxonomy.taxonomy import ACCOUNTS
from copyscope.units import NOT_AVAILABLE, counted, format_size

RESULTS = (
    *("goodput_gbps", "time_per_message_us", "rtt_p50_us", "rtt_p99_us", "sender_cpu_ns_per_kib"),
    *("receiver_cpu_ns_per_kib", "system_cpu_ns_per_kib", "cycles_per_byte_sender"),
    *("cycles_per_byte_receiver", "l1d_misses_per_kib_sender", "l1d_misses_per_kib_receiver"),
    *("llc_misses_per_kib_sender", "llc_misses_per_kib_receiver", "copied_share"),
    "overhead_effect",
)
CROSSING_TONES: dict[str, Tone] = {"always": "good", "crosses": "good", "never": "bad"}
TONES: dict[str, Tone] = {HOLDS: "good", REFUTED: "bad"}
INTERVALS = "In brackets: 95 % interval of the median."


def results_table(study: Study) -> Table:
    """One row per point with what a reader looks for first; the rest is in results.csv."""
    swept = varied(study.rows, without=("impl", "size", "threads"))
    lines = [(_keys(row, swept), [row.values[name] for name in RESULTS]) for row in study.rows]
    names = [f"{METRICS[name].label} ({METRICS[name].unit})" for name in RESULTS]
    return estimates_table("Results", _key_names(swept), names, lines, [INTERVALS])


def _keys(row: Row, swept: Sequence[str]) -> list[str]:
    rest = [str(row.factors.get(name)) for name in swept]
    runs = str(row.valid) + (f" (+{row.invalid} invalid)" if row.invalid else "")
    return [row.impl, format_size(row.size), str(row.threads), *rest, runs]


def _key_names(swept: Sequence[str]) -> list[str]:
    return ["strategy", "message", "threads", *(name.replace("_", " ") for name in swept), "runs"]


def copies_table(study: Study) -> Table:
    """ns per KiB of every copy and what stands for one, by side and context."""
    swept = varied(study.rows, without=("impl", "size", "threads"))
    keys = sorted(
        {key for row in study.rows for key in row.accounts if key[0] in ACCOUNTS},
        key=lambda key: (ACCOUNTS.index(key[0]), key[1] != "sender", key),
    )
    keys = [k for k in keys if any(k in row.accounts and row.accounts[k].value > 0 for row in study.rows)]
    lines = [
        (_keys(row, swept), [row.accounts.get(key, Missing("not seen at this point")) for key in keys])
        for row in study.rows
    ]
    names = [f"{COPIES[account]} ({side}, {context})" for account, side, context in keys]
    return estimates_table("Copies: CPU time, ns/KiB", _key_names(swept), names, lines, [INTERVALS])


def saved_tables(saved: Sequence[Waterfall | Missing]) -> list[Table]:
    """Of each kind: each waterfall as a row: from, every step, to; ns per KiB."""
    drawn = [one for one in saved if isinstance(one, Waterfall)]
    notes = [
        "Below 0: saved, above 0: added. All sides together; steps of paired repeats, which add up.",
        *dict.fromkeys(f"left out: {one.reason}." for one in saved if isinstance(one, Missing)),
    ]
    kinds = dict.fromkeys((one.by, one.names) for one in drawn)
    return [_saved_table([one for one in drawn if (one.by, one.names) == kind], notes) for kind in kinds]


def _saved_table(drawn: Sequence[Waterfall], notes: Sequence[str]) -> Table:
    (first, second), by = drawn[0].names, drawn[0].by
    parts = [name for name in (*PARTS, REST) if any(s.name == name for one in drawn for s in one.steps)]
    swept = varied([one.after for one in drawn], without=(by,)) or ["size"]
    rows = []
    for one in drawn:
        change = {step.name: step.change for step in one.steps}
        cells = [spell(change[name]) if name in change else "0" for name in parts]
        place = describe({name: one.after.factors.get(name) for name in swept})
        rows.append([place, f"{one.start:.4g}", *cells, f"{one.end:.4g}"])
    columns = ["setting", first, *parts, second]
    title = f"Where the saved copy went: ns/KiB from {first} to {second}"
    return Table(columns, rows, frozenset(range(1, len(columns))), notes, title)


def facts_table(answer: Answer) -> Table:
    """The evidence of an answer."""
    rows = [[fact.setting, fact.quantity, spell(fact.value), fact.unit] for fact in answer.facts]
    reasons = dict.fromkeys(
        f"n/a: {fact.value.reason}." for fact in answer.facts if isinstance(fact.value, Missing)
    )
    columns = ["setting", "quantity", "value", "unit"]
    return Table(columns, rows, frozenset((2,)), list(reasons), "Evidence")


def verdict_table(crossings: Sequence[Crossover]) -> Table:
    """The answer in one look: for each pair, who is better where, by the number of threads."""
    wanted = list(SHORT)
    chosen = [c for c in crossings if c.quantity in wanted]
    threads = sorted({c.threads for c in chosen})
    lines: dict[tuple[str, str, str], dict[int, Cell]] = {}
    # pair by pair, and goodput before CPU time
    for c in sorted(chosen, key=lambda c: (PAIRS.index(c.pair), wanted.index(c.quantity))):
        key = (f"{c.pair[1]} against {c.pair[0]}", SHORT[c.quantity], describe(c.where))
        lines.setdefault(key, {})[c.threads] = Cell(
            where_better(c), CROSSING_TONES.get(c.verdict, "open"), _anchor(crossings.index(c))
        )
    several = any(setting for _, _, setting in lines)
    rows = [
        [pair, label, *([setting] if several else []), *(cells.get(n, "not measured") for n in threads)]
        for (pair, label, setting), cells in lines.items()
    ]
    setting = ["setting"] if several else []
    heads = [counted(n, "thread") for n in threads]
    notes = [
        "The first of a pair against the second. In brackets: 95 % interval of the size. Click a cell for its"
        " evidence."
    ]
    return Table(["pair", "by", *setting, *heads], rows, frozenset(), notes)


def _anchor(index: int) -> str:
    return f"crossover-{index + 1}"


def where_better(c: Crossover) -> str:
    """Where the second of a pair is better than the first: `better above 12.5 KiB [9.34 KiB, 13.7 KiB]`."""
    match c.verdict:
        case "always":
            return "better at every size"
        case "never":
            return "better at no size"
        case "crosses":
            side = "above" if c.above == c.pair[1] else "below"
            return f"better {side} {format_size(c.size_bytes)} [{format_size(c.low)}, {format_size(c.high)}]"
        case _:
            return c.verdict


def crossovers_table(crossings: Sequence[Crossover]) -> Table:
    """Every pair, thread count and quantity: the size with its interval, or why there is none."""
    rows: list[list[str | Cell]] = []
    for c in crossings:
        size = NOT_AVAILABLE if c.size_bytes is None else format_size(c.size_bytes)
        if c.size_bytes is not None and (c.low is not None or c.high is not None):
            size += f" [{format_size(c.low)}, {format_size(c.high)}]"
        verdict = Cell(c.verdict, CROSSING_TONES.get(c.verdict, "open"))
        where = [" / ".join(reversed(c.pair)), str(c.threads), describe(c.where)]
        rows.append([*where, METRICS[c.quantity].label, verdict, size, c.evidence])
    columns = ["pair", "threads", "setting", "quantity", "verdict", "size", "evidence"]
    anchors = [_anchor(index) for index in range(len(rows))]
    return Table(columns, rows, frozenset((1, 5)), (), "Crossovers", anchors)


def claims_table(study: Study) -> Table:
    """Each published claim with what the mechanism measured here says of it."""
    rows: list[list[str | Cell]] = [
        [j.claim.id, j.claim.text, ", ".join(j.claim.sources), _verdict(j), j.evidence]
        for j in study.judgements
    ]
    return Table(["id", "claim", "source", "verdict", "evidence"], rows, title="Claims, judged by this sweep")


def _verdict(judgement: Judgement) -> Cell:
    return Cell(judgement.verdict, TONES.get(judgement.verdict, "open"))
