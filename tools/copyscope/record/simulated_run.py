"""The record of a simulation alone. Pure."""

from typing import Annotated

from msgspec import Meta

from copyscope.record.derived import Judged
from copyscope.record.measured import Copyscope, RunIdentity
from copyscope.record.sections import Section
from copyscope.record.simulated import Simulated


class SimulatedRun(Section):
    """A record of a simulation; it has no part of its own that is only derived."""

    schema: Annotated[int, Meta(extra_json_schema={"const": 2})]
    copyscope: Copyscope
    run: RunIdentity
    simulated: Simulated
    verdict: Judged
