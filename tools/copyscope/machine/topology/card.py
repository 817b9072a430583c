# SPDX-License-Identifier: GPL-2.0-only
"""Settings of a network card: queues, rings, coalescing, and the CPUs of its interrupts. Pure."""

import re
from collections.abc import Iterator

# Script that prints the settings of network device $1, or nothing for a virtual device, which is on no bus.
CARD_SCRIPT = """
bus=$(ethtool -i "$1" 2>/dev/null | sed -n 's/^bus-info: //p')
[ -n "$bus" ] || exit 0
ethtool -l "$1" 2>/dev/null
echo %%; ethtool -g "$1" 2>/dev/null
echo %%; ethtool -c "$1" 2>/dev/null
echo %%
cd /sys/bus/*/devices/"$bus" 2>/dev/null || exit 0
for number in $(ls msi_irqs 2>/dev/null || cat irq)
do cat "/proc/irq/$number/smp_affinity_list" 2>/dev/null; done
exit 0
"""
CARD_COMMAND = ("sh", "-c", CARD_SCRIPT, "sh")
# Title of each part of the output in the record. Only lines below CURRENT are settings, not limits.
TITLES = ("queues", "ring", "coalescing")
CURRENT = "Current hardware settings:"
INTERRUPTS = "CPUs of interrupts"
# A setting and its value. `ethtool -c` prints two of them on one line: `Adaptive RX: off  TX: off`.
SETTING = re.compile(r"([A-Za-z][\w -]*?):\s+(\d+|on|off)\b")


def parse_card(text: str) -> dict[str, str]:
    """Return the settings of a card by name, such as `ring rx`, from the output of CARD_SCRIPT.

    The result is empty for a virtual device. Settings that the driver does not have are left out.
    """
    *parts, interrupts = text.split("%%\n") if text.strip() else [""]
    settings: dict[str, str] = {}
    for title, part in zip(TITLES, parts, strict=False):
        settings |= {f"{title} {name}": value for name, value in _settings(part)}
    cpus = interrupts.split()
    return settings | ({INTERRUPTS: " ".join(cpus)} if cpus else {})


def _settings(part: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each setting that the output of one ethtool command prints."""
    for line in part.rpartition(CURRENT)[2].splitlines():
        group = ""
        for name, value in SETTING.findall(line):
            # `Adaptive RX` names the group of `TX` on the same line.
            group = group or name.rpartition(" ")[0]
            yield (name if " " in name or not group else f"{group} {name}").strip().lower(), value
