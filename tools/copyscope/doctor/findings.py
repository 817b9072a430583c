# SPDX-License-Identifier: GPL-2.0-only
"""Types of the findings of `copyscope doctor`: facts about this machine, with advice."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

Status = Literal["ok", "limited", "missing", "confounder"]


@dataclass(frozen=True)
class DoctorFinding:
    """Finding of `copyscope doctor`: a row of the report.

    essential: True if copyscope cannot measure anything while the status is `missing`
    cause: name of another row that explains this finding
    """

    area: str
    name: str
    status: Status
    fact: str
    advice: str | None = None
    essential: bool = False
    cause: str | None = None


confounder_finding = partial(DoctorFinding, "confounders")


@dataclass(frozen=True)
class Diagnosis:
    """All findings about this machine."""

    findings: tuple[DoctorFinding, ...]

    @property
    def works(self) -> bool:
        """True if copyscope can measure on this machine."""
        return not self.obstacles

    @property
    def obstacles(self) -> tuple[DoctorFinding, ...]:
        """Findings about missing essentials: copyscope cannot measure without them."""
        return tuple(row for row in self.findings if row.essential and row.status == "missing")

    @property
    def sentence(self) -> str:
        """Summary of the findings in one sentence."""
        if self.obstacles:
            first = self.obstacles[0]
            return f"cannot profile here: {first.name}: {first.fact}: {first.advice}"
        limited = dict.fromkeys(
            row.area for row in self.findings if row.status in ("limited", "missing") and not row.cause
        )
        confounders = sum(row.status == "confounder" for row in self.findings)
        limits = f"limits in {', '.join(limited)}" if limited else "no limits"
        summary = f"profiling works here: {limits}; things that may disturb the numbers: {confounders}"
        return summary if self.to_do else f"{summary}; nothing to do"

    @property
    def to_do(self) -> tuple[DoctorFinding, ...]:
        """Findings whose advice asks the user to do something."""
        return tuple(
            row
            for row in self.findings
            if row.status != "ok"
            and row.advice
            and not row.cause
            and not row.advice.startswith(("no action needed", "only for"))
        )

    def as_json(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return {
            "works": self.works,
            "sentence": self.sentence,
            "findings": [asdict(row) for row in self.findings],
        }
