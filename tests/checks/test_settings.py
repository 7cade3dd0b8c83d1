from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.checks.settings import RUN_OPTIONS, CheckSettings, Ignore, Settings, levels, read_settings
from analyzer.errors import UsageError
from analyzer.text import duration, share


def written(tmp_path: Path, text: str, name: Any = "pyproject.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_nearest_file_upwards_that_has_the_table_holds(tmp_path: Path) -> None:
    written(tmp_path, "[tool.analyzer]\nbatch = 64\n")
    inner = tmp_path / "models" / "vision"
    inner.mkdir(parents=True)
    written(inner, "[project]\nname = 'something else'\n")
    settings = read_settings(inner / "model.py")
    assert settings.default_map() == {"batch": "64"}


def test_the_working_folder_is_asked_where_the_model_has_none(tmp_path: Path) -> None:
    model, work = tmp_path / "a", tmp_path / "b"
    model.mkdir()
    work.mkdir()
    written(work, "[tool.analyzer]\ngpu = ['l4', 'a100']\n")
    assert read_settings(model / "model.py", folder=work).default_map() == {"gpu": "l4,a100"}


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_settings(tmp_path, folder=tmp_path) == Settings()


def test_every_long_option_of_the_contract_may_stand_there(tmp_path: Path) -> None:
    text = """
    [tool.analyzer]
    batch = [1, 64]
    input = ["x=B,3:float32", "y=B"]
    arg = ["hidden=512"]
    script-arg = ["--epochs", "1"]
    gpu = "l4"
    cpu = "epyc-9654"
    precision = "fp16"
    state = ["past=present"]
    no-state = false
    opset = 21
    onnxruntime = "1.29"
    no-run = true
    runs = 20
    time-budget = 2.5
    threads = 4
    training = false
    dataset-size = 50000
    objective = "cost"
    slo = "20ms"
    pin = ["head.*=cpu"]
    input-data = "inputs.npz"
    plan = "hybrid"
    fix = ["fusions"]
    provider-option = "prefer_nhwc"
    prices = "prices.toml"
    pricing = "spot"
    region = ["europe", "us-east-1"]
    utilisation = 0.5
    prompt = 2048
    output-tokens = 128
    gpus = 2
    weights = "int4"
    kv = "fp8"
    launch = "graph"
    ttft = "500ms"
    tpot = "30ms"
    rate = 500
    p50 = "20ms"
    p90 = "30ms"
    p95 = "40ms"
    p99 = "50ms"
    mean = "20ms"
    arrivals = "trace.csv"
    headroom = "20%"
    growth = 2
    spare = 1
    max-batch = 32
    max-delay = "2ms"
    format = ["html", "json"]
    chart = ["roofline", "cost"]
    output = "reports/"
    no-cache = true
    quiet = true
    verbose = false
    """
    written(tmp_path, text)
    found = read_settings(tmp_path).default_map()
    assert set(found) == {key.replace("-", "_") for key in RUN_OPTIONS}
    assert found["batch"] == "1,64"
    assert found["input"] == ("x=B,3:float32", "y=B")
    assert found["format"] == "html,json"
    assert (found["opset"], found["no_run"], found["slo"], found["time_budget"]) == ("21", True, "20ms", "2.5")


def test_the_gates_own_table_is_read_whole(tmp_path: Path) -> None:
    text = """
    [tool.analyzer.check]
    fail-on = ["warning", "A202"]
    warn-on = ["A103"]
    ignore = ["a301", { code = "A101", operator = "head.*", reason = "once a batch" }]
    max-cpu-operators = 2
    max-copies = 0
    max-latency = "20ms"
    max-ttft = "500ms"
    max-tpot = "30ms"
    min-tokens-per-s = 500
    max-usd-per-month = 2500.5
    min-rate = 900
    baseline = "ci/baseline.json"
    tolerance = "2%"
    fail-on-uncertain = true
    fail-on-better = true
    gpu = "t4"
    """
    written(tmp_path, text)
    check = read_settings(tmp_path).check
    assert check == CheckSettings(
        fail_on="warning",
        raise_to_error=("A202",),
        raise_to_warning=("A103",),
        fail_on_uncertain=True,
        fail_on_better=True,
        ignore=(Ignore(code="A301"), Ignore(code="A101", operator="head.*", reason="once a batch")),
        max_cpu_operators=2,
        max_copies=0,
        max_latency_s={"": 0.02},
        max_ttft_s=0.5,
        max_tpot_s=0.03,
        min_tokens_per_s=500.0,
        max_usd_per_month=2500.5,
        min_rate=900.0,
        baseline=tmp_path / "ci" / "baseline.json",
        tolerance=0.02,
        options={"gpu": "t4"},
    )


def test_the_check_takes_run_options_but_not_the_pages_formats(tmp_path: Path) -> None:
    written(tmp_path, "[tool.analyzer]\ngpu = 'l4'\nformat = 'html'\n[tool.analyzer.check]\ngpu = 't4'\n")
    settings = read_settings(tmp_path)
    assert settings.default_map() == {"gpu": "l4", "format": "html"}
    assert settings.default_map(check=True) == {"gpu": "t4"}


def test_latencies_by_plan(tmp_path: Path) -> None:
    written(tmp_path, "[tool.analyzer.check]\nmax-latency = { gpu = '5 ms', cpu = '0.1s' }\n")
    assert read_settings(tmp_path).check.max_latency_s == {"gpu": 0.005, "cpu": 0.1}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[tool.analyzer]\nbatchs = 1", "unknown key `batchs`", "mean batch?"),
        ("[tool.analyzer]\ntime_budget = 1", "unknown key `time_budget`", "mean time-budget?"),
        ("[tool.analyzer.check]\nmax-copy = 1", "unknown key `max-copy`", "mean max-copies?"),
        ("[tool.analyzer.check]\nmax-copies = -1", "max-copies -1: must be a whole number from 0", "Write 0"),
        ("[tool.analyzer.check]\nmax-copies = 'none'", "max-copies must be a whole number", "Write 0"),
        ("[tool.analyzer.check]\nmax-copies = true", "max-copies must be a whole number", "Write 0"),
        ("[tool.analyzer.check]\nmax-latency = 'soon'", "'soon' is no duration", "20ms"),
        ("[tool.analyzer.check]\nmax-latency = '0ms'", "above zero", "20ms"),
        ("[tool.analyzer.check]\nmax-latency = 50", "max-latency 50: a limit needs a unit", "50ms or 50s"),
        ("[tool.analyzer.check]\nmax-latency = { cpu = 0.5 }", "max-latency.cpu 0.5: a limit", "0.5ms or 0.5s"),
        ("[tool.analyzer.check]\nmax-latency = true", "max-latency must be a latency, not True", "20ms"),
        ("[tool.analyzer.check]\nmax-ttft = 1", "max-ttft 1: a limit needs a unit", "1ms or 1s"),
        ("[tool.analyzer.check]\nmax-tpot = '1'", "max-tpot 1: a limit needs a unit", "1ms or 1s"),
        ("[tool.analyzer.check]\nslo = 2.5", "slo 2.5: a limit needs a unit", "2.5ms or 2.5s"),
        ("[tool.analyzer]\nslo = '50'", "[tool.analyzer] slo 50: a limit needs a unit", "50ms or 50s"),
        ("[tool.analyzer]\nslo = [1]", "slo must be a latency, not [1]", "20ms"),
        ("[tool.analyzer]\nttft = 1", "ttft 1: a limit needs a unit", "1ms or 1s"),
        ("[tool.analyzer]\ntpot = 1", "tpot 1: a limit needs a unit", "1ms or 1s"),
        ("[tool.analyzer.check]\nmax-tpot = 'soon'", "max-tpot: 'soon' is no duration", "20ms"),
        ("[tool.analyzer.check]\nmin-tokens-per-s = 0", "min-tokens-per-s must be a number above", "500"),
        ("[tool.analyzer.check]\nmin-tokens-per-s = true", "min-tokens-per-s must be a number above", "500"),
        ("[tool.analyzer.check]\nmax-usd-per-month = '$2'", "max-usd-per-month must be a number above", "500"),
        ("[tool.analyzer.check]\nmin-rate = inf", "min-rate must be a number above zero, not inf", "500"),
        ("[tool.analyzer.check]\nmin-rate = -1", "min-rate must be a number above zero, not -1", "500"),
        ("[tool.analyzer]\nmin-rate = 1", "unknown key `min-rate`", ""),
        ("[tool.analyzer.check]\nmax-latency = {gpus = 1}", "unknown key `gpus`", "mean gpu?"),
        ("[tool.analyzer.check]\nfail-on = 'errors'", "'errors' is neither", "mean error?"),
        ("[tool.analyzer.check]\nfail-on = 3", "fail-on must be", "fail-on"),
        ("[tool.analyzer.check]\ntolerance = 'some'", "is no share", "5%"),
        ("[tool.analyzer.check]\ntolerance = 2", "2 is 200%", "2%"),
        ("[tool.analyzer.check]\nignore = 'A101'", "ignore: expected a list, got a text", "A202"),
        ("[tool.analyzer.check]\nignore = [{operator = 'x'}]", "ignore[0]: it lacks the key `code`", "A202"),
        ("[tool.analyzer.check]\nignore = [{code = 'A101', raison = 'x'}]", "unknown key `raison`", "reason?"),
        ("[tool.analyzer.check]\nbaseline = 7", "baseline must be a path", "baseline"),
        ("[tool.analyzer.check]\nfail-on-uncertain = 1", "must be true or false", "fail-on-uncertain"),
        ("[tool.analyzer]\nopset = 'x'", "opset x: an opset is a whole number", "--opset 20"),
        ("[tool.analyzer]\nopset = 2.5", "opset must be a whole number", "opset"),
        ("[tool.analyzer]\nutilisation = 2", "utilisation 2: must be from", "0.5"),
        ("[tool.analyzer]\nkv = 'fp9'", "kv fp9: no such value", "mean fp8?"),
        ("[tool.analyzer]\ntraining = 1", "training must be true or false", "training"),
        ("[tool.analyzer]\ncheck = 1", "must be a table", "[tool.analyzer.check]"),
        ("[tool]\nanalyzer = 1", "must be a table", "[tool.analyzer]"),
        ("[tool.analyzer\n", "cannot be read", "mend"),
    ],
)
def test_what_cannot_be_right_names_the_file_and_says_what_to_write(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_settings(tmp_path)
    assert str(path) in raised.value.message
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_a_file_that_is_no_text_is_an_error_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20ms", 0.02),
        ("1.5 s", 1.5),
        ("3", 3.0),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("2min", 120.0),
        (0.5, 0.5),
    ],
)
def test_durations_read_as_people_write_them(text: float | str, seconds: float) -> None:
    assert duration(text, where="here") == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "ms", "20 parsecs", "-1s", "0s", "nan", True, None, float("nan"), float("inf")]
)
def test_what_is_no_duration_is_refused(text: float | str | None) -> None:
    with pytest.raises(UsageError, match="here"):
        duration(text, where="here")


