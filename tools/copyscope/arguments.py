"""The parser of every command: wrong usage is one line and an exception, whatever the words are."""

import argparse
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from copyscope.errors import UsageError

# Beyond this nothing is counted here; Python refuses to print numbers of more than 4,300 digits.
DIGITS_MAX = 18
_WHOLE = re.compile(rf"[+-]?[0-9]{{1,{DIGITS_MAX}}}")
_NOT_A_VALUE = re.compile(r"(--[\w-]+)=--")
_SURROGATE = re.compile("[\ud800-\udfff]")


class UsageParser(argparse.ArgumentParser):
    """argparse, with one line for what is wrong and with numbers that have an end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register("type", int, whole_number)
        self.register("type", float, number)
        self.register("type", text, text)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Raises UsageError, too, for what argparse turns into something else than a value."""
        for word in args or ():
            if word == "--":
                break
            # argparse removes a `--` wherever it stands, and calls what is left an empty list.
            if (found := _NOT_A_VALUE.fullmatch(word)) is not None:
                self.error(f"argument {found[1]}: --: not a value")
            if "\0" in word:
                self.error(f"argument {word}: holds a NUL character")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help lists the options)")


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


def text(word: str) -> str:
    """For a name that is compared with others or written down; a path may be of any bytes."""
    if _SURROGATE.search(word):
        raise argparse.ArgumentTypeError(f"{word}: not UTF-8")
    return word
