# SPDX-License-Identifier: GPL-2.0-only
"""Formats in which `copyscope show --export` writes a saved record for other tools."""

from collections.abc import Callable
from dataclasses import dataclass

from copyscope.record.derived import SimulatedRun
from copyscope.record.run import Run
from copyscope.report import lines_drawing, page, path_drawing
from copyscope.report.costs import flame_graph, folded, pprof, table
from copyscope.report.openmetrics import OPENMETRICS, PLAIN_TEXT, write
from copyscope.report.table_files import as_csv, as_parquet


@dataclass(frozen=True)
class Format:
    """An export format.

    write_run: writer for the record of a run
    description: the format in a few words, for the help
    needs_stacks: True if the export is of little use without call stacks in the record
    is_text: True if the export can be printed on a terminal
    write_simulated: writer for a simulated machine's record; None if the format does not support one
    """

    write_run: Callable[[Run], bytes]
    description: str
    needs_stacks: bool = False
    is_text: bool = True
    write_simulated: Callable[[SimulatedRun], bytes] | None = None

    def write(self, run: Run | SimulatedRun) -> bytes:
        """Return a record in this format."""
        if isinstance(run, Run):
            return self.write_run(run)
        assert self.write_simulated is not None
        return self.write_simulated(run)


# Value of --export -> format.
FORMATS = {
    "html": Format(page.write, "the whole run as one HTML page"),
    "folded": Format(folded, "stacks as text, one per line", needs_stacks=True),
    "flamegraph": Format(flame_graph, "flame graph as SVG", needs_stacks=True),
    "drawing": Format(
        lambda run: path_drawing.draw(run).encode(),
        "the path of a byte, or the cache lines of a simulated machine, as SVG",
        write_simulated=lambda run: lines_drawing.draw(run).encode(),
    ),
    "pprof": Format(pprof, "stacks for go tool pprof", needs_stacks=True, is_text=False),
    "openmetrics": Format(lambda run: write(run, OPENMETRICS), "rows of the ledger as OpenMetrics"),
    "prometheus": Format(
        lambda run: write(run, PLAIN_TEXT), "rows of the ledger for node_exporter's textfile collector"
    ),
    "parquet": Format(lambda run: as_parquet(table(run)), "rows of the ledger", is_text=False),
    "csv": Format(lambda run: as_csv(table(run)), "rows of the ledger"),
}
