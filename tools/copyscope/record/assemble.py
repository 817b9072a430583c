"""From what the programs said to the raw sections of a record: names and differences, no judgement. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from copyscope import VERSION
from copyscope.record import machine_load
from copyscope.record.program import assemble as program
from copyscope.record.program.segments import segment_row as program_segment_row
from copyscope.record.segments import PROCESSES, WARM_UP, WATCHED
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy

Row = dict[str, Any]

# Levels, not totals: a segment has the value at its end, not a difference.
LEVELS = frozenset(("t_ns", "in_flight", "max_in_flight", "first_wrong_offset", "threads"))


@dataclass(frozen=True)
class Identity:
    """Which run this is: the part of the record that no program knows."""

    id: str
    experiment: str | None
    repeat: int
    order: int
    seed: int
    git: str | None
    dirty: bool | None
    factors: Mapping[str, Any] | None = None  # of its point in an experiment


def subtract_totals(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What happened between two marks of one program, key by key."""
    delta: dict[str, Any] = {}
    for key, value in after.items():
        if key in ("event", "role", "pid", "t_ns"):
            continue
        earlier = before.get(key)
        if isinstance(value, Mapping):
            delta[key] = subtract_totals(value, earlier if isinstance(earlier, Mapping) else {})
        elif isinstance(value, int) and not isinstance(value, bool) and key not in LEVELS:
            delta[key] = value - (earlier if isinstance(earlier, int) else 0)
        else:
            delta[key] = value
    return delta


def segment_row(segment: Mapping[str, Any], *, two_hosts: bool = False) -> Row:
    """One row of run.segments from its marks. Traffic of our own moves nothing outside of a segment."""
    _, begin, end, _ = segment["marks"]
    row = {key: segment[key] for key in ("index", "block", "arm")}
    row |= {"begin_ns": begin["sender"]["t_ns"], "end_ns": end["sender"]["t_ns"]}
    if two_hosts:
        row |= {"receiver_begin_ns": begin["receiver"]["t_ns"], "receiver_end_ns": end["receiver"]["t_ns"]}
    return row | {side: subtract_totals(end[side], begin[side]) for side in end}


def side_report(
    report: Mapping[str, Any] | None, segments: list[Mapping[str, Any]], side: str
) -> dict[str, Any]:
    """A side's report; of a side that died, the totals of its last mark, marked as such."""
    if report is not None:
        return {key: value for key, value in report.items() if key != "event"}
    last = dict(segments[-1]["marks"][2][side]) if segments else {}
    last.pop("event", None)
    nobody = {"role": side, "impl": "", "pid": 0, "options": {}, "claim": None, "limits": {}}
    nothing = {"threads": [], "histograms": {}, "slices": [], "errors": ["no report: the program had ended"]}
    return {**nobody, **nothing, **last}


def rtt_us(sender: Mapping[str, Any] | None) -> int | None:
    """The least round trip of its connections, which saw an idle path at some time."""
    infos = [thread.get("tcp_info") or {} for thread in (sender or {}).get("threads", [])]
    return min((info["min_rtt_us"] for info in infos if info.get("min_rtt_us") is not None), default=None)


def assemble(
    raw: Any, workload: Row, identity: Identity, frequency_hz: int, target: Row | None = None
) -> Row:
    """The raw record of a run (see record/store.py): everything that ledger.derive needs.

    `raw` is what run/session.py left behind; `target`, of a watched program, who that is.
    """
    measured = [one for one in raw.segments if one["arm"] != WARM_UP]
    two_hosts = target is None and raw.places is not None
    of_segment = partial(segment_row, two_hosts=two_hosts) if target is None else program_segment_row
    segments = [of_segment(one) for one in raw.segments]
    collector = raw.collector or {}
    taxonomy = Taxonomy.load()
    arm_of_calls = next((s["arm"] for s in segments if "calls" in s["arm"]), "calls")
    no_sampler = {"events": [], "frequency_hz": frequency_hz, "enabled_ns": 0}
    record = {
        "schema": 1,
        "copyscope": {"version": VERSION, "git": identity.git, "dirty": identity.dirty},
        "run": {
            "id": identity.id,
            "experiment": identity.experiment,
            "factors": None if identity.factors is None else dict(identity.factors),
            "repeat": identity.repeat,
            "order": identity.order,
            "seed": identity.seed,
            "started": raw.started,
            "wall_s": raw.wall_s,
            "measured_s": sum(s["end_ns"] - s["begin_ns"] for s in segments if s["arm"] != WARM_UP) / 1e9,
            "interrupted": raw.interrupted,
            "errors": raw.errors,
            "tier": raw.tier.name if raw.tier else None,
            "tier_reason": raw.tier.reason if raw.tier else "the run ended before the collector was ready",
            "segments": segments,
        },
        "workload": workload,
        "topology": raw.topology,
        "machine": raw.machine,
        "traffic": None,
        "counters": {side: raw.counters.get(side, {}) for side in (PROCESSES if target is None else WATCHED)},
        "bytes": collector.get("bytes", []),
        "calls": [{**call, "arm": arm_of_calls} for call in collector.get("calls", [])],
        "functions": collector.get("functions") if any("functions" in s["arm"] for s in segments) else None,
        "hooks": collector.get("hooks", []),
        "sampler": {**(collector.get("sampler") or no_sampler), "taxonomy_version": taxonomy.version},
        "loss": collector.get("loss", {}),
        "machine_state": machine_load.readings(raw.loads, machine_load.sides_cpu_ns(measured)),
    }
    samples = collector.get("samples", [])
    if target is not None:
        return program.add_sections(record, raw, target) | {"samples": to_record(samples, taxonomy)}
    record["run"]["bytes_arm"] = raw.bytes_arm
    if raw.placement is not None:
        record["placement"] = raw.placement
    # What the first connection really got; nobody knows before there is one.
    used = (raw.reports.get("sender") or {}).get("options", {}).get("congestion_control")
    if two_hosts:
        record |= {
            "places": raw.places,
            "topology": {**raw.topology, "rtt_us": rtt_us(raw.reports.get("sender"))},
        }
    return record | {
        "workload": {**workload, "congestion_control": used},
        "traffic": {side: side_report(raw.reports.get(side), raw.segments, side) for side in PROCESSES},
        "samples": to_record(samples, taxonomy),
    }
