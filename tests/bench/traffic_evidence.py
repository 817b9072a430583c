"""Where the traffic is behind a peer: what the samples of the same run say about the cause."""

from typing import Any

from samples import median

# Ours over the peer's goodput: the least that is asked for.
GOALS = {"bare": 0.98}
# The sender is the limit when it hardly ever waited.
BUSY = 0.9


def behind(result: dict[str, Any]) -> list[str]:
    """One line for each contest whose whole interval is below its goal; nothing without such samples."""
    lines = []
    for raw in result["raw"]:
        samples = raw["samples"]
        contests = [
            made
            for made in result["comparisons"]
            if made["quantity"] == "gbps" and made["factors"] == factors(raw) and made["ours"] != "bare"
        ]
        for made in contests:
            ours, peer = samples[made["ours"]], samples[made["peer"]]
            if made["high"] >= GOALS.get(made["peer"], 1.0) or "receiver_sleeps_per_message" not in ours[0]:
                continue
            lines.append(
                f"- {place(raw)}, {made['ours']} against {made['peer']}: {made['ratio']:.3f}. "
                + " ".join(evidence(ours, peer))
                + "".join(
                    others(result, raw, made["peer"], name, what)
                    for name, what in (
                        ("bare", "The bare loop"),
                        (made["ours"].replace("_loop", "_coalesced"), "A receiver that is not woken"),
                    )
                    if name != made["ours"]
                )
            )
    if not lines:
        return []
    return ["", "Where ours is behind, and what else the same runs say:", "", *lines]


def factors(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: raw[key] for key in ("size_bytes", "connections") if key in raw}


def place(raw: dict[str, Any]) -> str:
    return f"{raw['size_bytes']:,} B, {raw.get('connections', 1)} connections"


def evidence(ours: list[dict[str, float]], peer: list[dict[str, float]]) -> list[str]:
    """Who was the limit on each side, and how often the sender had to wake the receiver, on its own time."""

    def typical(samples: list[dict[str, float]], key: str) -> float:
        return median([sample[key] for sample in samples])

    def busy(samples: list[dict[str, float]]) -> float:
        # ns per KiB times Gb/s: 8192 bits per KiB
        return median([sample["sender_cpu_ns_per_kib"] * sample["gbps"] / 8192 for sample in samples])

    shares = busy(ours), busy(peer)
    said = [f"The sender is on the CPU for {shares[0]:.0%} of the time, the peer's for {shares[1]:.0%}."]
    if min(shares) >= BUSY:
        key = "sender_cpu_ns_per_kib"
        said.append(
            f"So what counts is its cost: {typical(ours, key):.0f} against {typical(peer, key):.0f} ns/KiB."
        )
    key = "receiver_sleeps_per_message"
    return [
        *said,
        f"The receiver sleeps {typical(ours, key):.3f} times a message, the peer's {typical(peer, key):.3f}.",
    ]


def others(result: dict[str, Any], raw: dict[str, Any], peer: str, name: str, what: str) -> str:
    """What another program of ours reaches against the same peer."""
    for made in result["comparisons"]:
        contest = (made["ours"], made["peer"], made["quantity"])
        if contest == (name, peer, "gbps") and made["factors"] == factors(raw):
            interval = f"{made['low']:.3f} to {made['high']:.3f}"
            return f" {what} reaches {made['ratio']:.3f} ({interval}) of {peer}."
    return ""
