# SPDX-License-Identifier: GPL-2.0-only
"""Turn the stacks from the collector into rows of the record, and into text for flame graphs. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired, TypedDict

from copyscope.taxonomy.callers import classify, late_copy
from copyscope.taxonomy.events import event_name, time_names
from copyscope.taxonomy.taxonomy import USER_SYMBOL, Classification, Taxonomy, strip_suffix
from copyscope.taxonomy.user_code import is_whole_library


class StackSample(TypedDict):
    """All samples of the collector with the same stack. `frames`: the leaf first; empty in user mode.

    `weight_squared`: sum of the squared weights. `owner`: with the side `other`, the owner of the packet that
    the CPU handled last. run/user_code.py adds the keys after `pid`, about user code of a watched process.
    """

    side: str
    event: str
    frames: list[str]
    samples: int
    weight: int
    weight_squared: float
    owner: NotRequired[str]
    # Name of the thread; while all programs are watched, name and cgroup of the process.
    thread: NotRequired[str]
    cgroup: NotRequired[int]
    pid: NotRequired[int]
    # Address of the code; possible return addresses: top of the stack, and next to the frame pointer.
    address: NotRequired[int]
    back: NotRequired[int]
    framed_back: NotRequired[int]
    # File of the code, its build-id, and the reason if it is unknown whether the code copies.
    code: NotRequired[str]
    build_id: NotRequired[str | None]
    unknown: NotRequired[str | None]
    made_with: NotRequired[str | None]
    function: NotRequired[str | None]
    copy: NotRequired[str | None]
    cipher: NotRequired[str | None]
    framed: NotRequired[bool]
    # The function that called a copy, its file, FILE:LINE and address; `uncalled`: why the caller is unknown.
    caller: NotRequired[str | None]
    caller_file: NotRequired[str | None]
    source: NotRequired[str | None]
    site: NotRequired[tuple[tuple[str, int], int] | None]
    uncalled: NotRequired[str | None]


# Largest number of thread names in a record: some programs give each of their threads another name.
THREADS_MAX = 256
# Largest number of functions of the program in a record, for each event.
FUNCTIONS_MAX = 16
# Keys of the values that are added up over samples.
SUM_KEYS = ("samples", "weight", "weight_squared")

# Prefix of functions that handle one packet: the code that they call works on the last handled packet.
PACKET_HANDLER_PREFIX = "__netif_receive_skb"
# Functions of network work between packets: polling devices, freeing sent packets, sending deferred packets.
BATCH_FUNCTIONS = frozenset(
    (
        *("net_rx_action", "net_tx_action", "tcp_tasklet_func", "tcp_tsq_workfn"),
        *("napi_threaded_poll", "napi_threaded_poll_loop", "run_backlog_napi"),
    )
)


def to_record(samples: Iterable[StackSample], taxonomy: Taxonomy) -> list[Mapping[str, Any]]:
    """Return the record's `samples`: sums by side, context, event, symbol and caller, without stacks.

    For the side `other`, only softirq work is kept, because ksoftirqd and interrupts process packets for all
    programs. The key `tie` holds the evidence that this work belongs to the run. Other work on the machine is
    left out.
    """

    def describe(sample: StackSample, classification: Classification) -> tuple[str, str]:
        return late_copy(sample["frames"], classification, taxonomy)

    return _add_up(samples, taxonomy, describe, ("symbol", "caller"))


def to_stacks(samples: Iterable[StackSample], taxonomy: Taxonomy) -> list[Mapping[str, Any]]:
    """Return the record's `stacks`: the sums of samples for each stack, the root first.

    Samples without evidence that they belong to this run are left out.
    """
    own = (sample for sample in samples if find_tie(sample) is not None)
    return _add_up(own, taxonomy, lambda sample, _: (_fold_stack(sample),), ("frames",))


def _add_up(
    samples: Iterable[StackSample],
    taxonomy: Taxonomy,
    describe: Callable[[StackSample, Classification], tuple[str, ...]],
    names: tuple[str, ...],
) -> list[Mapping[str, Any]]:
    """Return the sums of samples with equal keys. Keys with empty values are left out.

    `describe`: function that returns the values of the last keys, `names`, of a sample.
    """
    sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for sample in samples:
        classification = classify_sample(sample, taxonomy)
        if sample["side"] == "other" and classification.context != "softirq":
            continue
        decided = (classification.kind, classification.category, *describe(sample, classification))
        key = (sample["side"], classification.context, sample["event"], *decided, find_tie(sample) or "")
        for index, value in enumerate((sample["samples"], sample["weight"], sample["weight_squared"])):
            sums[key][index] += value
    names = ("side", "context", "event", "kind", "category", *names)
    return [
        {name: value for name, value in zip(names, key[:-1], strict=True) if value}
        | {"tie": key[-1] or None}
        | dict(zip(SUM_KEYS, totals, strict=True))
        for key, totals in sorted(sums.items())
    ]


def classify_sample(sample: StackSample, taxonomy: Taxonomy) -> Classification:
    """Classify a sample: user code, the program's own work in the kernel, or a softirq for packets of others.

    A softirq uses the CPU time of whichever task it interrupts. In the time of a process of the run, it may
    handle packets of other programs: that work is a stage of its own, and none of its copies belong to the
    run.
    """
    classification = classify_user_code(sample) or classify(sample["frames"], taxonomy)
    if sample["side"] == "other" or classification.context != "softirq" or sample.get("owner") != "others":
        return classification
    if packet_work(sample) is None:
        return classification
    return replace(classification, kind="stage", category="other_packets")


def packet_work(sample: StackSample) -> str | None:
    """Return `packet` if the code handles a packet, `batch` for network work between packets, else None."""
    symbols = [strip_suffix(frame) for frame in sample["frames"]]
    if any(symbol.startswith(PACKET_HANDLER_PREFIX) for symbol in symbols):
        return "packet"
    return "batch" if BATCH_FUNCTIONS.intersection(symbols) else None


def classify_user_code(sample: StackSample) -> Classification | None:
    """Return the account or stage of a sample in user code that copies or (perhaps) encrypts, else None."""
    copy, cipher = sample.get("copy"), sample.get("cipher")
    if copy is not None:
        return Classification("account", "gather", copy, "user")
    if cipher is not None and is_whole_library(cipher):
        return Classification("stage", "user", cipher, "user")
    return None if cipher is None else Classification("account", "user_encrypt", cipher, "user")


def user_code(samples: Iterable[StackSample]) -> list[Mapping[str, Any]]:
    """Return the record's `user_code`: samples in user mode by file, and the reason if names are unknown."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for sample in samples:
        if "code" in sample:
            classification = classify_user_code(sample)
            category = classification and classification.category
            reason, made_with = sample["unknown"] or "", sample.get("made_with") or ""
            row = sums[sample["event"], sample["code"], sample["build_id"] or "", reason, made_with]
            row[0] += int(sample["samples"])
            row[1] += int(sample["samples"]) * (category == "gather")
            row[2] += int(sample["samples"]) * (category == "user_encrypt")
    return [
        {"event": event, "file": file, "build_id": build_id or None, "reason": reason or None}
        | {"made_with": made_with or None}
        | {"samples": count, "copy_samples": copies, "cipher_samples": ciphers}
        for (event, file, build_id, reason, made_with), (count, copies, ciphers) in sorted(sums.items())
    ]


