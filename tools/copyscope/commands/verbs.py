"""What `copyscope VERB` runs: a row for each verb. Adding one touches nothing else."""

import importlib
from dataclasses import dataclass
from typing import NoReturn, cast

from copyscope import calling
from copyscope.arguments import UsageParser

HELP = {"-h", "--help", "--help-all", "--version"}


@dataclass(frozen=True)
class Verb:
    """A verb."""

    name: str
    # The module in commands/ whose main() it calls.
    module: str
    does: str
    # What is put before the words of the user.
    words: tuple[str, ...] = ()
    # The module with its parser(), where that is another one.
    options: str | None = None
    # A first word after which the module has other options, and its own help.
    inner: str | None = None

    @property
    def tool(self) -> str:
        """Its file in tools/, as far as it has one: to watch is what tools/profile.py does, too."""
        return "profile" if self.module == "watch" else self.module

    def main(self, argv: list[str]) -> int:
        """Run it: its exit status."""
        calling.as_verb(self.name, self.tool)
        if argv[:1] != [self.inner] and HELP & set(argv[: argv.index("--")] if "--" in argv else argv):
            self.help(argv)
        module = importlib.import_module(f"copyscope.commands.{self.module}")
        return int(module.main([*self.words, *argv]))

    def help(self, argv: list[str]) -> NoReturn:
        """Print its options; where nothing is built and they cannot be read, what it does."""
        try:
            self.parser().parse_args([word for word in argv if word in HELP])
        except ModuleNotFoundError:
            print(f"{self.name}: {self.does}; build first, then it lists its options: sudo make deps && make")
        raise SystemExit(0)

    def parser(self) -> UsageParser:
        """Its options, without what only running it needs."""
        module = importlib.import_module(f"copyscope.{self.options or f'commands.{self.module}'}")
        return cast("UsageParser", module.parser())


PROFILE, WATCH, ADVISE = "plan.arguments", "commands.watch_arguments", ("--advise",)
VERBS = (
    Verb(
        "run",
        "profile",
        "run a send strategy, and print what is copied where, at what price",
        options=PROFILE,
    ),
    Verb("watch", "watch", "watch a program that sends or receives, and print its copies", options=WATCH),
    Verb("advise", "watch", "watch a program, and say what would make it copy less", ADVISE, WATCH),
    Verb("crossover", "crossover", "say from which message size on one strategy is better than another"),
    Verb("sweep", "sweep", "run every combination of an experiment, and keep each record"),
    Verb("report", "report", "make plots, tables and a page from the records of a sweep"),
    Verb("compare", "compare", "run two strategies in turns, and say what the second does otherwise"),
    Verb(
        "diff",
        "diff",
        "say what two records, or two directories of records, differ in, and whether it is a regression",
    ),
    Verb("show", "show", "print the screen of a run again, from its record"),
    Verb("drill", "drill", "rewrite what was sent after the call returned, and say what arrived"),
    Verb("fleet", "fleet", "run a verb on many hosts by ansible, and print one table", inner="query"),
    Verb("doctor", "doctor", "try every instrument, and say what works on this machine"),
    Verb(
        "simulate",
        "profile",
        "model the cache misses of each copy in QEMU; no root, no PMU",
        ("--simulate",),
        "commands.simulate_arguments",
    ),
    Verb("draw", "draw", "draw the path of a byte from a record, as an SVG"),
    Verb("claims", "claims", "judge eighteen published claims by your records"),
    Verb("crosscheck", "crosscheck", "count one traffic with copyscope and with other tools"),
)
# Verb -> what people ask, and the words that answer it; `copyscope` alone prints these, in this order.
QUESTIONS = {
    "run": ("What does this way to send copy?", "zero_copy --size 64K"),
    "watch": ("Is my nginx copying?", "nginx --duration 10"),
    "advise": ("Would zero-copy or sendfile help it?", "nginx --duration 10"),
    "crossover": ("From which size on does zero-copy pay?", ""),
    "sweep": ("Goodput and cost against size?", "quick"),
    "compare": ("A or B, at this size?", "one_copy zero_copy --size 256K"),
    "diff": ("Better or worse than before?", "BEFORE AFTER"),
    "show": ("What did that run say?", "run.json --explain"),
    "drill": ("Which ways to send does my kernel have?", ""),
    "fleet": ("The same, on many hosts?", "web1,web2 -- doctor"),
    "doctor": ("What can be measured on this machine?", ""),
    "simulate": ("Cache misses, without a PMU?", "one_copy,zero_copy"),
}
WITHOUT_ROOT = ("diff", "show", "fleet", "simulate")


def find(name: str) -> Verb | None:
    """The verb of that name."""
    return next((verb for verb in VERBS if verb.name == name), None)


def help_of(tool: str, argv: list[str]) -> None:
    """Of a tool that cannot be loaded before something is built."""
    next(verb for verb in VERBS if verb.module == tool).help(argv)
