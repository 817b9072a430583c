# SPDX-License-Identifier: GPL-2.0-only
"""Judge the answers from a fleet's hosts: a table row for each host, and sentences about differences.

Answers come from other machines and are not trusted. Documents with an unexpected structure are rejected, and
harmful characters in text are replaced before the text is shown.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, convert

from copyscope.base import files
from copyscope.base.errors import RecordError
from copyscope.base.spelling import one_line, visible
from copyscope.base.stats import gathered
from copyscope.record import store
from copyscope.record.derived import AccountRow, StageRow, Zerocopy
from copyscope.record.run import Run
from copyscope.record.segments import delivered_bytes, select

State = Literal["ok", "invalid", "failed", "timed out", "unreachable", "interrupted"]
# Exit status of a shell that did not find the command.
STATUS_NOT_FOUND = 127
# Maximum output in bytes, as in the module that runs on the host (library/copyscope_ask.py).
OUTPUT_MAX_BYTES = 64 << 20
# Maximum length of the error message of a host, and of the cause, which is this message with advice.
MESSAGE_MAX_CHARACTERS = 160
CAUSE_MAX_CHARACTERS = 240
# Words of ansible before an error message of ssh.
ANSIBLE_PREFIX = re.compile(r"^.*(?:reached over|to the host via) ssh: ")


@dataclass(frozen=True)
class HostAnswer:
    """Result of the command on a host: its exit status (None: time limit reached) and untrusted output.

    `facts`: facts about the host from the module (library/copyscope_ask.py), or None if the module did not
    run. `reached`: False if ansible could not connect to the host.
    """

    status: int | None
    output: bytes
    errors: bytes
    seconds: float
    facts: Any = None
    reached: bool = True


class HostFacts(Struct):
    """Facts about a host: kernel release, architecture, and drivers of its network cards."""

    kernel: str
    arch: str
    nics: list[str]


class FleetDrillRow(Struct):
    """Row of `copyscope drill --json`: the result of one send method (`way`) over one path."""

    way: str
    path: str
    result: str


class DrillAnswer(Struct):
    """Document that `copyscope drill --json` prints."""

    kernel: str
    ways: list[FleetDrillRow]


class StrategyPair(Struct):
    """Verdict on two strategies: the message size from which the second is better, by one quantity."""

    pair: list[str]
    quantity: str
    threads: int
    verdict: str


class CrossoverAnswer(Struct):
    """Document that `copyscope crossover --json` prints."""

    sentence: str
    valid_runs: int
    crossovers: list[StrategyPair]


class FleetFinding(Struct):
    """Finding in the output of `copyscope doctor --json`, without the facts and advice."""

    area: str
    name: str
    status: str


class DoctorAnswer(Struct):
    """Document that `copyscope doctor --json` prints."""

    works: bool
    sentence: str
    findings: list[FleetFinding]


@dataclass(frozen=True)
class HostRow:
    """Row of the fleet's table about one host.

    copied: share (0..1) of the zero-copy sends that the kernel copied after all
    ns_per_kib: CPU time of all processes per KiB delivered
    traits: properties in which hosts may differ, by name of the property
    document: JSON document from the host, or None after save_document() has written it
    """

    host: str
    state: State
    facts: HostFacts | None = None
    valid: bool | None = None
    copied: float | None = None
    ns_per_kib: float | None = None
    cause: str | None = None
    traits: Mapping[str, str] = field(default_factory=dict)
    document: store.Document | None = None


class RefusedAnswer(Exception):
    """Error for a host's answer that is not a document of the expected command."""


def judge(host: str, command: str, answer: HostAnswer) -> HostRow:
    """Return the row of a host. An unreadable answer becomes a row with the state `failed`.

    `command`: name of the copyscope command that the host ran.
    """
    try:
        return _row(host, command, answer)
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        cause = f"the answer cannot be read: {type(error).__name__}: {error}"
        return _with_state(HostRow(host, "failed"), "failed", cause)


