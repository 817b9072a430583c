# SPDX-License-Identifier: GPL-2.0-only
"""Check the prose of this tree by rules that a program can decide: `make lint`.

tests/prose_lint.py            print every finding; exit status 1 if there is one
tests/prose_lint.py --count    print the number of findings for each folder and rule
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
PYTHON_FOLDERS = ("tools/copyscope",)
C_FOLDERS = ("src", "bpf")

# A comment that opens with such a word has no noun, so it does not say which thing it describes.
OPENING = re.compile(r"(?:Of|What|Whom|Whose|Whether) ", re.IGNORECASE)
# These negations need a second reading; "only", "except" and "every" say the same at once.
PHRASES = re.compile(r"\b(?:[Nn]othing but|[Nn]one that|[Bb]ut for|[Tt]hat is none)\b")
# A reader of a longer sentence has forgotten its start when the end comes.
SENTENCE_WORDS_MAX = 30
# The source of a page is read in terminals and diffs, too.
PAGE_COLUMNS_MAX = 100

# The end of a sentence. In a message a colon or a semicolon also ends a part that is read by itself.
PAGE_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"*_]*\s+")
MESSAGE_PART_END = re.compile(r"(?<=[.!?:;])[)\"]*\s+|\n|<[^>]*>")
# A name in code, such as `a.b()` or `x=1`, does not count as a word.
WORD = re.compile(r"(?<!\S)[(\"'*_]*[^\W\d_][^\W\d_'’/-]*[)\"'*_.,:;!?]*(?!\S)")


@dataclass(frozen=True)
class Finding:
    """A violation of a rule at a line of a file."""

    line: int
    rule: str
    text: str


@dataclass(frozen=True)
class Prose:
    """A piece of prose, and the number of its first line. Line breaks in `text` are those of the file."""

    line: int
    text: str


def check_openings(prose: Prose) -> Iterator[Finding]:
    """Report a docstring or comment that opens with a word such as "Of"."""
    if OPENING.match(prose.text):
        yield Finding(prose.line, "opening", prose.text.splitlines()[0])


def check_phrases(prose: Prose) -> Iterator[Finding]:
    """Report phrases that negate in a roundabout way."""
    for match in PHRASES.finditer(prose.text.replace("\n", " ")):
        yield Finding(prose.line + prose.text.count("\n", 0, match.start()), "phrase", match[0])


def check_sentences(prose: Prose, end: re.Pattern[str]) -> Iterator[Finding]:
    """Report sentences with too many words. `end` matches what separates two sentences."""
    start = 0
    for stop in [*(match.start() for match in end.finditer(prose.text)), len(prose.text)]:
        sentence = prose.text[start:stop]
        words = len(WORD.findall(sentence))
        if words > SENTENCE_WORDS_MAX:
            line = prose.line + prose.text.count("\n", 0, start + len(sentence) - len(sentence.lstrip()))
            yield Finding(line, f"sentence of {words} words", " ".join(sentence.split())[:80])
        start = stop


def check_python(source: str) -> Iterator[Finding]:
    """Report findings in the docstrings, comments and string literals of a Python file."""
    tree = ast.parse(source)
    docstrings = dict(_find_docstrings(tree))
    for prose in [*docstrings.values(), *_find_python_comments(source)]:
        yield from check_openings(prose)
        yield from check_phrases(prose)
    for prose in _find_messages(tree, set(docstrings)):
        yield from check_phrases(prose)
        yield from check_sentences(prose, MESSAGE_PART_END)


def _find_docstrings(tree: ast.Module) -> Iterator[tuple[int, Prose]]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr):
            value = node.body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield id(value), Prose(value.lineno, value.value)


def _find_python_comments(source: str) -> Iterator[Prose]:
    """Yield each comment. Comment lines below each other are one comment."""
    comments: list[tuple[int, bool, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            is_whole_line = not token.line[: token.start[1]].strip()
            comments.append((token.start[0], is_whole_line, token.string.lstrip("#!: ").rstrip()))
    yield from _join_lines(comments)


def _join_lines(comments: list[tuple[int, bool, str]]) -> Iterator[Prose]:
    first, lines, was_whole_line = 0, list[str](), False
    for line, is_whole_line, text in comments:
        if lines and was_whole_line and is_whole_line and line == first + len(lines):
            lines.append(text)
            continue
        if lines:
            yield Prose(first, "\n".join(lines))
        first, lines, was_whole_line = line, [text], is_whole_line
    if lines:
        yield Prose(first, "\n".join(lines))


def _find_messages(tree: ast.Module, docstring_ids: set[int]) -> Iterator[Prose]:
    """Yield each string literal. A value inside an f-string counts as one word."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in docstring_ids or id(node) in parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Prose(node.lineno, node.value)
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "value" for part in node.values
            )
            yield Prose(node.lineno, text)


