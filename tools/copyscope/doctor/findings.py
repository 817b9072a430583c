"""What a look at the machine brings: rows of facts, each with what to do about it."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

Status = Literal["ok", "limited", "missing", "confounder"]


@dataclass(frozen=True)
class Finding:
    """One row. `essential`: without it no profile can be made. `cause`: the row that says why."""

    area: str
    name: str
    status: Status
    fact: str
    advice: str | None = None
    essential: bool = False
    cause: str | None = None


disturbing = partial(Finding, "confounders")


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Whether a profile can be made at all."""
        return not self.obstacles

    @property
    def obstacles(self) -> tuple[Finding, ...]:
        return tuple(row for row in self.findings if row.essential and row.status == "missing")

    @property
    def sentence(self) -> str:
        if self.obstacles:
            first = self.obstacles[0]
            return f"cannot profile here: {first.name}: {first.fact}: {first.advice}"
        limited = dict.fromkeys(
            row.area for row in self.findings if row.status in ("limited", "missing") and not row.cause
        )
        confounders = sum(row.status == "confounder" for row in self.findings)
        limits = f"limits in {', '.join(limited)}" if limited else "no limits"
        said = f"profiling works here: {limits}; things that may disturb the numbers: {confounders}"
        return said if self.to_do else f"{said}; nothing to do"

    @property
    def to_do(self) -> tuple[Finding, ...]:
        """Those that somebody should act upon."""
        return tuple(
            row
            for row in self.findings
            if row.status != "ok"
            and row.advice
            and not row.cause
            and not row.advice.startswith(("no action needed", "only for"))
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "works": self.works,
            "sentence": self.sentence,
            "findings": [asdict(row) for row in self.findings],
        }