def _row(host: str, command: str, answer: HostAnswer) -> HostRow:
    """Return the row of a host. Raises ValueError and others for an answer with an unexpected structure."""
    row = HostRow(host, "failed")
    if not answer.reached:
        cause = f"{_last_line(answer)}; make `ansible -m ping {host}` work first"
        return _with_state(row, "unreachable", cause)
    try:
        row = replace(row, facts=None if answer.facts is None else convert(answer.facts, HostFacts))
    except ValueError as error:
        return _with_state(row, "failed", f"the facts about the host cannot be read: {error}")
    if answer.status is None:
        cause = f"did not end within {answer.seconds:.0f} s: --timeout waits longer"
        return _with_state(row, "timed out", cause)
    if row.facts is None or answer.status == STATUS_NOT_FOUND:
        return _with_state(row, "failed", f"{_last_line(answer)}{_start_advice(answer)}")
    try:
        return _read_document(row, command, answer.output)
    except RefusedAnswer as error:
        return _with_state(row, "failed", _last_line(answer) if answer.status else str(error))


def _with_state(row: HostRow, state: State, cause: str) -> HostRow:
    """Return the row with another state and a shortened cause."""
    return replace(row, state=state, cause=one_line(cause, CAUSE_MAX_CHARACTERS))


def _last_line(answer: HostAnswer) -> str:
    """Return the last line of the command's standard error, or a sentence about its exit status."""
    record_lines = answer.errors.decode(errors="replace").strip().splitlines()
    return (
        one_line(ANSIBLE_PREFIX.sub("", record_lines[-1].rstrip(".")), MESSAGE_MAX_CHARACTERS)
        if record_lines
        else f"ended with status {answer.status} without a message"
    )


def _start_advice(answer: HostAnswer) -> str:
    """Return advice for a command that did not start on the host."""
    errors = answer.errors.lower()
    if answer.status == STATUS_NOT_FOUND:
        return "; install copyscope there, or give its directory with --tree"
    if b"sudo" in errors:
        return "; allow sudo without a password, or log in as root"
    return "; install Python 3 there" if b"python3" in errors else ""


def _read_document(row: HostRow, command: str, output: bytes) -> HostRow:
    """Return the row with the document that the command printed. Raises RefusedAnswer."""
    try:
        if len(output) > OUTPUT_MAX_BYTES:
            raise RefusedAnswer(f"more than {OUTPUT_MAX_BYTES >> 20} MiB: not an answer of {command}")
        text = output.decode()
        if command not in ("doctor", "drill", "crossover"):
            return _with_record(row, store.parse(text, "its answer"))
        document = _json_document(text)
        if command == "drill":
            ways = {f"{way.way} over {way.path}": way.result for way in convert(document, DrillAnswer).ways}
            return replace(row, state="ok", traits=ways, document=document)
        if command == "crossover":
            return _with_crossover(row, convert(document, CrossoverAnswer), document)
        doctor = convert(document, DoctorAnswer)
    except (ValueError, RecursionError) as error:
        cause = f"not an answer of {command}: {error}: does the host have the same version of copyscope?"
        raise RefusedAnswer(cause) from error
    except RecordError as error:
        raise RefusedAnswer(str(error)) from error
    traits = {f"{finding.area}: {finding.name}": finding.status for finding in doctor.findings}
    row = replace(row, state="ok", traits=traits, document=document)
    return row if doctor.works else _with_state(row, "failed", doctor.sentence)


def _json_document(text: str) -> Any:
    """Parse JSON text within the size limits that apply to records. Raises ValueError."""
    try:
        return store.parse_json(text, "its answer")
    except RecordError as error:
        raise ValueError(str(error).removeprefix("its answer: ")) from None


def _with_crossover(row: HostRow, answer: CrossoverAnswer, document: store.Document) -> HostRow:
    """Return the row with the result of `copyscope crossover`. Hosts are compared by verdict, not by size."""
    if not answer.valid_runs:
        return _with_state(replace(row, document=document), "failed", answer.sentence)
    traits = {
        f"{' and '.join(pair.pair)}, {pair.quantity}, threads {pair.threads}": pair.verdict
        for pair in answer.crossovers
    }
    return replace(row, state="ok", traits=traits, document=document)


def _with_record(row: HostRow, record: store.Document) -> HostRow:
    """Return the row with the results in a run's record. Raises RecordError."""
    typed_record = store.as_record(record)
    if not isinstance(typed_record, Run):
        raise RecordError("not a complete record of a run; measure again")
    run = typed_record.derived
    costs = [line.ns_per_kib for line in (*run.ledger, *run.stages) if line.ns_per_kib is not None]
    row = replace(row, state="ok", valid=run.verdict.valid, document=record)
    row = replace(row, ns_per_kib=sum(costs) if costs else None)
    if not run.verdict.valid:
        row = _with_state(row, "invalid", run.verdict.reasons[0])
    copied = None if run.zerocopy is None else copied_share(run.zerocopy)
    if run.zerocopy is None or copied is None:
        return row
    cause = run.zerocopy.cause.sentence if run.zerocopy.cause else "cause unknown"
    trait = f"copied after all: {cause}" if copied > 0 else "not copied"
    return replace(row, copied=copied, traits={"zero-copy sends": trait})


