"""Outputs that pages show, made of the records beside them: what follows `<!-- output: NAME -->` is one.

Another record makes other outputs: `copyscope run zero_copy --duration 1.5 --frequency 499 --json` for
docs/path.json.gz, then `make pages`.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from copyscope.commands import crossover
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.show import first_screen, terminal
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SCREENS = DOCS / "reference" / "screens"
PAGES = (ROOT / "README.md", DOCS / "1-tutorial.md", SCREENS.with_suffix(".md"))
BLOCK = re.compile(r"(<!-- output: (\S+) -->\n(?:    \$ .*\n)?)((?:    .*\n|\n(?=    ))*)")
# What README leaves out of a screen.
SHORT = re.compile(
    r"THE PATH|cycles|valid|sends:|more:|why:|To find|larger|fewer|and \d+ more|- "
    r"|sender CPU|completion notices +receiver|packet buffers|bottleneck"
)
PAIRS = ("one_copy zero_copy 1 ", "per_field one_copy 1 ")


def written(page: Path, but: str = "") -> str:
    """A page with its outputs as they are now; `but` names one that stays as it is."""
    return BLOCK.sub(
        lambda found: found[0] if found[2] == but else found[1] + OUTPUTS[found[2]](),
        page.read_text(encoding="utf-8"),
    )


def screen(name: str, folder: Path = DOCS) -> list[str]:
    """The first screen of a record, 80 columns wide."""
    console = Console(file=io.StringIO(), width=80, color_system=None)
    first_screen.render(typed_whole(store.read(folder / f"{name}.json.gz")), console)
    return printed(console)


def report() -> list[str]:
    """What `-v` prints of the run that is drawn."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    run = typed_whole(store.read(DOCS / "path.json.gz"))
    terminal.render(run, verbose=False, explain=False, console=console)
    return printed(console)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def short(name: str) -> list[str]:
    """A screen without what README leaves out; the lines that go on are with the line before."""
    kept, leave = [], False
    for line in screen(name):
        leave = bool(SHORT.match(line)) or (leave and line.startswith("  "))
        kept += [line] if line and not leave else []
    return kept


def block(begins: str) -> list[str]:
    """The lines of the report from the one that begins so to the next empty one."""
    lines = report()
    first = next(number for number, line in enumerate(lines) if line.startswith(begins))
    return lines[first : lines.index("", first)]


def those(begins: Iterable[str]) -> list[str]:
    """Lines of the report, by their first words, with those that go on."""
    kept, take = [], False
    for line in report():
        take = line.startswith(tuple(begins)) or (take and line.startswith("  "))
        kept += [line] if take else []
    return kept


def crossovers() -> list[str]:
    """A few of those that the committed sweep has."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        crossover.main([str(ROOT / "results" / "vm" / "published")])
    lines = out.getvalue().splitlines()
    return [
        line.rstrip() for line in lines if " ".join(line.split()).startswith(("CROSSOVERS", "first ", *PAIRS))
    ]


def indented(lines: Iterable[str]) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


OUTPUTS: dict[str, Callable[[], str]] = {
    "path": lambda: indented(screen("path")),
    "path-short": lambda: indented(short("path")),
    "report": lambda: indented(report()[: report().index("")]),
    "ledger": lambda: indented(block("copy  ")),
    "stages": lambda: indented(those(("copies ", "waking, scheduling ", "TCP/IP "))),
    "trust": lambda: indented(those(("bottleneck ", "overhead ", "losses ", "checks "))),
    "crossovers": lambda: indented(crossovers()),
    **{
        name: partial(lambda name: indented(screen(name, SCREENS)), name)
        for name in sorted(file.name.removesuffix(".json.gz") for file in SCREENS.glob("*.json.gz"))
    },
}
