"""What the user called: `tools/sweep.py`, or `copyscope sweep`. What is said calls it the same."""

import re

from copyscope import paths

FRONT = "copyscope" if paths.INSTALLED else "bin/copyscope"
# The tool that is called otherwise as a verb.
VERBS = {"profile": "run"}
_TOOL = re.compile(r"\btools/(\w+)\.py\b")
_called: dict[str, str] = {}


def as_verb(verb: str, tool: str) -> None:
    """From here on the tools are verbs of the one command, and this tool is this verb."""
    _called.update({**VERBS, tool: verb})


def name(tool: str) -> str:
    """What stands before a message: `sweep`, or `copyscope sweep`."""
    return f"copyscope {_called.get(tool, tool)}" if _called else tool


def verb(tool: str) -> str | None:
    """The verb that this tool was called as."""
    return _called.get(tool)


def by_verb() -> bool:
    """Whether a verb was called."""
    return bool(_called)


def spelled(text: str) -> str:
    """A text that names tools by their files, with the words of the user."""
    if not _called:
        return text
    return _TOOL.sub(lambda found: f"{FRONT} {_called.get(found[1], found[1])}", text)
