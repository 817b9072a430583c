"""Which live tests run in which guest."""

from collections.abc import Sequence
from dataclasses import dataclass

# The only live tests that no guest runs, by how their ids begin (pytest --deselect).
LEFT_OUT = {
    "test_perf_agreement.py": "two timers on an emulated CPU do not agree: copy_in 39 %, by perf 44 %",
    "test_sweep_live.py": "about the sweep, not the kernel",
}

STRATEGIES = ("per_field", "two_copy", "one_copy", "zero_copy", "sendfile")
COUNTED = "test_profile_truth.py::test_what_was_sent_is_counted_to_the_call_and_to_the_byte"
BYTES = "test_functions.py::test_every_byte_is_in_the_function_that_moved_it"
OWNERS = "test_functions.py::test_deferred_copies_name_the_sender_whoever_ran_them"
CALL_SITE = "test_functions.py::test_the_copy_is_seen_at_its_call_or_between_brackets"
COUNTERS = "test_function_counters.py::test"
WATCHED = "test_watch_functions.py::test"
GATE = "test_gate.py::test_auto_chooses_n_says_why_and_counts_every_call"

# What --brief runs on each kernel: what the exact tier stands for, and real zero-copy. A name that is no test
# any more is an error of pytest, so nothing is lost unseen.
SAMPLED = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    f"{COUNTED}[zero_copy-loopback]",
    "test_nics.py::test_zero_copy_is_not_copied",
)
EXACT = (
    *(f"{BYTES}[{impl}-fentry]" for impl in STRATEGIES),
    *(f"{OWNERS}[{placement}-fentry]" for placement in ("split", "same")),
    f"{CALL_SITE}[one_copy-any-call-site-call-site]",
    "test_functions.py::test_native_xdp_copies_in_silence_and_the_hooks_count_it",
    "test_functions.py::test_a_softirq_that_interrupts_a_program_breaks_nothing",
    f"{COUNTERS}_two_clocks_agree_in_every_copy[4]",
    f"{COUNTERS}_a_counter_that_is_not_there_is_unsupported_and_never_zero",
    *(
        f"{COUNTERS}_hooks_and_samples_of_the_same_work_find_the_same_shares[{impl}-{copy}]"
        for impl, copy in (("one_copy", "copy_in"), ("zero_copy", "deferred"))
    ),
    f"{WATCHED}_what_is_copied_in_is_counted_to_the_byte[fentry]",
    f"{WATCHED}_copies_of_other_sockets_are_not_counted",
    f"{WATCHED}_zero_copy_over_lo_is_copied_later_and_the_memory_is_the_senders",
    "test_nics.py::test_zero_copy_is_not_copied_and_the_hooks_count_none",
    "test_nics.py::test_a_listener_turns_sends_into_copies_and_is_named",
    "test_nics.py::test_sigkill_brings_them_home",
)
WAYS = "test_functions_ways.py"
ABSENT = f"{WAYS}::test_a_function_that_this_kernel_does_not_have_is_named_and_said_to_be_absent"
ON_AND_OFF = "test_function_switching.py::test_on_and_off_twenty_times_under_load_leaves_the_kernel_clean"
# What is the same on all kernels is run on one of them: faults, other people's tools, hooking by force.
# Switching hooks on and off is each kernel's own.
BESIDES = {
    "5.10": (
        # Not zero_copy: kprobes of a softirq that interrupts a program are not run there, and so a loss.
        *(f"{BYTES}[{impl}-kprobe]" for impl in ("per_field", "two_copy", "one_copy", "sendfile")),
        f"{ON_AND_OFF}[kprobe]",
        f"{CALL_SITE}[one_copy-any-call-site-call-site]",
        f"{WATCHED}_what_is_copied_in_is_counted_to_the_byte[kprobe]",
        ABSENT,
    ),
    "6.1": (
        *(ABSENT, f"{ON_AND_OFF}[fentry]", "test_profile_truth.py::test_identities_hold[one_copy-1]"),
        f"{COUNTERS}_one_call_in_four_is_timed_and_every_one_is_counted",
        "test_why.py",
    ),
    "6.12": (
        *(
            "test_bpftrace.py",
            "test_second_opinion.py",
            "test_tls.py",
            WAYS,
            "test_watch_programs.py::test_iperf3_as_a_command[write]",
            "test_why.py",
            f"{GATE}[one_copy-64]",
            f"{WATCHED}_what_is_copied_in_is_counted_to_the_byte[kprobe]",
            f"{ON_AND_OFF}[fentry]",
        ),
    ),
    "7.x": (
        *(f"{BYTES}[{impl}-kprobe]" for impl in ("one_copy", "zero_copy")),
        *(f"{BYTES}[{impl}-kprobe.multi]" for impl in STRATEGIES),
        *(WAYS, f"{ON_AND_OFF}[fentry]"),
        f"{GATE}[zero_copy-64K]",
        "test_profile_faults.py::test_sigkill_at_any_moment_leaves_nothing[0]",
        "test_watch_faults.py::test_the_exit_status_is_passed_on_and_silence_is_said",
    ),
}
# What --least runs: bytes and calls, exactly. Nothing in it is a matter of time: it holds on a busy machine.
LEAST = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    *(f"{BYTES}[{impl}-fentry]" for impl in STRATEGIES),
    f"{OWNERS}[split-fentry]",
    f"{WATCHED}_what_is_copied_in_is_counted_to_the_byte[fentry]",
)
LEAST_BY_KPROBE = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    *(f"{BYTES}[{impl}-kprobe]" for impl in ("two_copy", "one_copy")),
)
# Kernels on which functions are hooked by kprobe only.
KPROBE_ONLY = ("5.10",)


