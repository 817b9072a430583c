"""From a kernel stack to a copy or a stage, by the rules in taxonomy.tsv (its head says how they are read).

Pure but for `Taxonomy.load`, which reads that file. A symbol that no rule names stays `unattributed` and
keeps its name: time is never given to a neighbour because it happened to be called from there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Literal

from copyscope.errors import UsageError

Context = Literal["process", "softirq", "user"]

FILE = Path(__file__).with_name("taxonomy.tsv")
# in the order in which they are printed
ACCOUNTS = (
    *("file_read", "gather", "user_encrypt", "copy_in", "pin", "encrypt", "deferred", "silent"),
    *("completion", "decrypt", "copy_out", "mapped", "tun"),
)
STAGES = (
    "syscall",
    "skb_alloc",
    "tcp_ip",
    "device",
    "softirq",
    "wakeup_sched",
    "lock",
    "memory",
    "irq",
    "user",
    "instruments",
    "unattributed",
)
KINDS = ("inclusive", "outer", "interrupt", "softirq", "leaf", "owner", "transparent")
# What an owner owns of the work that is done for it.
OWNED = "memory"
KERNELS = re.compile(r"all|\d+\.\d+(-(\d+\.\d+)?)?|-\d+\.\d+")
COMPILER_SUFFIX = re.compile(r"\.(cold|isra|constprop|part|llvm|lto_priv)(\.\d+)*\b.*")
USER_SYMBOL = "[user]"
STACKS_KEPT = 1024


class TaxonomyError(UsageError):
    """A line of the taxonomy is wrong; the message names file, line and what."""


@dataclass(frozen=True)
class Rule:
    """One row of the taxonomy; `order` is its place in the file."""

    order: int
    kind: str
    pattern: str
    category: str
    kernels: str
    note: str = ""


@dataclass(frozen=True)
class Classification:
    """What a stack was doing: account or stage, its category, the frame that decided, where it ran."""

    kind: Literal["account", "stage"]
    category: str
    symbol: str
    context: Context


@dataclass
class Taxonomy:
    """The rules, with an index: names and beginnings by hash, then a few globs; each symbol once."""

    version: str
    rules: Sequence[Rule]

    def __post_init__(self) -> None:
        self._exact = {rule.pattern: rule for rule in self.rules if not is_glob(rule.pattern)}
        self._beginnings = {rule.pattern[:-1]: rule for rule in self.rules if is_beginning(rule.pattern)}
        self._globs = [
            (re.compile(translate(rule.pattern)).match, rule)
            for rule in self.rules
            if is_glob(rule.pattern) and not is_beginning(rule.pattern)
        ]
        # The live view sees the same stacks each second; one without an end sees ever more.
        self.find, self._of_stack = cache(self._find), lru_cache(STACKS_KEPT)(self._classify)

    @classmethod
    @cache
    def load(cls, path: Path = FILE) -> "Taxonomy":
        """The taxonomy in a file, read once; the project's own without an argument. Raises TaxonomyError."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise TaxonomyError(f"taxonomy: {path}: cannot be read: {error.strerror}") from error
        return parse(text, str(path))

    def _find(self, frame: str) -> tuple[str, Rule | None]:
        """A frame's symbol without compiler suffix, and the first rule that matches it."""
        symbol = strip_suffix(frame)
        return symbol, self._match(symbol)

    def _match(self, symbol: str) -> Rule | None:
        found = [self._beginnings.get(symbol[:end]) for end in range(len(symbol) + 1)]
        found += [rule for matches, rule in self._globs if matches(symbol)]
        rules = (rule for rule in (self._exact.get(symbol), *found) if rule is not None)
        return min(rules, key=attrgetter("order"), default=None)

    def classify(self, frames: Sequence[str]) -> Classification:
        """The category of a kernel stack, leaf first. No frames at all means user mode."""
        return self._of_stack(tuple(frames))

    def _classify(self, frames: tuple[str, ...]) -> Classification:
        if not frames:
            return Classification("stage", "user", USER_SYMBOL, "user")
        found = [self.find(frame) for frame in frames]
        in_softirq = any(rule is not None and rule.kind == "softirq" for _, rule in found)
        context: Context = "softirq" if in_softirq else "process"
        symbol, category = decide(found)
        return Classification("account" if category in ACCOUNTS else "stage", category, symbol, context)


