"""C8, C9, C13 to C16: what is said to happen, judged by counting whether it does."""

from collections import Counter
from collections.abc import Sequence

from copyscope import stats
from copyscope.compare.estimates import LESS, MORE, Estimate
from copyscope.ledger.attribution import tied
from copyscope.record.raw import Segment
from copyscope.record.segments import Record, samples_of, segments_of, select, total, undisturbed
from copyscope.record.traffic import Requests
from copyscope.study.claims.comparing import Comparison, always, compare, make
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED, Finding, Row, Runs, interval_text
from copyscope.units import counted

FLUSHES = "tlb-flushes"
# a claim of one per send is taken to hold from half of them on, and refuted below one in a hundred
PER_SEND_HOLDS = 0.5
PER_SEND_REFUTED = 0.01
# of the added switches, so many must and so few cannot be by completions
COMPLETION_HOLDS = 0.5
COMPLETION_REFUTED = 0.1
COLLAPSE = 0.27  # what is left of the throughput of 4 threads with 8, in MT25067
# the network stack, as stages of the ledger
STACK = ("tcp_ip", "device", "softirq")
ENOUGH_SAMPLES = 100
FEW = 5  # samples, and different functions: what one stray sample cannot make


def pinning_flushes(runs: Runs) -> Finding:
    """C8: tracepoint tlb:tlb_flush in the sender, per send, with and without pinning."""
    counts, rows = {}, []
    for impl in ("zero_copy", "one_copy"):
        found = [(r, r["counters"]["sender"].get(FLUSHES)) for r in runs.of(impl)]
        known = [(r, c["value"]) for r, c in found if c is not None and c["value"] is not None]
        if not known:
            why = next((c["reason"] for _, c in found if c is not None), "it was not counted in these runs")
            return Finding(UNDETERMINED, f"{FLUSHES} of {impl}: {why}", [])
        flushes = sum(int(value) for _, value in known)
        sends = sum(total(select(segments_of(r), "ledger"), "sender", "calls") for r, _ in known)
        counts[impl] = (flushes, sends)
        ids = [r["run"]["id"] for r, _ in known]
        counter = f"counters.sender.{FLUSHES}"
        rows.append({"what": counter, "impl": impl, "flushes": flushes, "sends": sends, "runs": ids})
    text = ", ".join(f"{impl} {n:,} in {sends:,} sends" for impl, (n, sends) in counts.items())
    pinned, sends = counts["zero_copy"]
    plain, others = counts["one_copy"]
    if not sends or not others:
        return Finding(UNDETERMINED, f"no sends were counted: {text}", rows)
    said = f"flushes of the sender's TLB (tlb:tlb_flush, without task switches): {text}"
    return per_send(pinned / sends, plain / others, sends, said, rows)


def per_send(pinned: float, plain: float, sends: int, said: str, rows: list[Row]) -> Finding:
    """Whether so many flushes per send, with and without pinning, are one for each send, or next to none."""
    interval = stats.poisson(pinned * sends)
    if interval.high / sends < PER_SEND_REFUTED:
        return Finding(REFUTED, said, rows)
    if interval.low / sends >= PER_SEND_HOLDS and pinned >= 2 * plain:
        return Finding(HOLDS, said, rows)
    return Finding(UNDETERMINED, f"neither one per send nor next to none: {said}", rows)


def completion_switches(runs: Runs) -> Finding:
    """C9: the sender of zero_copy is switched more often per message than that of two_copy, by completions.

    Completions are read by the sender, so what the receiver does is said beside it and decides nothing. A
    sender that has slept for completions then reads the error queue: its reads are the most switches that
    completions can have caused.
    """
    ours = compare(runs, "zero_copy", "two_copy", "context_switches_per_message_sender", MORE)
    theirs = compare(runs, "zero_copy", "two_copy", "context_switches_per_message_receiver", MORE)
    found = always(ours)
    rows = found.rows + [one.row for one in theirs]
    text = f"switches of the sender per message: {found.evidence}"
    known = [one for one in theirs if isinstance(one.ratio, Estimate)]
    if known:
        text += f"; of the receiver: {known[0].text} (claimed: 1.69)"
    if found.verdict != HOLDS:
        return Finding(found.verdict, text, rows)
    zero, reads = _switches(runs.of("zero_copy"))
    two, _ = _switches(runs.of("two_copy"))
    rows.append({"what": "sender: per message", "added_switches": zero - two, "errqueue_reads": reads})
    text = f"added {zero - two:.4f} switches and {reads:.4f} reads of the error queue per message; {text}"
    if reads < COMPLETION_REFUTED * (zero - two):
        return Finding(REFUTED, f"they are added, but completions cannot have caused them: {text}", rows)
    verdict = HOLDS if reads >= COMPLETION_HOLDS * (zero - two) else UNDETERMINED
    return Finding(verdict, text, rows)


def _switched(segments: Sequence[Segment]) -> int:
    """How often the sender was switched, of its own will or not."""
    return sum(total(segments, "sender", f"{kind}voluntary_switches") for kind in ("", "in"))


def _switches(records: Sequence[Record]) -> tuple[float, float]:
    """Context switches of the sender and its reads of the error queue, per message.

    Completions of io_uring come without one; there it is the calls that only waited.
    """
    segments = [s for r in records for s in undisturbed(r)]
    messages = total(segments, "sender", "messages")
    switches = _switched(segments)
    reads = sum(s.sender.zerocopy.errqueue_reads for s in segments if s.sender.zerocopy)
    rings = [(s.sender.send_syscalls, s.sender.io_uring) for s in segments]
    reads += sum(c.get("io_uring", 0) - ring.requests for c, ring in rings if isinstance(ring, Requests))
    return switches / messages, reads / messages


