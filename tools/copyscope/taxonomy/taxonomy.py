# SPDX-License-Identifier: GPL-2.0-only
"""Classify a kernel stack as a copy or a stage, by the rules in taxonomy.tsv.

The comment at the top of taxonomy.tsv explains the rules.

Only `Taxonomy.load` has a side effect: it reads that file. A symbol without a rule stays `unattributed` and
keeps its name. Its time is never added to its caller.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Literal

from copyscope.taxonomy.accounts import ACCOUNTS, STAGES, Context

FILE = Path(__file__).with_name("taxonomy.tsv")
KINDS = ("inclusive", "outer", "interrupt", "softirq", "leaf", "owner", "transparent")
# Category of work that is charged to the nearest `owner` function that caused it.
OWNED_CATEGORY = "memory"
KERNELS = re.compile(r"all|\d+\.\d+(-(\d+\.\d+)?)?|-\d+\.\d+")
COMPILER_SUFFIX = re.compile(r"\.(cold|isra|constprop|part|llvm|lto_priv)(\.\d+)*\b.*")
USER_SYMBOL = "[user]"
# Maximum number of stacks with a cached classification: a watch may be endless.
CACHED_STACKS_MAX = 1024


class TaxonomyError(Exception):
    """A line of the taxonomy is wrong. The message names file, line and problem."""


@dataclass(frozen=True)
class Rule:
    """A row of the taxonomy: functions that match `pattern` have this kind and category.

    order: position of the row in the file
    kind: one of KINDS, which the head of taxonomy.tsv explains
    category: name of an account or a stage
    kernels: kernel versions that have such a function: `all`, `6.1` or `5.10-6.4`
    """

    order: int
    kind: str
    pattern: str
    category: str
    kernels: str
    note: str = ""


@dataclass(frozen=True)
class Classification:
    """Result for a stack: account or stage, its name (category), the function behind it, and the context."""

    kind: Literal["account", "stage"]
    category: str
    symbol: str
    context: Context


@dataclass
class Taxonomy:
    """Index of the rules: exact names and prefixes by hash, then the few other globs. Results are cached."""

    version: str
    rules: Sequence[Rule]

    def __post_init__(self) -> None:
        """Sort the rules into dictionaries of exact names and prefixes and a list of globs. Make caches."""
        self._exact = {rule.pattern: rule for rule in self.rules if not is_glob(rule.pattern)}
        self._by_prefix = {rule.pattern[:-1]: rule for rule in self.rules if is_prefix_glob(rule.pattern)}
        self._globs = [
            (re.compile(translate(rule.pattern)).match, rule)
            for rule in self.rules
            if is_glob(rule.pattern) and not is_prefix_glob(rule.pattern)
        ]
        # The live view classifies the same stacks each second.
        self.find, self._of_stack = cache(self._find), lru_cache(CACHED_STACKS_MAX)(self._classify)

    @classmethod
    @cache
    def load(cls, path: Path = FILE) -> "Taxonomy":
        """Load a taxonomy from a file, by default the project's own. Raises TaxonomyError."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise TaxonomyError(f"taxonomy: {path}: cannot be read: {error.strerror}") from error
        return parse(text, str(path))

    @property
    def softirq_functions(self) -> list[str]:
        """Names of the functions that mark a stack as softirq work."""
        return [rule.pattern for rule in self.rules if rule.kind == "softirq"]

    def _find(self, frame: str) -> tuple[str, Rule | None]:
        """Return a frame's symbol without compiler suffix, and the first rule that matches it."""
        symbol = strip_suffix(frame)
        return symbol, self._match(symbol)

    def _match(self, symbol: str) -> Rule | None:
        """Return the rule with the lowest order that matches a symbol, or None."""
        matching = [self._by_prefix.get(symbol[:end]) for end in range(len(symbol) + 1)]
        matching += [rule for match, rule in self._globs if match(symbol)]
        rules = (rule for rule in (self._exact.get(symbol), *matching) if rule is not None)
        return min(rules, key=attrgetter("order"), default=None)

    def classify(self, frames: Sequence[str]) -> Classification:
        """Classify a kernel stack, leaf first. A stack without frames was sampled in user mode."""
        return self._of_stack(tuple(frames))

    def _classify(self, frames: tuple[str, ...]) -> Classification:
        """Classify a stack without the cache."""
        if not frames:
            return Classification("stage", "user", USER_SYMBOL, "user")
        matched_frames = [self.find(frame) for frame in frames]
        in_softirq = any(rule is not None and rule.kind == "softirq" for _, rule in matched_frames)
        context: Context = "softirq" if in_softirq else "process"
        symbol, category = choose_deciding_frame(matched_frames)
        return Classification("account" if category in ACCOUNTS else "stage", category, symbol, context)


