# SPDX-License-Identifier: GPL-2.0-only
"""Lines of Markdown pages: each sentence begins a line, and long sentences are broken between clauses.

usage: sentences.py FILE...   (rewrites the paragraphs and list items of the files)
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
# Two sentences share a line if they are no longer than this together.
SHARED_LINE_MAX = 60
# The part before a colon or semicolon stands alone on a line only from this length on.
CLAUSE_MIN = 60
END_OF_SENTENCE = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`\"*\[(0-9-])")
ITEM = re.compile(r" {0,3}([-*]|\d+\.) +")
# Words that begin a clause -> how good a break before them is.
CLAUSE_WORDS = {
    **dict.fromkeys(("because", "so", "which", "where", "when", "while", "but", "if", "unless"), 45),
    **dict.fromkeys(("until", "before", "after"), 45),
    **dict.fromkeys(("and", "or", "that", "with", "without"), 30),
    **dict.fromkeys(("of", "for", "from", "to", "in", "on", "at", "by", "as"), 12),
}
ENDS = {";": 60, ":": 60, ",": 50, ")": 25}


def is_inside(text: str, position: int) -> bool:
    """Return True if a position is inside inline code or the address of a link."""
    before = text[:position]
    return before.count("`") % 2 == 1 or before.rfind("](") > before.rfind(")")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph."""
    begin = 0
    for match in END_OF_SENTENCE.finditer(text):
        sentence = text[begin : match.start()]
        is_short_clause = sentence[-1:] in (":", ";") and len(sentence) < CLAUSE_MIN
        if not is_inside(text, match.start()) and not is_short_clause:
            yield sentence
            begin = match.end()
    yield text[begin:]


def break_sentence(sentence: str, width: int) -> Iterator[str]:
    """Yield the lines of a sentence, broken where a clause begins if there is such a place."""
    while len(sentence) > width:
        gaps = [gap for gap in re.finditer(r"\s+", sentence) if gap.start() <= width]
        gaps = [gap for gap in gaps if not is_inside(sentence, gap.start())]
        if not gaps:
            break
        best = max(gaps, key=lambda gap: _score(sentence, gap, width))
        yield sentence[: best.start()]
        sentence = sentence[best.end() :]
    yield sentence


def _score(sentence: str, gap: re.Match[str], width: int) -> float:
    """Return how good a break at a gap is: at the end of a clause, and neither too early nor too late."""
    word = re.match(r"[\w-]*", sentence[gap.end() :])
    score = max(ENDS.get(sentence[gap.start() - 1], 0), CLAUSE_WORDS.get(word[0] if word else "", 0))
    score -= 30 * (len(sentence) - gap.end() < 25)
    score -= 40 * (gap.start() < 30)
    return score + 20 * gap.start() / width


def wrap(text: str, first: str = "", rest: str = "") -> str:
    """Return a paragraph as lines of at most WIDTH columns; first, rest: what the lines begin with."""
    lines: list[str] = []
    for sentence in sentences(" ".join(text.split())):
        if lines and len(lines[-1]) + 1 + len(sentence) <= SHARED_LINE_MAX:
            lines[-1] += f" {sentence}"
        else:
            lines.append(sentence)
    broken = [part for line in lines for part in break_sentence(line, WIDTH - max(len(first), len(rest)))]
    return "\n".join((rest if number else first) + line for number, line in enumerate(broken))


def rewrite(page: str) -> str:
    """Return a page with wrapped paragraphs and list items. Code, tables, headings and comments stay."""
    result: list[str] = []
    paragraph: list[str] = []
    first = rest = ""
    fenced = commented = False

    def end_paragraph() -> None:
        if paragraph:
            result.append(wrap(" ".join(paragraph), first, rest))
            paragraph.clear()

    for line in page.split("\n"):
        begins_comment = line.lstrip().startswith("<!--")
        is_fence = line.startswith("```")
        is_verbatim = fenced or is_fence or commented or begins_comment or not line.strip()
        if is_verbatim or line.startswith(("    ", "|", "#", "<", "!")):
            end_paragraph()
            result.append(line)
            fenced ^= is_fence
            commented = (commented or begins_comment) and "-->" not in line
        elif item := ITEM.match(line):
            end_paragraph()
            first, rest = item[0], " " * len(item[0])
            paragraph.append(line[item.end() :])
        elif paragraph:
            paragraph.append(line)
        else:
            first = rest = line[: len(line) - len(line.lstrip())]
            paragraph.append(line)
    end_paragraph()
    return "\n".join(result)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
