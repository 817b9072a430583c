"""Whether the derived sections of all committed records are still those that an older commit made of them.

    make check-records OLD=main~20

For whoever changes how records are read or derived and wants nothing else to change. Both sides derive every
record from its raw sections, each in a process of its own, and what they make is compared byte for byte. The
old code is unpacked into a temporary directory, which a process beside removes when this one ends, however.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parent.parent
VALUE_MAX = 80
# Run by both sides: a line for each record, of what was derived or why it could not be.
DERIVE = """
import json, sys
from copyscope.ledger.derive import derive

for line in sys.stdin:
    record = json.loads(line)
    # What a simulated machine did is modelled: nothing is derived of it.
    made = record if "simulated" in record else derive(record)
    print(json.dumps(made, sort_keys=True), flush=True)
"""


def main() -> int:
    """Exit status: 0 nothing differs, 1 something does, 2 usage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", metavar="COMMIT", help="whose code is compared with this tree's")
    parser.add_argument("files", nargs="*", type=Path, help="files of records (default: all under results/)")
    arguments = parser.parse_args()
    files = [path.resolve() for path in arguments.files] or committed()
    lines = [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines(keepends=True)]
    differing = Counter[str]()
    with temporary_directory() as directory:
        unpack(arguments.old, directory)
        sides = [start(tools, lines) for tools in (directory / "tools", TREE / "tools")]
        for line in lines:
            name = json.loads(line)["run"]["id"]
            old, new = (line_of(side, name) for side in sides)
            found = [] if old == new else list(differences(json.loads(old), json.loads(new)))
            for key, before, after in found:
                anywhere = re.sub(r"\[\d+\]", "[]", key)
                differing[anywhere] += 1
                if differing[anywhere] == 1:
                    print(f"{name}: {key}: {before} in {arguments.old}, {after} in this tree")
            differing["records"] += bool(found)
    count = differing.pop("records")
    for key, times in differing.most_common():
        print(f"{times:7,} times {key}")
    print(f"{len(lines)} records derived by {arguments.old} and by this tree: {count or 'none'} differ")
    return 1 if count else 0


def committed() -> list[Path]:
    """The records of all sweeps in this tree."""
    found = sorted((TREE / "results").glob("*/*/records.jsonl.gz"))
    return found or sys.exit("results/: no record: run it in a tree that has them")


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """Removed by a shell as soon as nobody holds the other end of its stdin any more."""
    directory = tempfile.mkdtemp(prefix="copyscope-old-")
    remove = ["sh", "-c", 'read -r _; rm -rf "$0"', directory]
    with subprocess.Popen(remove, stdin=subprocess.PIPE, start_new_session=True) as remover:
        yield Path(directory)
        remover.communicate()


def unpack(commit: str, directory: Path) -> None:
    """The tools of a commit."""
    archive = subprocess.run(
        ["git", "-C", TREE, "archive", commit, "tools"], stdout=subprocess.PIPE, check=False
    )
    if archive.returncode:
        sys.exit(2)  # git has said why
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)


def start(tools: Path, lines: list[bytes]) -> subprocess.Popen[str]:
    """One side. It ends with this process: there is nobody to write to then."""
    listed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    listed.writelines(lines)
    listed.seek(0)
    return subprocess.Popen(
        [TREE / ".venv/bin/python3", "-P", "-B", "-c", DERIVE],
        stdin=listed,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tools)},
    )


def line_of(side: subprocess.Popen[str], name: str) -> str:
    assert side.stdout is not None
    return side.stdout.readline() or sys.exit(f"{name}: could not be derived: see above")


def differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, one value, the other), in the order of the record; rows of a list by their name or number."""
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
    """Rows that have names, as the consistency checks do, by these; None where they have none."""
    if not rows or not all(isinstance(row, dict) and "name" in row for row in rows):
        return None
    found = {row["name"]: row for row in rows}
    return found if len(found) == len(rows) else None


def shown(value: Any) -> str:
    return "not there" if value is ... else json.dumps(value)[:VALUE_MAX]


if __name__ == "__main__":
    sys.exit(main())
