# SPDX-License-Identifier: GPL-2.0-only
"""Measure one traffic in turn with copyscope and with independent tools, and print whether they agree.

    sudo make crosscheck IMPL=one_copy CROSSCHECK_ARGS="--size 4K --duration 2"

The options are those of copyscope run. copyscope's instruments and the tools (bpftrace, libbpf-tools, perf,
bcc) alternate every half second until each has had --duration. --json FILE writes the comparisons.
Exit status: 0 all that could be compared agrees, 1 something disagrees or the run failed, 2 wrong usage.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from agreement import compare, ours
from agreement_table import render
from copyscope.base.errors import RunError
from copyscope.commands import entry, output_files
from copyscope.commands.output_files import SignalGuard
from copyscope.ledger.derive import derive
from copyscope.plan.arguments import run_parser
from copyscope.plan.options import (
    check_usage,
    choose_path,
    refuse,
    resolve_traffic,
    workload_section,
)
from copyscope.plan.run_plan import traffic_plan
from copyscope.record import store
from copyscope.record.assemble import RecordIdentity, assemble
from copyscope.record.store import Document
from copyscope.run.build import git_revision
from copyscope.run.traffic import OwnTraffic
from copyscope.show.layout import make_console
from copyscope.show.progress import StepProgress
from peer_session import PeerSession, with_peers
from peers import PEERS

# copyscope samples about as often as perf record, so that the intervals of the shares are alike.
DEFAULTS = ("--frequency", "997", "--gate", "1", "--duration", "3")
# Options of copyscope run that a crosscheck cannot honour: it is one run of fixed segments on this machine.
NOT_AVAILABLE = ("messages", "sender_at", "receiver_at", "repeat", "out", "keep", "stacks", "simulate")


def main(argv: list[str]) -> int:
    """Return the exit status; errors are one line on stderr."""
    return entry.run("crosscheck", lambda: crosscheck(argv))


def crosscheck(argv: list[str]) -> int:
    args = run_parser().parse_args([*DEFAULTS, *argv])
    refuse(args, NOT_AVAILABLE, "not available with make crosscheck")
    instruments = check_usage(args)
    traffic = resolve_traffic(args)
    if os.geteuid() != 0:
        raise RunError("needs root to load BPF; run sudo make crosscheck")
    output_files.check_file(args.json)
    seed = args.seed if args.seed is not None else secrets.randbelow(1 << 31)
    peers = [peer() for peer in PEERS]
    absent = {peer.name: reason for peer in peers if (reason := peer.missing()) is not None}
    installed = [peer for peer in peers if peer.name not in absent]
    plan = traffic_plan(args, instruments, seed, in_pieces=traffic.in_pieces, moves=traffic.moves)
    plan = with_peers(plan, installed, args.duration, seed)
    workload = workload_section(args, traffic.resolved)
    title = f"{workload['impl']}, {args.size}, over {args.topology}"
    with SignalGuard() as guard:
        with StepProgress(title, len(tuple(plan.segments)), quiet=args.quiet) as steps:
            session = PeerSession(plan, OwnTraffic(choose_path(args), traffic), steps, installed)
            raw = session.perform(guard.measuring_done)
        identity = RecordIdentity("crosscheck", None, 0, 0, seed, *git_revision())
        run = derive(assemble(raw, identity, args.frequency, workload=workload))
        record = store.document_of(run)
        agrees = report(args, title, session, record, absent | session.failed_peers)
    return entry.INTERRUPTED if raw.interrupted else 0 if agrees else entry.FAILED


def report(
    args: argparse.Namespace, title: str, session: PeerSession, record: Document, absent: Mapping[str, str]
) -> bool:
    """Print or write the comparisons. Return True if the run is valid and nothing disagrees."""
    own, seed = ours(record), record["run"]["seed"]
    rows = [row for name, theirs in session.observations.items() for row in compare(own, name, theirs, seed)]
    invalid = [] if record["verdict"]["valid"] else list(record["verdict"]["reasons"])
    document = {"title": title, "rows": [vars(row) for row in rows], "absent": absent, "invalid": invalid}
    output_files.write_json_option(document, args.json)
    if args.json != "-":
        render(title, rows, absent, invalid, make_console())
    return not invalid and all(row.agrees is not False for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