def choose_deciding_frame(matched_frames: Sequence[tuple[str, Rule | None]]) -> tuple[str, str]:
    """Return the symbol that determines a stack's category, and the category, as taxonomy.tsv explains.

    `matched_frames`: pairs (symbol, its rule or None), the leaf first.
    """
    if (outer := _find_outer(matched_frames)) is not None:
        return outer
    leaf: tuple[str, str] | None = None
    subtree: tuple[str, str] | None = None
    for symbol, rule in matched_frames:
        if rule is None or rule.kind == "transparent":
            continue
        if rule.kind in ("inclusive", "interrupt"):
            subtree = subtree or (symbol, rule.category)
            if subtree[1] != OWNED_CATEGORY:
                return subtree
        if leaf is None:
            leaf = symbol, rule.category
        if rule.kind == "owner" and (subtree or leaf)[1] == OWNED_CATEGORY:
            return symbol, rule.category
        if rule.kind in ("softirq", "interrupt"):
            break
    return subtree or leaf or (matched_frames[0][0], "unattributed")


def _find_outer(matched_frames: Sequence[tuple[str, Rule | None]]) -> tuple[str, str] | None:
    """Return symbol and category of the first frame with an `outer` rule, or None.

    Such a frame overrides all frames nearer to the leaf. Frames that a softirq or interrupt interrupted do
    not count.
    """
    for symbol, rule in matched_frames:
        if rule is not None and rule.kind == "outer":
            return symbol, rule.category
        if rule is not None and rule.kind in ("softirq", "interrupt"):
            return None
    return None


def parse(text: str, source: str) -> Taxonomy:
    """Parse the text of a taxonomy. Raises TaxonomyError for a wrong line or a missing version line.

    `source`: name of the file in the message.
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
        problem = find_row_error(columns)
        if problem is None and columns[1] in lines:
            first_line = lines[columns[1]]
            problem = f"pattern {columns[1]!r} is on line {first_line} already, so this row could never match"
        if problem is not None:
            raise TaxonomyError(f"taxonomy: {source}:{number}: {problem}")
        lines[columns[1]] = number
        rules.append(Rule(len(rules), *columns))
    if version is None:
        raise TaxonomyError(f"taxonomy: {source}: no version line; add `version<tab>N` before the first rule")
    return Taxonomy(version, rules)


def find_row_error(columns: list[str]) -> str | None:
    """Return a message about the first error of a row, with advice, or None for a valid row."""
    if len(columns) not in (4, 5):
        return f"{len(columns)} columns: expected kind, pattern, category, kernels, note"
    kind, pattern, category, kernels = columns[:4]
    ends = [tuple(map(int, re.findall(r"\d+", end))) for end in kernels.split("-") if end not in ("", "all")]
    categories = {"-"} if kind == "transparent" else {*ACCOUNTS, *STAGES}
    advice = (
        "write - (its caller decides)" if kind == "transparent" else "an account or a stage of the ledger"
    )
    problems = (
        (kind not in KINDS, f"unknown kind {kind!r}: choose one of {', '.join(KINDS)}"),
        (
            not pattern.strip("*?") or pattern != pattern.strip(),
            f"pattern {pattern!r} is empty, padded or matches everything; name a symbol",
        ),
        (category not in categories, f"unknown category {category!r} of a rule of kind {kind}: {advice}"),
        (
            not KERNELS.fullmatch(kernels) or ends != sorted(ends),
            f"kernels {kernels!r}; write all, 6.1, 5.10-, -6.4 or 6.1-6.16",
        ),
    )
    return next((text for holds, text in problems if holds), None)


def is_glob(pattern: str) -> bool:
    """Return True if a pattern may match more than one name."""
    return any(character in pattern for character in "*?[")


def is_prefix_glob(pattern: str) -> bool:
    """Return True if a pattern matches all names with a prefix, as nearly all globs do."""
    return pattern.endswith("*") and not is_glob(pattern[:-1])


@lru_cache(maxsize=65536)
def strip_suffix(symbol: str) -> str:
    """Return the name in the source: `__netif_receive_skb_core.constprop.0` -> `__netif_receive_skb_core`."""
    return COMPILER_SUFFIX.sub("", symbol)
