"""A saved record for other people's tools: each format in a file of its own, all from the same costs."""

from collections.abc import Callable

from copyscope.record.segments import Record
from copyscope.render.exports import flamegraph, openmetrics, page, pprof
from copyscope.render.exports.costs import folded, table
from copyscope.render.table_files import as_csv, as_parquet

# Format -> what makes one of a whole record.
FORMATS: dict[str, Callable[[Record], bytes]] = {
    "html": page.write,
    "folded": folded,
    "flamegraph": flamegraph.draw,
    "pprof": pprof.write,
    "openmetrics": openmetrics.write,
    "parquet": lambda record: as_parquet(table(record)),
    "csv": lambda record: as_csv(table(record)),
}
