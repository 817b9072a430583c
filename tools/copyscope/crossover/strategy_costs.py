"""The cost models of each strategy and number of threads of an experiment, with their draws. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from copyscope.compare.estimates import Point
from copyscope.compare.settings import Scalar
from copyscope.crossover.cost_model import (
    PARTS,
    Coefficients,
    Model,
    Size,
    collapse,
    drivers_at,
    measure,
    predict,
)
from copyscope.crossover.resample import GroupDraws, block_effects, drawn

DRAWS = 200

Table = Mapping[tuple[str, int, int], Point]


@dataclass(frozen=True)
class Costs:
    """One fitted model. `coefficients`: side (or `wall`) -> group of rows -> driver -> ns.

    `measured_ns` and `fitted_ns`: size -> ns per message; `residuals`: size -> fitted / measured - 1.
    """

    impl: str
    threads: int
    quantity: str
    coefficients: Mapping[str, Coefficients]
    measured_ns: Mapping[int, float]
    fitted_ns: Mapping[int, float]
    residuals: Mapping[int, float]
    where: Mapping[str, Scalar]

    def as_json(self) -> dict[str, Any]:
        """As it stands in crossover.json."""
        return {
            "impl": self.impl,
            "threads": self.threads,
            "quantity": self.quantity,
            "where": dict(self.where),
            "coefficients_ns": {
                part: {g: {d: float(f"{v:.6g}") for d, v in ds.items()} for g, ds in groups.items()}
                for part, groups in self.coefficients.items()
            },
            "fit": [
                {
                    "size_bytes": size,
                    "measured_ns_per_message": round(self.measured_ns[size], 1),
                    "fitted_ns_per_message": round(self.fitted_ns[size], 1),
                    "residual": round(self.residuals[size], 4),
                }
                for size in self.residuals  # where something was measured at all
            ],
        }


class StrategyCosts:
    """One strategy with one number of threads: its points, and models of them for each draw."""

    def __init__(
        self,
        impl: str,
        threads: int,
        found: Sequence[tuple[Size, Point]],
        effects: Mapping[str, Mapping[int, float]],
    ) -> None:
        """Draws and fits the parts that have effects; `effects` are those of the blocks, per part."""
        self.impl = impl
        self.threads = threads
        self._sizes = [size for size, _ in found]
        work = found[0][1].records[0]["workload"]
        # The drivers at a size, which every curve is asked for.
        self._drivers = cache(drivers_at(self._sizes, int(work["fields"]), str(work["align"])))
        self._draws: dict[str, list[GroupDraws]] = {}
        self._models: dict[str, list[Coefficients]] = {}
        self._known: dict[str, list[Size]] = {}
        # Asked for by several pairs.
        self.curves = cache(self._fitted_curves)
        self.measured_and_drawn = cache(self._measured_and_drawn)
        # more than one run at every size, or the spread is not known
        self.repeated = all(len(point.records) > 1 for _, point in found)
        for part in effects:
            all_drawn = [
                (size, drawn(size, part, effects[part], DRAWS, f"{self.impl} {self.threads}"))
                for size in self._sizes
            ]
            self._known[part] = [size for size, draws in all_drawn if draws is not None]
            self._draws[part] = [draws for _, draws in all_drawn if draws is not None]
            self._models[part] = self._fit(part)

    def _fit(self, part: str) -> list[Coefficients]:
        draws = self._draws[part]
        if not draws:
            return []
        model = Model(self._known[part], part, [self._weighed_by(part, size) for size in self._known[part]])
        groups = list(draws[0][0])
        return [
            model.solve({group: [one[n][group] for one in draws] for group in groups})
            for n in range(DRAWS + 1)
        ]

    def _weighed_by(self, part: str, size: Size) -> float:
        """What residuals are relative to: the cost itself, and of softirq beside both sides all CPU time,
        because it is often nothing at all.
        """
        parts = PARTS["system_cpu_ns_per_kib"] if part == "other" else (part,)
        return sum(median(size.totals[name].values()) for name in parts if size.totals[name])

    def sizes(self, quantity: str) -> list[int]:
        """The sizes at which everything that makes up a quantity was measured."""
        found = [{size.size_bytes for size in self._known[part]} for part in PARTS[quantity]]
        return sorted(set.intersection(*found))

    def _fitted_curves(self, quantity: str) -> list[Callable[[float], float]]:
        """Size -> ns per message, as fitted: to the measurement first, then to each draw."""

        def predicted(prices: Sequence[float]) -> Callable[[float], float]:
            return lambda size: predict(prices, self._drivers(size))

        models = [self._models[part] for part in PARTS[quantity]]
        return [predicted(collapse(parts)) for parts in zip(*models, strict=True)]

    def measured(self, quantity: str) -> dict[int, float]:
        """Size -> ns per message, as measured."""
        return {size: sum(self.groups(quantity, size).values()) for size in self.sizes(quantity)}

    def _measured_and_drawn(self, quantity: str) -> list[dict[float, float]]:
        """The same, and then as drawn: all of it is only asked for where a model does not fit."""
        draws = {float(size): self._draws_at(quantity, size) for size in self.sizes(quantity)}
        return [
            {size: sum(_summed(parts, n).values()) for size, parts in draws.items()} for n in range(DRAWS + 1)
        ]

    def groups(self, quantity: str, size_bytes: int) -> Mapping[str, float]:
        """Group of rows -> ns per message, as measured."""
        return _summed(self._draws_at(quantity, size_bytes), 0)

    def _draws_at(self, quantity: str, size_bytes: int) -> list[GroupDraws]:
        """The draws of each part of a quantity at one size."""
        return [
            self._draws[part][[size.size_bytes for size in self._known[part]].index(size_bytes)]
            for part in PARTS[quantity]
        ]

    def residuals(self, quantity: str) -> dict[int, float]:
        """Size -> fitted / measured - 1."""
        fitted, measured = self.curves(quantity)[0], self.measured(quantity)
        return {size: fitted(size) / cost - 1 for size, cost in measured.items() if cost > 0}

    def costs(self, where: Mapping[str, Scalar]) -> list[Costs]:
        """What was fitted, one row per quantity that was measured."""
        rows = []
        for quantity, parts in PARTS.items():
            if self.sizes(quantity):
                coefficients = {part: self._models[part][0] for part in parts}
                measured = self.measured(quantity)
                fitted = {size: self.curves(quantity)[0](size) for size in measured}
                named = (self.impl, self.threads, quantity)
                rows.append(Costs(*named, coefficients, measured, fitted, self.residuals(quantity), where))
        return rows


def _summed(parts: Sequence[GroupDraws], draw: int) -> Mapping[str, float]:
    """Group -> ns per message in one draw, all parts together."""
    if len(parts) == 1:
        return parts[0][draw]
    found: dict[str, float] = {}
    for draws in parts:
        for group, cost in draws[draw].items():
            found[group] = found.get(group, 0.0) + cost
    return found


def fit_costs(table: Table, quantities: Iterable[str] = tuple(PARTS)) -> dict[tuple[str, int], StrategyCosts]:
    """(strategy, threads) -> its models of some quantities, of all points of one setting."""
    measured = {key: measure(point) for key, point in table.items()}
    effects = {
        part: block_effects(list(measured.values()), part)
        for part in sorted({part for quantity in quantities for part in PARTS[quantity]})
    }
    models = {}
    for impl, threads in sorted({(impl, threads) for impl, threads, _ in table}):
        mine = [(measured[key], table[key]) for key in sorted(table) if key[:2] == (impl, threads)]
        models[impl, threads] = StrategyCosts(impl, threads, mine, effects)
    return models
