"""When two records are of one machine, in one state."""

from collections.abc import Mapping
from typing import Any

# Records that differ in one of these are of two machines, or of one in two states: they are never mixed.
SAME_MACHINE = ("hostname", "kernel", "arch", "cpu_model", "cpus_online", "hypervisor", "pmu")
# What somebody may have set otherwise since: a sweep does not go on then.
SAME_SETTINGS = ("governor", "turbo", "smt", "mitigations", "transparent_hugepages", "clocksource")
SHOWN = {"cpu_model": "{}", "kernel": "Linux {}"}


def where_else(machine: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """In what a machine is not the one here, as `AMD EPYC, Linux 6.1`; None: in nothing that is known."""
    unlike = [key for key in ("cpu_model", *SAME_MACHINE) if key in machine and machine[key] != here.get(key)]
    return (
        ", ".join(SHOWN.get(key, key + " {}").format(machine[key]) for key in dict.fromkeys(unlike)) or None
    )
