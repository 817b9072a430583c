"""What works on this machine: every instrument is tried, every fact comes with what to do about it.

Returns data only; show/doctor.py shows it. Nothing is changed on the machine.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from copyscope import paths
from copyscope.asking import LimitError, ask
from copyscope.doctor import kernel, network
from copyscope.doctor.findings import Diagnosis, Finding
from copyscope.machine.fingerprint import cpu_times, describe, steal_percent
from copyscope.plan.tier import choose_tier
from copyscope.run.counters import Counter
from copyscope.run.perf_stat import PerfStat
from copyscope.taxonomy.events import TIME_EVENTS, time_names
from copyscope.topology import LinkSettings, TopologyError, open_topology

# Trying every function hook took more than a minute on 5.10 under emulation, beside other work.
PROBE_TIMEOUT_S = 180.0
COUNTED_S = 0.02
# What a profile does without the hooks of an instrument.
WITHOUT = {
    "bytes": "no action needed: time is sampled, the programs count the bytes",
    "calls": "no action needed: time is sampled, system calls are not timed",
}


def diagnose() -> Diagnosis:
    """Try everything; takes about half a second. As root it finds out more, and says so otherwise."""
    before = cpu_times()
    machine = describe()
    root = os.geteuid() == 0
    findings: list[Finding] = [
        *check_user(root),
        *kernel.check_tools(machine["tools"]),
        *check_programs(),
        *check_topologies(root),
        *events_of_the_pmu(
            [*check_collector(root), *check_counters(count_own_work() if root else {})], machine["pmu"]
        ),
        *kernel.check_kernel(machine),
        *network.check_zero_copy(machine),
        *network.check_disturbances(machine),
        *kernel.check_disturbances(machine, steal_percent(before, cpu_times())),
    ]
    return Diagnosis(tuple(findings))


def check_user(root: bool) -> Iterable[Finding]:
    if root:
        yield Finding("programs", "user", "ok", "root", essential=True)
    else:
        advice = "run it with sudo (the traffic itself runs as you)"
        yield Finding("programs", "user", "missing", "not root", advice, essential=True)


def check_programs() -> Iterable[Finding]:
    """What `make` builds."""
    for path, essential in ((paths.TRAFFIC, True), (paths.COLLECTOR, True), (paths.XDP_OBJECT, False)):
        name = str(path.relative_to(paths.ROOT))
        if path.is_file():
            yield Finding("programs", name, "ok", "built", essential=essential)
        else:
            yield Finding("programs", name, "missing", "not built", "run `make`", essential)


def check_topologies(root: bool) -> Iterable[Finding]:
    """Make each kind for a moment: the only honest test of namespaces, veth, XDP and dropped privileges."""
    if not root:
        return
    for kind, needed in (("veth", True), ("loopback", False), ("veth-xdp", False)):
        began = time.monotonic()
        try:
            with open_topology(kind, LinkSettings(), paths.XDP_OBJECT):
                took_ms = (time.monotonic() - began) * 1000
            yield Finding("topologies", kind, "ok", f"made in {took_ms:.0f} ms", essential=needed)
        except TopologyError as error:
            fact, _, advice = str(error).removeprefix("topology: ").rpartition(": ")
            yield Finding("topologies", kind, "missing", fact, advice, needed)


def check_collector(root: bool) -> Iterable[Finding]:
    """Ask the collector which hooks and sampler events it can attach."""
    if not root or not paths.COLLECTOR.is_file():
        return
    try:
        probe = ask([str(paths.COLLECTOR), "--probe", "--functions"], limit_s=PROBE_TIMEOUT_S)
    except (OSError, LimitError) as error:
        yield Finding(
            "hooks", "collector", "missing", f"--probe: {error}", "run `make` again", essential=True
        )
        return
    yield from read_probe(probe.text, probe.complaint)


def read_probe(stdout: str, stderr: str = "") -> list[Finding]:
    """The rows in `collector --probe`'s JSON: {"hooks": [...], "sampler": {"events": [...]}}."""
    try:
        probe = json.loads(stdout)
        hooks = probe["hooks"]
        tracepoints = [hook for hook in hooks if hook.get("instrument") != "functions"]
        return [
            *_hook_findings(tracepoints),
            *_function_findings(hooks, any_tried=len(tracepoints) < len(hooks)),
            *_sampler_findings(probe["sampler"]["events"]),
        ]
    except (ValueError, KeyError, TypeError):
        said = " ".join((stderr or stdout).split())[:200] or "printed nothing"
        return [Finding("hooks", "collector", "missing", said, "run `make` again", essential=True)]