@given(st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_share_and_its_percentage_are_the_same(value: Any) -> None:
    assert share(f"{value * 100:.12f}%", where="here") == pytest.approx(share(value, where="here"), abs=1e-9)


def test_fail_on_takes_the_widest_severity_and_keeps_error_with_codes_alone() -> None:
    assert levels(["error", "note", "warning"], where="x") == ("note", ())
    assert levels(["a203"], where="x") == ("error", ("A203",))
    assert levels([], where="x") == ("error", ())


def test_the_baselines_path_is_beside_the_file_that_names_it(tmp_path: Path) -> None:
    written(tmp_path, "[tool.analyzer.check]\nbaseline = 'b.json'\n")
    inner = tmp_path / "deep"
    inner.mkdir()
    assert read_settings(inner).check.baseline == Path(tmp_path / "b.json")


def test_a_model_has_the_tables_that_name_it_on_top_of_the_gates_settings(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        (tmp_path / "models" / f"{name}.py").touch()
    written(
        tmp_path,
        """
        [tool.analyzer.check]
        gpu = "l4"
        max-copies = 3
        ignore = ["A103"]
        [[tool.analyzer.check.model]]
        path = "models/*.py"
        max-copies = 2
        ignore = ["A202"]
        [[tool.analyzer.check.model]]
        path = "models/a.py:Big"
        gpu = "h200"
        max-copies = 1
        """,
    )
    gate = read_settings(tmp_path).check

    def found(reference: str) -> tuple[Any, ...]:
        own = gate.for_model(reference)
        return own.options["gpu"], own.max_copies, [entry.code for entry in own.ignore]

    models = tmp_path / "models"
    assert found(f"{models}/b.py") == found(f"{models}/a.py") == ("l4", 2, ["A103", "A202"])
    assert found(f"{models}/a.py:Big") == ("h200", 1, ["A103", "A202"])
    assert found(f"{tmp_path}/c.py") == found("package.models:Big") == ("l4", 3, ["A103"])
