"""The kernel matrix: what guests leave becomes an outcome, and outcomes a page; the kernel's BTF is found."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from builders.kernel import hook_row
from copyscope import paths
from copyscope.ledger.derive import derive

HERE = paths.ROOT / "tests" / "kernels"


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (HERE, HERE / "cross"):
        monkeypatch.syspath_prepend(str(place))


def module(name: str) -> Any:
    return importlib.import_module(name)


def hook(name: str, instrument: str, state: str, how: str | None, required: bool = False) -> dict[str, Any]:
    reason = None if state == "attached" else "inlined"
    told = {"symbol": f"tcp_{name}", "state": state, "how": how, "reason": reason, "required": required}
    return hook_row(name, instrument, **told)


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


def leave(kept: Path, **changed: str) -> Path:
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
    made = module("outcome").Outcome(
        "6.12", "trixie", "amd64", made="2026-01-01", emulator="QEMU", processors=2, extent="all"
    )
    module("outcome").read_boot(kept, made, surveyed=True, tested=True)
    return made


def test_a_good_guest_has_no_problem_and_both_roots_make_it_exact(tmp_path: Path) -> None:
    one = outcome_of(leave(tmp_path))
    assert one.problems == [] and one.tier == "exact"
    assert (one.count("passed"), one.count("skipped"), one.count("failed")) == (1, 1, 0)
    by_kprobe = [{**row, "how": "kprobe"} if row["id"] == "receive" else row for row in HOOKS]
    one = outcome_of(leave(tmp_path, probe_json=json.dumps({"hooks": by_kprobe, "sampler": {"events": []}})))
    assert one.problems == [] and one.tier == "exact by name, sampled by auto"


def test_losses_of_a_run_are_a_remark_and_nothing_else_is(tmp_path: Path) -> None:
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
        kept = leave(tmp_path / str(number))
        (kept / "ledger-one_copy.json").write_text(json.dumps(record))
        one = outcome_of(kept)
        assert (one.problems, one.remarks) == (problems, remarks)


def test_a_test_that_was_chosen_by_name_must_not_be_skipped(tmp_path: Path) -> None:
    one = outcome_of(leave(tmp_path))
    one.require(["test_a.py::test_one"])
    assert one.problems == []
    one.require(["test_a.py::test_two"])
    assert one.problems == ["test_a.py::test_two: skipped: no cable"]


def test_every_way_to_fail_is_a_problem(tmp_path: Path) -> None:
    failed = {**TESTS[0], "outcome": "failed", "said": "assert 1 == 2"}
    required = hook("copy_out_bytes", "bytes", "missing", None, required=True)
    cases = {
        "tests_jsonl": (json.dumps(failed), "test_a.py::test_one: assert 1 == 2"),
        "dmesg_txt": ("[    2.000000] WARNING: CPU: 0 PID: 1\n", "kernel log: "),
        "doctor_json": (json.dumps({**DOCTOR, "works": False}), "doctor: "),
        "probe_json": (json.dumps({"hooks": [required], "sampler": {"events": []}}), "required hook"),
    }
    for name, (text, said) in cases.items():
        problems = outcome_of(leave(tmp_path / name, **{name: text})).problems
        assert any(said in problem for problem in problems), (name, problems)
    empty = tmp_path / "hung"
    empty.mkdir()
    assert len(outcome_of(empty).problems) == 7


def test_a_way_that_is_not_what_it_was_on_this_kernel_is_a_problem(tmp_path: Path) -> None:
    kept = leave(tmp_path)
    table = json.loads((kept / "drill.json").read_text())
    row = next(row for row in table["ways"] if (row["way"], row["path"]) == ("vmsplice", "veth"))
    row["result"] = "copied before return"
    (kept / "drill.json").write_text(json.dumps(table))
    assert outcome_of(kept).problems == [
        "drill: vmsplice over veth: was by reference, is copied before return"
    ]


def test_tests_that_are_run_again_replace_themselves_and_nothing_else(tmp_path: Path) -> None:
    failed = [
        {**TESTS[0], "outcome": "failed", "said": "slow"},
        *TESTS,
        {**TESTS[0], "id": "test_b.py::test_one"},
    ]
    one = outcome_of(leave(tmp_path / "a", tests_jsonl="".join(json.dumps(row) + "\n" for row in failed)))
    assert one.problems == ["test_a.py::test_one: slow"]
    one.forget(["test_a.py::test_one"], "2026-01-02")
    assert [row["id"] for row in one.tests] == ["test_a.py::test_two", "test_b.py::test_one"]
    one.forget(["test_a.py"], "2026-01-02")
    assert [row["id"] for row in one.tests] == ["test_b.py::test_one"] and one.problems == []
    module("outcome").read_boot(leave(tmp_path / "b"), one, surveyed=False, tested=True)
    assert one.count("passed") == 2 and one.problems == []
    assert "; 2 run alone on 2026-01-02" in module("document").log([one], {})
    other = leave(tmp_path / "c", release="6.12.2-amd64\n")
    module("outcome").read_boot(other, one, surveyed=False, tested=True)
    assert one.problems == ["again: on 6.12.2-amd64, the other tests on 6.12.1-amd64"]


def test_what_is_kept_reads_back_the_same(tmp_path: Path) -> None:
    one = outcome_of(leave(tmp_path / "guest"))
    one.write(tmp_path)
    assert module("outcome").Outcome.read(tmp_path / "6.12.json") == one


def test_the_page_is_made_of_what_is_kept() -> None:
    """make check-kernels MATRIX=--page makes it again."""
    for path, text in module("matrix").pages().items():
        assert path.read_text() == text, path


def test_each_kernel_is_surveyed_once_and_brief_is_a_part_of_all() -> None:
    matrix, selection = module("matrix"), module("selection")
    live = {path.name for path in (paths.ROOT / "tests" / "live").glob("test_*.py")}
    assert set(selection.BESIDES) == {kernel.name for kernel in matrix.KERNELS if kernel.arch == "amd64"}
    for name in selection.BESIDES:
        full, brief, least = (selection.boots_of(name, sorted(live), extent) for extent in selection.EXTENTS)
        assert {test for boot in least for test in boot.tests} <= {
            test for boot in brief for test in boot.tests
        }
        assert [boot.surveys for boot in least] == [True]
        otherwise = selection.STARTED_OTHERWISE.get(name, ())
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


def test_the_figures_of_a_survey_are_those_of_its_record() -> None:
    record = derive(with_functions(raw_record("one_copy", phases=("unprobed", "ledger", "functions"))))
    found = module("figures").figures_of(record)
    assert found["one_copy, losses"] == "none; 1 that this kernel does not count"
    timed = sum(cell["timed_calls"] for cell in record["functions"]["cells"])
    assert found["one_copy, copies left out"] == f"0 of {timed} timed"


def test_copies_on_the_time_of_other_tasks_are_a_figure_where_there_are_copies() -> None:
    record = with_functions(raw_record("zero_copy", phases=("unprobed", "ledger", "functions")))
    owners = record["functions"]["owners"]
    copied = sum(row["bytes"] for row in owners)
    elsewhere = sum(row["bytes"] for row in owners if row["current_side"] != "sender")
    said = module("figures").copied_elsewhere
    assert 0 < elsewhere < copied
    assert said(record).startswith(f"{elsewhere:,} of {copied:,} bytes on the time of other tasks: ")
    record["functions"]["owners"] = None
    assert said(record) is None


def test_btf_is_found_behind_what_only_looks_like_it() -> None:
    btf = module("btf")
    types, strings = b"\x01" * (1 << 20), b"\0int\0"
    header = btf.START + struct.pack("<IIII", 0, len(types), len(types), len(strings))
    image = b"MZ" + btf.START + b"\xff" * 40 + header + types + strings + b"rest"
    assert btf.find(image) == header + types + strings
    with pytest.raises(ValueError, match="no BTF"):
        btf.find(image[: len(image) // 2])


def test_btf_of_what_cannot_be_read_is_an_error_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module("btf").main(str(tmp_path / "none"), str(tmp_path / "out")) == 1
    assert capsys.readouterr().err.startswith(f"btf: {tmp_path}/none: ")


def test_what_a_kernel_takes_of_a_compiler_is_told_from_what_a_policy_or_the_kernel_forbids(
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
    # It was loaded: attaching is no compiler's matter.
    assert judge("6.12", state="refused", reason="attach: Invalid argument").accepted == len(HOOKS) + 1
    (tmp_path / "clang-19-watched.json").write_text("")
    (tmp_path / "clang-19-watched.txt").write_text("collector: bpf: load: Invalid argument\n")
    (said,) = compilers.judge(tmp_path, "clang-19", "6.12").refused
    assert "did not start: collector: bpf" in said
