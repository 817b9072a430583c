"""Which hosts are unlike the others, and in what, in plain words. Pure."""

import re
from collections import Counter
from collections.abc import Sequence

from copyscope.escaping import visible
from copyscope.fleet.answers import Row
from copyscope.grouping import gathered

NAMES_MAX = 5
SECONDS = re.compile(r"\b\d+ s\b")


def find(rows: Sequence[Row]) -> list[str]:
    """One sentence for each group: those without an answer by their cause, then who differs from most."""
    return [*_without(rows), *_unlike(rows)]


def _without(rows: Sequence[Row]) -> list[str]:
    # A cause may name its host and a time; hosts with the same one are one group all the same.
    causes = ((row, row.cause or "cause not known") for row in rows if row.state != "ok")
    groups = gathered(
        ((row.state, SECONDS.sub("", cause.replace(row.host, ""))), row) for row, cause in causes
    )
    return [
        f"{len(alike)} of {len(rows)} {state}: {named([row.host for row in alike])}: {alike[0].cause}"
        for (state, _), alike in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


def _unlike(rows: Sequence[Row]) -> list[str]:
    """What most hosts have in common is not said of each; a trait that has no majority is said in full."""
    said: list[tuple[int, str]] = []
    for trait in dict.fromkeys(trait for row in rows for trait in row.traits):
        have = [row for row in rows if trait in row.traits]
        values = Counter(row.traits[trait] for row in have)
        usual, most = values.most_common(1)[0]
        majority = usual if 2 * most > len(have) else None
        for value, count in values.items():
            if value != majority and len(values) > 1:
                hosts = [row.host for row in have if row.traits[trait] == value]
                than = "" if majority is None else f"; on the others {visible(majority)}"
                text = f"{count} of {len(have)}: {visible(trait)}: {visible(value)}: {named(hosts)}{than}"
                said.append((count, text))
    return [text for _, text in sorted(said, key=lambda pair: pair[0])]


def named(hosts: Sequence[str]) -> str:
    """A few by name, the rest by number."""
    more = len(hosts) - NAMES_MAX
    return ", ".join(hosts[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
