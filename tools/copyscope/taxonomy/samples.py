"""The collector's stacks as rows of the record, and as text for flame graphs. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from copyscope.taxonomy.callers import late_copy
from copyscope.taxonomy.ciphers import is_whole
from copyscope.taxonomy.events import event_name, time_names
from copyscope.taxonomy.taxonomy import USER_SYMBOL, Classification, Taxonomy, strip_suffix

# one row of the collector: side, event, frames (leaf first, empty in user mode), samples, weight, and the sum
# of the squared weights; of the side `other` whose packet the CPU handled last (owner); of a watched program
# in user mode what code that was (run/user_code.py): code, build_id, unknown and, if it copies, its
# function as `copy`, and who called that: caller, caller_file, source, uncalled; if it encrypts: cipher
Sample = Mapping[str, Any]
# Names of threads; a program that gives each of its threads one of its own has thousands.
THREADS_MAX = 256
# What is added up of samples that are alike in all else.
SUMS = ("samples", "weight", "weight_squared")

# What handles one packet: below it the packet that was handled last is this one.
ONE_PACKET = "__netif_receive_skb"
# Network work around packets: taking them from a device, freeing what was sent, sending what had to wait.
AROUND_PACKETS = frozenset(
    (
        *("net_rx_action", "net_tx_action", "tcp_tasklet_func", "tcp_tsq_workfn"),
        *("napi_threaded_poll", "napi_threaded_poll_loop", "run_backlog_napi"),
    )
)


def to_record(samples: Iterable[Sample], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """The record's `samples`: added up by side, context, event, deciding symbol and caller, without stacks.

    Of the side `other` only softirq work is kept: there ksoftirqd and interrupts do protocol work for
    whoever has traffic. Its `tie` says how it is known to be of this run. Anything else that ran on the
    machine is not part of this run.
    """

    def told(sample: Sample, found: Classification) -> tuple[str, str]:
        return late_copy(sample["frames"], found, taxonomy)

    return _added(samples, taxonomy, told, ("symbol", "caller"))


def to_stacks(samples: Iterable[Sample], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """The record's `stacks`, where they are to be kept: the same samples with all frames, the root first.

    Without work that nothing shows to be of this run.
    """
    own = (sample for sample in samples if tie_of(sample) is not None)
    return _added(own, taxonomy, lambda sample, _: (_folded(sample),), ("frames",))


def _added(
    samples: Iterable[Sample],
    taxonomy: Taxonomy,
    told: Callable[[Sample, Classification], tuple[str, ...]],
    names: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Samples and weights of what is alike in all keys, of which the last are given; none is empty."""
    sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for sample in samples:
        found = of_user_code(sample) or taxonomy.classify(sample["frames"])
        if sample["side"] == "other" and found.context != "softirq":
            continue
        decided = (found.kind, found.category, *told(sample, found))
        key = (sample["side"], found.context, sample["event"], *decided, tie_of(sample) or "")
        for at, name_of_sum in enumerate(SUMS):
            sums[key][at] += sample[name_of_sum]
    names = ("side", "context", "event", "kind", "category", *names)
    return [
        {name: value for name, value in zip(names, key[:-1], strict=True) if value}
        | {"tie": key[-1] or None}
        | dict(zip(SUMS, added, strict=True))
        for key, added in sorted(sums.items())
    ]


def of_user_code(sample: Sample) -> Classification | None:
    """Of a sample in a function of the program's own that copies or encrypts, or may encrypt; else None."""
    copy, cipher = sample.get("copy"), sample.get("cipher")
    if copy is not None:
        return Classification("account", "gather", copy, "user")
    if cipher is not None and is_whole(cipher):
        return Classification("stage", "user", cipher, "user")
    return None if cipher is None else Classification("account", "user_encrypt", cipher, "user")


