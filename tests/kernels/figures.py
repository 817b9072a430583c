"""What one profile of a survey came to, in sentences: the two tiers, and the exact one against itself."""

from typing import Any

from copyscope import tiers

Record = dict[str, Any]


def figures_of(record: Record) -> dict[str, str]:
    """By what they are about; only the losses where no function was hooked."""
    impl = record["workload"]["impl"]
    found = {}
    for row in tiers.compare_tiers(record):
        if row["side"] == "other" or row["name"] == tiers.REST:
            continue
        keys = ("exact_share", "sampled_share", "sampled_low", "sampled_high")
        shares = [f"{100 * row[key]:.1f}" for key in keys]
        found[f"{impl}, {row['side']}, {row['name']} in {row['context']} context"] = (
            f"{shares[0]} % of the kernel time by function hooks,"
            f" {shares[1]} % ({shares[2]} to {shares[3]}) sampled"
        )
    for row in tiers.inside_calls(record):
        if row["ratio"] is not None:
            found[f"{impl}, {row['side']}, all roots of its calls"] = (
                f"{row['inside_ns'] / 1e6:.1f} ms of {row['calls_ns'] / 1e6:.1f} ms"
                f" in {row['calls']:,} calls: {row['ratio']:.3f}"
            )
    for row in tiers.coverage(record):
        if row["ratio"] is not None:
            found[f"{impl}, {row['side']}, all roots"] = (
                f"{row['inside_ns'] / 1e6:.1f} ms of {row['kernel_ns'] / 1e6:.1f} ms in the kernel:"
                f" {row['ratio']:.3f}"
            )
    for row in record["identities"]:
        if (
            row["name"].startswith("functions_")
            and row["name"].endswith("_self")
            and row["holds"] is not None
        ):
            found[f"{impl}, {row['what'].partition(':')[0]}, self times"] = (
                f"{row['left']:,} ns of {row['right']:,} ns inclusive: {row['left'] / row['right']:.4f}"
            )
    losses = {name: loss["count"] for name, loss in record["loss"].items() if loss["count"]}
    found[f"{impl}, losses"] = ", ".join(f"{name} {count}" for name, count in losses.items()) or "none"
    return found
