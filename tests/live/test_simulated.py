"""One boot of a simulated machine, twice: what a copy must move, and the same bits for the same seed."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from copyscope import paths
from copyscope.simulate import kernels

pytestmark = pytest.mark.timeout(120)
NEEDS_QEMU = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed"
)


def simulate(*words: str) -> dict[str, Any]:
    argv = [str(paths.ROOT / "tools" / "profile.py"), "--simulate", "--quiet", "--json", "-", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, check=False)
    # Kept kernels need no network; without either there is nothing to boot.
    if "is there a network?" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["simulated"]
    return found


@NEEDS_QEMU
def test_a_copy_moves_its_lines_and_a_seed_gives_the_same_bits() -> None:
    words = ("--impl", "one_copy,two_copy", "--messages", "32")
    # Two boots beside each other, and then the second of them alone.
    first = simulate(*words, "--seeds", "2")
    by_name = {
        (one["impl"], row["category"], row["side"]): row
        for one in first["measurements"]
        for row in one["rows"]
    }
    copy_in = by_name["one_copy", "copy_in", "sender"]
    copy_out = by_name["one_copy", "copy_out", "receiver"]
    assert first["kernel"]["name"] == kernels.DEFAULT
    # 1 KiB is 16 lines of 64 bytes, read and written; what is left in the cache of 32 KiB is missed less.
    assert 16 <= copy_in["l1d_load_misses_per_kib"] <= 17
    assert 15 <= copy_in["l1d_store_misses_per_kib"] <= 17
    for row in (copy_in, copy_out):
        assert row["read_bytes_per_kib"] == pytest.approx(1024, rel=0.02)
        assert row["written_bytes_per_kib"] == pytest.approx(1024, rel=0.02)
    # The second copy reads what the first has just written: 64 KiB lie in L2.
    assert by_name["two_copy", "copy_in", "sender"]["l2_load_misses_per_kib"] < 0.1
    assert by_name["two_copy", "gather", "sender"]["l2_load_misses_per_kib"] > 15
    again = simulate(*words, "--seeds", "1", "--seed", "2")
    pairs = zip(first["measurements"], again["measurements"], strict=True)
    assert all(both["digests"][1] == alone["digests"][0] for both, alone in pairs)


@NEEDS_QEMU
def test_network_cards_have_no_late_copy_and_xdp_a_silent_one() -> None:
    accounts = {}
    for kind in ("nics", "veth-xdp"):
        words = ("--impl", "zero_copy", "--messages", "8", "--topology", kind, "--seeds", "1")
        (one,) = simulate(*words)["measurements"]
        accounts[kind] = {row["category"]: row for row in one["rows"]}
    assert "deferred" not in accounts["nics"] and "silent" not in accounts["nics"]
    assert accounts["nics"]["pin"]["l1d_load_misses_per_kib"] < 4
    # Both sides' softirq may copy; none of it is known to the sender.
    assert "deferred" not in accounts["veth-xdp"] and accounts["veth-xdp"]["silent"]["read_bytes_per_kib"] > 0
