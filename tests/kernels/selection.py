# SPDX-License-Identifier: GPL-2.0-only
"""Selections of live tests for the guests of each kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

# Live tests that run in no guest, by the begin of their ids (pytest --deselect), with the reason.
LEFT_OUT = {
    "test_perf_agreement.py": "two timers on an emulated CPU do not agree: copy_in 39 %, by perf 44 %",
    "test_sweep_live.py": "about the sweep, not the kernel",
}

STRATEGIES = ("per_field", "two_copy", "one_copy", "zero_copy", "sendfile")
COUNTED = "test_profile_truth.py::test_sent_bytes_and_calls_are_counted_exactly"
BYTES = "test_functions.py::test_every_byte_is_counted_in_the_function_that_moved_it"
OWNERS = "test_functions.py::test_deferred_copies_belong_to_the_sender_whoever_ran_them"
CALL_SITE = "test_functions.py::test_copy_in_is_hooked_at_its_call_or_by_a_bracket"
COUNTERS = "test_function_counters.py::test"
WATCHED = "test_watch_functions.py::test"
GATE = "test_gate.py::test_auto_chooses_the_gate_gives_its_reason_and_counts_every_call"

# Tests of --brief on each kernel: the claims of the exact tier, and real zero-copy. pytest fails for a name
# that does not exist, so no test is dropped unnoticed.
SAMPLED = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    f"{COUNTED}[zero_copy-loopback]",
    "test_nics.py::test_zero_copy_over_a_cable_is_not_copied",
)
EXACT = (
    *(f"{BYTES}[{impl}-fentry]" for impl in STRATEGIES),
    *(f"{OWNERS}[{placement}-fentry]" for placement in ("split", "same")),
    f"{CALL_SITE}[one_copy-any-call-site-call-site]",
    "test_functions.py::test_hidden_copies_of_native_xdp_are_counted_by_hooks",
    "test_functions.py::test_a_softirq_that_interrupts_a_hook_breaks_no_measurement",
    f"{COUNTERS}_two_clocks_agree_in_every_copy[4]",
    f"{COUNTERS}_a_missing_counter_is_unsupported_and_never_zero",
    *(
        f"{COUNTERS}_hooks_and_samples_of_the_same_work_find_the_same_shares[{impl}-{copy}]"
        for impl, copy in (("one_copy", "copy_in"), ("zero_copy", "deferred"))
    ),
    f"{WATCHED}_copied_bytes_of_a_watched_program_are_counted_exactly[fentry]",
    f"{WATCHED}_copies_of_other_sockets_are_not_counted",
    f"{WATCHED}_late_copies_over_lo_are_owned_by_the_watched_sender",
    "test_nics.py::test_zero_copy_over_a_cable_is_not_copied_by_any_hooked_function",
    "test_nics.py::test_a_packet_socket_causes_late_copies_and_is_named",
    "test_nics.py::test_interfaces_come_back_after_sigkill",
)
WAYS = "test_functions_ways.py"
ABSENT = f"{WAYS}::test_a_function_that_this_kernel_lacks_is_named_as_absent"
ON_AND_OFF = (
    "test_function_switching.py::test_switching_hooks_twenty_times_under_load_leaves_the_kernel_clean"
)
# Tests that run on one kernel because the result is the same on all: faults, other tools, forced hooks.
# Switching hooks on and off is tested on each kernel.
BY_KERNEL = {
    "5.10": (
        # Without zero_copy: there, kprobes of a softirq that interrupts a BPF program are skipped, which is a
        # loss.
        *(f"{BYTES}[{impl}-kprobe]" for impl in ("per_field", "two_copy", "one_copy", "sendfile")),
        f"{ON_AND_OFF}[kprobe]",
        f"{CALL_SITE}[one_copy-any-call-site-call-site]",
        f"{WATCHED}_copied_bytes_of_a_watched_program_are_counted_exactly[kprobe]",
        ABSENT,
    ),
    "6.1": (
        *(
            ABSENT,
            f"{ON_AND_OFF}[fentry]",
            "test_profile_truth.py::test_identities_of_a_run_hold[one_copy-1]",
        ),
        f"{COUNTERS}_gate_4_times_one_call_in_four_and_counts_every_call",
        "test_why.py",
    ),
    "6.12": (
        *(
            "test_bpftrace.py",
            "test_second_opinion.py",
            "test_tls.py",
            WAYS,
            "test_watch_programs.py::test_iperf3_has_its_bytes_in_the_account_of_its_call[write]",
            "test_why.py",
            f"{GATE}[one_copy-64]",
            f"{WATCHED}_copied_bytes_of_a_watched_program_are_counted_exactly[kprobe]",
            f"{ON_AND_OFF}[fentry]",
        ),
    ),
    "7.x": (
        *(f"{BYTES}[{impl}-kprobe]" for impl in ("one_copy", "zero_copy")),
        *(f"{BYTES}[{impl}-kprobe.multi]" for impl in STRATEGIES),
        *(WAYS, f"{ON_AND_OFF}[fentry]"),
        f"{GATE}[zero_copy-64K]",
        "test_profile_faults.py::test_sigkill_at_any_moment_leaves_nothing[0]",
        "test_watch_faults.py::test_the_exit_status_is_passed_on_and_a_run_without_bytes_is_invalid",
    ),
}
# Tests of --least: exact bytes and calls. None depends on time, so all pass on a busy machine.
LEAST = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    *(f"{BYTES}[{impl}-fentry]" for impl in STRATEGIES),
    f"{OWNERS}[split-fentry]",
    f"{WATCHED}_copied_bytes_of_a_watched_program_are_counted_exactly[fentry]",
)
LEAST_BY_KPROBE = (
    *(f"{COUNTED}[{impl}-veth]" for impl in STRATEGIES),
    *(f"{BYTES}[{impl}-kprobe]" for impl in ("two_copy", "one_copy")),
)
# Kernels on which functions are hooked by kprobe only.
KPROBE_ONLY = ("5.10",)


@dataclass(frozen=True)
class Boot:
    """A guest to start, and the tests that run in it."""

    name: str
    tests: tuple[str, ...] = ()
    # `surveys`: probe hooks and run doctor. `profiles`: make two runs of some seconds.
    surveys: bool = False
    profiles: bool = False
    # A survey has one CPU, because it compares times: of two emulated CPUs on one real CPU, one stands still.
    processors: int = 2
    # Addition to the kernel's command line.
    append: str = ""


SURVEY = Boot("survey", surveys=True, profiles=True, processors=1)
# A boot with lockdown, and the kernel on which it runs.
LOCKED_DOWN = Boot(
    "lockdown",
    tuple(
        f"test_lockdown.py::test_{name}"
        for name in (
            "doctor_reports_lockdown_as_limited",
            "the_ledger_is_balanced_and_refused_hooks_have_a_reason[one_copy]",
            "the_ledger_is_balanced_and_refused_hooks_have_a_reason[zero_copy]",
            "requested_function_hooks_use_fentry",
            "requested_kprobes_are_refused_in_one_line",
            "watching_a_program_is_refused_in_one_line",
        )
    ),
    append="lockdown=confidentiality",
)
SPECIAL_BOOTS = {"6.12": (LOCKED_DOWN,)}
# Extents of a run: all tests, tests that may differ between kernels, or tests of exact counts.
EXTENTS = ("all", "brief", "least")


def boots_of(name: str, test_files: Sequence[str], extent: str) -> list[Boot]:
    """Return the boots of an amd64 kernel: a survey, and one for each file of tests or for all."""
    if extent == "brief":
        tests = (*SAMPLED, *(() if name in KPROBE_ONLY else EXACT), *BY_KERNEL[name])
        return [SURVEY, Boot("brief", tests), *SPECIAL_BOOTS.get(name, ())]
    if extent == "least":
        return [Boot("least", LEAST_BY_KPROBE if name in KPROBE_ONLY else LEAST, surveys=True)]
    # Each file has a boot of its own, so that a hanging guest affects no other file.
    in_special_boots = {
        test.partition("::")[0] for boots in SPECIAL_BOOTS.values() for boot in boots for test in boot.tests
    }
    files = [file for file in sorted(test_files) if file not in LEFT_OUT and file not in in_special_boots]
    each = (Boot(file.removeprefix("test_").removesuffix(".py"), (file,)) for file in files)
    return [SURVEY, *each, *SPECIAL_BOOTS.get(name, ())]
