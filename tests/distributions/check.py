"""README's two commands in roots of Debians and an Ubuntu, from a clone: a table, docs/reference/machines.md.

    make check-distributions                          all of SUITES, everything
    make check-distributions SUITES=trixie            one of them
    make check-distributions SUITES=trixie EXTENT=brief    the first command, and a few tests: what CI runs

What is checked is what is committed. A suite that debootstrap cannot install now (sid, sometimes) fails.
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
COUNTED = "tests/live/test_profile_truth.py::test_what_was_sent_is_counted_to_the_call_and_to_the_byte"
# What differs between distributions and can be seen in a minute: the verifier and every instrument, perf,
# their Python, what a user without rights does, a watched program, other people's tools.
FEW = (
    *(f"{COUNTED}[{impl}-veth]" for impl in ("per_field", "two_copy", "one_copy", "zero_copy", "sendfile")),
    "tests/live/test_perf_stat.py",
    "tests/live/test_second_opinion.py::test_exact_quantities_are_equal",
    "tests/live/test_watch_senders.py::test_every_byte_and_every_buffer",
    "tests/live/test_watch_commands.py::test_the_report_does_not_wait_for_the_end_of_the_command",
)
FEW_PURE = ("tests/pure/test_report.py", "tests/pure/test_plots.py", "tests/pure/test_traffic_loopback.py")
PROFILE = "sudo make profile"
TEST = "sudo make test"
PYTEST = ".venv/bin/python3 -P -B -m pytest -p no:cacheprovider -q"
BRIEF = (
    "sudo tools/deps.sh run test && make .venv/.ready-test .venv/.ready-report .output/tests/sends"
    " .output/tests/unit .output/tests/unit-threads .output/tests/traffic-drill"
    f" && .output/tests/unit && {PYTEST} --timeout=60 {' '.join(FEW_PURE)}"
    f" && sudo {PYTEST} {' '.join(FEW)}"
)
# One line each, as KEY=VALUE.
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
    """What the user does there; what came of it goes to /results."""
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
    """The sums of all runs of pytest in the text."""
    found = {word: 0 for word in ("passed", "failed", "skipped")}
    for line in re.findall(r"^.*\b\d+ (?:passed|failed)\b.* in [\d.]+s.*$", text, re.MULTILINE):
        for count, word in re.findall(r"(\d+) (passed|failed|skipped)", line):
            found[word] += int(count)
    return found


def check(suite: str, extent: str) -> dict[str, Any]:
    """One suite: what came of it, with its problems."""
    print(f"  ROOT  {suite}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="copyscope-distribution-") as made:
        kept = Path(made)
        kept.chmod(0o777)
        (kept / "script").write_text(script(extent))
        # What ends root.sh ends all in the root, and this program's end ends root.sh.
        argv = ["setpriv", "--pdeathsig", "KILL", str(HERE / "root.sh"), suite, "bash /results/script"]
        done = subprocess.run(argv, env={**os.environ, "COPYSCOPE_RESULTS": made}, check=False)
        said = dict(line.split("=", 1) for line in read(kept / "said").splitlines() if "=" in line)
        texts = {name: read(kept / f"{name}.txt") for name in ("profile", "test")}
    problems = [] if done.returncode == 0 else [f"{suite}: the root ended with status {done.returncode}"]
    for name, text in texts.items():
        if said.get(f"{name}_status") != "0":
            problems.append(f"{suite}: {name}: status {said.get(f'{name}_status', 'unknown')}")
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
            name: said.get(name, "?") for name in re.findall(r"^echo (\w+)=", VERSIONS, re.MULTILINE)
        },
        "profile_s": float(said.get("profile_s", "nan")),
        "test_s": float(said.get("test_s", "nan")),
        "whole_s": time.monotonic() - began,
        "tests": tests_of(texts["test"]),
        "problems": problems,
    }


def keep(one: Mapping[str, Any]) -> None:
    """As soon as it is there: the next suite takes a quarter of an hour."""
    DISTRIBUTIONS.mkdir(parents=True, exist_ok=True)
    (DISTRIBUTIONS / f"{one['suite']}.json").write_text(json.dumps(one, indent=1) + "\n")
    write_page()


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="README's two commands on other distributions.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--extent", choices=("all", "brief"), default="all")
    parser.add_argument("--keep", action="store_true", help="write what came of brief tests, too")
    options = parser.parse_args(arguments)
    # So that what was made for the results is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found: list[Mapping[str, Any]] = []
    for suite in options.suites or SUITES:
        found.append(check(suite, options.extent))
        if options.keep or options.extent == "all":
            keep(found[-1])
    print(f"\n{distribution_table(found)}")
    problems = [problem for one in found for problem in one["problems"]]
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
