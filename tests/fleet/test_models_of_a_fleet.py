"""Which models a fleet has: files, folders, patterns, manifests; what is wrong is said before any work."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_models import write_onnx

from analyzer.errors import AnalyzerError, ModelError, UsageError
from analyzer.fleet.job import jobs_of, own_files
from analyzer.fleet.model_list import models_of, read_manifest
from analyzer.fleet.node import model_path
from analyzer.fleet.store import key_of
from analyzer.record.fleet import Today, Traffic


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "zoo"
    (folder / "deep").mkdir(parents=True)
    write_onnx(folder / "a.onnx")
    write_onnx(folder / "deep" / "b.onnx")
    return folder


def names(*arguments: str) -> list[str]:
    return [entry.name for entry in models_of(arguments)]


def manifest(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_stands_for_the_models_in_it_and_in_its_folders(zoo: Path) -> None:
    assert names("zoo") == ["a", "b"]


def test_of_python_files_in_a_folder_those_that_define_a_model_are_taken(zoo: Path) -> None:
    (zoo / "net.py").write_text("import torch\nclass Net(torch.nn.Module):\n    pass\n")
    (zoo / "built.py").write_text("def build_model():\n    ...\n")
    (zoo / "made.py").write_text("model = 1\n")
    (zoo / "helpers.py").write_text("def f():\n    return 1\n")
    (zoo / "test_net.py").write_text("model = 1\n")
    (zoo / "broken.py").write_text("class (\n")
    (zoo / ".venv").mkdir()
    (zoo / ".venv" / "inside.py").write_text("model = 1\n")
    (zoo / "sums.py").write_text("def total(x):\n    return x.sum()\ndef example_inputs():\n    ...\n")
    assert names("zoo") == ["a", "built", "b", "made", "net", "sums"]


def test_a_pattern_stands_for_the_files_that_fit(zoo: Path) -> None:
    assert names("zoo/**/*.onnx") == ["a", "b"]


def test_a_model_with_arguments_is_no_pattern_and_its_path_begins_at_the_manifest(zoo: Path) -> None:
    (zoo / "net.py").write_text("")
    assert names("zoo/net.py:Net(sizes=[1, 2])") == ["net-Net"]
    text = '[[model]]\nreference = "net.py:Net(sizes=[1, 2], path=\'a/../b\')"\narg = ["depth=3"]\n'
    (entry,) = read_manifest(manifest(zoo, text))
    assert entry.reference == "zoo/net.py:Net(sizes=[1, 2], path='a/../b')"
    (asked,) = jobs_of(models_of([str(zoo / "fleet.toml")]), {})
    assert asked.decide.keywords["arg"] == ["depth=3"]
    own = {str(Path(path).name) for path in own_files(asked.decide).files}
    assert own == {"net.py"}
    assert model_path(asked.decide) == str(zoo / "net.py")
    other = replace(asked.decide, keywords={**asked.decide.keywords, "arg": ["depth=4"]})
    assert key_of(other) != key_of(asked.decide)


def test_a_folder_with_a_configuration_is_one_model_that_generates(zoo: Path) -> None:
    (zoo / "writer").mkdir()
    (zoo / "writer" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (entry,) = models_of(["zoo/writer"])
    assert (entry.name, entry.question) == ("writer", "generate")
    assert [entry.question for entry in models_of(["zoo"])] == ["run", "run", "generate"]


def test_what_is_named_twice_is_one_model(zoo: Path) -> None:
    assert names("zoo", "zoo/a.onnx", "./zoo/deep/b.onnx") == ["a", "b"]


def test_two_models_of_one_name_are_refused_with_both(zoo: Path) -> None:
    write_onnx(zoo / "deep" / "A.onnx")  # a file system may know no case
    with pytest.raises(UsageError, match=r"Two models are called A: zoo/a.onnx and zoo/deep/A.onnx") as refused:
        models_of(["zoo"])
    assert "manifest" in refused.value.hint


@pytest.mark.parametrize("name", ["index", "Fleet", "a/b", "..", "-x"])
def test_a_name_that_no_file_of_a_model_can_have_is_refused(zoo: Path, name: str) -> None:
    path = manifest(zoo, f'[[model]]\nreference = "a.onnx"\nname = "{name}"\n')
    with pytest.raises(UsageError, match="cannot be the name"):
        models_of([str(path)])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("empty", "holds no model"),
        ("zoo/*.pt2", "fits no model"),
        ("zoo/none.onnx", "No such file"),
        ("none.toml", "cannot be read"),
        ("report.json", "saved report"),
    ],
)
def test_what_names_no_model_is_one_error(zoo: Path, argument: str, message: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(AnalyzerError, match=message) as refused:
        models_of([argument])
    assert refused.value.hint


def test_no_model_at_all_is_an_error(zoo: Path) -> None:
    with pytest.raises(ModelError, match="No model is named"):
        models_of([])


def test_a_manifest_says_names_options_traffic_owners_and_tags(zoo: Path) -> None:
    path = manifest(
        zoo,
        """
