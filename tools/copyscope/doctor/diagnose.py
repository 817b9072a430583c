# SPDX-License-Identifier: GPL-2.0-only
"""Diagnosis of this machine: try every instrument, and return facts with advice.

Nothing on the machine is changed. commands/doctor.py prints the findings.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import MsgspecError, Struct, json, structs

from copyscope.base import paths
from copyscope.base.programs import LimitError, run_program
from copyscope.doctor import kernel, network
from copyscope.doctor.findings import Diagnosis, DoctorFinding
from copyscope.machine.fingerprint import describe_machine, read_cpu_times, steal_percent
from copyscope.machine.topology import LinkSettings, TopologyError, open_topology
from copyscope.plan.tier import choose_tier
from copyscope.run.counters import CounterRow
from copyscope.run.perf_stat import PerfStat
from copyscope.taxonomy.events import TIME_EVENTS, time_names

# Time limit in seconds of `collector --probe`. Trying every function hook took more than a minute on a busy
# emulated machine with Linux 5.10.
PROBE_TIMEOUT_S = 180.0
# Time in seconds for which perf counts in a trial.
COUNTING_S = 0.02
# Advice if a required hook of an instrument cannot be attached, by the name of the instrument.
ADVICE_WITHOUT_INSTRUMENT = {
    "bytes": "no action needed: time is sampled, and the programs count the bytes",
    "calls": "no action needed: time is sampled, but system calls are not timed",
}


def diagnose() -> Diagnosis:
    """Return the findings of all checks, which take about half a second. Some checks run only as root."""
    before = read_cpu_times()
    machine = describe_machine()
    root = os.geteuid() == 0
    findings: list[DoctorFinding] = [
        *check_user(root),
        *kernel.check_tools(machine.tools),
        *check_programs(),
        *check_topologies(root),
        *attribute_to_missing_pmu(
            [*check_collector(root), *check_counters(count_own_work() if root else {})], machine.pmu
        ),
        *kernel.check_kernel(machine),
        *network.check_zero_copy(machine),
        *network.check_disturbances(machine),
        *kernel.check_disturbances(machine, steal_percent(before, read_cpu_times())),
    ]
    return Diagnosis(tuple(findings))


def check_user(root: bool) -> Iterable[DoctorFinding]:
    """Yield the finding about the current user: root or not. `root`: True if copyscope runs as root."""
    if root:
        yield DoctorFinding("programs", "user", "ok", "root", essential=True)
    else:
        advice = "run copyscope with sudo (the traffic itself runs as you)"
        yield DoctorFinding("programs", "user", "missing", "not root", advice, essential=True)


def check_programs() -> Iterable[DoctorFinding]:
    """Yield a finding for each program that `make` builds: present or missing."""
    for path, essential in ((paths.TRAFFIC, True), (paths.COLLECTOR, True), (paths.XDP_OBJECT, False)):
        name = str(path.relative_to(paths.ROOT))
        if path.is_file():
            yield DoctorFinding("programs", name, "ok", "built", essential=essential)
        else:
            yield DoctorFinding("programs", name, "missing", "not built", "run `make`", essential)


def check_topologies(root: bool) -> Iterable[DoctorFinding]:
    """Create and remove each topology, and yield a finding for it.

    This tests namespaces, veth, XDP and the removal of privileges.
    """
    if not root:
        return
    for kind, needed in (("veth", True), ("loopback", False), ("veth-xdp", False)):
        began_s = time.monotonic()
        try:
            with open_topology(kind, LinkSettings(), paths.XDP_OBJECT):
                took_ms = (time.monotonic() - began_s) * 1000
            yield DoctorFinding("topologies", kind, "ok", f"made in {took_ms:.0f} ms", essential=needed)
        except TopologyError as error:
            fact, _, advice = str(error).removeprefix("--topology ").rpartition("; ")
            yield DoctorFinding("topologies", kind, "missing", fact, advice, needed)


def check_collector(root: bool) -> Iterable[DoctorFinding]:
    """Run the collector, and yield findings about which hooks and sampling events it can attach."""
    if not root or not paths.COLLECTOR.is_file():
        return
    try:
        probe = run_program([str(paths.COLLECTOR), "--probe", "--functions"], limit_s=PROBE_TIMEOUT_S)
    except (OSError, LimitError) as error:
        yield DoctorFinding(
            "hooks", "collector", "missing", f"--probe: {error}", "run `make` again", essential=True
        )
        return
    yield from read_probe(probe.text, probe.complaint)


class ProbedHook(Struct):
    """Hook in the output of `collector --probe`. docs/reference/record.md explains the keys."""

    id: str
    symbol: str
    state: str
    instrument: str | None = None
    how: str | None = None
    reason: str | None = None
    required: bool = False


class ProbedEvent(Struct):
    """Sampling event in the output of `collector --probe`. `counts`: event that is used instead."""

    name: str
    status: str
    unit: str | None = None
    reason: str | None = None
    counts: str | None = None


class ProbedSampler(Struct):
    """Sampler in the output of `collector --probe`."""

    events: list[ProbedEvent]


class Probe(Struct):
    """Output of `collector --probe`."""

    hooks: list[ProbedHook]
    sampler: ProbedSampler


def read_probe(stdout: str, stderr: str = "") -> list[DoctorFinding]:
    """Return the findings in the JSON output of `collector --probe`. `stderr`: its standard error output."""
    try:
        probe = json.decode(stdout, type=Probe)
    except (MsgspecError, UnicodeEncodeError):
        output = " ".join((stderr or stdout).split())[:200] or "printed nothing"
        return [DoctorFinding("hooks", "collector", "missing", output, "run `make` again", essential=True)]
    tracepoints = [hook for hook in probe.hooks if hook.instrument != "functions"]
    return [
        *_hook_findings(tracepoints),
        *_function_findings(probe.hooks, has_function_hooks=len(tracepoints) < len(probe.hooks)),
        *_sampler_findings(probe.sampler.events),
    ]


def _hook_findings(hooks: Iterable[ProbedHook]) -> Iterable[DoctorFinding]:
    """Yield a finding for each hook that the collector's probe reported."""
    for hook in hooks:
        name = f"{hook.id} ({hook.symbol})"
        if hook.state in ("attached", "unused"):
            is_attached = hook.state == "attached"
            fact = f"attaches by {hook.how}" if is_attached else f"not needed: {hook.reason}"
            yield DoctorFinding("hooks", name, "ok", fact)
        else:
            advice = "no action needed" if hook.required else "no action needed: its numbers will be n/a"
            if hook.required:
                advice = ADVICE_WITHOUT_INSTRUMENT.get(hook.instrument or "", advice)
            fact = f"{hook.state}: {hook.reason or 'no reason given'}"
            yield DoctorFinding("hooks", name, "limited", fact, advice)


