"""docs/reference/command-line.md: what `copyscope VERB --help` prints, for every verb. Pure."""

import os
from unittest import mock

from copyscope.commands.verbs import VERBS, Verb

HEAD = """# Command line

<!-- Made by `make pages` from `copyscope VERB --help`. -->

`copyscope` alone lists which verb answers which question. This page has what `copyscope VERB --help`
prints; `--help-all` adds the rarer options. The [strategies, receivers and paths](strategies.md),
[two hosts](two-hosts.md) and the [glossary](glossary.md) explain their values. Every error is one line on
stderr: the thing, the cause, the next step."""


def page() -> str:
    """A section for each verb, as wide as a terminal of 80 columns."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        return "\n\n".join([HEAD, *map(_section, VERBS)]) + "\n"


def _section(verb: Verb) -> str:
    return f"## {verb.name}\n\n```text\n{verb.parser().format_help().rstrip()}\n```"
