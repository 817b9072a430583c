"""The machine that was measured on, as a section."""

from typing import Any

from copyscope.record.measured import Machine
from copyscope.report.blocks import Block, Heading, Table

MACHINE = (
    *("hostname", "cpu_model", "cpus_online", "hypervisor", "kernel", "arch", "memory_bytes"),
    *("numa_nodes", "pmu", "hybrid", "governor", "turbo", "smt", "clocksource"),
    *("irq_time_accounting", "transparent_hugepages", "lockdown"),
)


def machine_blocks(machine: Machine) -> list[Block]:
    """Everything that is known of it, with the reason where something is not."""
    reasons = machine.reasons or {}
    rows = [[name, _spell(getattr(machine, name), reasons.get(name))] for name in MACHINE]
    rows += [[f"caches.{name}", _spell(value, None)] for name, value in machine.caches.items()]
    rows += [[f"limits.{name}", _spell(value, None)] for name, value in machine.limits.items()]
    rows += [[name, _spell(value, None)] for name, value in machine.sysctls.items()]
    rows += [[f"mitigations.{name}", str(value)] for name, value in machine.mitigations.items()]
    rows += [[f"version of {name}", _spell(value, "not installed")] for name, value in machine.tools.items()]
    return [Heading(2, "Machine", "machine"), Table(["what", "value"], rows, title="The machine")]


def _spell(value: Any, reason: str | None) -> str:
    match value:
        case None:
            text = f"n/a: {reason}" if reason else "n/a"
        case bool():
            text = "yes" if value else "no"
        case list():
            text = ", ".join(str(item) for item in value) or "none"
        case dict():
            text = ", ".join(f"{key} {item}" for key, item in sorted(value.items()))
        case _:
            text = f"{value:,}" if isinstance(value, int) else str(value)
    return text
