# SPDX-License-Identifier: GPL-2.0-only
"""Write outputs in pages from records in docs/: the block after each `<!-- output: NAME -->`.

To change them, write a new record (`copyscope run zero_copy --duration 1.5 --frequency 499 --json` for
docs/path.json.gz) and run `make pages`.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from copyscope.commands import crossover
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.show import first_screen, terminal, watch
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SCREENS = DOCS / "reference" / "screens"
PAGES = (
    *(ROOT / "README.md", DOCS / "1-tutorial.md", DOCS / "2-ledger.md", DOCS / "examples" / "crossover.md"),
    SCREENS.with_suffix(".md"),
)
BLOCK = re.compile(r"(<!-- output: (\S+) -->\n(?:    \$ .*\n)?)((?:    .*\n|\n(?=    ))*)")
# Beginnings of the lines that README leaves out of a screen.
SHORT = re.compile(
    r"THE PATH|cycles|valid|sends:|more:|why:|To find|larger|fewer|and \d+ more|- "
    r"|sender CPU|completion notices +receiver|packet buffers|bottleneck"
)


def run_in(path: Path) -> Run:
    """Return the run in a file."""
    run = store.read(path)
    assert isinstance(run, Run)
    return run


def page_with_outputs(page: Path, unchanged: str = "") -> str:
    """Return a page with its outputs as they are now, except the output named `unchanged`."""
    return BLOCK.sub(
        lambda match: match[0] if match[2] == unchanged else match[1] + OUTPUTS[match[2]](),
        page.read_text(encoding="utf-8"),
    )


def screen(name: str, folder: Path = DOCS) -> list[str]:
    """Return the first screen of a record, 80 columns wide."""
    console = Console(file=io.StringIO(), width=80, color_system=None)
    first_screen.render(run_in(folder / f"{name}.json.gz"), console)
    return console_text(console)


def report(name: str = "path") -> list[str]:
    """Return what `copyscope show -v` prints for a record in docs/."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    run = run_in(DOCS / f"{name}.json.gz")
    render = watch.render if run.raw.target else terminal.render
    render(run, verbose=False, explain=False, console=console)
    return console_text(console)


def console_text(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def short(name: str) -> list[str]:
    """Return a screen without the lines that README leaves out, and without the lines that continue them."""
    lines, is_left_out = [], False
    for line in screen(name):
        is_left_out = bool(SHORT.match(line)) or (is_left_out and line.startswith("  "))
        lines += [line] if line and not is_left_out else []
    return lines


def block(begins: str, name: str = "path") -> list[str]:
    """Return the lines of a report from the line that begins with `begins` to the next empty line."""
    lines = report(name)
    first = next(number for number, line in enumerate(lines) if line.startswith(begins))
    return lines[first : lines.index("", first)]


def lines_beginning(begins: Iterable[str]) -> list[str]:
    """Return the lines of the report that begin with these words, and the lines that continue them."""
    lines, is_selected = [], False
    for line in report():
        is_selected = line.startswith(tuple(begins)) or (is_selected and line.startswith("  "))
        lines += [line] if is_selected else []
    return lines


def crossovers() -> list[str]:
    """Return the screen of `crossover` for the sweep of all strategies."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        crossover.main([str(ROOT / "results" / "vm" / "ways")])
    return [line.rstrip() for line in out.getvalue().splitlines()]


def indented(lines: Iterable[str]) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


OUTPUTS: dict[str, Callable[[], str]] = {
    "path": lambda: indented(screen("path")),
    "path-short": lambda: indented(short("path")),
    "report": lambda: indented(report()[: report().index("")]),
    "ledger": lambda: indented(block("copy  ")),
    "trust": lambda: indented(lines_beginning(("bottleneck ", "overhead ", "losses ", "checks "))),
    "nginx-ledger": lambda: indented(block("copy  ", "advise")),
    "nginx-stages": lambda: indented(block("stage  ", "advise")[:7]),
    "crossovers": lambda: indented(crossovers()),
    **{
        name: partial(lambda name: indented(screen(name, SCREENS)), name)
        for name in sorted(file.name.removesuffix(".json.gz") for file in SCREENS.glob("*.json.gz"))
    },
}