C_TOKEN = re.compile(
    r"""/\*(?P<block>.*?)\*/ | //(?P<line>[^\n]*) | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.VERBOSE,
)


def check_c(source: str) -> Iterator[Finding]:
    """Report findings in the comments of a C file."""
    for token in C_TOKEN.finditer(source):
        comment = token["block"] if token["block"] is not None else token["line"]
        if comment is None:
            continue
        lines = [line.strip().lstrip("*").strip() for line in comment.split("\n")]
        blank_lines = next((index for index, line in enumerate(lines) if line), 0)
        prose = Prose(source.count("\n", 0, token.start()) + 1 + blank_lines, "\n".join(lines[blank_lines:]))
        yield from check_openings(prose)
        yield from check_phrases(prose)


# Text of a page that is not prose: inline code, targets of links, HTML.
NOT_PROSE = re.compile(r"`[^`]*`|(?<=\])\([^)]*\)|<[^>]*>|https?://\S+")
BLOCK_START = re.compile(r"\s*(?:[-*+]|\d+\.|#+)\s+")


def check_page(source: str) -> Iterator[Finding]:
    """Report findings in the prose of a Markdown page, and lines that are too wide."""
    paragraph: list[str] = []
    first = 0
    for number, line in enumerate([*_blank_code(source.splitlines()), ""], 1):
        is_table = line.lstrip().startswith("|")
        is_exempt = is_table or "](" in line or "http" in line or line.lstrip().startswith("<")
        if len(line) > PAGE_COLUMNS_MAX and not is_exempt:
            yield Finding(number, f"{len(line)} columns", line[:80])
        if paragraph and (is_table or not line.strip() or BLOCK_START.match(line)):
            yield from _check_paragraph(Prose(first, "\n".join(paragraph)))
            paragraph = []
        if is_table:
            for cell in line.split("|"):
                yield from _check_paragraph(Prose(number, cell))
        elif line.strip():
            first = first if paragraph else number
            paragraph.append(line)


def _check_paragraph(prose: Prose) -> Iterator[Finding]:
    text = NOT_PROSE.sub(lambda match: "`" + "\n" * match[0].count("\n"), prose.text)
    yield from check_phrases(Prose(prose.line, text))
    yield from check_sentences(Prose(prose.line, text), PAGE_SENTENCE_END)


def _blank_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a page, with blank lines in place of code blocks, quotes and HTML comments."""
    fence, in_comment, in_list = "", False, False
    for line in lines:
        is_indented = line.startswith(("    ", "\t")) and not in_list
        if fence or in_comment:
            fence = "" if fence and line.strip() == fence else fence
            in_comment = in_comment and "-->" not in line
            yield ""
        elif line.lstrip().startswith(("```", "~~~")):
            fence = line.strip()[:3]
            yield ""
        elif line.lstrip().startswith("<!--"):
            in_comment = "-->" not in line
            yield ""
        elif line.startswith(">") or is_indented:
            yield ""
        else:
            in_list = bool(BLOCK_START.match(line)) or (in_list and bool(line.strip()))
            yield line


def check_tree() -> Iterator[tuple[Path, Finding]]:
    """Check every file of the tree; yield the path of a file with each finding."""
    checks = [
        (check_python, [path for folder in PYTHON_FOLDERS for path in (TREE / folder).rglob("*.py")]),
        (check_c, [path for folder in C_FOLDERS for path in (TREE / folder).rglob("*.[ch]")]),
        (check_page, [TREE / "README.md", *(TREE / "docs").rglob("*.md")]),
    ]
    for check, paths in checks:
        for path in sorted(paths):
            for finding in check(path.read_text()):
                yield path.relative_to(TREE), finding


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", action="store_true", help="print the number of findings for each folder")
    count_only = parser.parse_args().count
    counts = Counter[tuple[str, str]]()
    for path, finding in check_tree():
        counts[str(path.parent), re.sub(r" of \d+ words|\d+ ", "", finding.rule)] += 1
        if not count_only:
            print(f"{path}:{finding.line}: {finding.rule}: {finding.text}")
    if count_only:
        for (folder, rule), count in sorted(counts.items()):
            print(f"{count:5} {rule:10} {folder}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
