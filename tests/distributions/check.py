# SPDX-License-Identifier: GPL-2.0-only
"""Run the README's two commands in roots of Debian and Ubuntu suites; write docs/reference/machines.md.

    make check-distributions                          all of SUITES, everything
    make check-distributions SUITES=trixie            one of them
    make check-distributions SUITES=trixie EXTENT=brief    the first command and a few tests, as in CI

The clone has committed files only. A suite that debootstrap cannot install now (sid, sometimes) fails.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from machines import DISTRIBUTIONS, distribution_table, write_page

HERE = Path(__file__).resolve().parent
SUITES = ("bookworm", "trixie", "sid", "noble")
COUNTED = "tests/live/test_profile_truth.py::test_sent_bytes_and_calls_are_counted_exactly"
# Live tests of parts that differ between distributions, in a minute: the verifier, every instrument, perf,
# Python, users without rights, a watched program, other tools.
FEW = (
    *(f"{COUNTED}[{impl}-veth]" for impl in ("per_field", "two_copy", "one_copy", "zero_copy", "sendfile")),
    "tests/live/test_perf_stat.py",
    "tests/live/test_second_opinion.py::test_other_tools_count_the_same_exact_quantities",
    "tests/live/test_watch_senders.py::test_every_byte_and_every_buffer_is_counted",
    "tests/live/test_watch_commands.py::test_the_report_does_not_wait_for_the_end_of_the_command",
)
FEW_PURE = ("tests/pure/test_report.py", "tests/pure/test_plots.py", "tests/pure/test_traffic_loopback.py")
PROFILE = "sudo make profile"
TEST = "sudo make test"
PYTEST = ".venv/bin/python3 -P -B -m pytest -p no:cacheprovider -q"
BRIEF = (
    "sudo tools/deps.sh run test && make .venv/.ready-test .venv/.ready-report .output/tests/sends"
    " .output/tests/unit .output/tests/unit-threads"
    f" && .output/tests/unit && {PYTEST} --timeout=60 {' '.join(FEW_PURE)}"
    f" && sudo {PYTEST} {' '.join(FEW)}"
)
# Prints one line KEY=VALUE for each version.
VERSIONS = r"""
# Ubuntu's are scripts that look for a build of the running kernel; builds of others work.
first() { for one in "$@"; do "$one" version >/dev/null 2>&1 && echo "$one" && return; done; echo false; }
. /etc/os-release
test "$ID" != debian || VERSION_ID=$(cat /etc/debian_version)
echo release=$ID $VERSION_ID
echo clang=$(clang --version | sed -n 's/.*version \([0-9.]*\).*/\1/p')
echo libbpf=$(pkg-config --modversion libbpf)
echo bpftool=$($(first /usr/sbin/bpftool /usr/lib/linux-tools*/*/bpftool) version | sed -n 's/.*bpftool v//p')
echo python=$(.venv/bin/python3 -c 'import platform; print(platform.python_version())')
echo perf=$($(first /usr/bin/perf /usr/lib/linux-tools*/*/perf) --version | sed 's/perf version //')
"""


def script(extent: str) -> str:
    """Return the script that the user runs in the root. Its results go to /results."""
    test = TEST if extent == "all" else BRIEF
    return f"""
clock() {{ date +%s.%N; }}
began=$(clock)
{PROFILE} >/results/profile.txt 2>&1; echo profile_status=$? >>/results/said
echo profile_s=$(echo "$(clock) $began" | awk '{{ print $1 - $2 }}') >>/results/said
began=$(clock)
({test}) >/results/test.txt 2>&1; echo test_status=$? >>/results/said
echo test_s=$(echo "$(clock) $began" | awk '{{ print $1 - $2 }}') >>/results/said
({VERSIONS}) >>/results/said 2>/dev/null
"""


def tests_of(text: str) -> dict[str, int]:
    """Return the sums of all runs of pytest in an output."""
    counts = {word: 0 for word in ("passed", "failed", "skipped")}
    for line in re.findall(r"^.*\b\d+ (?:passed|failed)\b.* in [\d.]+s.*$", text, re.MULTILINE):
        for count, word in re.findall(r"(\d+) (passed|failed|skipped)", line):
            counts[word] += int(count)
    return counts


def check(suite: str, extent: str) -> dict[str, Any]:
    """Check one suite. Return the results with their problems."""
    print(f"  ROOT  {suite}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="copyscope-distribution-") as temporary:
        results = Path(temporary)
        results.chmod(0o777)
        (results / "script").write_text(script(extent))
        # The end of this program ends root.sh, which ends all programs in the root.
        argv = ["setpriv", "--pdeathsig", "KILL", str(HERE / "root.sh"), suite, "bash /results/script"]
        done = subprocess.run(argv, env={**os.environ, "COPYSCOPE_RESULTS": temporary}, check=False)
        root_facts = dict(line.split("=", 1) for line in read(results / "said").splitlines() if "=" in line)
        texts = {name: read(results / f"{name}.txt") for name in ("profile", "test")}
    problems = [] if done.returncode == 0 else [f"{suite}: the root ended with status {done.returncode}"]
    for name, text in texts.items():
        if root_facts.get(f"{name}_status") != "0":
            problems.append(f"{suite}: {name}: status {root_facts.get(f'{name}_status', 'unknown')}")
            print(f"---- {suite}: {name}\n{text[-6000:]}\n----", flush=True)
    if "THE PATH OF A BYTE" not in texts["profile"]:
        problems.append(f"{suite}: profile: no path of a byte")
    return {
        "suite": suite,
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "extent": extent,
        "kernel": platform.release(),
        "processors": len(os.sched_getaffinity(0)),
        "versions": {
            name: root_facts.get(name, "?") for name in re.findall(r"^echo (\w+)=", VERSIONS, re.MULTILINE)
        },
        "profile_s": float(root_facts.get("profile_s", "nan")),
        "test_s": float(root_facts.get("test_s", "nan")),
        "whole_s": time.monotonic() - began,
        "tests": tests_of(texts["test"]),
        "problems": problems,
    }


def keep(result: Mapping[str, Any]) -> None:
    """Write the result of a suite and the page at once, because the next suite takes a quarter of an hour."""
    DISTRIBUTIONS.mkdir(parents=True, exist_ok=True)
    (DISTRIBUTIONS / f"{result['suite']}.json").write_text(json.dumps(result, indent=1) + "\n")
    write_page()


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the README's two commands on other distributions.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--extent", choices=("all", "brief"), default="all")
    parser.add_argument("--keep", action="store_true", help="write results of brief tests, too")
    options = parser.parse_args(arguments)
    # On SIGTERM, exit normally, so that temporary directories are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results: list[Mapping[str, Any]] = []
    for suite in options.suites or SUITES:
        results.append(check(suite, options.extent))
        if options.keep or options.extent == "all":
            keep(results[-1])
    print(f"\n{distribution_table(results)}")
    problems = [problem for result in results for problem in result["problems"]]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