[defaults]
batch = [1, 64]
owner = "platform"
options = { gpu = "t4" }

[[model]]
reference = "a.onnx"
name = "ranker"
batch = 8
inputs = ["x=B,4"]
owner = "search"
tags = ["prod", "cpu"]
traffic = { rate = 50, p95 = "80ms" }
today = { instance = "g5.xlarge", count = 2 }

[[model]]
reference = "deep/*.onnx"
precision = "fp16"
""",
    )
    ranker, other = models_of([str(path)])
    assert (ranker.reference, ranker.name, ranker.owner, ranker.tags) == (
        "zoo/a.onnx",
        "ranker",
        "search",
        ("prod", "cpu"),
    )
    assert ranker.options == {"batch": "8", "input": ("x=B,4",)}
    assert ranker.defaults == {"batch": "1,64", "gpu": "t4"}
    assert ranker.traffic == Traffic(rate=50, limit_s=0.08, percentile=95)
    assert ranker.today == Today(instance="g5.xlarge", count=2)
    assert (other.reference, other.name, other.owner) == ("zoo/deep/b.onnx", "b", "platform")
    assert other.options == {"precision": "fp16"}
    first, second = (asked.decide.keywords for asked in jobs_of([ranker, other], {}))
    assert first == {"batch": "8", "gpu": "t4", "input": ["x=B,4"], "run": False}
    assert second == {"batch": "1,64", "gpu": "t4", "precision": "fp16", "run": False}


def test_defaults_are_for_the_models_whose_question_takes_them(zoo: Path) -> None:
    (zoo / "writer").mkdir()
    (zoo / "writer" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    path = manifest(
        zoo,
        '[defaults]\noptions = { precision = "fp16", prompt = 64 }\n[[model]]\nreference = "a.onnx"\n'
        '[[model]]\nreference = "writer"\n',
    )
    first, second = (asked.decide.keywords for asked in jobs_of(models_of([str(path)]), {}))
    assert first == {"precision": "fp16", "run": False}
    assert second == {"prompt": 64, "run": False}
    path = manifest(zoo, '[[model]]\nreference = "a.onnx"\nprompt = 8\n')
    with pytest.raises(UsageError, match="`prompt` says nothing about a"):
        jobs_of(models_of([str(path)]), {})


def test_the_manifest_of_the_how_to_can_be_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "fleet.md").read_text(encoding="utf-8")
    (example,) = (block for block in re.findall(r"```toml\n(.*?)```", text, re.S) if "[[model]]" in block)
    ranker, zoo, assistant = read_manifest(manifest(tmp_path, example))
    assert (ranker.owner, ranker.traffic, ranker.today.count) == (
        "search",
        Traffic(rate=200, limit_s=0.05, percentile=99),
        2,
    )
    assert zoo.options == {"precision": "fp16"}
    assert assistant.options == {"prompt": 512, "tpot": "40ms"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[[model]]\nreference = "a.onnx"\nbatsh = 4\n', 3, "batsh"),
        ('[[model]]\nreference = "a.onnx"\n\n[[model]]\nreference = "b.onnx"\nbatch = true\n', 6, "batch"),
        ('[[model]]\nname = "x"\n', 1, "reference"),
        ('[defalts]\nbatch = 1\n[[model]]\nreference = "a.onnx"\n', 1, "defalts"),
        ('[[model]]\nreference = "a.onnx"\ntraffic = { rat = 5 }\n', 3, "rat"),
        ('[[model]]\nreference = "a.onnx"\ntraffic = { rate = -5 }\n', 3, "rate"),
        ('[[model]]\nreference = "a.onnx"\ntraffic = { rate = 5, p50 = "1s", p99 = "2s" }\n', 3, "p99"),
        ('[[model]]\nreference = "a.onnx"\ntoday = { count = 0, instance = "x" }\n', 3, "count"),
        ('[[model]]\nreference = "a.onnx"\nquestion = "train"\n', 3, "question"),
        ('[[model]]\nreference = "a.onnx"\noutput = "x"\n', 3, "output"),
        ('[[model]]\nreference = "a.onnx"\ntags = "x"\n', 3, "tags"),
        ('[defaults]\nowner = 1\n[[model]]\nreference = "a.onnx"\n', 2, "owner"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_told_with_its_line(zoo: Path, text: str, line: int, words: str) -> None:
    path = manifest(zoo, text)
    with pytest.raises(UsageError) as refused:
        read_manifest(path)
    assert f"{path}:{line}:" in refused.value.message
    assert words in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("table", "refused"), [("[defaults]\nfoo = 1\n[[model]]", "output name"), ("[[model]]\nfoo = 1", "output")]
)
def test_what_a_table_knows_is_told_once_each_and_without_what_it_refuses(
    zoo: Path, table: str, refused: str
) -> None:
    with pytest.raises(UsageError) as told:
        read_manifest(manifest(zoo, f'{table}\nreference = "a.onnx"\n'))
    known = (told.value.hint or "").removeprefix("It knows: ").split(", ")
    assert "batch" in known
    assert "gpu" in known
    assert len(known) == len(set(known))
    assert not set(known) & set(refused.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("rate = 50", "A limit of latency is missing"),
        ('p99 = "50ms"', "--rate is missing"),
        ('rate = 50\np99 = "50ms"\ntpot = "20ms"', "--tpot is of models that generate"),
    ],
)
def test_a_service_without_limit_or_rate_is_refused_before_any_work(
    zoo: Path, options: str, words: str
) -> None:
    path = manifest(zoo, f'[[model]]\nreference = "a.onnx"\nquestion = "capacity"\n{options}\n')
    with pytest.raises(UsageError, match=words) as told:
        jobs_of(models_of([str(path)]), {})
    assert f"{path}:1:" in told.value.message
    path = manifest(zoo, '[[model]]\nreference = "a.onnx"\nquestion = "capacity"\nrate = 50\np99 = "50ms"\n')
    (asked,) = jobs_of(models_of([str(path)]), {})
    assert asked.decide.question == "capacity"


def test_a_service_that_generates_wants_its_own_limit(zoo: Path) -> None:
    (zoo / "writer").mkdir()
    (zoo / "writer" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    path = manifest(zoo, '[[model]]\nreference = "writer"\nquestion = "capacity"\nrate = 5\n')
    with pytest.raises(UsageError, match="time to the first token is missing"):
        jobs_of(models_of([str(path)]), {})


def test_the_command_line_goes_before_the_manifest_and_the_manifest_before_the_settings(zoo: Path) -> None:
    (zoo.parent / "pyproject.toml").write_text("[tool.analyzer]\nbatch = 2\ngpu = 'a100'\nprecision = 'fp16'\n")
    path = manifest(zoo, '[[model]]\nreference = "a.onnx"\nbatch = 8\ngpu = "l4"\n')
    (asked,) = jobs_of(models_of([str(path)]), {"gpu": "t4"})
    assert asked.decide.keywords == {"batch": "8", "gpu": "t4", "precision": "fp16", "run": False}


def test_an_option_that_no_model_takes_is_refused(zoo: Path) -> None:
    with pytest.raises(UsageError, match="--prompt says nothing about these models"):
        jobs_of(models_of(["zoo"]), {"prompt": 128})


def test_a_device_that_nobody_knows_is_refused_before_any_work(zoo: Path) -> None:
    with pytest.raises(AnalyzerError, match="t44"):
        jobs_of(models_of(["zoo"]), {"gpu": "t44"})
