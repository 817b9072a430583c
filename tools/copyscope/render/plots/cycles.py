"""What a byte costs along the size of a message: cycles, or CPU time where no PMU counts cycles."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from copyscope.compare.estimates import Missing
from copyscope.render.plots.catalogue import Quantity
from copyscope.render.plots.curves import draw
from copyscope.study.facets import find_axis
from copyscope.study.table import Row

SIDES = ("sender", "receiver")


def plot(rows: Sequence[Row], caption: str) -> Figure:
    """Sender, receiver, and both with the softirq work beside them, which is known as CPU time only."""
    values = [row.values[f"cycles_per_byte_{side}"] for row in rows for side in SIDES]
    missing = [value.reason for value in values if isinstance(value, Missing)]
    system = Quantity("system_cpu_ns_per_kib", "CPU time (ns/KiB)", "system")
    if len(missing) == len(values):
        quantities = [Quantity(f"{side}_cpu_ns_per_kib", "CPU time (ns/KiB)", side) for side in SIDES]
        title = "What a byte costs: CPU time"
        why = missing[0] if missing else "no point"
        caption = f"cycles: n/a: {why}; on-CPU time stands for them. {caption}"
    else:
        quantities = [Quantity(f"cycles_per_byte_{side}", "cycles per byte", side) for side in SIDES]
        title = "What a byte costs: cycles"
    return draw(rows, find_axis(rows), [*quantities, system], title, caption)
