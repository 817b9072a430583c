"""What the threads of each name took of a watched program's CPU time, and which copies they made. Pure."""

from dataclasses import dataclass

from copyscope.ledger import user_copies
from copyscope.ledger.attribution import SideTime, interval_of, time_event
from copyscope.ledger.share import Share
from copyscope.record.measured import Measured
from copyscope.taxonomy.events import event_name
from copyscope.taxonomy.taxonomy import ACCOUNTS


@dataclass(frozen=True)
class ThreadShare:
    """Parts of the CPU time of the program's own processes: no softirq work that others did for it.

    name: empty: all others. copies: by account; None: not known, as in the ledger
    """

    name: str
    samples: int
    share: Share
    copies: dict[str, float | None]


def by_thread(raw: Measured, time: SideTime) -> list[ThreadShare]:
    """Those that took most first; empty where nothing was sampled."""
    names = time_event(raw.samples, raw.sampler.events) or ()
    rows = [row for row in raw.threads or [] if event_name(row.event) in names]
    whole = sum(sum(row.weights.values()) for row in rows)
    if not whole:
        return []
    unknown = {account for account in user_copies.OWN if user_copies.why_unknown(raw, account)}
    made = []
    for row in rows:
        part = sum(row.weights.values()) / whole
        found = interval_of(time, part)
        copies = {
            account: None if account in unknown else row.weights.get(account, 0) / whole
            for account in ACCOUNTS
        }
        made.append(ThreadShare(row.thread, row.samples, Share(part, found.low, found.high), copies))
    return sorted(made, key=lambda one: (not one.name, -(one.share.share or 0.0)))