def user_callers(samples: Iterable[StackSample]) -> list[Mapping[str, Any]]:
    """Return the record's `user_callers`: the callers of functions that copy in the program's own memory."""
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for sample in samples:
        if (copy := sample.get("copy")) is not None:
            caller, file = sample["caller"] or "", sample["caller_file"] or ""
            key = sample["event"], copy, caller, file, sample["source"] or "", sample["uncalled"] or ""
            sums[key] += int(sample["samples"])
    return [
        {"event": event, "copy": copy, "caller": caller or None, "file": file or None}
        | {"source": source or None, "reason": cause or None, "samples": count}
        for (event, copy, caller, file, source, cause), count in sorted(sums.items())
    ]


def user_functions(samples: Iterable[StackSample]) -> list[Mapping[str, Any]]:
    """Return the record's `user_functions`: the functions of the program with the most samples.

    Functions that copy or encrypt are left out, because the ledger has rows for them.
    """
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for sample in samples:
        if classify_user_code(sample) is None and (function := sample.get("function")):
            counts[sample["event"]][function, sample["code"]] += int(sample["samples"])
    return [
        {"event": event, "function": function, "file": file, "samples": count}
        for event, functions in sorted(counts.items())
        for (function, file), count in sorted(functions.items(), key=lambda row: (-row[1], row[0]))[
            :FUNCTIONS_MAX
        ]
    ]


def thread_names(samples: Iterable[StackSample], taxonomy: Taxonomy) -> list[Mapping[str, Any]]:
    """Return the record's `threads`: weights of accounts and stages by thread name.

    Only the THREADS_MAX busiest names are kept; the other threads are summed under an empty name.
    """
    counts: Counter[tuple[str, str]] = Counter()
    weights: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    own = [sample for sample in samples if "thread" in sample]
    sample_counts = Counter[str]()
    for sample in own:
        sample_counts[sample["thread"]] += sample["samples"]
    kept_names = {name for name, _ in sample_counts.most_common(THREADS_MAX)}
    for sample in own:
        classification = classify_sample(sample, taxonomy)
        key = sample["event"], sample["thread"] if sample["thread"] in kept_names else ""
        counts[key] += sample["samples"]
        weights[key][classification.category] += sample["weight"]
    return [
        {
            "event": event,
            "thread": name,
            "samples": count,
            "weights": dict(sorted(weights[event, name].items())),
        }
        for (event, name), count in sorted(counts.items())
    ]


def _fold_stack(sample: StackSample) -> str:
    """Return the stack of a sample as `root;...;leaf`."""
    leaf = sample.get("copy") or sample.get("cipher") or sample.get("function")
    names = filter(None, (sample.get("caller"), leaf))
    return ";".join(list(reversed(sample["frames"])) or [USER_SYMBOL, *map(frame_name, names)])


def frame_name(name: str) -> str:
    """Return a name of user code as a frame. Go's type names may contain `;`, which separates frames."""
    return name.replace(";", ",")


def find_tie(sample: StackSample) -> str | None:
    """Return the evidence that a sample belongs to this run, one of attribution.TIES, or None.

    `process`: a process of the run was running. `packet`: another task was running and handled a packet of
    the run. `batch`: network work between packets, at most one tick after the CPU handled a packet of the
    run.
    """
    if sample["side"] != "other":
        return "process"
    return packet_work(sample) if sample.get("owner") == "target" else None


def folded_stacks(samples: Sequence[StackSample]) -> str:
    """Return the stacks of the event that measures time as folded text, sorted.

    Each line is `side;root;...;leaf weight`. Other events are left out, because weights of different events
    cannot be added.
    """
    names = time_names({sample["event"] for sample in samples}, {}) or ()
    lines: dict[str, int] = defaultdict(int)
    for sample in samples:
        if event_name(sample["event"]) in names:
            lines[f"{sample['side']};{_fold_stack(sample)}"] += int(sample["weight"])
    return "".join(f"{stack} {weight}\n" for stack, weight in sorted(lines.items()))
