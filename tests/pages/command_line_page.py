# SPDX-License-Identifier: GPL-2.0-only
"""Write docs/reference/command-line.md from what `copyscope VERB --help` prints. Pure.

Options that several commands share are listed once, at the end.
"""

import os
import re
import textwrap
from collections.abc import Iterator
from unittest import mock

from copyscope.base.stats import gathered
from copyscope.commands.verbs import VERBS

HEAD = """# Command line

<!-- Made by `make pages` from `copyscope VERB --help`. -->

After reading this page you know the usual options of each command.
`copyscope VERB --help` prints these options, and `--help-all` adds the rarer ones.
Without a command, `copyscope` lists which command answers which question.
[Ways to send](ways.md#strategies) and [two hosts](two-hosts.md) explain the values of options.
The [glossary](../2-ledger.md#glossary) explains words, and [examples](../examples) show outputs.
Options [of several commands](#shared-options) are listed at the end."""
# An option that at least so many commands describe in the same words is a shared option.
COMMANDS_MIN = 2
# Options of every command, which HEAD describes.
HELP_OPTIONS = ("-h, --help", "--help-all", "--version")
# An option or positional argument in the output of argparse, with the lines that continue it.
ENTRY = re.compile(r"^  (?! )(\S.*(?:\n   .*)*)\n?", re.MULTILINE)
# The heading of a group of options that has no options left.
EMPTY_GROUP = re.compile(r"\n\n[^\n]+:(?=\n\n|\n*\Z)")
# A command shows its first examples only.
EXAMPLES_MAX = 2
COLUMN, WIDTH = 24, 80


def page() -> str:
    """Return a section for each command, as wide as a terminal of 80 columns, and the shared options."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH)}):
        texts = {verb.name: verb.parser().format_help() for verb in VERBS}
    # Entry -> the commands that have it.
    commands_of = gathered(
        (entry, name) for name, text in texts.items() for entry in map(_as_words, _entries(text))
    )
    shared = {entry: tuple(names) for entry, names in commands_of.items() if len(names) >= COMMANDS_MIN}
    sections = [_section(name, text, shared) for name, text in texts.items()]
    return "\n\n".join([HEAD, *sections, _shared_section(shared)]) + "\n"


def _section(name: str, text: str, shared: dict[str, tuple[str, ...]]) -> str:
    """Return the help of a command: its usage, its own options, and its first examples."""
    usage, options, examples = _parts(text)

    def kept(match: re.Match[str]) -> str:
        entry = _as_words(match[1])
        return "" if entry in shared or entry.startswith(HELP_OPTIONS) else match[0]

    options = EMPTY_GROUP.sub("", f"\n\n{ENTRY.sub(kept, options)}".rstrip() + "\n\n")
    lines = ["examples:", *examples.splitlines()[:EXAMPLES_MAX]]
    help_text = "\n\n".join(part.strip("\n") for part in (usage, options, "\n".join(lines)))
    return f"## {name}\n\n```text\n{help_text}\n```"


def _parts(text: str) -> tuple[str, str, str]:
    """Divide a help text into its usage, its description and options, and its examples."""
    begin, _, examples = text.partition("\nexamples:\n")
    usage, _, options = begin.partition("\n\n")
    return usage, options, examples


def _entries(text: str) -> Iterator[str]:
    """Return the entries of a help text between its usage and its examples."""
    return (match[1] for match in ENTRY.finditer(_parts(text)[1]))


def _as_words(entry: str) -> str:
    """Return an entry on one line: its name, two blanks, its description."""
    name, _, description = entry.replace("\n", "  ").partition("  ")
    return f"{name}  {' '.join(description.split())}"


def _shared_section(shared: dict[str, tuple[str, ...]]) -> str:
    """Return the shared options, grouped by the commands that have them."""
    blocks = []
    for names, entries in gathered((names, entry) for entry, names in shared.items()).items():
        lines = [_entry(entry) for entry in entries if not entry.startswith(HELP_OPTIONS)]
        if lines:
            blocks.append("\n".join([f"{', '.join(names)}:", *lines]))
    return "\n".join(["## Shared options", "", "```text", "\n\n".join(blocks), "```"])


def _entry(entry: str) -> str:
    """Return an entry with its description in a column."""
    name, _, description = entry.partition("  ")
    lines = textwrap.wrap(description, WIDTH - COLUMN, break_on_hyphens=False)
    first = f"  {name}".ljust(COLUMN)
    if len(first) > COLUMN or first[-1] != " ":
        lines.insert(0, "")
    return "\n".join([(first + lines[0]).rstrip(), *(" " * COLUMN + line for line in lines[1:])])