def decide(found: Sequence[tuple[str, Rule | None]]) -> tuple[str, str]:
    """(deciding symbol, category) of a stack, leaf first; see the head of taxonomy.tsv."""
    if (outer := _outer(found)) is not None:
        return outer
    leaf: tuple[str, str] | None = None
    subtree: tuple[str, str] | None = None
    for symbol, rule in found:
        if rule is None or rule.kind == "transparent":
            continue
        if rule.kind in ("inclusive", "interrupt"):
            subtree = subtree or (symbol, rule.category)
            if subtree[1] != OWNED:
                return subtree
        if leaf is None:
            leaf = symbol, rule.category
        if rule.kind == "owner" and (subtree or leaf)[1] == OWNED:
            return symbol, rule.category
        if rule.kind in ("softirq", "interrupt"):
            break
    return subtree or leaf or (found[0][0], "unattributed")


def _outer(found: Sequence[tuple[str, Rule | None]]) -> tuple[str, str] | None:
    """What decides whatever is nearer to the leaf, unless that was only interrupted."""
    for symbol, rule in found:
        if rule is not None and rule.kind == "outer":
            return symbol, rule.category
        if rule is not None and rule.kind in ("softirq", "interrupt"):
            return None
    return None


def parse(text: str, source: str) -> Taxonomy:
    """The taxonomy in a text. Raises TaxonomyError for the first line that is wrong, or without a version;
    `source` is named in the message.
    """
    version: str | None = None
    rules: list[Rule] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = line.split("\t")
        if columns[0] == "version" and version is None and len(columns) == 2 and columns[1]:
            version = columns[1]
            continue
        wrong = why_wrong(columns)
        if wrong is None and columns[1] in lines:
            there = lines[columns[1]]
            wrong = f"pattern {columns[1]!r} is on line {there} already: the second could never match"
        if wrong is not None:
            raise TaxonomyError(f"taxonomy: {source}:{number}: {wrong}")
        lines[columns[1]] = number
        rules.append(Rule(len(rules), *columns))
    if version is None:
        raise TaxonomyError(f"taxonomy: {source}: no version line: add `version<tab>N` before the first rule")
    return Taxonomy(version, rules)


def why_wrong(columns: list[str]) -> str | None:
    """What is wrong with a row, and how it is written; None: nothing."""
    if len(columns) not in (4, 5):
        return f"{len(columns)} columns: expected kind, pattern, category, kernels, note"
    kind, pattern, category, kernels = columns[:4]
    ends = [tuple(map(int, re.findall(r"\d+", end))) for end in kernels.split("-") if end not in ("", "all")]
    known = {"-"} if kind == "transparent" else {*ACCOUNTS, *STAGES}
    write = "write - (its caller decides)" if kind == "transparent" else "an account or a stage of the ledger"
    problems = (
        (kind not in KINDS, f"unknown kind {kind!r}: one of {', '.join(KINDS)}"),
        (
            not pattern.strip("*?") or pattern != pattern.strip(),
            f"pattern {pattern!r} is empty, padded or matches everything: name a symbol",
        ),
        (category not in known, f"unknown category {category!r} of a rule of kind {kind}: {write}"),
        (
            not KERNELS.fullmatch(kernels) or ends != sorted(ends),
            f"kernels {kernels!r}: write all, 6.1, 5.10-, -6.4 or 6.1-6.16",
        ),
    )
    return next((text for holds, text in problems if holds), None)


def is_glob(pattern: str) -> bool:
    """Whether a pattern stands for more than one name."""
    return any(character in pattern for character in "*?[")


def is_beginning(pattern: str) -> bool:
    """Whether it stands for all names that begin with the same: nearly all globs do."""
    return pattern.endswith("*") and not is_glob(pattern[:-1])


@lru_cache(maxsize=65536)
def strip_suffix(symbol: str) -> str:
    """The name in the source: `__netif_receive_skb_core.constprop.0` is `__netif_receive_skb_core`."""
    return COMPILER_SUFFIX.sub("", symbol)
