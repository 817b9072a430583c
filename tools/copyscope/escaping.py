"""Foreign text, made harmless: what a program, a file, a record or an experiment calls itself.

A name may hold whatever its giver likes: an escape sequence that rewrites the terminal, a newline that
forges a line of ours, letters that turn the direction of what follows, bytes that are no UTF-8, or the
beginning of a formula. Everything that prints, or that writes for people, goes through here. Pure.
"""

import html
import re

# Control characters, what turns the direction of writing, line separators, bytes that were no UTF-8, and
# what XML may not hold.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_HARMFUL_BUT_LINES = re.compile(_HARMFUL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
# What a spreadsheet takes for the beginning of a formula.
_FORMULA = tuple("=+-@\t\r")
LINE_MAX = 200
# A word is not made shorter than this: what is left still says which one is meant.
WORD_MIN = 24


def visible(text: str, *, lines: bool = False) -> str:
    """Each harmful character as one that only shows; as long as before. `lines`: newlines stay."""
    return (_HARMFUL_BUT_LINES if lines else _HARMFUL).sub(lambda found: _picture(found[0]), text)


def _picture(character: str) -> str:
    """The control pictures of Unicode; of all others the replacement character."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def one_line(text: str, most: int = LINE_MAX) -> str:
    """A message as one line of at most so many characters: its longest words are cut, in their middle."""
    line = visible(" ".join(text.split()) if "\n" in text else text)
    while len(line) > most:
        longest = max(re.findall(r"\S+", line), key=len, default="")
        if len(longest) <= WORD_MIN:
            return f"{line[: most - 1]}…"
        keep = max(WORD_MIN, len(longest) - (len(line) - most)) - 1
        line = line.replace(longest, f"{longest[: keep - keep // 3]}…{longest[len(longest) - keep // 3 :]}")
    return line


def for_html(text: str) -> str:
    """As text of an HTML page, or as the value of an attribute."""
    return html.escape(visible(text, lines=True))


def for_csv(text: str) -> str:
    """As a cell: a spreadsheet shows it and does not reckon with it."""
    return f"'{visible(text)}" if text.startswith(_FORMULA) else visible(text)
