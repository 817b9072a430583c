"""copyscope VERB ...: every command under one name. Alone it says which verb answers which question."""

import difflib
from collections.abc import Sequence

from copyscope import VERSION, paths
from copyscope.commands import entry
from copyscope.commands.verbs import QUESTIONS, VERBS, WITHOUT_ROOT, find
from copyscope.errors import UsageError
from copyscope.run.build import built_of, git_revision

HELP = ("-h", "--help", "--help-all", "help")
# What other tools call it.
MEANT = {"profile": "run", "record": "run", "trace": "watch", "top": "watch", "plot": "report"}


def main(argv: list[str]) -> int:
    """Exit status: the verb's; 2 if there is no such verb."""
    return entry.run(lambda: _verb(argv))


def _verb(argv: list[str]) -> int:
    if not argv or (argv[0] in HELP and len(argv) == 1):
        print("\n".join(overview()))
        if not paths.INSTALLED:
            print("In this tree copyscope is bin/copyscope; `sudo make install` puts it on PATH.")
        return 0
    if argv[0] == "--version":
        print(version())
        return 0
    name, *words = [argv[1], "--help"] if argv[0] in HELP else argv
    verb = find(name)
    if verb is None:
        raise UsageError(unknown(name, words))
    return verb.main(words)


def version() -> str:
    """The version, and of which commit and by what it was built."""
    commit, changed = git_revision()
    built = {name: text for name, text in built_of().items() if name not in ("commit", "changed")}
    facts = [f"commit {commit}{', changed' if changed else ''}"] if commit else []
    facts += [f"built {', '.join(f'{name} {text}' for name, text in built.items())}"] if built else []
    return f"copyscope {VERSION}" + (f" ({'; '.join(facts)})" if facts else "")


def overview() -> list[str]:
    """Each question with the verb that answers it, in lines of 80 columns."""
    width = max(len(question) for question, _ in QUESTIONS.values())
    others = ", ".join(verb.name for verb in VERBS if verb.name not in QUESTIONS)
    return [
        "sudo copyscope COMMAND [OPTIONS]",
        *(f"{question:{width}}  {verb} {words}".rstrip() for verb, (question, words) in QUESTIONS.items()),
        f"Others: {others}. COMMAND --help lists its options.",
        f"No sudo needed: {', '.join(WITHOUT_ROOT)}.",
    ]


def unknown(name: str, words: Sequence[str]) -> str:
    """What is said of a verb that is none."""
    if name.startswith("-"):
        return f"{name}: options go after the command: copyscope COMMAND {name}"
    program = next((word for word in words if not word.startswith("-")), None)
    if name == "profile" and program is not None:
        return f"profile: no such command: to watch a program: copyscope watch {program}"
    close = difflib.get_close_matches(name[:32], [verb.name for verb in VERBS], n=1)
    meant = MEANT.get(name) or (close[0] if close else None)
    if meant is not None and find(meant) is not None:
        return f"{name}: no such command: did you mean copyscope {meant}?"
    return f"{name}: no such command: `copyscope` lists them; to watch a program: copyscope watch {name}"