def _hook_findings(hooks: list[dict[str, Any]]) -> Iterable[Finding]:
    for hook in hooks:
        name, needed = f"{hook['id']} ({hook['symbol']})", bool(hook.get("required"))
        if hook["state"] in ("attached", "unused"):
            fact = (
                f"attaches by {hook['how']}"
                if hook["state"] == "attached"
                else f"not needed: {hook['reason']}"
            )
            yield Finding("hooks", name, "ok", fact)
        else:
            nothing = "no action needed"
            advice = (
                WITHOUT.get(hook["instrument"], nothing) if needed else f"{nothing}: its numbers will be n/a"
            )
            fact = f"{hook['state']}: {hook.get('reason') or 'no reason given'}"
            yield Finding("hooks", name, "limited", fact, advice)


def _function_findings(hooks: list[dict[str, Any]], *, any_tried: bool) -> Iterable[Finding]:
    """One row for all of them: the exact tier, or why there is only the sampled one."""
    if not any_tried:
        return
    tier = choose_tier(True, hooks)
    if tier.exact:
        yield Finding("hooks", "functions", "ok", tier.reason)
    else:
        yield Finding(
            "hooks", "functions", "limited", tier.reason, "no action needed: time is sampled, bytes are exact"
        )


def _sampler_findings(events: list[dict[str, Any]]) -> Iterable[Finding]:
    statuses = {event["name"]: event["status"] for event in events}
    time_shown_by = time_names((name for name in statuses if statuses[name] == "sampled"), statuses)
    for event in events:
        name, why = event["name"], str(event.get("reason") or event["status"])
        if event["status"] == "sampled":
            fact = event.get("counts") or f"can be sampled, in {event['unit']}"
            yield Finding("sampler", name, "ok", fact)
        elif event["status"] == "partial":
            yield Finding(
                "sampler", name, "limited", why, "keep the traffic there: --sender-cpus, --receiver-cpus"
            )
        elif any(name in names for names in TIME_EVENTS):
            yield _other_time_event(name, why, time_shown_by)
        else:
            yield Finding("sampler", name, "limited", why, "no action needed: its numbers will be n/a")
    if not time_shown_by:
        yield Finding(
            "sampler", "samples", "missing", "no event can be sampled", "run as root", essential=True
        )


def _other_time_event(name: str, why: str, shown_by: tuple[str, ...] | None) -> Finding:
    """An event that could show time, and does not here: one that interrupts everywhere is as good."""
    if shown_by is None:
        return Finding("sampler", name, "limited", why, "use a machine with a PMU")
    if "cpu-clock" in shown_by:
        return Finding("sampler", name, "limited", why, "no action needed: cpu-clock is used")
    return Finding("sampler", name, "ok", f"not needed, {shown_by[0]} is used: {why}")


def events_of_the_pmu(rows: Iterable[Finding], pmu: Sequence[str]) -> Iterable[Finding]:
    """Without a PMU its events are absent for one reason, which the row of the PMU says."""
    for row in rows:
        lacks_it = not pmu and row.status == "limited" and "no PMU" in row.fact
        yield replace(row, cause="PMU") if lacks_it else row


def count_own_work() -> dict[str, Counter]:
    """perf stat on this process, for a moment of work."""
    with PerfStat(os.getpid()) as counting:
        counting.start()
        counting.wait_ready()
        counting.enable()
        until = time.monotonic() + COUNTED_S
        while time.monotonic() < until:
            sum(range(1000))
        counting.disable()
        return counting.finish()


def check_counters(counters: Mapping[str, Counter]) -> Iterable[Finding]:
    """One row per counter; none when nothing was counted because we are not root."""
    for event, counter in counters.items():
        if counter.status == "measured":
            pmus = ", ".join(part.pmu for part in counter.parts or ())
            fact = f"counts, on {pmus}" if pmus else "counts"
            yield Finding("counters", event, "ok", fact)
        elif counter.status == "scaled":
            share = counter.running or 0.0
            advice = "stop other users of perf, or set kernel.nmi_watchdog=0"
            yield Finding("counters", event, "limited", f"multiplexed: {share:.0%} of the time", advice)
        else:
            advice = "use a machine with a PMU, or enable it for this VM; profiles work without"
            if counter.reason is not None and counter.reason.startswith(("perf:", "setpriv:")):
                advice = "see the reason; profiles work without"
            yield Finding("counters", event, "limited", counter.reason or "unknown", advice)
