# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope COMMAND ...`: the table of all commands, and the overview that `copyscope --help` prints."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from copyscope import VERSION
from copyscope.base import paths
from copyscope.base.arguments import UsageParser
from copyscope.base.errors import UsageError
from copyscope.base.spelling import closest_name
from copyscope.commands import entry
from copyscope.run.build import git_revision, read_build_info

# Options that print something and exit, in every command.
PRINTING_OPTIONS = {"-h", "--help", "--help-all", "--version"}


@dataclass(frozen=True)
class Verb:
    """A command of copyscope.

    name: the word that users type
    summary: what the command does, in one line
    parser_function: function that returns the command's parser, if that is not its module's parser(). The
        function needs no built programs, so that --help works in a fresh source tree
    variant_of: for a variant such as `advise`: the module of the main command (`watch`), and the option that
        selects the variant there
    own_help: a first argument for which the module prints its own help
    """

    name: str
    summary: str
    parser_function: str | None = None
    variant_of: tuple[str, str] | None = None
    own_help: str | None = None

    def main(self, argv: list[str]) -> int:
        """Run the command and return its exit status."""
        own_words = argv[: argv.index("--")] if "--" in argv else argv
        if argv[:1] != [self.own_help] and PRINTING_OPTIONS & set(own_words):
            self.print_help(argv)
        module_name, *first_words = self.variant_of or (self.name,)
        module = importlib.import_module(f"copyscope.commands.{module_name}")
        return int(module.main([*first_words, *argv]))

    def print_help(self, argv: list[str]) -> NoReturn:
        """Print the command's help and exit. If packages needed by its module are missing, print its summary.

        argv: arguments of the command
        """
        try:
            self.parser().parse_args([word for word in argv if word in PRINTING_OPTIONS])
        except ModuleNotFoundError:
            print(f"{self.name}: {self.summary}. To list its options, build first: sudo make deps && make")
        raise SystemExit(0)

    def parser(self) -> UsageParser:
        """Return the parser of this command."""
        path = self.parser_function or f"commands.{self.name}.parser"
        module_name, _, function_name = path.rpartition(".")
        module = importlib.import_module(f"copyscope.{module_name}")
        return cast("UsageParser", getattr(module, function_name)())


VERBS = (
    Verb("run", "run a send strategy, and print its copies and what they cost", "plan.arguments.parser"),
    Verb(
        "watch",
        "watch a program that sends or receives, and print its copies",
        "commands.watch_arguments.parser",
    ),
    Verb(
        "advise",
        "watch a program, and print what would make it copy less",
        "commands.watch_arguments.advise_parser",
        variant_of=("watch", "--advise"),
    ),
    Verb(
        "why",
        "watch a program that sends with zero-copy, and print why that is not faster",
        "commands.watch_arguments.why_parser",
        variant_of=("watch", "--why"),
    ),
    Verb("crossover", "find the message size from which one strategy is better than another"),
    Verb("sweep", "run every combination of an experiment, and keep each record"),
    Verb("report", "make plots, tables and a page from the records of a sweep"),
    Verb("compare", "run strategies alternately, and print which is better, and by how much"),
    Verb("diff", "compare two records, or two directories of records: is the second worse?"),
    Verb("show", "print the screen of a run again, from its record"),
    Verb("drill", "overwrite a buffer after the send call, and print what the receiver got"),
    Verb("fleet", "run a command on many hosts with ansible, and print one table", own_help="query"),
    Verb("doctor", "try every instrument, and print what works on this machine"),
    Verb(
        "simulate",
        "model the cache misses of each copy in QEMU; no root, no PMU",
        "commands.simulate_arguments.parser",
    ),
)
# Command -> a question that users ask, and the arguments that answer it, in the order of `copyscope --help`.
QUESTIONS = {
    "watch": ("Is my nginx copying?", "nginx --duration 10"),
    "advise": ("Would zero-copy or sendfile help it?", "nginx --duration 10"),
    "why": ("Why is zero-copy not faster?", "myserver --duration 10"),
    "run": ("What does this send method copy?", "zero_copy --size 64K"),
    "crossover": ("At what size does zero-copy pay off?", ""),
    "sweep": ("Goodput and cost by size?", "quick"),
    "compare": ("A or B, at this size?", "one_copy zero_copy --size 256K"),
    "diff": ("Better or worse than before?", "BEFORE AFTER"),
    "show": ("What did that run measure?", "run.json --explain"),
    "drill": ("Which send methods avoid copies here?", ""),
    "fleet": ("Which hosts of a fleet stand out?", "web1,web2 -- doctor"),
    "doctor": ("What can be measured on this machine?", ""),
    "simulate": ("Cache misses, without a PMU?", "one_copy,zero_copy"),
}
# Commands that need no root.
WITHOUT_ROOT = ("diff", "drill", "fleet", "report", "show", "simulate")
HEADLINE = (
    "copyscope shows where the Linux kernel copies the bytes of a TCP connection, and",
    "what each copy costs.",
    "Start: sudo copyscope watch PROGRAM | run zero_copy | doctor",
)
HELP_WORDS = ("-h", "--help", "--help-all", "help")
# Name of a removed command -> its replacement.
REPLACED = {
    "draw": "use copyscope show FILE --export drawing",
    "crosscheck": "in a source tree, run sudo make crosscheck",
}
# Name of a command in other tools -> the closest command of copyscope.
SIMILAR_COMMANDS = {"profile": "run", "record": "run", "trace": "watch", "top": "watch", "plot": "report"}


