"""docs/dev/security.md: each statement names a test, and each test that it names is there."""

import ast
import re

from copyscope import paths

PAGE = (paths.ROOT / "docs" / "dev" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/\S+\.py)::(\w+)`")


def statements() -> list[str]:
    """The bullets, each with the lines that belong to it."""
    return [" ".join(found.split()) for found in re.findall(r"^- .*(?:\n  \S.*)*", PAGE, flags=re.MULTILINE)]


def test_each_statement_has_a_test_or_says_why_not() -> None:
    assert len(statements()) >= 20
    without = [one for one in statements() if not NAMED.search(one) and "No test: " not in one]
    assert without == []


def test_the_tests_are_there() -> None:
    for file, name in NAMED.findall(PAGE):
        tree = ast.parse((paths.ROOT / file).read_text(encoding="utf-8"))
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in there, f"{file}::{name}"