def _function_findings(hooks: Iterable[ProbedHook], *, has_function_hooks: bool) -> Iterable[DoctorFinding]:
    """Yield one finding about all function hooks: the exact tier works, or why only sampling works.

    `has_function_hooks`: the collector has function hooks on this architecture.
    """
    if not has_function_hooks:
        return
    tier = choose_tier(True, map(structs.asdict, hooks))
    if tier.exact:
        yield DoctorFinding("hooks", "functions", "ok", tier.reason)
    else:
        yield DoctorFinding(
            "hooks",
            "functions",
            "limited",
            tier.reason,
            "no action needed: time is sampled, and bytes are exact",
        )


def _sampler_findings(events: Sequence[ProbedEvent]) -> Iterable[DoctorFinding]:
    """Yield a finding for each sampling event, and one more if no event can be sampled."""
    statuses = {event.name: event.status for event in events}
    time_events = time_names((name for name in statuses if statuses[name] == "sampled"), statuses)
    for event in events:
        name, reason = event.name, event.reason or event.status
        if event.status == "sampled":
            fact = event.counts or f"can be sampled, in {event.unit}"
            yield DoctorFinding("sampler", name, "ok", fact)
        elif event.status == "partial":
            yield DoctorFinding(
                "sampler",
                name,
                "limited",
                reason,
                "keep the traffic on these CPUs: --sender-cpus, --receiver-cpus",
            )
        elif any(name in names for names in TIME_EVENTS):
            yield _unused_time_event(name, reason, time_events)
        else:
            yield DoctorFinding(
                "sampler", name, "limited", reason, "no action needed: its numbers will be n/a"
            )
    if not time_events:
        yield DoctorFinding(
            "sampler", "samples", "missing", "no event can be sampled", "run as root", essential=True
        )


def _unused_time_event(name: str, reason: str, time_events: tuple[str, ...] | None) -> DoctorFinding:
    """Return the finding about an event that measures time but cannot be sampled here.

    `reason`: why not. `time_events`: the event that is sampled instead (names), or None if there is none.
    """
    if time_events is None:
        return DoctorFinding("sampler", name, "limited", reason, "use a machine with a PMU")
    if "cpu-clock" in time_events:
        return DoctorFinding("sampler", name, "limited", reason, "no action needed: cpu-clock is used")
    return DoctorFinding("sampler", name, "ok", f"not needed, {time_events[0]} is used: {reason}")


def attribute_to_missing_pmu(rows: Iterable[DoctorFinding], pmu: Sequence[str]) -> Iterable[DoctorFinding]:
    """Yield the rows. If there is no PMU, rows about PMU events name the row `PMU` as their cause.

    `pmu`: names of the PMUs of this machine.
    """
    for row in rows:
        needs_pmu = not pmu and row.status == "limited" and "no PMU" in row.fact
        yield replace(row, cause="PMU") if needs_pmu else row


def count_own_work() -> dict[str, CounterRow]:
    """Return what perf counted for this process while the process computed for COUNTING_S."""
    with PerfStat(os.getpid()) as perf_stat:
        perf_stat.start()
        perf_stat.wait_ready()
        perf_stat.enable()
        until_s = time.monotonic() + COUNTING_S
        while time.monotonic() < until_s:
            sum(range(1000))
        perf_stat.disable()
        return perf_stat.finish()


def check_counters(counters: Mapping[str, CounterRow]) -> Iterable[DoctorFinding]:
    """Yield a finding for each counter of `perf stat`. `counters`: counter by event, empty unless root."""
    for event, counter in counters.items():
        if counter.status == "measured":
            pmus = ", ".join(part.pmu for part in counter.parts or ())
            fact = f"counts, on {pmus}" if pmus else "counts"
            yield DoctorFinding("counters", event, "ok", fact)
        elif counter.status == "scaled":
            share = counter.running or 0.0
            advice = "stop other users of perf, or set kernel.nmi_watchdog=0"
            yield DoctorFinding("counters", event, "limited", f"multiplexed: {share:.0%} of the time", advice)
        else:
            advice = (
                "use a machine with a PMU, or enable a virtual PMU for this VM; profiles work without a PMU"
            )
            if counter.reason is not None and counter.reason.startswith(("perf:", "setpriv:")):
                advice = "see the reason; profiles work without counters"
            yield DoctorFinding("counters", event, "limited", counter.reason or "unknown", advice)
