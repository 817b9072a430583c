# SPDX-License-Identifier: GPL-2.0-only
"""Records as JSON objects, whose keys tests change, and conversion to typed records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from copyscope.base.errors import RecordError
from copyscope.judge import advice
from copyscope.judge.crossover_file import SavedCrossover
from copyscope.ledger.derive import derived
from copyscope.record import assemble as assembling
from copyscope.record import store
from copyscope.record.derived import Derived, SimulatedRun
from copyscope.record.measured import Measured
from copyscope.record.run import Run
from copyscope.record.session_result import Raw
from msgspec import to_builtins

Record = dict[str, Any]


def assemble(raw: Raw, identity: assembling.RecordIdentity, frequency_hz: int, **sections: Any) -> Record:
    """Return the measured half of a record."""
    return store.document_of(assembling.assemble(raw, identity, frequency_hz, **sections))


def derive(document: Mapping[str, Any], *, effects: bool = True) -> Record:
    """Return a new document with all derived sections."""
    return store.with_derived(dict(document), derived(typed(document), effects=effects))


def with_derived_sections(document: Record) -> Record:
    """Return a complete document unchanged, or derive the missing half."""
    return document if "verdict" in document else derive(document)


def typed(document: Mapping[str, Any]) -> Measured:
    """Return the measured half of a document. Raises RecordError."""
    return store.convert_part(dict(document), Measured)


def typed_whole(document: Mapping[str, Any]) -> Run:
    """Return a complete document as a run. Raises RecordError."""
    return Run(typed(document), store.convert_part(dict(document), Derived))


def typed_runs(documents: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return complete documents as runs. Raises RecordError."""
    return list(map(typed_whole, documents))


def typed_boot(document: Mapping[str, Any]) -> SimulatedRun:
    """Return the document of a simulated machine as a typed record. Raises RecordError."""
    return store.convert_part(dict(document), SimulatedRun)


def validate(document: Mapping[str, Any], *, raw: bool = False) -> list[str]:
    """Return a list with the first problem of a record, or an empty list.

    raw: the document has only the measured half
    """
    try:
        if raw:
            typed(document)
        else:
            (typed_boot if "simulated" in document else typed_whole)(document)
    except RecordError as error:
        return [str(error).removeprefix("incomplete record (").removesuffix("); measure again")]
    return []


def advise(document: Mapping[str, Any], crossovers: Sequence[SavedCrossover] | None) -> Record:
    """Return the section `advice` for a complete document."""
    section: Record = to_builtins(advice.advice_section(typed_whole(document), crossovers))
    return section
