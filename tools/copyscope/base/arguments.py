# SPDX-License-Identifier: GPL-2.0-only
"""Argument parser of every command. Wrong usage raises UsageError with a one-line message."""

import argparse
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypedDict

from copyscope import VERSION
from copyscope.base.errors import UsageError
from copyscope.base.spelling import alternatives, closest_name

# Maximum number of digits of a whole number that an option accepts. Python refuses to print more than 4,300
# digits.
DIGITS_MAX = 18
_WHOLE_NUMBER = re.compile(rf"[+-]?[0-9]{{1,{DIGITS_MAX}}}")
# Patterns of argparse's error messages: unknown words, a problem of one argument, a missing argument.
_UNKNOWN_WORDS = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
_PROBLEM_OF_ARGUMENT = re.compile(r"argument (\S+): (.*)", re.DOTALL)
_MISSING_ARGUMENTS = re.compile(r"the following arguments are required: (.*)")
_AMBIGUOUS_OPTION = re.compile(r"ambiguous option: (\S+) could match (.*)", re.DOTALL)
# Patterns of argparse's text about a single argument: an unknown choice, an excluded option.
_UNKNOWN_CHOICE = re.compile(r"invalid choice: (.*) \(choose from (.*)\)", re.DOTALL)
_EXCLUDED_BY = re.compile(r"not allowed with argument (.*)")
_OPTION_WITH_DASHES_AS_VALUE = re.compile(r"(--[\w-]+)=--")
# Python decodes an argument byte that is not UTF-8 to a lone surrogate.
_SURROGATE = re.compile("[\ud800-\udfff]")


class ArgumentKeywords(TypedDict, total=False):
    """Keyword arguments of argparse's add_argument()."""

    action: str
    nargs: str
    const: str
    default: str | float | None
    type: Callable[[str], object]
    choices: Sequence[str]
    metavar: str | None
    help: str | None


class UsageParser(argparse.ArgumentParser):
    """argparse parser that reports errors in one line and accepts finite numbers only.

    With `examples`, --help shows the examples and only the options in `common`. --help-all shows every
    option and the epilog.
    """

    def __init__(
        self,
        *,
        prog: str,
        verbose: str = argparse.SUPPRESS,
        quiet: str = argparse.SUPPRESS,
        common: Sequence[str] = (),
        examples: str | None = None,
        **options: Any,
    ) -> None:
        """Create the parser of the command `prog`, with the options that every command has.

        `verbose`, `quiet`: help texts of -v and -q. An option without a help text has no effect and is not
        listed, but is accepted, so that scripts can pass it to every command. `common`: options that --help
        shows. `examples`: text at the end of --help. `options`: further arguments of argparse.ArgumentParser.
        """
        super().__init__(prog=f"copyscope {prog}", **options)
        self.formatter_class = _Formatter
        self.register("type", int, whole_number)
        self.register("type", float, number)
        self.register("type", text, text)
        self._typed_words: list[str] = []
        self._common, self._examples = frozenset(common) | {"--help"}, examples
        self.add_argument(
            "--help-all",
            action=_HelpAll,
            nargs=0,
            default=argparse.SUPPRESS,
            dest=argparse.SUPPRESS,
            help="show every option" if common else argparse.SUPPRESS,
        )
        self.add_argument(
            "--version",
            action="version",
            version=f"copyscope {VERSION}",
            help="print the version and exit",
        )
        self.add_argument("-v", "--verbose", action="count", default=0, help=verbose)
        self.add_argument("-q", "--quiet", action="store_true", help=quiet)
        self._positionals.title = "arguments"

    def describe(self, **helps: str) -> None:
        """Replace help texts of options. `helps`: new text by the option's attribute name (`dest`)."""
        for action in self._actions:
            action.help = helps.get(action.dest, action.help)

    def format_help(self) -> str:
        """Return the text of --help: the common options and the examples, or all options without examples."""
        if self._examples is None:
            return self.format_all()
        hidden = [
            (action, action.help)
            for action in self._actions
            if action.option_strings and not self._common & {*action.option_strings}
        ]
        epilog = self.epilog
        try:
            for action, _ in hidden:
                action.help = argparse.SUPPRESS
            self.epilog = f"{self._examples}\n{self.prog} --help-all lists all options"
            return super().format_help()
        finally:
            self.epilog = epilog
            for action, help_text in hidden:
                action.help = help_text

    def format_all(self) -> str:
        """Return the text of --help-all: every option, and the epilog."""
        return super().format_help()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse the arguments. Raises UsageError also for words that argparse would silently misread."""
        words = self._typed_words = list(args or ())
        separator = words.index("--") if "--" in words else len(words)
        if "--" in words[separator + 1 :]:
            # argparse reads a positional argument `--` as an empty list.
            self.error("--: given twice; write -- once, before the command")
        for word in words[:separator]:
            # argparse removes the `--` of `--option=--` and reads an empty list as the value.
            if (match := _OPTION_WITH_DASHES_AS_VALUE.fullmatch(word)) is not None:
                self.error(f"argument {match[1]}: --: not a value; write the value after the equals sign")
            if "\0" in word:
                self.error(f"{word}: contains a NUL character; leave the character out")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage and exiting, as argparse does."""
        raise UsageError(self._reword(message))

    def _reword(self, message: str) -> str:
        """Reword a message of argparse in copyscope's form: `--option value: problem; next step`."""
        if match := _UNKNOWN_WORDS.fullmatch(message):
            return self._describe_unknown(match[1].split())
        if match := _PROBLEM_OF_ARGUMENT.fullmatch(message):
            return self._describe_problem(match[1], match[2])
        if match := _MISSING_ARGUMENTS.fullmatch(message):
            return f"{match[1]}: missing; {self.prog} --help shows the usage"
        if match := _AMBIGUOUS_OPTION.fullmatch(message):
            return f"{match[1]}: ambiguous; choose {alternatives(match[2].split(', '))}"
        return f"{message}; {self._full_help()} lists the options"

    def _full_help(self) -> str:
        """Return the command that lists every option."""
        return f"{self.prog} {'--help' if self._examples is None else '--help-all'}"

    def _describe_unknown(self, words: Sequence[str]) -> str:
        """Return a message about words that match no option or argument of this command."""
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if option is None:
            return f"{' '.join(words)}: unexpected argument; {self.prog} --help shows the usage"
        names = [name for action in self._actions for name in action.option_strings]
        similar = closest_name(option, (name for name in names if name.startswith("--")))
        step = f"did you mean {similar}?" if similar else f"{self._full_help()} lists the options"
        return f"{option}: unknown option; {step}"

    def _describe_problem(self, argument: str, problem: str) -> str:
        """Return a message about an argument. `argument`: its name in argparse, such as `-i/--interval`."""
        spellings = argument.split("/")
        if not argument.startswith("-"):
            name = ""  # the value of a positional argument stands alone
        else:
            typed = (name for name in spellings if any(word.startswith(name) for word in self._typed_words))
            name = next(typed, spellings[-1])
        if match := _UNKNOWN_CHOICE.fullmatch(problem):
            value, choices = match[1].strip("'"), re.sub(r"'([^']*)'", r"\1", match[2]).split(", ")
            return f"{name} {shlex.quote(value)}: unknown value; choose {alternatives(choices)}".lstrip()
        if match := _EXCLUDED_BY.fullmatch(problem):
            return f"{name or argument}: not allowed together with {match[1]}; leave one of them out"
        if problem.startswith("expected "):
            return f"{name or argument}: the value is missing; {self._full_help()} describes it"
        if problem.startswith("ignored explicit argument "):
            return f"{name}: takes no value; write {name} alone"
        return f"{name} {problem}".lstrip()


