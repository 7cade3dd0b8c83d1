"""A folder with ``config.json`` of a model that does not generate: built by transformers, without weights."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer import analyze, plan_capacity
from analyzer.cli import run_command_line
from analyzer.errors import ModelError, UsageError
from analyzer.fleet.job import jobs_of
from analyzer.fleet.model_list import models_of
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.input_spec import parse_input

WIDTH, INNER, LAYERS, HEADS, WORDS = 32, 37, 2, 4, 99
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
}
BERT = {"model_type": "bert", "vocab_size": WORDS, "max_position_embeddings": 64, **SIZES}
CLASSIFIER = {**BERT, "architectures": ["BertForSequenceClassification"]}
DISTILBERT = {
    "model_type": "distilbert",
    "architectures": ["DistilBertForMaskedLM"],
    "vocab_size": WORDS,
    "max_position_embeddings": 512,
    "dim": WIDTH,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "hidden_dim": INNER,
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "image_size": 24,
    "patch_size": 8,
    "num_channels": 1,
    **SIZES,
}
WAV2VEC = {
    "model_type": "wav2vec2",
    "architectures": ["Wav2Vec2ForSequenceClassification"],
    "conv_dim": [WIDTH, WIDTH],
    "conv_kernel": [8, 4],
    "conv_stride": [5, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": WIDTH,
    **SIZES,
}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": WORDS, **SIZES}
# Products with their biases, two norms: of attention four, then out and back.
LAYER = 4 * (WIDTH * WIDTH + WIDTH) + 2 * 2 * WIDTH + (WIDTH * INNER + INNER) + (INNER * WIDTH + WIDTH)


def folder(path: Path, config: dict[str, Any], name: str = "tiny") -> Path:
    made = path / name
    made.mkdir()
    (made / "config.json").write_text(json.dumps(config))
    return made


def loaded(path: Path, **options: Any) -> Loaded:
    return load(parse_reference(str(path)), use_cache=False, **options)


def inputs(found: Loaded) -> dict[str, tuple[Any, str]]:
    return {value.name: (tuple(value.shape or ()), value.dtype.name) for value in found.graph().inputs}


def test_bert_is_built_and_takes_as_many_tokens_as_it_has_positions(tmp_path: Path) -> None:
    found = loaded(folder(tmp_path, CLASSIFIER), batch=3)
    assert found.name == "tiny"
    assert inputs(found) == {"input_ids": ((3, 64), "int64"), "attention_mask": ((3, 64), "int64")}
    # A text is filled with any of its words, and a mask leaves nothing out.
    assert found.guessed == (f"input_ids=B,64:int64=0..{WORDS - 1}", "attention_mask=B,64:int64=1")
    # Tables of words, positions and two kinds of sentences with their norm; the pooler, and two classes.
    tables = (WORDS + 64 + 2) * WIDTH + 2 * WIDTH
    assert found.parameters == tables + LAYERS * LAYER + WIDTH * WIDTH + WIDTH + 2 * WIDTH + 2
    assert found.supports(64)
    (logits,) = found.graph().outputs
    assert logits.shape == (3, 2)


def test_distilbert_takes_128_tokens(tmp_path: Path) -> None:
    found = loaded(folder(tmp_path, DISTILBERT))
    assert inputs(found)["input_ids"] == ((1, 128), "int64")
    # The head has a product and a norm, and shares its table with the words but for a bias.
    tables = (WORDS + 512) * WIDTH + 2 * WIDTH
    assert found.parameters == tables + LAYERS * LAYER + WIDTH * WIDTH + WIDTH + 2 * WIDTH + WORDS


def test_a_vision_transformer_takes_images_of_its_size(tmp_path: Path) -> None:
    found = loaded(folder(tmp_path, VIT), batch=2)
    assert inputs(found) == {"pixel_values": ((2, 1, 24, 24), "float32")}
    assert (found.inputs_origin, found.guessed) == ("file", ())
    # Nine patches and one more position, its own row; patches of 8 x 8; a norm and two classes.
    tables = 10 * WIDTH + WIDTH + (8 * 8 * WIDTH + WIDTH)
    assert found.parameters == tables + LAYERS * LAYER + 2 * WIDTH + 2 * WIDTH + 2


def test_without_a_class_the_base_model_is_built_in_its_own_type(tmp_path: Path) -> None:
    found = loaded(folder(tmp_path, {**BERT, "torch_dtype": "float16"}))
    assert found.graph().outputs[0].shape == (1, 64, WIDTH)
    assert found.parameter_bytes == 2 * (found.parameters or 0)


def test_a_report_that_is_called_config_is_a_report(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"schema_version": 1}')
    assert parse_reference(str(tmp_path / "config.json")).kind == "record"


def test_audio_takes_the_length_that_it_is_given(tmp_path: Path) -> None:
    found = loaded(folder(tmp_path, WAV2VEC), specs=(parse_input("input_values=B,400"),))
    assert inputs(found) == {"input_values": ((1, 400), "float32")}
    assert (found.inputs_origin, found.guessed) == ("given", ())


# A configuration says how many positions there are and never how many a text has; the sampling rate stands in
# another file.
@pytest.mark.parametrize(
    ("config", "guessed"),
    [
        (WAV2VEC, ("input_values=B,16000:float32",)),
        # 224 is the usual size of the class.
        (
            {key: value for key, value in VIT.items() if key != "image_size"},
            ("pixel_values=B,1,224,224:float32",),
        ),
    ],
)
def test_what_a_configuration_leaves_open_of_its_inputs_is_told_as_guessed(
    tmp_path: Path, config: dict[str, Any], guessed: tuple[str, ...]
) -> None:
    found = loaded(folder(tmp_path, config))
    assert (found.inputs_origin, found.guessed) == ("inferred", guessed)
    # Typed as they stand, they are the same inputs.
    again = loaded(found.reference.path.parent, specs=tuple(map(parse_input, guessed)))
    assert inputs(again) == inputs(found)


def test_the_report_of_a_configuration_says_which_length_was_assumed(tmp_path: Path) -> None:
    analysis = analyze(folder(tmp_path, DISTILBERT), run=False, gpu="none")
    told = f"Inputs guessed: input_ids=B,128:int64=0..{WORDS - 1}, attention_mask=B,128:int64=1"
    for form in ("text", "markdown", "html"):
        said = " ".join(analysis.render(form).replace("\\", "").split())
        assert told in said
        # A configuration has no weights: apply refuses it.
        assert "analyze apply" not in said


def test_a_model_that_generates_is_for_the_command_of_those(tmp_path: Path) -> None:
    made = folder(tmp_path, LLAMA)
    with pytest.raises(ModelError, match="generates") as caught:
        loaded(made)
    assert f"analyze generate {made}" in (caught.value.hint or "")


def test_code_of_the_folder_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**BERT, "architectures": ["OwnModel"], "auto_map": {"AutoModel": "own.OwnModel"}}
    made = folder(tmp_path, own)
    trap = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()"
    for name in ("own", "tokenizers", "configuration_bert", "sitecustomize"):
        (made / f"{name}.py").write_text(trap)
    with pytest.raises(
        ModelError, match=r"OwnModel is code of the folder itself \(`auto_map`\), which is never run"
    ):
        loaded(made)
    # Beside a class that transformers has, it says nothing that is needed; nor is a kernel fetched by its name.
    named = {**CLASSIFIER, "auto_map": own["auto_map"], "attn_implementation": "someone/kernel"}
    (made / "config.json").write_text(json.dumps(named))
    assert loaded(made).parameters
    assert not list(made.glob("*.ran"))
    assert str(made) not in sys.path


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"model_type": "no-such", "architectures": ["NoSuchModel"]}, "knows no NoSuchModel"),
        ({**BERT, "architectures": ["pipeline"]}, "knows no pipeline"),
        ({"model_type": 3}, "knows no 3"),
        ({}, "knows no None"),
        ({**CLASSIFIER, "num_attention_heads": 5}, "builds no BertForSequenceClassification"),
        ({**CLASSIFIER, "hidden_size": "wide"}, "builds no BertForSequenceClassification"),
    ],
)
def test_what_transformers_does_not_know_or_take_is_one_error(
    tmp_path: Path, config: dict[str, Any], told: str
) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        loaded(folder(tmp_path, config))
    assert caught.value.hint


def test_a_broken_configuration_is_one_error(tmp_path: Path) -> None:
    made = folder(tmp_path, {})
    (made / "config.json").write_text("{")
    with pytest.raises(UsageError, match="no valid JSON"):
        loaded(made)


def test_without_transformers_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match="not installed") as caught:
        loaded(folder(tmp_path, CLASSIFIER))
    assert caught.value.hint == "pip install 'onnx-analyzer[transformers]'"


def test_an_export_is_kept_until_the_configuration_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    made = folder(tmp_path, CLASSIFIER)
    reference = parse_reference(str(made))
    assert not load(reference).cached
    assert load(reference).cached
    (made / "config.json").write_text(json.dumps({**CLASSIFIER, "num_hidden_layers": 1}))
    assert not load(reference).cached


def test_it_runs_with_random_weights(tmp_path: Path) -> None:
    analysis = analyze(folder(tmp_path, VIT), gpu="l4", runs=2, cache=False)
    assert {plan.name: plan.origin for plan in analysis.plans}["cpu"] == "measured"


def test_every_command_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder(tmp_path, CLASSIFIER)
    assert run_command_line(["tiny", "--no-run", "--quiet", "--output", "out/"]) == 0
    record = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert record["invocation"]["model"] == "tiny/config.json"
    assert run_command_line(["check", "tiny/config.json", "--fail-on", "never"]) == 0
    assert plan_capacity("tiny", rate=10, p99="1s", gpu="l4", run=False).capacity is not None
    assert run_command_line(["apply", "tiny", "--output", "applied"]) == 2
    assert "no weights" in capsys.readouterr().err
    (entry,) = models_of(["tiny"])
    assert (entry.name, entry.question) == ("tiny", "run")
    assert jobs_of((entry,), {})[0].decide.question == "run"
