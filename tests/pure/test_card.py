# SPDX-License-Identifier: GPL-2.0-only
"""Settings of a network card, read from ethtool and /proc/irq, and named by `diff` where they differ."""

import copy
import io

import builders
from builders.documents import derive, typed_whole
from copyscope.judge.comparison import compare_groups
from copyscope.judge.difference import ComparisonOptions
from copyscope.machine.topology.card import parse_card
from copyscope.show import compared
from rich.console import Console

# ethtool 6.1 on a card with four queues (ixgbe).
OUTPUT = """\
Channel parameters for eth2:
Pre-set maximums:
RX:\t\tn/a
TX:\t\tn/a
Other:\t\t1
Combined:\t63
Current hardware settings:
RX:\t\tn/a
TX:\t\tn/a
Other:\t\t1
Combined:\t4
%%
Ring parameters for eth2:
Pre-set maximums:
RX:\t\t4096
RX Mini:\tn/a
TX:\t\t4096
Current hardware settings:
RX:\t\t512
RX Mini:\tn/a
TX:\t\t512
RX Buf Len:\t\tn/a
TX Push:\toff
%%
Coalesce parameters for eth2:
Adaptive RX: off  TX: on
stats-block-usecs:\tn/a
rx-usecs:\t1
rx-frames:\tn/a
CQE mode RX: n/a  TX: n/a
%%
0
1
2-3
"""
CARD = {
    "queues other": "1",
    "queues combined": "4",
    "ring rx": "512",
    "ring tx": "512",
    "ring tx push": "off",
    "coalescing adaptive rx": "off",
    "coalescing adaptive tx": "on",
    "coalescing rx-usecs": "1",
    "CPUs of interrupts": "0 1 2-3",
}


def test_settings_of_a_card_are_the_current_ones() -> None:
    assert parse_card(OUTPUT) == CARD


def test_a_driver_without_queues_has_the_other_settings() -> None:
    """e1000: `ethtool -l` prints nothing, and the card has one interrupt."""
    text = "%%\nCurrent hardware settings:\nRX:\t256\nTX:\t256\n%%\nrx-usecs:\t3\n%%\n1\n"
    assert parse_card(text) == {
        "ring rx": "256",
        "ring tx": "256",
        "coalescing rx-usecs": "3",
        "CPUs of interrupts": "1",
    }


def test_a_virtual_device_has_no_card() -> None:
    assert parse_card("") == {}


def test_diff_names_the_settings_of_a_card_that_differ() -> None:
    raw = builders.raw_record("one_copy")
    raw["topology"]["devices"][0]["card"] = CARD
    other = copy.deepcopy(raw)
    other["topology"]["devices"][0]["card"] = CARD | {"ring rx": "4096", "CPUs of interrupts": "0"}
    runs = [typed_whole(derive(record)) for record in (raw, other)]
    found = compare_groups(runs[:1], runs[1:], ComparisonOptions())
    name = raw["topology"]["devices"][0]["name"]
    assert found.cards_differ == [
        (f"{name} ring rx", "512", "4096"),
        (f"{name} CPUs of interrupts", "0 1 2-3", "0"),
    ]
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print("\n".join(compared.caveats(found)))
    assert f"{name} ring rx: 512 before, 4096 after" in console.file.getvalue()  # type: ignore[attr-defined]
