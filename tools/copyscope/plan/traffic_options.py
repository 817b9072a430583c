# SPDX-License-Identifier: GPL-2.0-only
"""Options of the traffic program, as that program describes them.

traffic_options.json is the output of `traffic options --json`. `make pages` writes this file, so do not edit
it. The file is committed because --help and experiments must work where the traffic program is not built.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from copyscope.base.arguments import ArgumentKeywords

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class OptionRow:
    """Row of the table in src/traffic/option_table.c: an option of the traffic program.

    role: programs that have the option: `send`, `recv` or `both`
    type: `count`, `size`, `duration`, `flag`, `choice`, `text` or `list`
    unit: unit of a number, or placeholder for a text, as help shows it
    least, most: limits of a number, which the traffic program checks
    default: default value as typed; null: no default, or a default that the help explains
    key: key of the value in the output of `traffic send --check`
    factor: True if `copyscope run` has the option
    workload: True if the section `workload` of a record has the key
    """

    name: str
    role: str
    type: str
    unit: str | None
    least: int | None
    most: int | None
    choices: list[str]
    default: str | None
    help: str
    key: str | None
    factor: bool
    workload: bool

    @property
    def dest(self) -> str:
        """Name of the option in Python code and in experiments."""
        return self.name.replace("-", "_")

    def argument(self) -> ArgumentKeywords:
        """Return the keyword arguments of add_argument() for this option."""
        if self.type == "flag":
            return {"action": "store_true", "help": self.help}
        default = "" if self.default is None else f"; default {self.default}"
        keywords: ArgumentKeywords = {"default": self.default, "help": self.help + default}
        if self.choices:
            return keywords | {"choices": self.choices}
        return keywords | {"metavar": self.unit}


ROWS = [OptionRow(**row) for row in json.loads(FILE.read_bytes())]
# Options of copyscope run by name. If sender and receiver have different rows, the sender's row counts.
FACTORS = {row.dest: row for row in ROWS if row.factor}
STRATEGIES = FACTORS["impl"].choices


def type_of(name: str) -> str | None:
    """Return the type of an option of `copyscope run`, or None if the traffic program does not have it."""
    return FACTORS[name].type if name in FACTORS else None


def _programs(name: str) -> set[str]:
    """Return the programs that have an option: `send`, `recv`, or both programs."""
    roles = {row.role for row in ROWS if row.dest == name}
    return {"send", "recv"} if "both" in roles else roles


TO_BOTH = tuple(name for name in FACTORS if _programs(name) == {"send", "recv"})
TO_SENDER = tuple(name for name in FACTORS if _programs(name) == {"send"})
TO_RECEIVER = tuple(name for name in FACTORS if _programs(name) == {"recv"})
# Keys of the record's `workload` that the sender resolves, and keys that only the receiver resolves.
FROM_SENDER = tuple(str(row.key) for row in ROWS if row.workload and row.role != "recv")
FROM_RECEIVER = tuple(str(row.key) for row in ROWS if row.workload and row.role == "recv")
# Key of the resolved value of each option with a number that sender and receiver must share.
AGREED = {name: str(FACTORS[name].key) for name in TO_BOTH if FACTORS[name].type in ("count", "size")}
