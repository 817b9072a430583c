"""Every script of the bpftrace cookbook, where its kernel allows: its answer against what was sent."""

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
from copyscope import paths
from copyscope.crosscheck.peer import IN_TRACEFS
from profiling import SLOW

COOKBOOK = paths.ROOT / "tools" / "bpftrace"
EXCHANGE = Path(__file__).with_name("exchange.py")
MESSAGES = 500
SIZE_BYTES = 65536
SENT_BYTES = MESSAGES * SIZE_BYTES

Check = Callable[[str], bool]


def value(name: str) -> Callable[[str], int]:
    """The sum of a map's values over all its keys that begin with our program's name."""

    def read(output: str) -> int:
        return sum(int(n) for n in re.findall(rf"^@{name}\[traffic.*\]: (\d+)$", output, re.MULTILINE))

    return read


def in_histogram(name: str, output: str) -> int:
    """How many values a histogram holds, over all keys that begin with our program's name or with lo."""
    count = 0
    for block in re.findall(rf"^@{name}\[(?:traffic|lo).*\]: *\n((?:[\[(].*\n?)+)", output, re.MULTILINE):
        count += sum(int(n) for n in re.findall(r"[)\]] +(\d+) \|", block))
    return count


@dataclass(frozen=True)
class Recipe:
    """What a script needs, and what must be in its answer for MESSAGES zero-copy sends over lo."""

    check: Check
    needs: tuple[str, ...] = ()
    impl: str = "zero_copy"
    messages: int = MESSAGES
    arguments: tuple[str, ...] = ()


KPROBES = ("kprobe_events",)
SENDS_OF_TRACE = ("events/syscalls/sys_enter_sendmsg", "events/syscalls/sys_enter_recvmsg")


def whole(name: str) -> Check:
    return lambda output: in_histogram(name, output) == MESSAGES


def last_total(output: str) -> bool:
    # A run of more than a second has several lines, all but the last with the time before them.
    totals = re.findall(r"@copied_bytes\[traffic.*\]: (\d+)$", output, re.MULTILINE)
    return bool(totals) and int(totals[-1]) == SENT_BYTES


def deferred_total(output: str) -> bool:
    # Whoever the softirq ran on.
    counted = sum(int(n) for n in re.findall(r"^@deferred_bytes\[.*\]: (\d+)$", output, re.MULTILINE))
    # A segment that a slow guest sends twice is copied twice.
    return SENT_BYTES <= counted <= (1.05 if SLOW > 1 else 1) * SENT_BYTES


RECIPES = {
    "copies": Recipe(
        lambda out: value("sent_bytes")(out) == value("copied_out_bytes")(out) == SENT_BYTES,
        ("events/sock/sock_send_length",),
    ),
    "send_sizes": Recipe(
        lambda out: re.search(rf"^\[64K, 128K\) +{MESSAGES} \|", out, re.MULTILINE) is not None,
        SENDS_OF_TRACE,
    ),
    "send_flags": Recipe(lambda out: value("zerocopy")(out) == MESSAGES, SENDS_OF_TRACE),
    "skb_sizes": Recipe(lambda out: in_histogram("skb_bytes", out) >= MESSAGES),
    "loops_per_send": Recipe(whole("rounds_per_send"), ("events/tcp/tcp_sendmsg_locked",)),
    "loops_per_send_kprobe": Recipe(whole("rounds_per_send"), KPROBES, impl="one_copy"),
    "send_time": Recipe(whole("send_ns"), SENDS_OF_TRACE),
    "tcp_sendmsg_time": Recipe(
        lambda out: value("sent_bytes")(out) == SENT_BYTES and whole("tcp_sendmsg_ns")(out), KPROBES
    ),
    "softirq_in_send": Recipe(whole("softirq_ns_per_send"), SENDS_OF_TRACE),
    "send_blocked": Recipe(whole("switches_per_send"), SENDS_OF_TRACE),
    "deferred_copies": Recipe(deferred_total, KPROBES),
    "copy_stacks": Recipe(
        lambda out: "tcp_sendmsg_locked" in out, impl="one_copy", messages=40_000, arguments=("traffic",)
    ),
    "pin_time": Recipe(lambda out: value("pinned_bytes")(out) == SENT_BYTES, KPROBES),
    "completion_latency": Recipe(
        lambda out: 0 < in_histogram("send_to_notification_ns", out) <= MESSAGES, SENDS_OF_TRACE
    ),
    "copied_completions": Recipe(lambda out: value("copied_sends")(out) == MESSAGES, SENDS_OF_TRACE),
    "errqueue_reads": Recipe(lambda out: 0 < value("notified")(out) <= MESSAGES, SENDS_OF_TRACE),
    "receive_copies": Recipe(last_total),
    "tlb_flushes": Recipe(
        lambda out: value("sends")(out) == MESSAGES, ("events/tlb/tlb_flush", *SENDS_OF_TRACE)
    ),
}


def missing(needs: tuple[str, ...]) -> list[str]:
    """What of a recipe's needs this kernel does not have, as paths under the tracing directory."""
    wanted = [f"/sys/kernel/tracing/{need}" for need in needs]
    look = [*IN_TRACEFS, "sh", "-c", 'for path; do test -e "$path" || echo "$path"; done', "sh", *wanted]
    return subprocess.run(look, capture_output=True, text=True, check=True).stdout.split()


def test_every_script_has_its_recipe() -> None:
    assert sorted(RECIPES) == sorted(path.stem for path in COOKBOOK.glob("*.bt"))


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_script_answers(name: str) -> None:
    recipe = RECIPES[name]
    if absent := missing(recipe.needs):
        pytest.skip(f"{absent[0]}: this kernel has it not")
    # bpftrace starts the command when everything is attached, and ends with it.
    command = f"{sys.executable} {EXCHANGE} {recipe.impl} {recipe.messages} {SIZE_BYTES}"
    argv = [*IN_TRACEFS, "bpftrace", "-c", command, str(COOKBOOK / f"{name}.bt"), *recipe.arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    assert recipe.check(done.stdout), done.stdout + done.stderr


@pytest.mark.all
@pytest.mark.parametrize("name", sorted(RECIPES.keys() - {"copy_stacks"}))
def test_without_tracefs_a_script_says_one_line_and_mounts_nothing(name: str) -> None:
    unmounted = (
        "umount -a -t tracefs,debugfs; before=$(cat /proc/mounts); "
        'case $before in *tracefs*) exit 9; esac; "$1"'
    )
    alike = unmounted + '; status=$?; test "$before" = "$(cat /proc/mounts)" || exit 8; exit $status'
    script = str(COOKBOOK / f"{name}.bt")
    argv = ["unshare", "--mount", "sh", "-c", alike, "sh", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)
    said = f"{script}: tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


@pytest.mark.all
def test_the_answer_comes_on_interrupt() -> None:
    argv = [*IN_TRACEFS, str(COOKBOOK / "receive_copies.bt")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as script:
        try:
            assert script.stdout is not None
            # A second is printed once everything is attached, by newer bpftrace once a line is full.
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
