"""The parser of every command: wrong usage is one line and an exception, whatever the words are."""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from copyscope import VERSION
from copyscope.errors import UsageError

# Beyond this nothing is counted here; Python refuses to print numbers of more than 4,300 digits.
DIGITS_MAX = 18
_WHOLE = re.compile(rf"[+-]?[0-9]{{1,{DIGITS_MAX}}}")
_UNKNOWN = re.compile(r"unrecognized arguments: (--[\w-]+)")
_NOT_A_VALUE = re.compile(r"(--[\w-]+)=--")
_SURROGATE = re.compile("[\ud800-\udfff]")


class UsageParser(argparse.ArgumentParser):
    """argparse, with one line for what is wrong and with numbers that have an end.

    `common`: of many options those that --help shows, with `examples`; --help-all shows all of them, and the
    epilog.
    """

    def __init__(
        self, *, prog: str, common: Sequence[str] = (), examples: str | None = None, **options: Any
    ) -> None:
        super().__init__(prog=f"copyscope {prog}", **options)
        self.formatter_class = _Formatter
        self.register("type", int, whole_number)
        self.register("type", float, number)
        self.register("type", text, text)
        self._common, self._examples = frozenset(common) | {"--help"}, examples
        self.add_argument(
            "--help-all",
            action=_HelpAll,
            nargs=0,
            default=argparse.SUPPRESS,
            dest=argparse.SUPPRESS,
            help="show every option" if common else argparse.SUPPRESS,
        )
        self.add_argument("--version", action="version", version=f"copyscope {VERSION}")

    def describe(self, **helps: str) -> None:
        """Other help for options that came with their own: dest=help."""
        for one in self._actions:
            one.help = helps.get(one.dest, one.help)

    def format_help(self) -> str:
        """What is used most, where there is more."""
        if self._examples is None:
            return self.format_all()
        hidden = [
            one for one in self._actions if one.option_strings and not self._common & {*one.option_strings}
        ]
        whole = [(one, one.help) for one in hidden]
        epilog = self.epilog
        try:
            for one in hidden:
                one.help = argparse.SUPPRESS
            self.epilog = f"{self._examples}\n{self.prog} --help-all lists all options"
            return super().format_help()
        finally:
            self.epilog = epilog
            for one, said in whole:
                one.help = said

    def format_all(self) -> str:
        """Every option."""
        return super().format_help()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Raises UsageError, too, for what argparse turns into something else than a value."""
        words = list(args or ())
        ahead = words.index("--") if "--" in words else len(words)
        if "--" in words[ahead + 1 :]:
            # An argument that is one is an empty list, too.
            self.error("--: given twice")
        for word in words[:ahead]:
            # argparse removes a `--` wherever it stands, and calls what is left an empty list.
            if (found := _NOT_A_VALUE.fullmatch(word)) is not None:
                self.error(f"argument {found[1]}: --: not a value")
            if "\0" in word:
                self.error(f"argument {word}: holds a NUL character")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{self._meant(message)} ({self.prog} --help lists the options)")

    def _meant(self, message: str) -> str:
        """The option that is spelled much like one that is none."""
        found = _UNKNOWN.match(message)
        names = [name for action in self._actions for name in action.option_strings]
        close = difflib.get_close_matches(found[1][:32], names, n=1) if found else []
        return f": did you mean {close[0]}?" if close else ""


def add(to: argparse._ActionsContainer, table: str, **more: Mapping[str, Any]) -> None:
    """The options of a table, written as --help shows them: names, METAVAR, =default, and after two blanks
    what it is; one without METAVAR and =default is a switch. `more`: by name what a table does not say.
    """
    for row in re.split(r"\n(?=-)", table.strip()):
        words, _, said = row.partition("  ")
        options = re.findall(r"(?<!\S)-\S+", words)
        rest = words.split()[len(options) :]
        name = options[-1].strip("-").replace("-", "_")
        given: dict[str, Any] = {"help": " ".join(said.split()) or None}
        given |= {"default" if word[0] == "=" else "metavar": word.lstrip("=") for word in rest}
        to.add_argument(*options, **given, **more.get(name, {} if rest else {"action": "store_true"}))


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Examples stay as they are written; the description is prose, in lines as wide as the options'."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """The value stands behind each name, as before Python 3.13: help is the same on all."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return ", ".join(f"{name} {value}" for name in action.option_strings)


class _HelpAll(argparse.Action):
    """`--help-all`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, UsageParser)
        sys.stdout.write(parser.format_all())
        parser.exit()


def whole_number(word: str) -> int:
    """`type=int` of this parser."""
    if _WHOLE.fullmatch(word.strip()) is None:
        raise argparse.ArgumentTypeError(
            f"{word or 'nothing'}: not a whole number of up to {DIGITS_MAX} digits"
        )
    return int(word)


def number(word: str) -> float:
    """`type=float` of this parser."""
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{word or 'nothing'}: not a number")
    return found


def seconds(word: str) -> float:
    """`type=seconds`: 10, 90s, 10m or 1.5h."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(word[-1:])
    try:
        return number(word) if unit is None else unit * number(word[:-1])
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{word or 'nothing'}: not a time such as 5, 90s or 10m") from None


def text(word: str) -> str:
    """For a name that is compared with others or written down; a path may be of any bytes."""
    if _SURROGATE.search(word):
        raise argparse.ArgumentTypeError(f"{word}: not UTF-8")
    return word