def user_code(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The record's `user_code`: what a program ran in user mode, by file, and where that has no names."""
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for sample in samples:
        if "code" in sample:
            found = of_user_code(sample)
            category = found and found.category
            why, made_with = sample["unknown"] or "", sample.get("made_with") or ""
            row = sums[sample["event"], sample["code"], sample["build_id"] or "", why, made_with]
            row[0] += int(sample["samples"])
            row[1] += int(sample["samples"]) * (category == "gather")
            row[2] += int(sample["samples"]) * (category == "user_encrypt")
    return [
        {"event": event, "file": file, "build_id": build_id or None, "reason": reason or None}
        | {"made_with": made_with or None}
        | {"samples": count, "copy_samples": copies, "cipher_samples": ciphers}
        for (event, file, build_id, reason, made_with), (count, copies, ciphers) in sorted(sums.items())
    ]


def user_callers(samples: Iterable[Sample]) -> list[dict[str, Any]]:
    """The record's `user_callers`: who called the functions that copy in the program's own memory."""
    names = ("event", "copy", "caller", "caller_file", "source", "uncalled")
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for sample in samples:
        if sample.get("copy") is not None:
            sums[tuple(sample[name] or "" for name in names)] += int(sample["samples"])
    return [
        {"event": event, "copy": copy, "caller": caller or None, "file": file or None}
        | {"source": source or None, "reason": why or None, "samples": count}
        for (event, copy, caller, file, source, why), count in sorted(sums.items())
    ]


def thread_names(samples: Iterable[Sample], taxonomy: Taxonomy) -> list[dict[str, Any]]:
    """The record's `threads`: what the threads of each name did, those that did most."""
    counts: Counter[tuple[str, str]] = Counter()
    weights: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    own = [sample for sample in samples if "thread" in sample]
    most = Counter[str]()
    for sample in own:
        most[sample["thread"]] += sample["samples"]
    kept = {name for name, _ in most.most_common(THREADS_MAX)}
    for sample in own:
        found = of_user_code(sample) or taxonomy.classify(sample["frames"])
        key = sample["event"], sample["thread"] if sample["thread"] in kept else ""
        counts[key] += sample["samples"]
        weights[key][found.category] += sample["weight"]
    return [
        {
            "event": event,
            "thread": name,
            "samples": count,
            "weights": dict(sorted(weights[event, name].items())),
        }
        for (event, name), count in sorted(counts.items())
    ]


def _folded(sample: Sample) -> str:
    """`root;...;leaf`."""
    names = filter(None, map(sample.get, ("caller", "copy", "cipher")))
    return ";".join(list(reversed(sample["frames"])) or [USER_SYMBOL, *map(frame_name, names)])


def frame_name(name: str) -> str:
    """A name of the program's own, as a frame: it may hold the mark that divides them, as types of Go do."""
    return name.replace(";", ",")


def tie_of(sample: Sample) -> str | None:
    """How a sample is known to be of this run: a word of attribution.TIES, None where it is not.

    `process`: on the time of one of its processes. `packet`: on that of another task, while a packet of
    this run was handled. `batch`: in network work around packets, and the last packet that the CPU handled,
    no longer ago than the tick before, was of this run.
    """
    if sample["side"] != "other":
        return "process"
    if sample.get("owner") != "target":
        return None
    symbols = [strip_suffix(frame) for frame in sample["frames"]]
    if any(symbol.startswith(ONE_PACKET) for symbol in symbols):
        return "packet"
    return "batch" if AROUND_PACKETS.intersection(symbols) else None


def folded_stacks(samples: Sequence[Sample]) -> str:
    """Stacks of the event that shows time as folded text, sorted.

    `side;root;...;leaf weight`, one line per stack, in the event's unit: cycles and misses do not add up.
    """
    names = time_names({sample["event"] for sample in samples}, {}) or ()
    lines: dict[str, int] = defaultdict(int)
    for sample in samples:
        if event_name(sample["event"]) in names:
            lines[f"{sample['side']};{_folded(sample)}"] += int(sample["weight"])
    return "".join(f"{stack} {weight}\n" for stack, weight in sorted(lines.items()))