def copied_share(zerocopy: Zerocopy) -> float | None:
    """Return the share (0..1) of the zero-copy sends that were copied after all.

    The result is the larger of two shares: that of completions with the flag SO_EE_CODE_ZEROCOPY_COPIED in
    the entire run, and that of bytes copied without this flag in the ledger segments. The result is None if
    there were no zero-copy sends, or if it is unknown how many completions had the flag.
    """
    if not zerocopy.completions or zerocopy.copied is None:
        return None
    silent_bytes, uncopied_bytes = zerocopy.bytes_silent or 0, zerocopy.bytes_zero_copy or 0
    flagged_share = zerocopy.copied / zerocopy.completions
    return max(flagged_share, silent_bytes / (silent_bytes + uncopied_bytes) if silent_bytes else 0.0)


# A record becomes lines of a table: a line for the run, and a line for each row of its ledger and its stages.
#
# Every line repeats the columns of the run; `kind` is the kind of the line. The columns have fixed types, so
# that the files of many hosts form one table even if values are unknown in some of them.

Cell = str | int | float | bool | list[str] | None
TableLine = dict[str, Cell]
# SQL type of each column. The columns host and date come from the names of the directories.
RUN_COLUMNS = {
    "started_at": "TIMESTAMP",  # UTC
    "run": "VARCHAR",
    "subject": "VARCHAR",  # the strategy, or the name of the watched program
    "watched": "BOOLEAN",
    "valid": "BOOLEAN",
    "kernel": "VARCHAR",
    "arch": "VARCHAR",
    "cpu": "VARCHAR",
    "cpus": "BIGINT",
    "nic": "VARCHAR",  # drivers of the devices on the path
    "path": "VARCHAR",
    "mtu_bytes": "BIGINT",
    "size_bytes": "BIGINT",
    "goodput_gbps": "DOUBLE",
    "delivered_bytes": "BIGINT",  # in the segments of the ledger
    "copied_bytes": "BIGINT",  # by all copies in the same segments
    "zero_copy_copied_share": "DOUBLE",
    "cause": "VARCHAR",
    "save_share": "DOUBLE",  # upper bound of the share of CPU time that fewer copies would save
    "save_share_low": "DOUBLE",
    "stoppers": "VARCHAR",
}
ROW_COLUMNS = {
    "kind": "VARCHAR",  # run, account, stage
    "name": "VARCHAR",
    "side": "VARCHAR",
    "context": "VARCHAR",
    "bytes": "BIGINT",
    "calls": "BIGINT",
    "cpu_ns": "DOUBLE",
    "ns_per_kib": "DOUBLE",
    "method": "VARCHAR",
}
COLUMNS = {**RUN_COLUMNS, **ROW_COLUMNS}


def record_lines(run: Run) -> Iterator[TableLine]:
    """Yield the table lines for a run: first the run itself, then its accounts and stages."""
    columns = run_columns(run)
    yield {**columns, **dict.fromkeys(ROW_COLUMNS), "kind": "run"}
    for row in run.derived.ledger:
        yield {**columns, **_cells(row), "kind": "account", "name": row.account}
    for stage in run.derived.stages:
        yield {**columns, **_cells(stage), "kind": "stage", "name": stage.stage}


def _cells(row: AccountRow | StageRow) -> TableLine:
    """Return the columns for a ledger row or a stage. Missing values are None."""
    return {key: getattr(row, key, None) for key in ROW_COLUMNS}


