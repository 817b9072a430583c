"""A program that passes on what it receives: would splice(2) spare both copies? Pure.

Amounts are what is known of it: threads that received and sent as much, but for a tenth. Whether the bytes
are the same, nobody sees: that is said with it.
"""

from dataclasses import dataclass

from copyscope.record.check import Whole
from copyscope.record.watched import Relays, added, volume
from copyscope.units import counted, format_bytes

# What splice(2) does without.
COPIES = ("copy_in", "copy_out")
IF_THE_SAME = "if it passes on what it receives as it is"


@dataclass(frozen=True)
class Relay:
    """share: of all that the program sent while its calls were timed."""

    found: Relays
    share: float

    def amounts(self) -> str:
        received, sent = (format_bytes(n) for n in (self.found.received_bytes, self.found.sent_bytes))
        return f"received {received} and sent {sent}"

    def sentence(self, both: str) -> str:
        """both: what the two copies take of its CPU time."""
        threads = counted(self.found.threads, "thread")
        return (
            f"{threads} {self.amounts()} by calls that copy (calls segments): {IF_THE_SAME}, splice(2) would "
            f"spare both copies; {both}."
        )


def relay_of(run: Whole) -> Relay | None:
    """None where no thread passes anything on, or no calls were timed."""
    found = run.raw.relays
    if not found or not found.threads:
        return None
    sent = added(volume(run.raw.volume, "send", "calls"), "bytes")
    # Hooks come before a segment begins and go after it ends.
    return Relay(found, min(1.0, found.sent_bytes / sent)) if sent else None
