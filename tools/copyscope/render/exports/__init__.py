"""A saved record for other people's tools: each format in a file of its own, all from the same costs."""

from collections.abc import Callable
from typing import Any

from copyscope.record.segments import Record
from copyscope.render.exports import flamegraph, openmetrics, page, pprof, speedscope, timeline
from copyscope.render.exports.costs import folded, table
from copyscope.render.table_files import as_csv, as_parquet

# format -> (how its files end, what makes one)
FORMATS: dict[str, tuple[str, Callable[[Record], bytes]]] = {
    "html": ("html", page.write),
    "folded": ("folded", folded),
    "flamegraph": ("svg", flamegraph.draw),
    "speedscope": ("speedscope.json", speedscope.write),
    "pprof": ("pb.gz", pprof.write),
    "chrome": ("trace.json", timeline.write),
    "openmetrics": ("prom", openmetrics.write),
    "parquet": ("parquet", lambda record: as_parquet(table(record))),
    "csv": ("csv", lambda record: as_csv(table(record))),
}


def export(record: dict[str, Any], name: str) -> bytes:
    """A whole record in a format of FORMATS."""
    return FORMATS[name][1](record)
