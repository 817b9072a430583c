# SPDX-License-Identifier: GPL-2.0-only
"""The rules of the prose check that `make lint` runs (tests/prose_lint.py)."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[1] / "prose_lint.py"


def load_module() -> Any:
    spec = importlib.util.spec_from_file_location("prose_lint", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses need their module there
    spec.loader.exec_module(module)
    return module


prose_lint = load_module()
LONG = "word " * 31
SHORT = "word " * 30

# Checked file type, source, and the expected findings as "line rule".
CASES = [
    ("python", '"""Of a watched program."""', ["1 opening"]),
    ("python", '"""Return a watched program."""\n# What it sends.\n', ["2 opening"]),
    ("python", "x = 1  # whether it is set\n", ["1 opening"]),
    ("python", "# The interval\n# of a sample.\n", []),
    ("python", "# A file without readers\n# but for one test.\n", ["2 phrase"]),
    ("python", "x = a if b is None else c  # a value that is None\n", []),
    ("python", f'raise E("{LONG}")', ["1 sentence"]),
    ("python", f'raise E(f"{SHORT}{{name}}")', ["1 sentence"]),
    ("python", f'raise E("{SHORT}: {SHORT}; {SHORT}")', []),
    ("python", f'"""{SHORT} {SHORT}."""', []),
    ("c", "/* Of a map. */", ["1 opening"]),
    ("c", "int x;\n/*\n * whose map\n */\n", ["3 opening"]),
    ("c", 'const char *s = "/* Of a map */";', []),
    ("c", "int x; // none that counts", ["1 phrase"]),
    ("page", f"{LONG}.\n", ["1 columns", "1 sentence"]),
    ("page", "Lines.\n\n" + "one two three four five six seven eight nine ten\n" * 4, ["3 sentence"]),
    ("page", "It reads nothing\nbut lines.\n", ["1 phrase"]),
    ("page", f"```\n{LONG} nothing but\n```\n\n    {LONG} but for\n", []),
    ("page", f"| {SHORT} | {SHORT} |\n", []),
    ("page", f"[{SHORT}](page.md)\n", []),
    ("page", "`nothing but` is a phrase.\n", []),
]


@pytest.mark.parametrize(("kind", "source", "expected"), CASES)
def test_each_rule_finds_its_faults(kind: str, source: str, expected: list[str]) -> None:
    check = {"python": prose_lint.check_python, "c": prose_lint.check_c, "page": prose_lint.check_page}[kind]
    findings = []
    for finding in check(source):
        rule = finding.rule.split(" of ")[0]
        findings.append(f"{finding.line} {'columns' if rule.endswith('columns') else rule}")
    assert findings == expected
