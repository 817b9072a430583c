"""What a run beside a watched program leaves behind, on top of what every run does."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from copyscope.record.program.connections import Connections
from copyscope.record.program.segments import Sums
from copyscope.run.program.pace import Reading
from copyscope.run.session import Raw

# Of the segments that count each call, where others do not, so many are kept: the last ones.
COUNTED_KEPT = 200


@dataclass
class Seen(Raw):
    """Of older segments only the rows are left, and in `sums` what moved in them (forget())."""

    sums: Sums = field(default_factory=dict)
    ended: str = "the time was over"
    pids: dict[int, str] = field(default_factory=dict)
    connections: Connections = field(default_factory=Connections)
    status: int | None = None
    # Why the calls were counted for a part of the time only, and why no longer; what was counted then.
    spared: str | None = None
    spared_until: str | None = None
    counted: deque[Any] = field(default_factory=lambda: deque(maxlen=COUNTED_KEPT))
    # With nothing attached: before the first hook came, and after the last had gone.
    before: list[Reading] = field(default_factory=list)
    after: list[Reading] = field(default_factory=list)
