# SPDX-License-Identifier: GPL-2.0-only
"""Every script of the bpftrace cookbook prints what was sent, where the kernel has its hooks."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from copyscope.base import paths
from peer import IN_TRACEFS
from profiling import SLOW

COOKBOOK = paths.ROOT / "tools" / "bpftrace"
EXCHANGE = Path(__file__).with_name("exchange.py")
MESSAGES = 500
SIZE_BYTES = 65536
SENT_BYTES = MESSAGES * SIZE_BYTES

Check = Callable[[str], bool]


def value(name: str) -> Callable[[str], int]:
    """Return a function that sums the values of a map over all keys that begin with `traffic`."""

    def read(output: str) -> int:
        return sum(int(n) for n in re.findall(rf"^@{name}\[traffic.*\]: (\d+)$", output, re.MULTILINE))

    return read


def in_histogram(name: str, output: str) -> int:
    """Return the number of values in a histogram, over all keys that begin with `traffic` or `lo`."""
    count = 0
    for block in re.findall(rf"^@{name}\[(?:traffic|lo).*\]: *\n((?:[\[(].*\n?)+)", output, re.MULTILINE):
        count += sum(int(n) for n in re.findall(r"[)\]] +(\d+) \|", block))
    return count


@dataclass(frozen=True)
class Recipe:
    """Requirements of a script, and the check of its output for `messages` sends over lo."""

    check: Check
    needs: tuple[str, ...] = ()
    impl: str = "zero_copy"
    messages: int = MESSAGES


KPROBES = ("kprobe_events",)
SEND_TRACEPOINTS = ("events/syscalls/sys_enter_sendmsg", "events/syscalls/sys_enter_recvmsg")


def all_messages_in(name: str) -> Check:
    return lambda output: in_histogram(name, output) == MESSAGES


def last_total(output: str) -> bool:
    # The script prints a line each second. Only the last one has the total.
    totals = re.findall(r"@copied_bytes\[traffic.*\]: (\d+)$", output, re.MULTILINE)
    return bool(totals) and int(totals[-1]) == SENT_BYTES


def deferred_total(output: str) -> bool:
    # The softirq may have run in any program, so all keys count.
    counted = sum(int(n) for n in re.findall(r"^@deferred_bytes\[.*\]: (\d+)$", output, re.MULTILINE))
    # A slow guest retransmits some segments, which are copied twice.
    return SENT_BYTES <= counted <= (1.05 if SLOW > 1 else 1) * SENT_BYTES


RECIPES = {
    "copies": Recipe(
        lambda out: value("sent_bytes")(out) == value("copied_out_bytes")(out) == SENT_BYTES,
        ("events/sock/sock_send_length",),
    ),
    "send_sizes": Recipe(
        lambda out: re.search(rf"^\[64K, 128K\) +{MESSAGES} \|", out, re.MULTILINE) is not None,
        SEND_TRACEPOINTS,
    ),
    "send_flags": Recipe(lambda out: value("zerocopy")(out) == MESSAGES, SEND_TRACEPOINTS),
    "skb_sizes": Recipe(lambda out: in_histogram("skb_bytes", out) >= MESSAGES),
    "loops_per_send": Recipe(all_messages_in("rounds_per_send"), ("events/tcp/tcp_sendmsg_locked",)),
    "loops_per_send_kprobe": Recipe(all_messages_in("rounds_per_send"), KPROBES, impl="one_copy"),
    "send_time": Recipe(all_messages_in("send_ns"), SEND_TRACEPOINTS),
    "tcp_sendmsg_time": Recipe(
        lambda out: value("sent_bytes")(out) == SENT_BYTES and all_messages_in("tcp_sendmsg_ns")(out), KPROBES
    ),
    "softirq_in_send": Recipe(all_messages_in("softirq_ns_per_send"), SEND_TRACEPOINTS),
    "send_blocked": Recipe(all_messages_in("switches_per_send"), SEND_TRACEPOINTS),
    "deferred_copies": Recipe(deferred_total, KPROBES),
    "copy_stacks": Recipe(lambda out: "tcp_sendmsg_locked" in out, impl="one_copy", messages=40_000),
    "pin_time": Recipe(lambda out: value("pinned_bytes")(out) == SENT_BYTES, KPROBES),
    "completion_latency": Recipe(
        lambda out: 0 < in_histogram("send_to_notification_ns", out) <= MESSAGES, SEND_TRACEPOINTS
    ),
    "copied_completions": Recipe(lambda out: value("copied_sends")(out) == MESSAGES, SEND_TRACEPOINTS),
    "errqueue_reads": Recipe(lambda out: 0 < value("notified")(out) <= MESSAGES, SEND_TRACEPOINTS),
    "receive_copies": Recipe(last_total),
    "tlb_flushes": Recipe(
        lambda out: value("sends")(out) == MESSAGES, ("events/tlb/tlb_flush", *SEND_TRACEPOINTS)
    ),
}


def missing_from_tracefs(needs: tuple[str, ...]) -> list[str]:
    """Return the files of tracefs that this kernel lacks among `needs`, as absolute paths."""
    wanted_paths = [f"/sys/kernel/tracing/{name}" for name in needs]
    argv = [
        *IN_TRACEFS,
        "sh",
        "-c",
        'for path; do test -e "$path" || echo "$path"; done',
        "sh",
        *wanted_paths,
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_every_script_of_the_cookbook_is_tested() -> None:
    assert sorted(RECIPES) == sorted(path.stem for path in COOKBOOK.glob("*.bt"))


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_script_prints_what_was_sent(name: str) -> None:
    recipe = RECIPES[name]
    if absent := missing_from_tracefs(recipe.needs):
        pytest.skip(f"{absent[0]}: this kernel has it not")
    # bpftrace starts the command once everything is attached, and exits with it.
    command = f"{sys.executable} {EXCHANGE} {recipe.impl} {recipe.messages} {SIZE_BYTES}"
    argv = [*IN_TRACEFS, "bpftrace", "-c", command, str(COOKBOOK / f"{name}.bt")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    assert recipe.check(done.stdout), done.stdout + done.stderr


# Scripts whose probes run in the context of any process.
WITHOUT_NAME = {"deferred_copies", "skb_sizes"}


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(RECIPES.keys() - WITHOUT_NAME))
def test_a_script_counts_only_the_program_that_is_named(name: str) -> None:
    recipe = RECIPES[name]
    if absent := missing_from_tracefs(recipe.needs):
        pytest.skip(f"{absent[0]}: this kernel has it not")
    command = f"{sys.executable} {EXCHANGE} {recipe.impl} {recipe.messages} {SIZE_BYTES}"
    # Other programs on this machine may also be named traffic, so the counts are not compared.
    counted = {}
    for program in ("traffic", "no-such-program"):
        argv = [*IN_TRACEFS, "bpftrace", "-c", command, str(COOKBOOK / f"{name}.bt"), program]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60 * SLOW)
        counted[program] = re.search(r"^@", done.stdout, re.MULTILINE) is not None
    assert counted == {"traffic": True, "no-such-program": False}


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(RECIPES.keys() - {"copy_stacks"}))
def test_without_tracefs_a_script_prints_one_line_and_mounts_nothing(name: str) -> None:
    unmounted = (
        "umount -a -t tracefs,debugfs; before=$(cat /proc/mounts); "
        'case $before in *tracefs*) exit 9; esac; "$1"'
    )
    shell_script = unmounted + '; status=$?; test "$before" = "$(cat /proc/mounts)" || exit 8; exit $status'
    script = str(COOKBOOK / f"{name}.bt")
    argv = ["unshare", "--mount", "sh", "-c", shell_script, "sh", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)
    error = f"{script}: tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)


@pytest.mark.all
def test_a_script_prints_its_result_on_sigint() -> None:
    argv = [*IN_TRACEFS, str(COOKBOOK / "receive_copies.bt")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
        try:
            assert script.stdout is not None
            # The first line shows that everything is attached. Newer bpftrace prints it only once its buffer
            # is full.
            exchange = [sys.executable, str(EXCHANGE), "one_copy", "23", "4096"]
            printed = b""
            while not re.search(rb"\d\d:\d\d:\d\d", printed):
                subprocess.run(exchange, check=True, timeout=30 * SLOW)
                while select.select([script.stdout], [], [], 0)[0]:
                    piece = os.read(script.stdout.fileno(), 4096)
                    assert piece, printed
                    printed += piece
            subprocess.run(exchange, check=True, timeout=30 * SLOW)
            time.sleep(0.1)
            script.send_signal(signal.SIGINT)
            output, _ = script.communicate(timeout=30 * SLOW)
        finally:
            script.kill()
    assert "@copy_bytes[traffic]" in output
