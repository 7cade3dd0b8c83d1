"""Decoders that are graphs: their axes told by what they belong to, their steps bound, their caches counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from decoder_models import Decoder, genai_config, growing, saved, shared_buffer, value
from onnx import TensorProto

from analyzer import analyze_generation
from analyzer.costs import count
from analyzer.errors import UsageError
from analyzer.generation.graphs.axes import GivenInput, axes_of
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.generation.sources import OpenedModel, from_genai, from_graph
from analyzer.graph import Graph

Loader = Callable[[onnx.ModelProto], OpenedModel]
GROWING, SHARED = Decoder(key_heads=4), Decoder()
FLOAT, HALF = 4, 2


@pytest.fixture
def source(tmp_path: Path) -> Loader:
    return lambda model: from_graph(saved(model, tmp_path))


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    saved(shared_buffer(SHARED), tmp_path)
    (tmp_path / "genai_config.json").write_text(json.dumps(genai_config(SHARED)), encoding="utf-8")
    return tmp_path


def step(source: OpenedModel, batch: int, tokens: int, context: int) -> Graph:
    return source.model.whole_step(StepSizes(batch=batch, tokens=tokens, context=context), StepTypes())


def macs(graph: Graph) -> int:
    return sum(cost.macs or 0 for cost in count(graph).costs)


@pytest.mark.parametrize(("batch", "tokens", "context"), [(1, 1, 40), (3, 1, 17), (2, 5, 5), (2, 4, 20)])
def test_a_step_of_a_graph_does_the_work_of_its_sizes(
    source: Loader, batch: int, tokens: int, context: int
) -> None:
    graph = step(source(growing(GROWING)), batch, tokens, context)
    # Each new token goes through all weights; scores and what they weigh: every query, every key, twice.
    scores = 2 * GROWING.layers * GROWING.heads * GROWING.size * tokens * context
    assert macs(graph) == batch * (tokens * GROWING.row_macs + scores)


def test_a_decode_step_of_grouped_queries_reads_the_whole_buffer(source: Loader) -> None:
    graph = step(source(shared_buffer(SHARED)), 2, 1, 50)
    scores = 2 * SHARED.layers * SHARED.heads * SHARED.size * 50
    assert macs(graph) == 2 * (SHARED.row_macs + scores)
    pasts = {tensor.name: tensor.shape for tensor in graph.inputs if tensor.name in graph.carried}
    assert set(pasts.values()) == {(2, SHARED.key_heads, 50, SHARED.size)}


def test_a_prompt_begins_with_an_empty_cache(source: Loader) -> None:
    graph = step(source(growing(GROWING)), 1, 7, 7)
    shapes = {tensor.name: tensor.shape for tensor in graph.inputs}
    assert shapes["past_key_values.0.key"] == (1, GROWING.heads, 0, GROWING.size)
    assert shapes["attention_mask"] == (1, 7)
    assert {tensor.name: tensor.shape for tensor in graph.outputs}["present.1.value"] == (1, 4, 7, 16)


@pytest.mark.parametrize(
    ("model", "decoder", "width"), [(growing, GROWING, FLOAT), (shared_buffer, SHARED, HALF)]
)
def test_a_cache_has_keys_and_values_of_every_layer(
    tmp_path: Path, model: Any, decoder: Decoder, width: int
) -> None:
    path = saved(model(decoder), tmp_path)
    answer = analyze_generation(path, run=False, gpu="a100", prompt=30, output_tokens=20).generation
    token = decoder.layers * 2 * decoder.key_heads * decoder.size * width
    assert (answer.kv_bytes_per_token, answer.state_bytes) == (token, 0)
    assert answer.memory.kv_bytes == token * 50
    # What is stored beside weights: few constants of the attention's arithmetic.
    tables = 2 * decoder.positions * decoder.size // 2 * width if model is shared_buffer else 0
    assert 0 <= answer.memory.weights_bytes - decoder.weights * width - tables < 200


def test_a_cache_that_grows_is_held_twice_and_a_buffer_once(tmp_path: Path) -> None:
    both = [
        analyze_generation(
            saved(model, tmp_path), run=False, gpu="a100", prompt=64, output_tokens=64
        ).generation
        for model in (growing(GROWING), shared_buffer(GROWING, TensorProto.FLOAT))
    ]
    grown, shared = (answer.memory for answer in both)
    assert grown.kv_bytes == shared.kv_bytes
    assert grown.activation_bytes > grown.kv_bytes
    assert grown.total_bytes == grown.weights_bytes + grown.kv_bytes + grown.activation_bytes


def test_a_folder_of_genai_tells_its_longest_sequence_and_its_types(genai: Path) -> None:
    analysis = analyze_generation(genai, run=False, gpu="a100", prompt=40, output_tokens=20)
    answer = analysis.generation
    assert (answer.weights, answer.kv, answer.model_context) == ("fp16", "fp16", SHARED.positions)
    assert answer.longest_context == SHARED.positions
    assert analysis.model.exporter == "onnx"
    assert answer.widths == () or {row.gpus for row in answer.widths} == {1}


def test_what_genai_says_of_its_buffer_counts(genai: Path) -> None:
    config = genai_config(SHARED, shared=False)
    (genai / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    model = from_genai(genai).model
    sizes = StepSizes(batch=1, tokens=1, context=50)
    pasts = [tensor.shape for tensor in model.whole_step(sizes, StepTypes()).inputs if "past" in tensor.name]
    assert set(pasts) == {(1, SHARED.key_heads, 49, SHARED.size)}


@pytest.mark.parametrize("name", ["../model.onnx", "", 7, None])
def test_a_folder_of_genai_names_no_file_outside_of_it(genai: Path, name: object) -> None:
    config = genai_config(SHARED)
    config["model"]["decoder"]["filename"] = name
    (genai / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UsageError, match="names no file next to it"):
        from_genai(genai)


def test_a_request_longer_than_the_tables_of_rotations_is_refused(tmp_path: Path) -> None:
    path = saved(shared_buffer(SHARED), tmp_path)
    with pytest.raises(UsageError, match="was made for 128"):
        analyze_generation(path, run=False, gpu="a100", prompt=100, output_tokens=29)


def test_a_model_without_a_cache_is_named_so(source: Loader) -> None:
    with pytest.raises(UsageError, match="is a model without a cache") as raised:
        source(growing(GROWING, cached=False))
    assert "text-generation-with-past" in (raised.value.hint or "")


def test_a_cache_that_is_not_fed_back_is_named(source: Loader) -> None:
    with pytest.raises(UsageError, match=r"the cache past_key_values\.1\.value is not fed back"):
        source(growing(GROWING, leave_out="present.1.value"))


def test_an_axis_of_one_size_is_named_with_the_way_out(source: Loader) -> None:
    with pytest.raises(UsageError, match=r"axis 1 of input_ids \(the new tokens\) is fixed to 1") as raised:
        source(growing(GROWING, past=20))
    assert "symbolic axes" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("option", "said"), [({"weights": "int4"}, "--weights int4"), ({"kv": "fp8"}, "--kv fp8")]
)
def test_a_graph_has_no_other_types_than_its_own(tmp_path: Path, option: dict[str, Any], said: str) -> None:
    path = saved(growing(GROWING), tmp_path)
    with pytest.raises(UsageError, match=said) as raised:
        analyze_generation(path, run=False, gpu="a100", prompt=8, output_tokens=8, **option)
    assert "Convert" in (raised.value.hint or "")


def test_packed_weights_are_told_from_the_products_that_read_them(tmp_path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    decoder = Decoder(inner=128)
    quantizer = MatMulNBitsQuantizer(shared_buffer(decoder, TensorProto.FLOAT), bits=4, block_size=32)
    quantizer.process()
    analysis = analyze_generation(
        saved(quantizer.model.model, tmp_path), run=False, gpu="a100", prompt=8, output_tokens=8
    )
    answer = analysis.generation
    assert (answer.weights, answer.kv, analysis.model.precision) == ("int4", "fp32", "fp32")
    # Half a byte an element of the products; the embedding stays as it is, and scales come on top.
    least = decoder.row_macs // 2 + decoder.vocabulary * decoder.hidden * 4
    assert least < answer.memory.weights_bytes < 1.7 * least


def test_a_graph_is_not_divided_between_devices(tmp_path: Path) -> None:
    path = saved(growing(GROWING), tmp_path)
    with pytest.raises(UsageError, match="--gpus 2"):
        analyze_generation(path, run=False, gpu="a100", gpus=2, prompt=8, output_tokens=8)


def test_more_tokens_take_no_less_time(tmp_path: Path) -> None:
    path = saved(growing(Decoder(layers=2, heads=32, key_heads=32, size=64, inner=8192)), tmp_path)
    answer = analyze_generation(path, run=False, gpu="a100", prompt=512, output_tokens=16).generation
    by_place = {(point.batch, point.context): point for point in answer.sweep}
    for (batch, context), point in by_place.items():
        more = by_place.get((2 * batch, context))
        assert more is None or more.tpot_s >= 0.999 * point.tpot_s
        assert point.ttft_s >= 0.9 * point.tpot_s


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (
            {"input_ids": ("B", "S"), "attention_mask": ("B", "past_sequence_length+1"),
             "past_key_values.0.key": ("B", 4, "past_sequence_length", 8)},
            {"B": "batch", "S": "tokens", "past_sequence_length+1": "context", "past_sequence_length": "past"},
        ),
        (
            {"inputs_embeds": ("b", "s", 64), "position_ids": (3, "b", "s"), "past_0": (2, "b", 4, "p", 8)},
            {"b": "batch", "s": "tokens", "p": "past"},
        ),
        (
            {"input_ids": ("b", "s"), "mask": ("b", 1, "q", "k"), "cache_position": ("s",),
             "cache_0": ("b", "length", 32)},
            {"b": "batch", "s": "tokens", "q": "tokens", "k": "context", "length": "past"},
        ),
        (  # as torch.onnx names them, beside the switch of a merged decoder
            {"input_ids": ("s0", "s1"), "past_3": ("s0", 4, "s2", 8), "use_cache_branch": (1,)},
            {"s0": "batch", "s1": "tokens", "s2": "past"},
        ),
    ],
)  # fmt: skip
def test_an_axis_is_told_by_the_input_that_it_belongs_to(
    names: dict[str, tuple[int | str, ...]], roles: dict[str, str]
) -> None:
    floats = ("inputs_embeds", "past", "cache_0")
    inputs = [
        GivenInput(name=name, shape=shape, is_integer=not name.startswith(floats))
        for name, shape in names.items()
    ]
    assert axes_of(inputs, name="model", shared=False).roles == roles


# As optimum-cli export onnx and ONNX Runtime GenAI's builder call them, and one graph of both parts.
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("encoder_hidden_states", "encoder_hidden_states comes from an encoder"),
        ("past_key_values.0.encoder.key", "past_key_values.0.encoder.key comes from an encoder"),
        ("past_key_cross_0", "past_key_cross_0 comes from an encoder"),
        ("decoder_input_ids", "decoder_input_ids is the decoder's part of a graph that has an encoder too"),
    ],
)
def test_an_encoders_decoder_as_a_graph_is_one_error_that_names_the_way_out(
    source: Loader, name: str, said: str
) -> None:
    model = growing(GROWING)
    model.graph.input.append(value(name, ["batch_size", "source", 32], TensorProto.FLOAT))
    with pytest.raises(UsageError, match=said) as raised:
        source(model)
    assert raised.value.hint == (
        "Give the model's config.json instead: encoder and decoder are predicted from it."
    )


def test_of_a_graph_of_many_operators_few_sizes_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(growing(GROWING), path)
    monkeypatch.setattr("analyzer.generation.answer._ALL_SIZES_UP_TO", 10)
    found = analyze_generation(
        path, run=False, gpu="a100", cpu="epyc-9654", prompt=60, output_tokens=4, batch=3
    )
    assert found.generation is not None
    assert [(point.batch, point.context) for point in found.generation.sweep] == [
        (batch, context) for batch in (1, 3, 16, 256) for context in (64, 1024, 16384)
    ]
