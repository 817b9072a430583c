# SPDX-License-Identifier: GPL-2.0-only
"""Write the man pages and shell completions for `make install`, from the commands' parsers."""

import argparse
import importlib
import re
import sys
from pathlib import Path

from copyscope import VERSION
from copyscope.commands import entry
from copyscope.commands.sweep import EXPERIMENTS
from copyscope.commands.verbs import VERBS, Verb, overview
from copyscope.plan.traffic_options import STRATEGIES

SHELLS = ("bash", "zsh", "fish")


def main(argv: list[str]) -> int:
    """Write all files to the directory that the only argument names. Exit status: 0 written, 1 failed."""
    return entry.run("manual", lambda: _write(Path(argv[0])))


def _write(directory: Path) -> int:
    (directory / "copyscope.1").write_text(main_page(), encoding="utf-8")
    for verb in VERBS:
        (directory / f"copyscope-{verb.name}.1").write_text(command_page(verb), encoding="utf-8")
    for shell, text in completions().items():
        (directory / f"copyscope.{shell}").write_text(text, encoding="utf-8")
    return 0


def main_page() -> str:
    """Return the man page copyscope(1): users' questions, and the list of commands."""
    lines = _page_head(
        "copyscope", "where the Linux kernel copies the bytes of a TCP connection, at what cost"
    )
    lines += [".SH SYNOPSIS", ".B copyscope", ".I COMMAND", "[OPTIONS]", ".SH QUESTIONS", ".nf", ".ft CW"]
    lines += [*map(escaped, overview()), ".ft", ".fi", ".SH COMMANDS"]
    for verb in VERBS:
        lines += [".TP", f".BR copyscope-{escaped(verb.name)} (1)", escaped(verb.summary)]
    return "\n".join(lines) + "\n"


def command_page(verb: Verb) -> str:
    """Return the man page copyscope-COMMAND(1), with all options that --help-all lists."""
    parser = verb.parser()
    lines = [*_page_head(f"copyscope-{verb.name}", verb.summary), ".SH SYNOPSIS", ".nf"]
    lines += [escaped(" ".join(parser.format_usage().removeprefix("usage: ").split())), ".fi"]
    lines += [".SH DESCRIPTION", escaped(parser.description or "")]
    formatter = parser._get_formatter()
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if actions:
            lines.append(f'.SH "{escaped((group.title or "options").upper())}"')
        for action in actions:
            value = str(action.metavar or ("" if action.nargs == 0 else action.dest.upper()))
            if action.choices:
                value = "|".join(map(str, action.choices))
            # A positional argument has no option string, and is shown by its value.
            heading = f"{', '.join(action.option_strings)} {value}".strip()
            help_text = escaped(formatter._expand_help(action)) if action.help else ""
            lines += [".TP", f".B {escaped(heading)}", help_text]
    lines += [".SH EXAMPLES AND EXIT STATUS", ".nf", escaped(parser.epilog or ""), ".fi"]
    lines += [".SH SEE ALSO", ".BR copyscope (1)"]
    return "\n".join(lines) + "\n"


def _page_head(name: str, summary: str) -> list[str]:
    return [
        f'.TH {name.upper()} 1 "" "copyscope {VERSION}"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(summary)}",
    ]


def escaped(text: str) -> str:
    """Escape text for roff (man(7)), so that roff interprets no part of the text as a command."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)


def completions() -> dict[str, str]:
    """Return shell -> script that completes commands, options and values in that shell."""
    shtab = importlib.import_module("shtab")  # only the environment of `make install` has it
    experiments = " ".join(sorted(path.stem for path in EXPERIMENTS.glob("*.toml")))
    # Destination of an argument -> how to complete its value.
    values = {
        **dict.fromkeys(("impl", "strategies"), shtab.cmd(f"echo {' '.join(STRATEGIES)}")),
        **dict.fromkeys(("program", "comm"), shtab.cmd("ps -eo comm= | sort -u")),
        "experiment": shtab.cmd(f"echo {experiments}"),
        **dict.fromkeys(("record", "before", "after", "inventory"), shtab.FILE),
        "directory": shtab.DIRECTORY,
    }
    main_parser = argparse.ArgumentParser(prog="copyscope")
    main_parser.add_argument("--version", action="store_true", help="print the version")
    subparsers = main_parser.add_subparsers()
    for verb in VERBS:
        parser = verb.parser()
        # shtab reads a parser with subparsers, so the options of each command are moved into a subparser.
        parser.add_help = False
        subparser = subparsers.add_parser(verb.name, help=verb.summary, add_help=False)
        for action in parser._actions:
            if action.dest in values:
                action.complete = values[action.dest]  # type: ignore[attr-defined]
            subparser._add_action(action)
    return {shell: shtab.complete(main_parser, shell) for shell in SHELLS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
