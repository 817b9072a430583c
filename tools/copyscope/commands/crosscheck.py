"""copyscope crosscheck: our instruments and other people's tools on one traffic, side by side."""

import secrets
from dataclasses import replace

from copyscope.arguments import UsageParser
from copyscope.commands import entry, keeping
from copyscope.commands.ending import Ending
from copyscope.crosscheck.compare import compare, ours
from copyscope.crosscheck.run import PeerSession, with_peers
from copyscope.crosscheck.tools import PEERS
from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.plan import arguments
from copyscope.plan.options import (
    check_usage,
    choose_path,
    on_hosts,
    refuse,
    refuse_of_single_runs,
    resolve_traffic,
    workload_section,
)
from copyscope.plan.run_plan import traffic_plan
from copyscope.record.assemble import Identity, assemble
from copyscope.run.build import git_revision
from copyscope.run.traffic import OwnTraffic
from copyscope.show.console import make_console
from copyscope.show.crosscheck import render_crosscheck
from copyscope.show.progress import Steps

# The sampler gets as many samples as perf record, so that the shares' intervals are alike.
FREQUENCY_HZ = "997"
EACH_S = "3"
DESCRIPTION = (
    "Send traffic, measure it in turn with copyscope's instruments and with independent tools (bpftrace,"
    " libbpf-tools, perf, bcc), and print what each counted. Takes the options of copyscope run, except those"
    " for output. The tools alternate every half second, until each has had --duration."
)
EXAMPLES = """\
examples:
  sudo copyscope crosscheck zero_copy
  sudo copyscope crosscheck one_copy --size 4K --json -

exit status: 0 all that could be compared agrees, 1 something disagrees or the run failed, 2 wrong usage
"""
COMMON = ("--impl", "--size", "--threads", "--duration", "--topology", "--json", "--quiet", "--help-all")


def parser() -> UsageParser:
    made = arguments.parser("crosscheck", DESCRIPTION, EXAMPLES, EXAMPLES, COMMON)
    made.describe(
        duration=f"seconds that each instrument and each tool gets; default {EACH_S}",
        json='write the counts as JSON to FILE ("-": stdout, no table)',
    )
    return made


def main(argv: list[str]) -> int:
    """See EXAMPLES for the exit status."""
    return entry.run(lambda: _crosscheck(argv))


def _crosscheck(argv: list[str]) -> int:
    args = parser().parse_args(["--frequency", FREQUENCY_HZ, "--gate", "1", "--duration", EACH_S, *argv])
    refuse(args, ["messages"], "not available with crosscheck, which measures for a time")
    refuse_of_single_runs(args, "out", "repeat")
    instruments = check_usage(args)
    if on_hosts(args):
        raise UsageError(
            "--sender-at, --receiver-at: the other tools run on this machine only: leave them out"
        )
    entry.build()
    traffic = resolve_traffic(args)
    entry.need_root("crosscheck", argv)
    keeping.check_file(args.json)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    peers = [peer() for peer in PEERS]
    absent = {peer.name: reason for peer in peers if (reason := peer.missing()) is not None}
    asked = [peer for peer in peers if peer.name not in absent]
    plan = traffic_plan(args, instruments, seed, in_pieces=traffic.in_pieces, moves=traffic.moves)
    plan = with_peers(plan, asked, args.duration, seed)
    workload = workload_section(args, traffic.resolved)
    title = f"{workload['impl']}, {args.size}, over {args.topology}"
    with Ending() as ending:
        with Steps(title, len(tuple(plan.segments)), quiet=args.quiet) as steps:
            subject = OwnTraffic(replace(choose_path(args), keep=None), traffic)
            session = PeerSession(plan, subject, steps, asked)
            raw = session.perform(ending.hold)
        absent |= session.failed_peers
        git, dirty = git_revision()
        made = derive(
            assemble(
                raw,
                Identity("crosscheck", None, 0, 0, seed, git, dirty),
                args.frequency,
                workload=workload,
            )
        )
        mine = ours(made)
        rows = [row for name, seen in session.seen.items() for row in compare(mine, name, seen, seed)]
        invalid = [] if made["verdict"]["valid"] else list(made["verdict"]["reasons"])
        found = {"title": title, "rows": [vars(row) for row in rows], "absent": absent, "invalid": invalid}
        kept = args.json is None or keeping.write_json(found, args.json)
        if args.json != "-":
            render_crosscheck(title, rows, absent, invalid, make_console())
    if raw.interrupted:
        return entry.INTERRUPTED
    return entry.FAILED if not kept or invalid or any(row.agrees is False for row in rows) else 0
