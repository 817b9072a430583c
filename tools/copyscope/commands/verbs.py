"""What `copyscope VERB` runs: a row for each verb. Adding one touches nothing else."""

import importlib
from dataclasses import dataclass
from typing import NoReturn, cast

from copyscope import calling
from copyscope.arguments import UsageParser

HELP = {"-h", "--help", "--help-all", "--version"}


@dataclass(frozen=True)
class Verb:
    """A verb, and for `copyscope` alone what people ask and the words that answer it."""

    name: str
    # The module in commands/ whose main() it calls.
    module: str
    does: str
    question: str = ""
    example: str = ""
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


PROFILE, WATCH = "plan.arguments", "commands.watch_arguments"
# `copyscope` alone prints those with a question, in this order.
VERBS = (
    Verb(
        "run",
        "profile",
        "run a send strategy, and print what is copied where, at what price",
        "What does this way to send copy?",
        "sudo copyscope run zero_copy --size 64K",
        options=PROFILE,
    ),
    Verb(
        "watch",
        "watch",
        "watch a program that sends or receives, and print its copies",
        "Is my nginx copying?",
        "sudo copyscope watch nginx --duration 10",
        options=WATCH,
    ),
    Verb(
        "advise",
        "watch",
        "watch a program, and say what would make it copy less",
        "Would zero-copy or sendfile help it?",
        "sudo copyscope advise nginx --duration 10",
        ("--advise",),
        WATCH,
    ),
    Verb(
        "crossover",
        "crossover",
        "say from which message size on one strategy is better than another",
        "From which size on does zero-copy pay?",
        "sudo copyscope crossover",
    ),
    Verb(
        "sweep",
        "sweep",
        "run every combination of an experiment, and keep each record",
        "Goodput and cost against size?",
        "sudo copyscope sweep quick",
    ),
    Verb(
        "report",
        "report",
        "make plots, tables and a page from the records of a sweep",
    ),
    Verb(
        "compare",
        "compare",
        "run two strategies in turns, and say what the second does otherwise",
        "A or B, at this size?",
        "sudo copyscope compare one_copy zero_copy --size 256K",
    ),
    Verb(
        "diff",
        "diff",
        "say what two records, or two directories of records, differ in, and whether it is a regression",
        "Better or worse than before?",
        "copyscope diff BEFORE AFTER",
    ),
    Verb(
        "show",
        "show",
        "print the screen of a run again, from its record",
        "What did that run say?",
        "copyscope show run.json --explain",
    ),
    Verb(
        "drill",
        "drill",
        "rewrite what was sent after the call returned, and say what arrived",
        "Which ways to send does my kernel have?",
        "sudo copyscope drill",
    ),
    Verb(
        "fleet",
        "fleet",
        "run a verb on many hosts by ssh, and print one table",
        "The same, on many hosts?",
        "copyscope fleet hosts -- doctor",
        inner="query",
    ),
    Verb(
        "doctor",
        "doctor",
        "try every instrument, and say what works on this machine",
        "What can be measured on this machine?",
        "sudo copyscope doctor",
    ),
    Verb(
        "simulate",
        "profile",
        "model the cache misses of each copy in QEMU; no root, no PMU",
        "Cache misses, without a PMU?",
        "copyscope simulate one_copy,zero_copy",
        ("--simulate",),
        "commands.simulate_arguments",
    ),
    Verb("draw", "draw", "draw the path of a byte from a record, as an SVG"),
    Verb("claims", "claims", "judge eighteen published claims by your records"),
    Verb("crosscheck", "crosscheck", "count one traffic with copyscope and with other tools"),
)


def find(name: str) -> Verb | None:
    """The verb of that name."""
    return next((verb for verb in VERBS if verb.name == name), None)


def help_of(tool: str, argv: list[str]) -> None:
    """Of a tool that cannot be loaded before something is built."""
    next(verb for verb in VERBS if verb.module == tool).help(argv)
