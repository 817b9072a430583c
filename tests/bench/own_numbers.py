"""How long the tools take, as a table. Pure."""

from typing import Any

from samples import median

Sample = dict[str, float]
REPORT_POINTS = 100
GOALS = {"beyond_measuring_s": 0.7, "report_s": 3.0, "table_s": 0.5}
LABELS = {
    "start_to_first_packet_s": "profile.py: start to first packet",
    "last_packet_to_table_s": "profile.py: last packet to table and end",
    "beyond_measuring_s": "sweep.py: a point beyond its measuring time, warm-up of 0.2 s included",
    "of_it_in_the_run_s": "… of it inside the run",
    "start_and_end_s": "sweep.py: before the first run and after the last",
    "report_s": f"report.py: {REPORT_POINTS} points of the published sweep",
    "report_cpu_s": "… CPU time of it, all processes",
    "table_s": "sweep.py: last record to table, 432 runs",
    "whole_s": "sweep.py: all of a sweep of which every record is there, 432 runs",
}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The table of results/bench/README.md: medians, with the least and the most."""
    found = {part["what"]: part["samples"] for part in raw}
    text = ["| what | median | least to most | goal |", "|---|---|---|---|"]
    for name in ("profile", "sweep", "report", "finished sweep"):
        for key, label in LABELS.items():
            values = [sample[key] for sample in found.get(name, []) if key in sample]
            if values:
                goal = f"{GOALS[key]:g} s" if key in GOALS else ""
                spread = f"{min(values):.2f} to {max(values):.2f} s" if len(values) > 1 else ""
                text.append(f"| {label} | {median(values):.2f} s | {spread} | {goal} |")
    text += _memory(found.get("memory", {}))
    for name, unit in (("threads", "threads"), ("length", "s")):
        if name in found:
            text += ["", *_growth(found[name], "threads" if name == "threads" else "seconds", unit)]
    if "length" in found:
        text += [
            "",
            "Samples and ledger do not grow with the length of a run. Its segments (four in two seconds) "
            "and the slices of goodput (ten a second) do.",
        ]
    return text


def _memory(found: dict[str, Any]) -> list[str]:
    """One line for each tool."""
    # results that are older have those of a run alone
    parts = found if all(isinstance(peaks, dict) for peaks in found.values()) else {"a run": found}
    return [
        line
        for what, peaks in parts.items()
        for line in ("", f"Peak memory of {what}: {', '.join(map(_mib, sorted(peaks.items())))}.")
    ]


def _mib(peak: tuple[str, int]) -> str:
    return f"{peak[0]} {peak[1] / 1024:.0f} MiB"


def _growth(samples: list[Sample], key: str, unit: str) -> list[str]:
    head = ("record", "compressed", "read", "derive", "last packet to table")
    text = [f"| {unit} | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for one in samples:
        # results that are older than the key were made from 10 s
        made = f" (made from {one.get('made_from_s', 10):g} s)" if "synthetic" in one else ""
        last = f"{one['last_packet_to_table_s']:.2f} s" if "last_packet_to_table_s" in one else ""
        cells = [
            f"{one['json_bytes'] / 1024:.0f} KiB",
            f"{one['gzip_bytes'] / 1024:.0f} KiB",
            f"{1e3 * one['read_s']:.1f} ms",
            f"{1e3 * one['derive_s']:.1f} ms",
            last,
        ]
        text.append(f"| {one[key]:.0f}{made} | {' | '.join(cells)} |")
    return text
