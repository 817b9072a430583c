"""The table of make bench: both sides' numbers, and evidence only where ours is behind."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

from bench_table import table

FACTORS = {"size_bytes": 1024, "connections": 4}


def comparison(ours: str, peer: str, quantity: str, ratio: float) -> dict[str, Any]:
    return {
        "ours": ours,
        "peer": peer,
        "quantity": quantity,
        "factors": FACTORS,
        "ours_median": 100 * ratio,
        "peer_median": 100.0,
        "ratio": ratio,
        "low": ratio - 0.01,
        "high": ratio + 0.01,
        "pairs": 10,
    }


def sample(gbps: float, sleeps: float) -> dict[str, float]:
    cpu_ns = 8192 / gbps  # always on the CPU
    return {
        "gbps": gbps,
        "sender_cpu_ns_per_kib": cpu_ns,
        "receiver_cpu_ns_per_kib": cpu_ns,
        "receiver_sleeps_per_message": sleeps,
    }


def text_of(tmp_path: Path, ratio: float) -> str:
    result = {
        "machine": {"cpu_model": "Example", "cpus": 2, "kernel": "6.18", "hypervisor": None},
        "comparisons": [
            comparison("one_copy_loop", "iperf3", "gbps", ratio),
            comparison("one_copy_loop", "iperf3", "sender_cpu_ns_per_kib", 1 / ratio),
            comparison("bare", "iperf3", "gbps", 0.8),
            comparison("one_copy_coalesced", "iperf3", "gbps", 1.2),
        ],
        "raw": [
            {
                **FACTORS,
                "bytes": 1 << 20,
                "samples": {
                    "one_copy_loop": [sample(100 * ratio, 0.05)] * 3,
                    "iperf3": [sample(100.0, 0.01)] * 3,
                    "one_copy_coalesced": [sample(120.0, 0.001)] * 3,
                    "bare": [sample(80.0, 0.05)] * 3,
                },
            }
        ],
    }
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps(result))
    return table([path])


def test_a_loss_comes_with_its_evidence(tmp_path: Path) -> None:
    text = text_of(tmp_path, 0.9)
    assert "1,024 B, 4 connections, one_copy_loop against iperf3: 0.900." in text
    assert "on the CPU for 100% of the time" in text and "91 against 82 ns/KiB" in text
    assert "sleeps 0.050 times a message, the peer's 0.010" in text
    assert "The bare loop reaches 0.800 (0.790 to 0.810) of iperf3." in text
    assert "A receiver that is not woken reaches 1.200 (1.190 to 1.210) of iperf3." in text
    # the bare loop is no contest of ours
    assert text.count("- 1,024 B") == 1


def test_what_may_be_chance_is_no_loss(tmp_path: Path) -> None:
    text = text_of(tmp_path, 0.995)
    assert "behind" not in text
    assert "0.995 (0.985 to 1.005): 99.5 against 100 Gb/s" in text
    assert "1.005 (0.995 to 1.015): 101 against 100 ns" in text
