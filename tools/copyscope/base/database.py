# SPDX-License-Identifier: GPL-2.0-only
"""DuckDB in memory, and tables as Parquet files. DuckDB (requirements/fleet.txt) is optional."""

import atexit
import gc
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from copyscope.base.errors import RunError, how_to_install_extra

# DuckDB must not download extensions.
SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


@cache
def connect() -> Any:
    """Return a connection to a database in memory, which is empty at first.

    Raises RunError if DuckDB is missing.
    """
    try:
        import duckdb  # noqa: PLC0415 (optional, and takes 200 ms)
    except ModuleNotFoundError as error:
        raise RunError(f"{error.name} is missing; {how_to_install_extra('fleet')}") from error
    # __main__ calls gc.freeze(). DuckDB would report its uncollected objects on stderr at exit.
    atexit.register(gc.unfreeze)
    return duckdb.connect(":memory:", config=SETTINGS)


def parquet_of(types: Mapping[str, str], lines: Sequence[Mapping[str, object]]) -> bytes:
    """Return a table as a Parquet file. Raises RunError if DuckDB is missing.

    `types`: maps the name of each column to its SQL type. `lines`: map the names to the cells.
    """
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "table.json"), Path(directory, "table.parquet")
        # DuckDB reads a file a hundred times as fast as it inserts rows.
        source.write_bytes(msgspec.json.Encoder().encode_lines(lines))
        connect().execute(
            "COPY (SELECT * FROM read_json($lines, columns = $types, format = 'newline_delimited'))"
            f" TO '{target}' (FORMAT parquet, COMPRESSION zstd)",
            {"lines": str(source), "types": dict(types)},
        )
        return target.read_bytes()
