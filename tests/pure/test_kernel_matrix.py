# SPDX-License-Identifier: GPL-2.0-only
"""The kernel matrix: files of a guest become an outcome, and outcomes become pages."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive
from builders.exact import with_functions
from builders.kernel import hook_row
from copyscope.base import paths

HERE = paths.ROOT / "tests" / "kernels"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (HERE, HERE / "cross"):
        monkeypatch.syspath_prepend(str(folder))


def module(name: str) -> Any:
    return importlib.import_module(name)


def hook(name: str, instrument: str, state: str, how: str | None, required: bool = False) -> dict[str, Any]:
    reason = None if state == "attached" else "inlined"
    row = {"symbol": f"tcp_{name}", "state": state, "how": how, "reason": reason, "required": required}
    return hook_row(name, instrument, **row)


HOOKS = [
    hook("send_bytes", "bytes", "attached", "tp_btf"),
    hook("send", "functions", "attached", "fentry"),
    hook("receive", "functions", "attached", "fentry"),
    hook("pin", "functions", "attached", "kprobe"),
    hook("copy_in", "functions", "missing", None),
]
TESTS = [
    {"id": "tests/live/test_a.py::test_one", "outcome": "passed", "seconds": 1.0, "said": ""},
    {"id": "tests/live/test_a.py::test_two", "outcome": "skipped", "seconds": 0.0, "said": "no cable"},
]
DOCTOR = {"works": True, "sentence": "Profiling works.", "findings": [{"name": "PMU", "status": "missing"}]}
LOG = "[    1.234567] all is well\n@@EXIT 0\n"


def write_guest_files(kept: Path, **changed: str) -> Path:
    files = {
        "release": "6.12.1-amd64\n",
        "probe.json": json.dumps({"hooks": HOOKS, "sampler": {"events": []}}),
        "doctor.json": json.dumps(DOCTOR),
        "drill.json": (paths.ROOT / "results" / "kernels" / "ways" / "6.12.json").read_text(),
        "tests.jsonl": "".join(json.dumps(row) + "\n" for row in TESTS),
        "dmesg.txt": LOG,
        "log.txt": LOG,
    } | {name.replace("_", "."): text for name, text in changed.items()}
    kept.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (kept / name).write_text(text)
    return kept


def outcome_of(kept: Path) -> Any:
    outcome = module("outcome").Outcome(
        "6.12", "trixie", "amd64", made="2026-01-01", emulator="QEMU", processors=2, extent="all"
    )
    module("outcome").read_boot(kept, outcome, surveyed=True, tested=True)
    return outcome


def test_good_guest_has_no_problem_and_fentry_of_both_root_functions_makes_it_exact(tmp_path: Path) -> None:
    outcome = outcome_of(write_guest_files(tmp_path))
    assert outcome.problems == [] and outcome.tier == "exact"
    assert (outcome.count("passed"), outcome.count("skipped"), outcome.count("failed")) == (1, 1, 0)
    by_kprobe = [{**row, "how": "kprobe"} if row["id"] == "receive" else row for row in HOOKS]
    outcome = outcome_of(
        write_guest_files(tmp_path, probe_json=json.dumps({"hooks": by_kprobe, "sampler": {"events": []}}))
    )
    assert outcome.problems == [] and outcome.tier == "exact by name, sampled by auto"


def test_only_losses_of_a_run_are_a_remark(tmp_path: Path) -> None:
    record = derive(raw_record("one_copy"))
    record["samples"] = [{**row, "category": "copy_in"} for row in record["samples"]]
    lost = ["loss: recursion_send: 4 of 900: more than 0.1 %", "loss: recursion_pin: 1 of 9: more than 0.1 %"]
    for number, (reasons, problems, remarks) in enumerate(
        (
            (lost, [], [f"profile one_copy: not valid: {'; '.join(lost)}"]),
            (
                [lost[0], "identity: 3 is not 4"],
                ["profile one_copy: not valid: identity: 3 is not 4"],
                [f"profile one_copy: not valid: {lost[0]}"],
            ),
            (["identity: 3 is not 4"], ["profile one_copy: not valid: identity: 3 is not 4"], []),
        )
    ):
        record["verdict"] |= {"valid": False, "reasons": reasons}
        kept = write_guest_files(tmp_path / str(number))
        (kept / "ledger-one_copy.json").write_text(json.dumps(record))
        outcome = outcome_of(kept)
        assert (outcome.problems, outcome.remarks) == (problems, remarks)


def test_skipping_a_test_chosen_by_name_is_a_problem(tmp_path: Path) -> None:
    outcome = outcome_of(write_guest_files(tmp_path))
    outcome.require(["test_a.py::test_one"])
    assert outcome.problems == []
    outcome.require(["test_a.py::test_two"])
    assert outcome.problems == ["test_a.py::test_two: skipped: no cable"]


def test_every_kind_of_failure_is_a_problem(tmp_path: Path) -> None:
    failed = {**TESTS[0], "outcome": "failed", "said": "assert 1 == 2"}
    required = hook("copy_out_bytes", "bytes", "missing", None, required=True)
    cases = {
        "tests_jsonl": (json.dumps(failed), "test_a.py::test_one: assert 1 == 2"),
        "dmesg_txt": ("[    2.000000] WARNING: CPU: 0 PID: 1\n", "kernel log: "),
        "doctor_json": (json.dumps({**DOCTOR, "works": False}), "doctor: "),
        "probe_json": (json.dumps({"hooks": [required], "sampler": {"events": []}}), "required hook"),
    }
    for name, (text, message) in cases.items():
        problems = outcome_of(write_guest_files(tmp_path / name, **{name: text})).problems
        assert any(message in problem for problem in problems), (name, problems)
    empty = tmp_path / "hung"
    empty.mkdir()
    assert len(outcome_of(empty).problems) == 7


def test_changed_result_of_the_drill_is_a_problem(tmp_path: Path) -> None:
    kept = write_guest_files(tmp_path)
    table = json.loads((kept / "drill.json").read_text())
    row = next(row for row in table["ways"] if (row["way"], row["path"]) == ("vmsplice", "veth"))
    row["result"] = "copied before return"
    (kept / "drill.json").write_text(json.dumps(table))
    assert outcome_of(kept).problems == [
        "drill: vmsplice over veth: was by reference, is copied before return"
    ]


def test_repeated_tests_replace_only_their_own_results(tmp_path: Path) -> None:
    failed = [
        {**TESTS[0], "outcome": "failed", "said": "slow"},
        *TESTS,
        {**TESTS[0], "id": "test_b.py::test_one"},
    ]
    outcome = outcome_of(
        write_guest_files(tmp_path / "a", tests_jsonl="".join(json.dumps(row) + "\n" for row in failed))
    )
    assert outcome.problems == ["test_a.py::test_one: slow"]
    outcome.forget(["test_a.py::test_one"], "2026-01-02")
    assert [row["id"] for row in outcome.tests] == ["test_a.py::test_two", "test_b.py::test_one"]
    outcome.forget(["test_a.py"], "2026-01-02")
    assert [row["id"] for row in outcome.tests] == ["test_b.py::test_one"] and outcome.problems == []
    module("outcome").read_boot(write_guest_files(tmp_path / "b"), outcome, surveyed=False, tested=True)
    assert outcome.count("passed") == 2 and outcome.problems == []
    assert "; 2 run alone on 2026-01-02" in module("document").log([outcome], {})
    other = write_guest_files(tmp_path / "c", release="6.12.2-amd64\n")
    module("outcome").read_boot(other, outcome, surveyed=False, tested=True)
    assert outcome.problems == ["again: on 6.12.2-amd64, the other tests on 6.12.1-amd64"]


def test_saved_outcome_reads_back_the_same(tmp_path: Path) -> None:
    outcome = outcome_of(write_guest_files(tmp_path / "guest"))
    outcome.write(tmp_path)
    assert module("outcome").Outcome.read(tmp_path / "6.12.json") == outcome


def test_pages_match_the_saved_outcomes() -> None:
    """`make check-kernels MATRIX=--page` writes the pages again."""
    for path, text in module("matrix").pages().items():
        assert path.read_text() == text, path


def test_each_kernel_is_surveyed_once_and_brief_is_a_subset_of_all() -> None:
    matrix, selection = module("matrix"), module("selection")
    live = {path.name for path in (paths.ROOT / "tests" / "live").glob("test_*.py")}
    assert set(selection.BY_KERNEL) == {kernel.name for kernel in matrix.KERNELS if kernel.arch == "amd64"}
    for name in selection.BY_KERNEL:
        full, brief, least = (selection.boots_of(name, sorted(live), extent) for extent in selection.EXTENTS)
        assert {test for boot in least for test in boot.tests} <= {
            test for boot in brief for test in boot.tests
        }
        assert [boot.surveys for boot in least] == [True]
        otherwise = selection.SPECIAL_BOOTS.get(name, ())
        assert [boot.surveys for boot in brief] == [True, False, *(False for _ in otherwise)]
        assert tuple(boot for boot in (*brief, *full) if boot.append) == (*otherwise, *otherwise)
        assert [boot.surveys for boot in full] == [True] + [False] * (len(full) - 1)
        files = {test.partition("::")[0] for boot in brief for test in boot.tests}
        elsewhere = set() if otherwise else {"test_lockdown.py"}
        run = {test.partition("::")[0] for boot in full for test in boot.tests}
        assert files < run == live - set(selection.LEFT_OUT) - elsewhere
        assert (
            not any(test.endswith("-fentry]") for test in brief[1].tests) or name not in selection.KPROBE_ONLY
        )


def test_figures_of_a_survey_come_from_its_record() -> None:
    record = derive(with_functions(raw_record("one_copy", phases=("unprobed", "ledger", "functions"))))
    figures = module("figures").figures_of(record)
    assert figures["one_copy, losses"] == "none; 1 that this kernel does not count"
    timed = sum(cell["timed_calls"] for cell in record["functions"]["cells"])
    assert figures["one_copy, copies left out"] == f"0 of {timed} timed"


def test_copies_in_the_time_of_other_tasks_are_a_figure_if_there_are_copies() -> None:
    record = with_functions(raw_record("zero_copy", phases=("unprobed", "ledger", "functions")))
    owners = record["functions"]["owners"]
    copied = sum(row["bytes"] for row in owners)
    elsewhere = sum(row["bytes"] for row in owners if row["current_side"] != "sender")
    describe = module("figures").copied_elsewhere
    assert 0 < elsewhere < copied
    assert describe(record).startswith(f"{elsewhere:,} of {copied:,} bytes on the time of other tasks: ")
    record["functions"]["owners"] = None
    assert describe(record) is None


def test_btf_is_found_behind_a_false_header() -> None:
    btf = module("btf")
    types, strings = b"\x01" * (1 << 20), b"\0int\0"
    header = btf.START + struct.pack("<IIII", 0, len(types), len(types), len(strings))
    image = b"MZ" + btf.START + b"\xff" * 40 + header + types + strings + b"rest"
    assert btf.find(image) == header + types + strings
    with pytest.raises(ValueError, match="no BTF"):
        btf.find(image[: len(image) // 2])


def test_unreadable_kernel_image_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module("btf").main(str(tmp_path / "none"), str(tmp_path / "out")) == 1
    assert capsys.readouterr().err.startswith(f"btf: {tmp_path}/none: ")


def test_refusals_by_the_verifier_are_separated_from_known_limits_and_policies(
    tmp_path: Path,
) -> None:
    compilers = module("compilers")
    (tmp_path / "clang-19-xdp.status").write_text("0\n")

    def judge(kernel: str, **changed: Any) -> Any:
        hooks = [{**row, "state": "available", "reason": None} for row in HOOKS]
        hooks[1] |= {"id": "splice_seen", **changed}
        (tmp_path / "clang-19-watched.json").write_text(json.dumps({"hooks": hooks}))
        return compilers.judge(tmp_path, "clang-19", kernel)

    cell = judge("6.12")
    assert (cell.accepted, cell.refused, cell.known, cell.not_permitted) == (len(HOOKS) + 1, [], [], 0)
    refused = {"state": "refused", "reason": "load: Permission denied"}
    assert judge("6.12", **refused).refused == ["watched: splice_seen: load: Permission denied"]
    assert judge("5.10", **refused).refused == [] and len(judge("5.10", **refused).known) == 1
    policy = {"state": "refused", "reason": "fentry: load: Operation not permitted"}
    assert (judge("6.12", **policy).not_permitted, judge("6.12", **policy).refused) == (1, [])
    # The program was loaded. Attaching does not depend on the compiler.
    assert judge("6.12", state="refused", reason="attach: Invalid argument").accepted == len(HOOKS) + 1
    (tmp_path / "clang-19-watched.json").write_text("")
    (tmp_path / "clang-19-watched.txt").write_text("collector: bpf: load: Invalid argument\n")
    (refusal,) = compilers.judge(tmp_path, "clang-19", "6.12").refused
    assert "did not start: collector: bpf" in refusal


def test_page_of_methods_matches_the_saved_tables() -> None:
    ways = module("ways")
    assert ways.PAGE.read_text(encoding="utf-8") == ways.ways_page(), "`make check-kernels MATRIX=--page`"
