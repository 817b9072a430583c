"""What tests/conftest.py says of a test that failed once, and of one that failed beside other programs."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
RERUN = ("-p", "pytest_rerunfailures", "--reruns", "1")


def run(place: Path, *options: str, **names: str) -> tuple[int, str]:
    """Tests of their own, with our conftest as a plugin."""
    (place / "test_it.py").write_text(
        textwrap.dedent(
            """
            import os, time, pytest
            runs = []

            def test_second_time():
                runs.append(1)
                assert len(runs) == 2, "not yet"

            def test_never():
                assert runs == "never"

            @pytest.mark.quiet
            def test_slow():
                time.sleep(0.3)
                assert False, "it took too long"
            """
        )
    )
    argv = [sys.executable, "-P", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    argv += ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(place), *options, str(place)]
    env = {**os.environ, "PYTHONPATH": str(TESTS), **names}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_passes_the_second_time_is_named_and_what_fails_twice_has_failed(tmp_path: Path) -> None:
    status, said = run(tmp_path, *RERUN, "-k", "second_time")
    assert status == 0, said
    assert "FLAKY test_it.py::test_second_time: AssertionError: not yet" in said
    assert said.splitlines()[-1].startswith("1 passed, 2 deselected, 1 rerun in ")
    status, said = run(tmp_path, *RERUN, "-k", "never")
    assert status == 1 and "FLAKY" not in said
    assert said.count('>       assert runs == "never"') == 2, said


def test_what_compares_times_is_skipped_with_the_load_only_beside_others(tmp_path: Path) -> None:
    status, said = run(tmp_path, "-k", "slow", COPYSCOPE_OTHERS_MAX="1000")
    assert status == 1 and "it took too long" in said, said
    status, said = run(tmp_path, "-k", "slow", COPYSCOPE_OTHERS_MAX="-1000")
    assert status == 0, said
    assert "test_slow: other programs took " in said and "of a processor meanwhile: it took too long" in said