def find(name: str) -> Verb | None:
    """Return the command with this name, or None."""
    return next((verb for verb in VERBS if verb.name == name), None)


def main(argv: list[str]) -> int:
    """Run a command line and return the command's exit status, or 2 if there is no such command."""
    return entry.run("", lambda: _dispatch(argv))


def _dispatch(argv: list[str]) -> int:
    """Run the command that the first word names, or print the overview or the version.

    Return the exit status. Raises UsageError for an unknown command.
    """
    if not argv or (argv[0] in HELP_WORDS and len(argv) == 1):
        print("\n".join(overview()))
        if not paths.INSTALLED:
            print("In this tree copyscope is bin/copyscope; `sudo make install` puts it on PATH.")
        return 0
    if argv[0] == "--version":
        print(version())
        return 0
    name, *words = [argv[1], "--help"] if argv[0] in HELP_WORDS else argv
    verb = find(name)
    if verb is None:
        raise UsageError(describe_unknown_command(name, words))
    return verb.main(words)


def version() -> str:
    """Return copyscope's version, its commit, and the compiler that built it."""
    commit, changed = git_revision()
    build = read_build_info()
    facts = [f"commit {commit}{', changed' if changed else ''}"] if commit else []
    facts += [f"built for {build.machine}, by clang {build.clang}"] if build.machine else []
    return f"copyscope {VERSION}" + (f" ({'; '.join(facts)})" if facts else "")


def overview() -> list[str]:
    """Return the lines of `copyscope --help`, at most 80 columns wide: each question with its command."""
    width = max(len(question) for question, _ in QUESTIONS.values())
    others = ", ".join(verb.name for verb in VERBS if verb.name not in QUESTIONS)
    return [
        *HEADLINE,
        *(f"{question:{width}}  {verb} {words}".rstrip() for verb, (question, words) in QUESTIONS.items()),
        f"Others: {others}. COMMAND --help lists its options.",
        f"No sudo needed: {', '.join(WITHOUT_ROOT)}.",
    ]


def describe_unknown_command(name: str, words: Sequence[str]) -> str:
    """Return the message for a first word that is not a command.

    words: the words after the first word
    """
    if name.startswith("-"):
        return f"{name}: options go after the command; write copyscope COMMAND {name}"
    if name in REPLACED:
        return f"{name}: no such command; {REPLACED[name]}"
    program = next((word for word in words if not word.startswith("-")), None)
    if name == "profile" and program is not None:
        return f"profile: no such command; to watch a program, use copyscope watch {program}"
    similar = SIMILAR_COMMANDS.get(name) or closest_name(name, (verb.name for verb in VERBS))
    if similar is not None:
        return f"{name}: no such command; did you mean copyscope {similar}?"
    return f"{name}: no such command; `copyscope --help` lists them"