def add_options(parser: argparse._ActionsContainer, table: str, **more: ArgumentKeywords) -> None:
    """Add the options of a text table to a parser or an argument group.

    A row has the form `-n --name METAVAR =default  help`, with two spaces before the help. Lines that begin
    with a space continue the help. A row without METAVAR and =default is a switch. `more` maps the name of an
    option to further arguments of add_argument().
    """
    for row in re.split(r"\n(?=-)", table.strip()):
        declaration, _, help_text = row.partition("  ")
        spellings = re.findall(r"(?<!\S)-\S+", declaration)
        value_words = declaration.split()[len(spellings) :]
        name = spellings[-1].strip("-").replace("-", "_")
        keywords: ArgumentKeywords = {"help": " ".join(help_text.split()) or None}
        for word in value_words:
            if word.startswith("="):
                keywords["default"] = word.lstrip("=")
            else:
                keywords["metavar"] = word
        if name in more:
            keywords |= more[name]
        elif not value_words:
            keywords["action"] = "store_true"
        parser.add_argument(*spellings, **keywords)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that keeps the lines of examples, and wraps other text, but not at hyphens.

    An option or a path such as results/HOST-KERNEL therefore stays on one line.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `-o FILE, --out FILE`, as Python before 3.13 does, so that all versions print the same."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return ", ".join(f"{name} {value}" for name in action.option_strings)


class _HelpAll(argparse.Action):
    """Action of --help-all: print every option and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, UsageParser)
        sys.stdout.write(parser.format_all())
        parser.exit()


def whole_number(word: str) -> int:
    """Parse an argument of `type=int`: at most DIGITS_MAX digits, with an optional sign."""
    if _WHOLE_NUMBER.fullmatch(word.strip()) is None:
        problem = f"not a whole number; choose a number of up to {DIGITS_MAX} digits"
        raise argparse.ArgumentTypeError(f"{shlex.quote(word)}: {problem}")
    return int(word)


def number(word: str) -> float:
    """Parse an argument of `type=float`: a finite number."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{shlex.quote(word)}: not a number; write a number such as 0.5")
    return value


def seconds(word: str) -> float:
    """Parse an argument of `type=seconds`, such as 10, 90s, 10m or 1.5h, into seconds."""
    unit_s = {"s": 1, "m": 60, "h": 3600}.get(word[-1:])
    try:
        return number(word) if unit_s is None else unit_s * number(word[:-1])
    except argparse.ArgumentTypeError:
        message = f"{shlex.quote(word)}: not a time; write a time such as 5, 90s or 10m"
        raise argparse.ArgumentTypeError(message) from None


def text(word: str) -> str:
    """Parse an argument of `type=text`: valid UTF-8. Paths do not use it because they may hold any byte."""
    if _SURROGATE.search(word):
        raise argparse.ArgumentTypeError(f"{shlex.quote(word)}: not UTF-8; set the locale to UTF-8")
    return word
