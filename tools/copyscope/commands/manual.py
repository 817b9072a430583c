"""Man pages and completion for shells, from the parsers of the verbs; for `make install`."""

import argparse
import importlib
import re
import sys
from pathlib import Path

from copyscope import VERSION
from copyscope.commands import entry
from copyscope.commands.copyscope import overview
from copyscope.commands.sweep import EXPERIMENTS
from copyscope.commands.verbs import VERBS, Verb
from copyscope.sweep.experiment_file import strategies

SHELLS = ("bash", "zsh", "fish")


def main(argv: list[str]) -> int:
    """`DIRECTORY`. Exit status: 0 written, 1 failed."""
    return entry.run(lambda: _write(Path(argv[0])))


def _write(directory: Path) -> int:
    (directory / "copyscope.1").write_text(front_page(), encoding="utf-8")
    for verb in VERBS:
        (directory / f"copyscope-{verb.name}.1").write_text(page(verb), encoding="utf-8")
    for shell, text in completions().items():
        (directory / f"copyscope.{shell}").write_text(text, encoding="utf-8")
    return 0


def front_page() -> str:
    """copyscope(1): the verbs, and what people ask."""
    lines = [*_head("copyscope", "where the Linux kernel copies the bytes of a TCP connection, at what cost")]
    lines += [".SH SYNOPSIS", ".B copyscope", ".I VERB", "[OPTIONS]", ".SH QUESTIONS", ".nf", ".ft CW"]
    lines += [*map(escaped, overview()), ".ft", ".fi", ".SH VERBS"]
    for verb in VERBS:
        lines += [".TP", f".BR copyscope-{escaped(verb.name)} (1)", escaped(verb.does)]
    return "\n".join(lines) + "\n"


def page(verb: Verb) -> str:
    """copyscope-VERB(1): all of its options, as --help-all lists them."""
    parser = verb.parser()
    lines = [*_head(f"copyscope-{verb.name}", verb.does), ".SH SYNOPSIS", ".nf"]
    lines += [escaped(" ".join(parser.format_usage().removeprefix("usage: ").split())), ".fi"]
    lines += [".SH DESCRIPTION", escaped(parser.description or "")]
    words = parser._get_formatter()
    for group in parser._action_groups:
        shown = [one for one in group._group_actions if one.help != argparse.SUPPRESS]
        if shown:
            lines.append(f'.SH "{escaped((group.title or "options").upper())}"')
        for one in shown:
            value = one.metavar or ("" if one.nargs == 0 else one.dest.upper())
            # A choice is what is written; a positional is its value.
            value = "|".join(map(str, one.choices)) if one.choices else str(value)
            names = ", ".join(one.option_strings)
            lines += [
                ".TP",
                f".B {escaped(f'{names} {value}'.strip())}",
                escaped(words._expand_help(one) if one.help else ""),
            ]
    lines += [".SH EXAMPLES AND EXIT STATUS", ".nf", escaped(parser.epilog or ""), ".fi"]
    lines += [".SH SEE ALSO", ".BR copyscope (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, does: str) -> list[str]:
    return [
        f'.TH {name.upper()} 1 "" "copyscope {VERSION}"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(does)}",
    ]


def escaped(text: str) -> str:
    """For roff (man(7)): no letter of it is a command."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.MULTILINE)


def completions() -> dict[str, str]:
    """Shell -> what it reads to complete verbs, options and values."""
    shtab = importlib.import_module("shtab")  # only `make install` has it
    values = {
        **dict.fromkeys(("impl", "strategies"), shtab.cmd(f"echo {' '.join(strategies())}")),
        **dict.fromkeys(("program", "comm"), shtab.cmd("ps -eo comm= | sort -u")),
        "experiment": shtab.cmd(f"echo {' '.join(sorted(path.stem for path in EXPERIMENTS.glob('*.toml')))}"),
        **dict.fromkeys(("record", "before", "after", "inventory"), shtab.FILE),
        "directory": shtab.DIRECTORY,
    }
    whole = argparse.ArgumentParser(prog="copyscope")
    whole.add_argument("--version", action="store_true", help="print the version")
    verbs = whole.add_subparsers()
    for verb in VERBS:
        made = verb.parser()
        # Its options are those of the parser itself: nothing is written twice.
        made.add_help = False
        added = verbs.add_parser(verb.name, help=verb.does, add_help=False)
        for action in made._actions:
            if action.dest in values:
                action.complete = values[action.dest]  # type: ignore[attr-defined]
            added._add_action(action)
    return {shell: shtab.complete(whole, shell) for shell in SHELLS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