def run_columns(run: Run) -> TableLine:
    """Return the columns that have the same values in all of a record's lines."""
    raw, derived = run.raw, run.derived
    machine, topology, watched = raw.machine, raw.topology, raw.target is not None
    zerocopy, advice = derived.zerocopy, derived.advice
    save = advice.most_to_save if advice else None
    cause = zerocopy.cause if zerocopy else None
    drivers = sorted({device.driver for device in topology.devices if device.driver})
    return {
        "started_at": raw.run.started,
        "run": raw.run.id,
        "subject": raw.watched.name if watched else raw.asked.impl,
        "watched": watched,
        "valid": derived.verdict.valid,
        "kernel": machine.kernel,
        "arch": machine.arch,
        "cpu": machine.cpu_model,
        "cpus": machine.cpus_online,
        "nic": "+".join(drivers) or None,
        "path": topology.kind,
        "mtu_bytes": topology.mtu_bytes,
        "size_bytes": None if raw.workload is None else raw.workload.size_bytes,
        "goodput_gbps": derived.throughput_gbps.unprobed,
        "delivered_bytes": delivered_bytes(select(raw.run.segments, "ledger")),
        "copied_bytes": _copied_bytes(derived.ledger),
        "zero_copy_copied_share": copied_share(zerocopy) if zerocopy else None,
        "cause": cause.sentence if cause else None,
        "save_share": save.share if save else None,
        "save_share_low": save.low if save else None,
        "stoppers": "; ".join(advice.stoppers) if advice else None,
    }


def _copied_bytes(ledger: Sequence[AccountRow]) -> int | None:
    """Return the bytes that all copies moved, or None if the bytes of an account are unknown.

    An account has a row for each side and context in which it took time. Only one of these rows has the
    account's bytes.
    """
    copies = [row for row in ledger if row.is_plain_copy]
    counted = [row for row in copies if row.bytes is not None]
    is_complete = {row.account for row in copies} == {row.account for row in counted}
    return sum(row.bytes or 0 for row in counted) if is_complete else None


# Maximum number of host names in a sentence.
HOSTS_NAMED_MAX = 5
DURATION = re.compile(r"\b\d+ s\b")


def summarise(rows: Sequence[HostRow]) -> list[str]:
    """Return sentences about hosts that failed, by cause, and about hosts that differ from the majority."""
    return [*_failures(rows), *_differences(rows)]


def _failures(rows: Sequence[HostRow]) -> list[str]:
    """Return a sentence for each group of hosts that failed for the same reason, largest group first."""
    # Causes that differ only in the name of the host or in a duration form one group.
    causes = ((row, row.cause or "cause unknown") for row in rows if row.state != "ok")
    groups = gathered(
        ((row.state, DURATION.sub("", cause.replace(row.host, ""))), row) for row, cause in causes
    )
    return [
        f"{len(group)} of {len(rows)} {state}: {name_hosts([row.host for row in group])}: {group[0].cause}"
        for (state, _), group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def _differences(rows: Sequence[HostRow]) -> list[str]:
    """For each trait, return a sentence for each value that differs from the value of the majority.

    Sentences about the fewest hosts come first.
    """
    sentences: list[tuple[int, str]] = []
    for trait in dict.fromkeys(trait for row in rows for trait in row.traits):
        rows_with_trait = [row for row in rows if trait in row.traits]
        values = Counter(row.traits[trait] for row in rows_with_trait)
        commonest, commonest_count = values.most_common(1)[0]
        majority = commonest if 2 * commonest_count > len(rows_with_trait) else None
        for value, count in values.items():
            if value != majority and len(values) > 1:
                hosts = name_hosts([row.host for row in rows_with_trait if row.traits[trait] == value])
                others = "" if majority is None else f"; on the others {visible(majority)}"
                share = f"{count} of {len(rows_with_trait)}"
                sentences.append((count, f"{share}: {visible(trait)}: {visible(value)}: {hosts}{others}"))
    return [text for _, text in sorted(sentences, key=lambda pair: pair[0])]


def name_hosts(hosts: Sequence[str]) -> str:
    """Return the names of the first hosts and the number of the rest: `web1, web2, ..., web5 and 7 more`."""
    more = len(hosts) - HOSTS_NAMED_MAX
    return ", ".join(hosts[:HOSTS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def save_document(out: Path, row: HostRow) -> HostRow:
    """Write a host's document to OUT/host=HOST/date=DAY/TIME.json (the layout of Hive). Raises OSError.

    Return the row without the document, to free its memory.
    """
    if row.document is None:
        return row
    now = datetime.now(UTC)
    directory = out / f"host={row.host}" / f"date={now:%Y-%m-%d}"
    files.make_directory(directory)
    if "schema" in row.document:
        data = store.serialise(row.document)
    else:
        data = (json.dumps(row.document, indent=1) + "\n").encode()
    files.save(directory / f"{now:%H%M%S}.json", data)
    return replace(row, document=None)
