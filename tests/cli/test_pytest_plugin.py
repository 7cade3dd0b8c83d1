"""The fixture ``analyze_model`` in a user's tests: an analysis, and the gate as an assertion."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_ROOT = Path(__file__).parents[2]
_MODEL = _ROOT / "samples" / "boosted_trees.onnx"


@pytest.fixture
def result_of(pytester: pytest.Pytester) -> Callable[[str], pytest.RunResult]:
    """Run tests in a folder with a model, in a process of their own, with the plugin."""
    shutil.copy(_MODEL, pytester.path / "trees.onnx")
    # An installation made before the plugin was there has no entry point.
    known = any(entry.value == "analyzer.pytest_plugin" for entry in entry_points(group="pytest11"))

    def run(code: str) -> pytest.RunResult:
        pytester.makepyfile(code)
        return pytester.runpytest_subprocess("-q", *([] if known else ["-p", "analyzer.pytest_plugin"]))

    return run


def test_the_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"analyzer": "analyzer.pytest_plugin"}


def test_a_model_is_analysed_as_the_gate_does_it(result_of: Callable[[str], pytest.RunResult]) -> None:
    result_of(
        """
        def test_model(analyze_model):
            analysis = analyze_model("trees.onnx", gpu="l4", batch=8)
            assert analysis.model.batch == 8
            assert analysis.plan("cpu").origin == "predicted"  # nothing is executed
            assert analysis.devices.cpu.origin == "catalogue"  # the same on every machine
            analyze_model.assert_passes(analysis)
        """
    ).assert_outcomes(passed=1)


def test_what_the_gate_would_say_is_the_message_of_the_failure(
    result_of: Callable[[str], pytest.RunResult],
) -> None:
    result = result_of(
        """
        import pytest

        @pytest.mark.parametrize("limits", [{"max_latency": "1ns"}, {"fail_on": "note"}])
        def test_model(analyze_model, limits):
            analyze_model.assert_passes(analyze_model("trees.onnx", gpu="l4"), max_cpu_operators=9, **limits)
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*error A601 *max-latency 1.00 ns*", "failed: *trees*"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_a_baseline_holds_for_a_test(result_of: Callable[[str], pytest.RunResult]) -> None:
    result_of(
        """
        import pytest

        def test_model(analyze_model, tmp_path):
            one, eight = (analyze_model("trees.onnx", gpu="l4", batch=batch) for batch in (1, 8))
            (path,) = one.save(tmp_path, formats=["json"])
            analyze_model.assert_passes(one, baseline=path, fail_on_better=True)
            analyze_model.assert_passes(one, baseline=tmp_path / "none.json")
            with pytest.raises(Exception, match="the baseline is of another batch"):
                analyze_model.assert_passes(eight, baseline=str(path))
        """
    ).assert_outcomes(passed=1)


def test_a_limit_that_does_not_exist_is_refused_with_the_nearest(
    result_of: Callable[[str], pytest.RunResult],
) -> None:
    result = result_of(
        """
        def test_name(analyze_model):
            analyze_model.assert_passes(None, max_latncy="1ms")

        def test_value(analyze_model):
            analyze_model.assert_passes(None, max_latency="soon")
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*no option 'max_latncy'*max_latency*", "*UsageError: max-latency*"])


def test_the_plugin_imports_nothing_of_the_package_at_pytests_start() -> None:
    code = (
        "import sys, analyzer.pytest_plugin; print(sorted(name for name in sys.modules if 'analyzer' in name))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "['analyzer', 'analyzer.pytest_plugin']"
