# SPDX-License-Identifier: GPL-2.0-only
"""The traffic program declares its options in one table, and the package reads that table."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from copyscope.base import paths
from copyscope.plan.traffic_options import FILE, ROWS, TO_BOTH, TO_RECEIVER, TO_SENDER, OptionRow

NEW_ROW = """\
    { "linger", RECV, COUNT(warm_messages, 0, 99), .initial = "3", .unit = "US", .key = "linger_us",
      .flags = IN_RUN | IN_WORKLOAD, .help = "wait so long" },
"""
EXPERIMENT = """\
name = "lingering"
question = "Does the new option change anything?"
expected = "2m"
repeats = 3
duration_s = 1.5
seed = 42

[factors]
linger = [0, 7]

[fixed]
impl = "one_copy"
placement = "none"
"""
# A script with every use of an option of the traffic program in the package.
USE = """
import json, sys
from pathlib import Path
from copyscope.plan import options
from copyscope.plan.arguments import parser
from copyscope.sweep.experiment import arguments, load

options.os.geteuid = lambda: 1  # the program is in a directory that only its owner can enter
experiment = load(Path(sys.argv[1]))
args = arguments(experiment, {"linger": 7})
traffic = options.resolve_traffic(args)
print(json.dumps({
    "help": " ".join(parser().format_all().split()),
    "parsed": [parser().parse_args(words).linger for words in ([], ["--linger", "9"])],
    "factor": experiment.factors["linger"],
    "sent": traffic.send,
    "received": traffic.receive,
    "workload": options.workload_section(args, traffic.resolved),
}))
"""


def printed(*words: str, program: Path = paths.TRAFFIC) -> Any:
    """Return the JSON output of the traffic program."""
    return json.loads(subprocess.run([program, *words], capture_output=True, check=True, timeout=30).stdout)


def test_the_committed_table_equals_the_output_of_the_program() -> None:
    done = subprocess.run([paths.TRAFFIC, "options", "--json"], capture_output=True, check=True, timeout=30)
    assert done.stdout == FILE.read_bytes(), "stale: `make pages` writes it anew"


def test_defaults_of_the_table_are_those_of_the_program() -> None:
    for role, needed in (("send", ["--impl", "one_copy"]), ("recv", ["--port", "1"])):
        rows = [row for row in ROWS if row.role in (role, "both") and row.default is not None]
        words = [f"--{row.name}={row.default}" for row in rows if f"--{row.name}" not in needed]
        assert len(words) > 5
        # Defaults change nothing, except that --rewrite is printed if it is given.
        assert printed(role, *needed, *words, "--check") == printed(role, *needed, "--check")


def test_limits_of_the_table_are_those_of_the_program() -> None:
    def refuses(row: OptionRow, value: int) -> bool:
        role = "recv" if row.role == "recv" else "send"
        words = [str(paths.TRAFFIC), role, f"--{row.name}={value}", "--check"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        return done.returncode == 2 and done.stderr.startswith(
            f"traffic {role}: --{row.name} {value}: out of"
        )

    rows = [row for row in ROWS if row.type in ("count", "size")]
    assert len(rows) > 15
    for row in rows:
        assert row.least is not None and row.most is not None
        assert not refuses(row, row.least) and not refuses(row, row.most), row.name
        assert refuses(row, row.most + 1) and (row.least == 0 or refuses(row, row.least - 1)), row.name


def test_each_program_gets_its_own_options() -> None:
    assert {"size", "threads", "mode", "tls", "verify", "touch", "working_set"} <= {*TO_BOTH}
    assert {"impl", "wait", "messages", "sndbuf"} <= {*TO_SENDER}
    assert {"receiver", "coalesce", "buffer", "rcvbuf", "touch_received"} == {*TO_RECEIVER}
    assert not {*TO_BOTH} & {*TO_SENDER} and not {*TO_SENDER} & {*TO_RECEIVER}
    # The route has the congestion control, and sender and receiver have their own processors.
    assert not {"congestion", "cpus", "port", "duration"} & {*TO_BOTH, *TO_SENDER, *TO_RECEIVER}


def copy_with_new_row(tree: Path) -> None:
    """Copy the traffic program, its objects and the package; add NEW_ROW to the table; build."""
    for part in ("src/traffic", ".output/obj/traffic", "tools/copyscope"):
        if (paths.ROOT / part).exists():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(paths.ROOT / part, tree / part, ignore=ignored)
    table = tree / "src" / "traffic" / "option_table.c"
    text = table.read_text()
    assert text.count("\t{ NULL },\n") == 1
    table.write_text(text.replace("\t{ NULL },\n", f"{NEW_ROW}\t{{ NULL }},\n"))
    make = ["make", "-s", "-f", "src/traffic/traffic.mk", "traffic"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(make, cwd=tree, env=environment, check=True, capture_output=True, timeout=55)


def test_a_new_option_needs_one_row_of_one_file(tmp_path: Path) -> None:
    copy_with_new_row(tmp_path)
    program = tmp_path / ".output" / "traffic"
    table = subprocess.run([program, "options", "--json"], capture_output=True, check=True, timeout=30).stdout
    (row,) = (row for row in json.loads(table) if row["name"] == "linger")
    assert (row["type"], row["role"], row["least"], row["most"]) == ("count", "recv", 0, 99)
    assert (row["factor"], row["workload"]) == (True, True)
    refused = [str(program), "recv", "--port", "1", "--linger", "100"]
    done = subprocess.run(refused, capture_output=True, text=True, check=False, timeout=30)
    assert done.stderr == "traffic recv: --linger 100: out of range; choose 0 to 99\n"
    assert printed("recv", "--port", "1", "--check", program=program)["linger_us"] == 3

    # Write the table as `make pages` does.
    (tmp_path / FILE.relative_to(paths.ROOT)).write_bytes(table)
    (tmp_path / "lingering.toml").write_text(EXPERIMENT)
    use = [sys.executable, "-P", "-B", "-c", USE, str(tmp_path / "lingering.toml")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "tools"), "COLUMNS": "200"}
    done = subprocess.run(use, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.stderr == ""
    used = json.loads(done.stdout)
    assert "--linger US wait so long; default 3" in used["help"]
    assert used["parsed"] == ["3", "9"] and used["factor"] == [0, 7]
    assert "--linger" not in used["sent"]
    assert used["received"][used["received"].index("--linger") + 1] == "7"
    assert used["workload"]["linger_us"] == 7 and used["workload"]["impl"] == "one_copy"
