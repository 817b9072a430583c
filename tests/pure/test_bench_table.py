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
        "receiver_cpu_ns_per_kib": 0.9 * cpu_ns,
        "sender_sleeps_per_message": 0.0,
        "receiver_sleeps_per_message": sleeps,
    }


def result_of(ratio: float, wake_ups: list[float]) -> dict[str, Any]:
    return {
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
                    "one_copy_loop": [sample(100 * ratio, 0.0005)] * 3,
                    "iperf3": [sample(100.0, 0.0001)] * 3,
                    "one_copy_coalesced": [sample(120.0, 0.001)] * 3,
                    "bare": [sample(80.0, 0.05)] * 3,
                },
            },
            *([{"wake_ups": wake_ups}] if wake_ups else []),
        ],
    }


def text_of(tmp_path: Path, ratio: float, earlier: float | None = None, *wake_ups: float) -> str:
    path = tmp_path / "traffic.json"
    path.write_text(json.dumps(result_of(ratio, list(wake_ups))))
    if earlier is not None:
        (tmp_path / "earlier").mkdir()
        (tmp_path / "earlier" / "traffic.json").write_text(json.dumps(result_of(earlier, [])))
    return table([path])


def test_a_loss_comes_with_its_evidence(tmp_path: Path) -> None:
    text = text_of(tmp_path, 0.9, None, 10_000.0, 12_000.0, 20_000.0)
    assert "One wake-up: this run: 12.0 us (10.0 to 20.0 in 3 rounds)." in text
    # 9.1 ns/KiB more; 0.0004 sleeps of 12 us in each message of 1 KiB are 4.8 of them
    evidence = "0.900 (0.890 to 0.910) | 1, missed | sender: 100%, 100% | 91, 82 | 82, 74 "
    assert evidence + "| 0.000, 0.000 | 0.001, 0.000 | +9: +5, 53% " in text
    assert "| 0.800 (0.790 to 0.810) | 1.200 (1.190 to 1.210) |" in text
    # the bare loop is no contest of ours
    assert text.count("| this |") == 1


def test_a_wake_up_that_was_not_measured_is_unknown(tmp_path: Path) -> None:
    text = text_of(tmp_path, 0.9)
    assert "its cost was not measured" in text and "| +9: unknown |" in text


def test_who_wakes_less_often_and_costs_more_does_not_do_so_by_waking(tmp_path: Path) -> None:
    assert "| +9: +9600, all |" in text_of(tmp_path, 0.9, None, 24_000_000.0)
    assert "| +1: no dearer |" in text_of(tmp_path, 0.992, None, 12_000.0)


def test_a_median_below_the_goal_in_either_run_is_listed(tmp_path: Path) -> None:
    text = text_of(tmp_path, 1.1, 0.995)
    assert "| this | 1 KiB, 4 connections | one_copy_loop, iperf3 | 1.100 (1.090 to 1.110) | 1, met |" in text
    assert "| earlier | 1 KiB, 4 connections | one_copy_loop, iperf3 | 0.995" in text
    assert "| 1 | met | open |" in text


def test_who_reaches_the_goal_needs_no_evidence(tmp_path: Path) -> None:
    text = text_of(tmp_path, 1.1)
    assert "busier side" not in text
    assert "1.100 (1.090 to 1.110): 110 against 100 Gb/s" in text
    assert "0.909 (0.899 to 0.919): 91 against 100 ns" in text
