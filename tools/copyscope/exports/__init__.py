"""A saved record for other people's tools: each format in a file of its own, all from the same costs."""

from collections.abc import Callable
from dataclasses import dataclass

from copyscope.exports import flamegraph, openmetrics, page, pprof
from copyscope.exports.costs import folded, table
from copyscope.record.check import Whole
from copyscope.report.table_files import as_csv, as_parquet


@dataclass(frozen=True)
class Format:
    """How one is made of a run, and what it is to whom chooses it."""

    make: Callable[[Whole], bytes]
    what: str
    of_stacks: bool = False
    text: bool = True


FORMATS = {
    "html": Format(page.write, "a page to be sent to a colleague"),
    "folded": Format(folded, "stacks as lines", of_stacks=True),
    "flamegraph": Format(flamegraph.draw, "stacks as an SVG", of_stacks=True),
    "pprof": Format(pprof.write, "stacks for go tool pprof", of_stacks=True, text=False),
    "openmetrics": Format(openmetrics.write, "rows for Prometheus"),
    "parquet": Format(lambda run: as_parquet(table(run)), "rows", text=False),
    "csv": Format(lambda run: as_csv(table(run)), "rows"),
}
