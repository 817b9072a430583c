# SPDX-License-Identifier: GPL-2.0-only
"""Check that this tree derives the same sections of all committed records as an older commit does.

    make check-records OLD=main~20

Use it after a change of how records are read or derived that should change nothing else. Both trees derive
every record from its raw sections, each in its own process, and the results are compared byte for byte. The
old code is unpacked into a temporary directory, which another process removes however this one ends.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
VALUE_MAX = 80
# Program that both trees run. It prints the derived record for each line of its input.
DERIVE = """
import json, sys
try:
    from copyscope.ledger.derive import derived
    from copyscope.record import store
    from copyscope.record.measured import Measured

    # Older commits have other names.
    with_derived = getattr(store, "with_derived", None) or store.derived_anew
    convert_part = getattr(store, "convert_part", None) or store.half
    derive = lambda record: with_derived(record, derived(convert_part(record, Measured)))
except ImportError:  # an older commit, which derives JSON objects
    from copyscope.ledger.derive import derive

for line in sys.stdin:
    record = json.loads(line)
    # Nothing is derived from the record of a simulated machine.
    made = record if "simulated" in record else derive(record)
    print(json.dumps(made, sort_keys=True), flush=True)
"""


def main() -> int:
    """Return 0 if nothing differs, 1 if something does, 2 for wrong usage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", metavar="COMMIT", help="commit to compare with this tree")
    parser.add_argument(
        "files", nargs="*", type=Path, help="files of records (default: all that are committed)"
    )
    arguments = parser.parse_args()
    lines = list(lines_of(arguments.files or committed()))
    kinds = Counter[str]()
    differing = Counter[str]()
    with temporary_directory() as directory:
        unpack(arguments.old, directory)
        processes = [start(tools, lines) for tools in (directory / "tools", TREE / "tools")]
        for line in lines:
            record = json.loads(line)
            name = record["run"]["id"]
            kinds[kind_of(record)] += 1
            old, new = (line_of(process, name) for process in processes)
            changes = [] if old == new else list(differences(json.loads(old), json.loads(new)))
            for key, before, after in changes:
                generic_key = re.sub(r"\[\d+\]", "[]", key)
                differing[generic_key] += 1
                if differing[generic_key] == 1:
                    print(f"{name}: {key}: {before} in {arguments.old}, {after} in this tree")
            differing["records"] += bool(changes)
    count = differing.pop("records")
    for key, times in differing.most_common():
        print(f"{times:7,} times {key}")
    for kind, records in kinds.most_common():
        print(f"{records:7,} records: {kind}")
    print(f"{len(lines)} records derived by {arguments.old} and by this tree: {count or 'none'} differ")
    return 1 if count else 0


def committed() -> list[Path]:
    """Return the files of records in results/ and docs/: one record each, or all records of a sweep."""
    files = [*(TREE / "results").glob("*/*/*.gz"), *(TREE / "docs").rglob("*.json.gz")]
    return sorted(files) or sys.exit("no records in results/ or docs/: run this in a clone of the repository")


def lines_of(files: Iterable[Path]) -> Iterator[bytes]:
    """Yield each record of the files as one line of JSON."""
    for path in files:
        text = gzip.decompress(path.read_bytes())
        many = path.name.endswith(".jsonl.gz")
        yield from text.splitlines(keepends=True) if many else [text.replace(b"\n", b"") + b"\n"]


def kind_of(record: dict[str, Any]) -> str:
    """Name the kind of a record: each kind is derived by code of its own."""
    if "simulated" in record:
        return "simulated machines"
    if "target" in record:
        return "watched programs"
    if "places" in record:
        return "two hosts"
    return "own traffic" if record["workload"]["receiver"] == "read" else "receivers"


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """Yield a temporary directory.

    A shell removes it once its standard input is closed, however this process ends.
    """
    directory = tempfile.mkdtemp(prefix="copyscope-old-")
    remove = ["sh", "-c", 'read -r _; rm -rf "$0"', directory]
    with subprocess.Popen(remove, stdin=subprocess.PIPE, start_new_session=True) as remover:
        yield Path(directory)
        remover.communicate()


def unpack(commit: str, directory: Path) -> None:
    """Unpack the tools of a commit into a directory."""
    archive = subprocess.run(
        ["git", "-C", TREE, "archive", commit, "tools"], stdout=subprocess.PIPE, check=False
    )
    if archive.returncode:
        sys.exit(2)  # git has printed the error
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)


def start(tools: Path, lines: list[bytes]) -> subprocess.Popen[str]:
    """Start a process that derives `lines` with the code in `tools`. It ends if this process ends."""
    input_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    input_file.writelines(lines)
    input_file.seek(0)
    return subprocess.Popen(
        [TREE / ".venv/bin/python3", "-P", "-B", "-c", DERIVE],
        stdin=input_file,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tools)},
    )


def line_of(process: subprocess.Popen[str], name: str) -> str:
    """Read the next derived record. `name`: its id, for the error."""
    assert process.stdout is not None
    return process.stdout.readline() or sys.exit(f"{name}: could not be derived: see above")


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (key, old value, new value) of each difference.

    Rows of a list are identified by name or number.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from differences(old.get(name, ...), new.get(name, ...), f"{key}.{name}".lstrip("."))
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and (rows := by_name(old))
        and (others := by_name(new))
    ):
        yield from differences(rows, others, key)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(itertools.zip_longest(old, new, fillvalue=...)):
            yield from differences(before, after, f"{key}[{index}]")
    elif json.dumps(old, default=repr) != json.dumps(new, default=repr):
        yield key, shown(old), shown(new)


def by_name(rows: list[Any]) -> dict[str, Any] | None:
    """Return name -> row of rows with unique names, such as consistency checks; else None."""
    if not rows or not all(isinstance(row, dict) and "name" in row for row in rows):
        return None
    rows_by_name = {row["name"]: row for row in rows}
    return rows_by_name if len(rows_by_name) == len(rows) else None


def shown(value: Any) -> str:
    return "not there" if value is ... else json.dumps(value)[:VALUE_MAX]


if __name__ == "__main__":
    sys.exit(main())
