"""What `copyscope VERB` runs: a row for each verb. Adding one touches nothing else."""

import importlib
from dataclasses import dataclass
from typing import NoReturn, cast

from copyscope.arguments import UsageParser

HELP = {"-h", "--help", "--help-all", "--version"}


@dataclass(frozen=True)
class Verb:
    """A verb."""

    name: str
    does: str
    # What gives its parser, where that is not parser() of its module.
    options: str | None = None
    # It is another verb's module in commands/, with this word before those of the user.
    of: tuple[str, str] | None = None
    # A first word after which the module has other options, and its own help.
    inner: str | None = None

    def main(self, argv: list[str]) -> int:
        """Run it: its exit status."""
        if argv[:1] != [self.inner] and HELP & set(argv[: argv.index("--")] if "--" in argv else argv):
            self.help(argv)
        name, *words = self.of or (self.name,)
        module = importlib.import_module(f"copyscope.commands.{name}")
        return int(module.main([*words, *argv]))

    def help(self, argv: list[str]) -> NoReturn:
        """Print its options; where nothing is built and they cannot be read, what it does."""
        try:
            self.parser().parse_args([word for word in argv if word in HELP])
        except ModuleNotFoundError:
            print(f"{self.name}: {self.does}; build first, then it lists its options: sudo make deps && make")
        raise SystemExit(0)

    def parser(self) -> UsageParser:
        """Its options, without what only running it needs."""
        module, _, function = (self.options or f"commands.{self.name}.parser").rpartition(".")
        return cast("UsageParser", getattr(importlib.import_module(f"copyscope.{module}"), function)())


VERBS = (
    Verb("run", "run a send strategy, and print what is copied where, at what cost", "plan.arguments.parser"),
    Verb(
        "watch",
        "watch a program that sends or receives, and print its copies",
        "commands.watch_arguments.parser",
    ),
    Verb(
        "advise",
        "watch a program, and say what would make it copy less",
        "commands.watch_arguments.parser_of_advise",
        of=("watch", "--advise"),
    ),
    Verb(
        "why",
        "watch a program that sends with zero-copy, and say why that is not faster",
        "commands.watch_arguments.parser_of_why",
        of=("watch", "--why"),
    ),
    Verb("crossover", "say from which message size on one strategy is better than another"),
    Verb("sweep", "run every combination of an experiment, and keep each record"),
    Verb("report", "make plots, tables and a page from the records of a sweep"),
    Verb("compare", "run strategies alternately, and say which is better, and by how much"),
    Verb(
        "diff",
        "compare two records, or two directories of records: is the second worse?",
    ),
    Verb("show", "print the screen of a run again, from its record"),
    Verb("drill", "rewrite what was sent after the call returned, and say what arrived"),
    Verb("fleet", "run a command on many hosts with ansible, and print one table", inner="query"),
    Verb("doctor", "try every instrument, and say what works on this machine"),
    Verb(
        "simulate",
        "model the cache misses of each copy in QEMU; no root, no PMU",
        "commands.simulate_arguments.parser",
    ),
    Verb("draw", "draw the path of a byte from a record, as an SVG"),
    Verb("crosscheck", "measure the same traffic with copyscope and with other tools"),
)
# Verb -> what people ask, and the words that answer it; `copyscope` alone prints these, in this order.
QUESTIONS = {
    "run": ("What does this send method copy?", "zero_copy --size 64K"),
    "watch": ("Is my nginx copying?", "nginx --duration 10"),
    "advise": ("Would zero-copy or sendfile help it?", "nginx --duration 10"),
    "why": ("Why is zero-copy not faster?", "myserver --duration 10"),
    "crossover": ("From which size does zero-copy pay?", ""),
    "sweep": ("Goodput and cost by size?", "quick"),
    "compare": ("A or B, at this size?", "one_copy zero_copy --size 256K"),
    "diff": ("Better or worse than before?", "BEFORE AFTER"),
    "show": ("What did that run say?", "run.json --explain"),
    "drill": ("Which send methods avoid copies here?", ""),
    "fleet": ("Which hosts of a fleet stand out?", "web1,web2 -- doctor"),
    "doctor": ("What can be measured on this machine?", ""),
    "simulate": ("Cache misses, without a PMU?", "one_copy,zero_copy"),
}
WITHOUT_ROOT = ("diff", "draw", "drill", "fleet", "report", "show", "simulate")


def find(name: str) -> Verb | None:
    """The verb of that name."""
    return next((verb for verb in VERBS if verb.name == name), None)
