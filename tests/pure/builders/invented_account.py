# SPDX-License-Identifier: GPL-2.0-only
"""Write all outputs of records in which an invented kernel function took time.

    PYTHONPATH=COPY/tools:tests/pure python3 -P invented_account.py DIRECTORY

test_accounts.py runs it on a copy of the package whose table has one account more.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from unittest.mock import patch

from copyscope.commands import report, show
from copyscope.report.openmetrics import write_families
from copyscope.report.plots import bars
from copyscope.report.served_counts import ServedCounts
from copyscope.report.study_table import fill
from copyscope.taxonomy.taxonomy import Taxonomy
from matplotlib.figure import Figure

import builders
from builders import parts, sweep, watched
from builders.documents import derive, typed_whole

FUNCTION = "invented_bounce_copy"
# Shares of the sender's CPU time, as in parts.SENDER.
PART = 100
STRATEGIES = ("one_copy", "zero_copy")
SCREENS = {"first": (), "all": ("-v",), "explained": ("-v", "--explain")}
FORMATS = ("html", "drawing", "csv", "openmetrics")


def main(directory: Path) -> None:
    """Write records, screens, exports, the report of a sweep and the served metrics."""
    copier = Taxonomy.load().classify((FUNCTION, "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"))
    assert copier.context == "process"
    share: parts.Share = ("process", copier.kind, copier.category, copier.symbol, PART)
    with patch.dict(parts.SENDER, {name: [*parts.SENDER[name], share] for name in STRATEGIES}):
        builders.write(derive(builders.raw_record("one_copy")), directory / "run.json")
        runs = sweep.sweep(STRATEGIES, (4096,), (1,), 2)
    write_screens(directory)
    report.main([str(sweep.store(runs, directory / "host" / "demo"))])
    figure = bars.ledger_stack(fill([typed_whole(run) for run in runs]), "")
    assert isinstance(figure, Figure)
    (legend,) = figure.legends
    looks = zip(legend.get_texts(), legend.get_patches(), strict=True)
    legend_rows = {text.get_text(): [patch.get_facecolor(), patch.get_hatch()] for text, patch in looks}
    (directory / "legend.json").write_text(json.dumps(legend_rows), encoding="utf-8")
    frames = (FUNCTION, "tcp_sendmsg_locked", "tcp_sendmsg", "ksys_write", "do_syscall_64")
    with patch.dict(watched.STACKS, {"write": frames}):
        record = derive(watched.watched_record())
    builders.write(record, directory / "watched.json")
    counts = ServedCounts()
    counts.sampled(typed_whole(record))
    (directory / "served.txt").write_bytes(write_families(counts.families()).data)


def write_screens(directory: Path) -> None:
    """Write what `copyscope show` prints of the run, and its exports."""
    run = str(directory / "run.json")
    for name, options in SCREENS.items():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert show.main([run, *options]) == 0
        (directory / f"{name}.txt").write_text(out.getvalue(), encoding="utf-8")
    for name in FORMATS:
        assert show.main([run, "--export", name, "--output", str(directory / f"run.{name}")]) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