def collapse_by_switches(runs: Runs) -> Finding:
    """C13: goodput of 8 threads is 27 % of that of 4, and there are more context switches per message."""
    speed, switches = [], []
    for (impl, threads, size), point in sorted(runs.points.items()):
        fewer = runs.points.get((impl, 4, size))
        if threads != 8 or fewer is None:
            continue
        pair = (point, fewer)
        speed.append(make(f"{impl}: 8 / 4 threads", (8, size), pair, "goodput_gbps", LESS, bound=COLLAPSE))
        for side in ("sender", "receiver"):
            metric = f"context_switches_per_message_{side}"
            switches.append(make(f"{impl}: {side}, 8 / 4 threads", (8, size), pair, metric, MORE))
    if not speed:
        return Finding(UNDETERMINED, "4 and 8 threads were not measured at the same size", [])
    rows = [one.row for one in speed + switches]
    text = f"goodput of 8 over that of 4 threads: {'; '.join(one.text for one in speed)} (claimed: 0.27)"
    cause = _cause(switches)
    said = f"{text}; context switches per message {cause}"
    if all(one.verdict == MORE for one in speed):
        return Finding(REFUTED, said, rows)
    clear = [
        one
        for one in speed
        if isinstance(one.ratio, Estimate) and one.verdict != MORE and (one.ratio.high or 1) < 0.5
    ]
    if len(clear) < len(speed):
        return Finding(UNDETERMINED, said, rows)
    if any(one.verdict == MORE for one in switches):
        return Finding(HOLDS, said, rows)
    verdict = REFUTED if all(one.verdict == LESS for one in switches) else UNDETERMINED
    return Finding(verdict, f"it collapses, but context switches per message {cause}: {text}", rows)


def _cause(found: Sequence[Comparison]) -> str:
    known = [one for one in found if isinstance(one.ratio, Estimate)]
    return "; ".join(one.text for one in known[:2]) or "not known"


def latency_of_threads(runs: Runs) -> Finding:
    """C14: the real round trip with more threads, beside wall time over messages."""
    real, inverse = [], []
    for (impl, threads, size), point in sorted(runs.points.items()):
        fewest = min(t for name, t, at in runs.points if (name, at) == (impl, size))
        if threads == fewest:
            continue
        pair = (point, runs.points[impl, fewest, size])
        what = f"{impl}: {counted(threads, 'thread')} / {counted(fewest, 'thread')}"
        real.append(make(what, (threads, size), pair, "rtt_p50_us", LESS))
        inverse.append(make(what, (threads, size), pair, "inverse_throughput_us", LESS))
    if not real:
        return Finding(UNDETERMINED, "only one number of threads was measured", [])
    found = always(real)
    text = f"median round trip: {found.evidence}"
    largest = max(inverse, key=lambda one: one.threads)
    if isinstance(largest.ratio, Estimate):
        text += f"; wall time over messages, which they call latency: {interval_text(largest.ratio)}"
    return Finding(found.verdict, text, found.rows + [one.row for one in inverse])


def switch_per_send(runs: Runs) -> Finding:
    """C15: context switches of the sender over its send calls, counted: no estimate is needed."""
    rows: list[Row] = []
    for record in runs.records:
        segments = undisturbed(record)
        calls = total(segments, "sender", "calls")
        if not calls:
            continue
        switches = _switched(segments)
        run = {"what": "sender: context switches per send call", "run": record["run"]["id"]}
        work = {key: record["workload"][key] for key in ("impl", "size_bytes", "threads")}
        rows.append({**run, **work, "switches": switches, "calls": calls, "value": switches / calls})
    if not rows:
        return Finding(UNDETERMINED, "no send call was counted", [])
    low, high = min(row["value"] for row in rows), max(row["value"] for row in rows)
    said = f"context switches of the sender per send call: {low:.4f} to {high:.4f} in {len(rows)} runs"
    if low >= 0.9:
        return Finding(HOLDS, said, rows)
    # one run without a switch per call is enough against `every`; a fluke has hundreds of calls to survive
    if any(row["value"] < 0.5 and row["calls"] >= 100 for row in rows):
        return Finding(REFUTED, said, rows)
    return Finding(UNDETERMINED, said, rows)


def stack_on_loopback(runs: Runs) -> Finding:
    """C16: which functions of the network stack were running on loopback."""
    seen: Counter[str] = Counter()
    everything = 0
    for record in runs.records:
        for row in tied(samples_of(record)):
            everything += row.samples
            if row.category in STACK:
                seen[row.symbol] += row.samples
    inside = sum(seen.values())
    ids = [record["run"]["id"] for record in runs.records]
    rows: list[Row] = [
        {"what": "samples", "symbol": name, "samples": n, "runs": ids} for name, n in seen.most_common(20)
    ]
    named = ", ".join(f"{name} {n}" for name, n in seen.most_common(6))
    said = f"{inside:,} of {everything:,} samples on loopback were in tcp_ip, device or softirq: {named}"
    if inside >= FEW and len(seen) >= FEW:
        return Finding(REFUTED, said, rows)
    if inside == 0 and everything >= ENOUGH_SAMPLES:
        rows = [{"what": "samples", "in_stack": 0, "samples": everything, "runs": ids}]
        return Finding(HOLDS, f"none of {everything:,} samples on loopback was in the network stack", rows)
    return Finding(UNDETERMINED, f"too few samples: {said}", rows)