@dataclass(frozen=True)
class Boot:
    """One start of a guest, and what runs in it."""

    name: str
    tests: tuple[str, ...] = ()
    # Hooks and doctor; and two profiles of some seconds.
    surveys: bool = False
    profiles: bool = False
    # A survey compares times: of two emulated processors on one of the host, one stands still.
    processors: int = 2
    # More of the kernel's command line.
    append: str = ""


SURVEY = Boot("survey", surveys=True, profiles=True, processors=1)
# What a kernel that is started otherwise allows, and the kernel on which it is asked.
LOCKED_DOWN = Boot(
    "lockdown",
    tuple(
        f"test_lockdown.py::test_{name}"
        for name in (
            "doctor_says_what_is_refused",
            "the_ledger_is_balanced_and_what_is_refused_has_its_reason[one_copy]",
            "the_ledger_is_balanced_and_what_is_refused_has_its_reason[zero_copy]",
            "functions_that_were_asked_for_are_hooked_by_fentry",
            "kprobes_that_were_asked_for_are_refused_in_one_line",
            "a_program_of_somebody_else_is_refused_in_one_line",
        )
    ),
    append="lockdown=confidentiality",
)
STARTED_OTHERWISE = {"6.12": (LOCKED_DOWN,)}
# How much is run: everything, what differs between kernels, or of that what counts and does not measure.
EXTENTS = ("all", "brief", "least")


def boots_of(name: str, found: Sequence[str], extent: str) -> list[Boot]:
    """The boots of an amd64 kernel: its survey, then one for each file of tests, or one for all of them."""
    if extent == "brief":
        tests = (*SAMPLED, *(() if name in KPROBE_ONLY else EXACT), *BESIDES[name])
        return [SURVEY, Boot("brief", tests), *STARTED_OTHERWISE.get(name, ())]
    if extent == "least":
        return [Boot("least", LEAST_BY_KPROBE if name in KPROBE_ONLY else LEAST, surveys=True)]
    # A boot each, so that one that hangs takes no other with it.
    elsewhere = {
        test.partition("::")[0]
        for boots in STARTED_OTHERWISE.values()
        for boot in boots
        for test in boot.tests
    }
    files = [file for file in sorted(found) if file not in LEFT_OUT and file not in elsewhere]
    each = (Boot(file.removeprefix("test_").removesuffix(".py"), (file,)) for file in files)
    return [SURVEY, *each, *STARTED_OTHERWISE.get(name, ())]
