"""Products on tensor cores, attention, packed weights, experts: published ratios and laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import prediction_graphs as made
import pytest
from session_totals import session_overhead

from analyzer import prediction
from analyzer.costs import count
from analyzer.costs.registry import count_node
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.graph import Graph, Node, Tensor
from analyzer.prediction.attention_pieces import attention_shape
from analyzer.prediction.features import pieces_of
from analyzer.prediction.gpu.attention import Attentions, Mixtures, hit_experts
from analyzer.prediction.gpu.constants import FITTED
from analyzer.prediction.gpu.kernels import chosen_by_library
from analyzer.prediction.gpu.launch import NODE_S, PRODUCT_S
from analyzer.prediction.work_item import Kind


def in_graph(one: Graph, device: Device, precision: str = "fp16") -> float:
    """Seconds of a graph's kernels inside a CUDA graph: without what the host adds."""
    found = prediction.predict_arrays(made.work(one), device, precision=precision)
    assert found.overheads is not None
    return float((found.value - found.overheads.host_s).sum())


def microsoft(op: str, inputs: list[Tensor | None], outputs: list[Tensor], **attributes: Any) -> Graph:
    """A graph of one contrib operator."""
    one = Node(
        index=0, name="n0", op_type=op, domain="com.microsoft", version=1, inputs=tuple(inputs),
        outputs=tuple(outputs), attributes=attributes,
    )  # fmt: skip
    given = tuple(tensor for tensor in inputs if tensor is not None)
    return Graph(
        name="g",
        nodes=(one,),
        inputs=tuple(tensor for tensor in given if not tensor.constant),
        outputs=tuple(outputs),
        initializers=tuple(tensor for tensor in given if tensor.constant),
        opsets={"com.microsoft": 1},
    )


def packed(m: int, n: int, k: int, bits: int = 4, block: int = 128) -> Graph:
    weights = made.tensor("w", n, k // block, block * bits // 8, dtype="uint8", constant=True)
    scales = made.tensor("s", n * (k // block), dtype="float16", constant=True)
    source, result = made.tensor("x", m, k, dtype="float16"), made.tensor("y", m, n, dtype="float16")
    inputs: list[Tensor | None] = [source, weights, scales]
    return microsoft("MatMulNBits", inputs, [result], N=n, K=k, bits=bits, block_size=block)


def half(m: int, n: int, k: int) -> Graph:
    weight = made.tensor("w", k, n, dtype="float16", constant=True)
    source, result = made.tensor("x", m, k, dtype="float16"), made.tensor("y", m, n, dtype="float16")
    return made.graph(made.node("MatMul", [source, weight], result))


def cached_attention(
    batch: int, queries: int, keys: int, heads: int, key_heads: int, *, size: int = 128, window: int = -1,
    cache: str = "float16", past: int | None = None, causal: int = 1,
) -> Graph:  # fmt: skip
    """GroupQueryAttention whose cache holds ``keys`` in the end; its past is as long unless told."""
    length = keys if past is None else past
    inputs: list[Tensor | None] = [
        made.tensor("q", batch, queries, heads * size, dtype="float16"),
        made.tensor("k", batch, queries, key_heads * size, dtype="float16"),
        made.tensor("v", batch, queries, key_heads * size, dtype="float16"),
        made.tensor("pk", batch, key_heads, length, size, dtype=cache),
        made.tensor("pv", batch, key_heads, length, size, dtype=cache),
        made.tensor("l", batch, dtype="int32"),
        made.tensor("t", 1, dtype="int32"),
    ]
    outputs = [
        made.tensor("y", batch, queries, heads * size, dtype="float16"),
        made.tensor("nk", batch, key_heads, keys, size, dtype=cache),
        made.tensor("nv", batch, key_heads, keys, size, dtype=cache),
    ]
    attributes = {"num_heads": heads, "kv_num_heads": key_heads, "local_window_size": window, "causal": causal}
    return microsoft("GroupQueryAttention", inputs, outputs, **attributes)


@pytest.mark.parametrize("slug", ["l40s", "a100-80gb-sxm", "h100-80gb-sxm", "gb200"])
def test_the_least_product_takes_two_microseconds(slug: str) -> None:
    """The least that bf16 products take inside CUDA graphs: 1.65 us (L40S), 1.75 (GB200), usually 2.1."""
    assert 1.6e-6 < in_graph(half(1, 32, 32), catalogue.device(slug)) < 2.4e-6


def test_four_bits_pay_for_one_row_and_not_for_many() -> None:
    """On an L40S: 3.5 times over bf16 for one row, 1.04 for many (ai-dynamo/aiconfigurator)."""
    card = catalogue.device("l40s")
    one = in_graph(half(1, 16384, 16384), card) / in_graph(packed(1, 16384, 16384), card)
    many = in_graph(half(8192, 8192, 8192), card) / in_graph(packed(8192, 8192, 8192), card)
    assert one == pytest.approx(3.5, rel=0.2)
    assert many == pytest.approx(1.04, rel=0.1)


@pytest.mark.parametrize(("rows", "measured"), [(1, 7.7e-6), (16, 32e-6), (128, 27.6e-6), (2048, 109e-6)])
def test_the_interval_of_packed_weights_holds_what_onnx_runtime_takes(rows: int, measured: float) -> None:
    """MatMulNBits, 4096 x 4096 in blocks of 32, on an H100 (tests/data/gpu): unpacked by row, then at once."""
    found = prediction.predict_arrays(
        made.work(packed(rows, 4096, 4096, block=32)), catalogue.device("h100-80gb-sxm"), precision="fp16"
    )
    assert float(found.low[0]) < measured < float(found.high[0])


def test_a_long_inner_dimension_takes_its_steps() -> None:
    """One small tile waits for its own loop: on an L40S 8 rows by [1024, 32] take 6.5 us, by [32, 32] 2.1."""
    card = catalogue.device("l40s")
    assert in_graph(half(8, 32, 1024), card) == pytest.approx(6.5e-6, rel=0.3)
    # Blackwell's copy engine feeds its tensor cores ahead: 3.3 us.
    assert in_graph(half(8, 32, 1024), catalogue.device("gb200")) == pytest.approx(3.3e-6, rel=0.3)


def test_weights_that_the_cache_keeps_are_read_from_it() -> None:
    """Weights of 2 MB alone stay in the 96 MB of an L40S; of a hundred such layers each is read from memory."""
    card = catalogue.device("l40s")
    layers = []
    last = made.tensor("t0", 1, 1024, dtype="float16")
    for layer in range(100):
        weight = made.tensor(f"w{layer}", 1024, 1024, dtype="float16", constant=True)
        following = made.tensor(f"t{layer + 1}", 1, 1024, dtype="float16")
        layers.append(made.node("MatMul", [last, weight], following, layer))
        last = following
    alone, among = in_graph(half(1, 1024, 1024), card), in_graph(made.graph(*layers), card) / 100
    assert alone < among
    assert among > 2 * 1024**2 / 864e9


def test_what_was_just_written_is_read_at_the_cache_s_speed() -> None:
    """16 MB in and out: an H200 passes 5.7 TB/s, beyond its memory's 4.8; 400 MB pass at the memory's."""
    card = catalogue.device("h200")
    near, far = 8 * 2**20, 100 * 2**20
    small = in_graph(made.elementwise("Relu", near // 2), card)
    large = in_graph(made.elementwise("Relu", far), card)
    assert 2 * near / (small - 1.8e-6) > 4.8e12
    assert 4 * far / large < 4.8e12


def test_eight_bit_floats_multiply_faster_than_sixteen() -> None:
    card = catalogue.device("h100-80gb-sxm")
    operands: list[Tensor | None] = [
        made.tensor("x", 8192, 8192, dtype="float8e4m3fn"),
        made.tensor("w", 8192, 8192, dtype="float8e4m3fn", constant=True),
    ]
    eight = microsoft("GemmFloat8", operands, [made.tensor("y", 8192, 8192, dtype="bfloat16")], transB=1)
    gain = in_graph(half(8192, 8192, 8192), card) / in_graph(eight, card)
    assert 1.5 < gain <= 2.0


@pytest.mark.parametrize(("slug", "measured"), [("gb200", 172e-6), ("rtx-pro-6000-blackwell-server", 316e-6)])
def test_activations_are_quantised_at_the_speed_of_ordinary_cores(slug: str, measured: float) -> None:
    """A product of 32 columns is next to nothing beside quantising its 32768 rows of 3072.

    The mean of TensorRT-LLM, vLLM and SGLang (ai-dynamo/aiconfigurator); memory alone would take 45 us on a
    GB200.
    """
    wide = made.tensor("x", 32768, 3072, dtype="bfloat16")
    step = made.tensor("s", 1, dtype="bfloat16", constant=True)
    narrow = made.tensor("q", 32768, 3072, dtype="float8e4m3fn")
    weight = made.tensor("w", 32, 3072, dtype="float8e4m3fn", constant=True)
    product = microsoft(
        "GemmFloat8", [narrow, weight], [made.tensor("y", 32768, 32, dtype="bfloat16")], transB=1
    ).nodes[0]
    both = made.graph(made.node("QuantizeLinear", [wide, step], narrow), replace(product, index=1))
    assert in_graph(both, catalogue.device(slug), "bf16") == pytest.approx(measured, rel=0.2)


def pairs_one_by_one(queries: int, before: int, window: int, *, causal: bool) -> int:
    """Pairs of query and key, counted."""
    found = 0
    for query in range(queries):
        for key in range(before + queries):
            late = causal and key > before + query
            far = window and causal and key <= before + query - window
            found += not late and not far
    return found


@pytest.mark.parametrize(
    ("queries", "before", "window", "causal"),
    [(7, 0, 0, True), (7, 5, 0, True), (7, 5, 4, True), (9, 0, 20, True), (3, 10, 11, True), (1, 8, 4, True),
     (7, 0, 0, False), (7, 5, 0, False)],
)  # fmt: skip
def test_pairs_are_those_that_a_mask_leaves(queries: int, before: int, window: int, causal: bool) -> None:
    one = np.ones(1)
    calls = Attentions(
        batch=one, queries=queries * one, before=before * one, heads=one, key_heads=one, size=64 * one,
        window=window * one, causal=np.array([causal]), cache_bytes=2 * one, kept=0 * one,
    )  # fmt: skip
    assert calls.pairs[0] == pairs_one_by_one(queries, before, window, causal=causal)


@pytest.mark.parametrize("slug", ["a100-80gb-sxm", "h100-80gb-sxm", "l40s"])
def test_long_caches_are_read_once_at_the_memory_s_speed(slug: str) -> None:
    """64 sequences of 8192 keys: kernels of every engine reach 0.8 to 0.95 of the bandwidth."""
    card = catalogue.device(slug)
    read = 2 * 64 * 8 * 8192 * 128 * 2
    assert 0.7 < read / card.bandwidth_bytes_per_s / in_graph(cached_attention(64, 1, 8192, 32, 8), card) < 0.97


def test_grouped_heads_and_narrow_caches_read_less() -> None:
    card = catalogue.device("a100-80gb-sxm")
    grouped = in_graph(cached_attention(32, 1, 8192, 32, 8), card)
    assert in_graph(cached_attention(32, 1, 8192, 32, 32), card) / grouped == pytest.approx(4, rel=0.15)
    narrow = in_graph(cached_attention(32, 1, 8192, 32, 8, cache="int8"), card)
    assert grouped / narrow == pytest.approx(2, rel=0.15)
    assert in_graph(cached_attention(32, 1, 8192, 32, 8, window=1024), card) < grouped / 4


def test_a_cache_of_four_bits_holds_two_elements_in_a_byte() -> None:
    card = catalogue.device("a100-80gb-sxm")
    whole = cached_attention(32, 1, 8192, 32, 8, cache="uint8")
    node = whole.nodes[0]
    # The buffer's last axis is half as long (kv_cache_bit_width of onnxruntime's contrib operators).
    narrow = [made.tensor(name, 32, 8, 8192, 64, dtype="uint8") for name in ("pk", "pv", "nk", "nv")]
    inputs = (*node.inputs[:3], *narrow[:2], *node.inputs[5:])
    nodes = (
        replace(
            node,
            inputs=inputs,
            outputs=(node.outputs[0], *narrow[2:]),
            attributes=dict(node.attributes) | {"kv_cache_bit_width": 4},
        ),
    )
    packed_by_two = replace(whole, nodes=nodes)
    shape = attention_shape(nodes[0])
    assert shape is not None
    assert shape.cache_bytes == 0.5
    assert in_graph(packed_by_two, card) < in_graph(whole, card)


def test_a_causal_mask_halves_a_long_prefill() -> None:
    card = catalogue.device("a100-80gb-sxm")
    causal = in_graph(cached_attention(1, 16384, 16384, 32, 32), card)
    whole = in_graph(cached_attention(1, 16384, 16384, 32, 32, causal=0), card)
    assert whole / causal == pytest.approx(2, rel=0.15)


def test_a_prompt_of_one_token_runs_as_prompts_do() -> None:
    """128 of them, 64 heads: 145 us on a GB200, of which a decode on so short a cache would take a third.

    Some engines fill a tile with the heads that share keys (aiconfigurator).
    """
    card = catalogue.device("gb200")
    alone = in_graph(cached_attention(128, 1, 1, 64, 64), card)
    shared = in_graph(cached_attention(128, 1, 1, 64, 1), card)
    assert alone == pytest.approx(145e-6, rel=0.2)
    assert shared < 0.85 * alone


def test_twice_the_exponentials_make_long_prompts_quicker() -> None:
    """Eight prompts of 12288 tokens, 32 heads: 7.7 ms on a B300, 8.9 on a GB200 (aiconfigurator)."""
    ultra, usual = (
        in_graph(cached_attention(8, 12288, 12288, 32, 1), catalogue.device(slug)) for slug in ("b300", "gb200")
    )
    assert ultra / usual == pytest.approx(7.7 / 8.9, rel=0.1)


@pytest.mark.parametrize(("slug", "measured"), [("gb200", 13.4e-6), ("rtx-pro-6000-blackwell-server", 23.7e-6)])
def test_each_head_walks_its_window_where_threads_copy(slug: str, measured: float) -> None:
    """64 sequences of 16384, a window of 128, 16 heads of 64 on 4 (aiconfigurator)."""
    step = cached_attention(64, 1, 16384, 16, 4, size=64, window=128)
    assert in_graph(step, catalogue.device(slug)) == pytest.approx(measured, rel=0.3)


@pytest.mark.parametrize(("slug", "measured"), [("l40s", 28.8e-6), ("rtx-pro-6000-blackwell-server", 28.5e-6)])
def test_one_engine_in_three_does_not_split_the_keys_of_single_heads(slug: str, measured: float) -> None:
    """16 sequences of 4096 keys of one head (aiconfigurator): FlashAttention 2 takes 81 us, others 20."""
    assert in_graph(cached_attention(16, 1, 4096, 1, 1), catalogue.device(slug)) == pytest.approx(
        measured, rel=0.2
    )


def test_an_h100_decodes_as_measured() -> None:
    """ONNX Runtime's GroupQueryAttention on an H100 (tests/data/gpu), 32 heads on 8."""
    card = catalogue.device("h100-80gb-sxm")
    for batch, keys, measured in ((8, 4096, 55e-6), (64, 4096, 390e-6)):
        assert in_graph(cached_attention(batch, 1, keys, 32, 8), card) == pytest.approx(measured, rel=0.3)


def test_a_cache_as_long_as_what_comes_out_is_one_buffer() -> None:
    """It is taken as full, and the new tokens' rows alone are written; a shorter past is copied."""
    shared = count(cached_attention(4, 1, 1000, 8, 2)).costs[0]
    grown = count(cached_attention(4, 1, 1000, 8, 2, past=999)).costs[0]
    assert shared.flops == grown.flops
    row = 2 * 2 * 4 * 2 * 128
    result = 2 * 4 * 8 * 128
    assert shared.bytes_written == row + result
    assert grown.bytes_written == 1000 * row + result


def test_a_cpu_copies_a_cache_and_turns_its_keys_once_a_head() -> None:
    """Batch 4, one token, 999 keys before it, 8 heads of 128 on 2 of keys: a product a head, of fp32 floats."""
    node = cached_attention(4, 1, 1000, 8, 2, past=999, cache="float32").nodes[0]
    pieces = pieces_of(node, count_node(node))
    copies = [piece for piece in pieces if piece.kept]
    past, present = 4 * 2 * 999 * 128 * 4, 4 * 2 * 1000 * 128 * 4
    assert [(piece.read, piece.written) for piece in copies] == [(past, present)] * 2
    assert [piece.kept for piece in copies] == [past + present] * 2
    products = [piece for piece in pieces if piece.kind == Kind.MATMUL]
    assert sum(piece.flops * piece.repeats for piece in products) == 2 * 2 * 4 * 8 * 1000 * 128
    turned = [piece.elements * piece.repeats for piece in pieces if piece.op == "TransposeHeads"]
    assert turned == [4 * 8 * 1000 * 128]
    assert sum(piece.rows * piece.row for piece in pieces if piece.kind == Kind.SOFTMAX) == 4 * 8 * 1000


def test_a_cache_in_place_is_read_and_not_written() -> None:
    node = cached_attention(4, 1, 1000, 8, 2, cache="float32").nodes[0]
    copies = [piece for piece in pieces_of(node, count_node(node)) if piece.kept]
    assert [(piece.read, piece.written) for piece in copies] == [(4 * 2 * 1000 * 128 * 4, 0.0)] * 2


def test_a_prompt_reads_keys_in_panels_for_all_its_tokens() -> None:
    """Nothing is turned where many rows are multiplied: that is in the rate of batched products."""
    node = cached_attention(1, 16, 1016, 8, 2, past=1000, cache="float32").nodes[0]
    pieces = pieces_of(node, count_node(node))
    assert not [piece for piece in pieces if piece.op == "TransposeHeads"]
    assert {piece.repeats for piece in pieces} == {1.0}
    assert sum(piece.flops for piece in pieces if piece.kind == Kind.MATMUL) == 2 * 2 * 8 * 16 * 1016 * 128


def mixture(tokens: int) -> Graph:
    """8 experts of 512 by 1,024, gated, 2 a token."""
    inputs: list[Tensor | None] = [
        made.tensor("x", tokens, 512),
        made.tensor("p", tokens, 8),
        made.tensor("w1", 8, 2048, 512, constant=True),
        None,
        made.tensor("w2", 8, 512, 1024, constant=True),
    ]
    outputs = [made.tensor("y", tokens, 512)]
    return microsoft("MoE", inputs, outputs, k=2, activation_type="swiglu", swiglu_fusion=1)


@pytest.mark.parametrize(("tokens", "hit"), [(1, 2), (3, 6), (256, 8)])
def test_a_cpu_multiplies_by_each_expert_that_has_a_token(tokens: int, hit: int) -> None:
    """For each of them 3 x 512 x 1,024 multiplications."""
    node = mixture(tokens).nodes[0]
    pieces = pieces_of(node, count_node(node))
    products = [piece for piece in pieces if piece.kind == Kind.MATMUL]
    assert {piece.repeats for piece in products} == {hit}
    assert sum(piece.flops * piece.repeats for piece in products) == 2 * 3 * tokens * 2 * 512 * 1024
    # Weights of experts without a token stay where they are.
    assert sum(piece.kept * piece.repeats for piece in products) == hit * 3 * 512 * 1024 * 4
    assert [piece.elements for piece in pieces if piece.kind == Kind.VECTOR] == [tokens * 2 * 1024]


@pytest.mark.parametrize(("tokens", "useful"), [(1, 2), (2, 4), (256, 8)])
def test_threads_of_a_cpu_take_whole_experts(tokens: int, useful: int) -> None:
    """Of 16 as many as experts have a token, and eight at most: the others wait."""
    rates = {f"gemm.float32.t{t}.m{m}.n1024.k1024": t * 1e11 for t in (1, 16) for m in (1, 64)}
    rates |= {f"copy.t{t}.{size}": 1e18 for t in (1, 16) for size in (65536, 268435456)}
    known = {"threads": 16.0, "cores": 16.0, "dispatch.t16": 1e-12, "call.t16": 1e-12, **rates}
    cpu = replace(catalogue.device("epyc-9654"), calibration=known, origin="calibrated")
    (group,) = prediction.predict(made.work(mixture(tokens), "cpu"), cpu)
    flops, elements = 2 * 3 * tokens * 2 * 512 * 1024, tokens * 2 * 1024
    assert group.value == pytest.approx((flops / 1e11 + elements * 1.16e-8) / useful, rel=0.01)


def test_a_masked_decode_writes_its_new_rows_alone() -> None:
    """DecoderMaskedMultiHeadAttention on a cache that past and present share."""
    inputs: list[Tensor | None] = [made.tensor(name, 4, 1, 1024, dtype="float16") for name in "qkv"]
    inputs += [None, None, *[made.tensor(name, 4, 8, 1000, 128, dtype="float16") for name in ("pk", "pv")]]
    outputs = [
        made.tensor("y", 4, 1, 1024, dtype="float16"),
        *[made.tensor(name, 4, 8, 1000, 128, dtype="float16") for name in ("nk", "nv")],
    ]
    one = microsoft("DecoderMaskedMultiHeadAttention", inputs, outputs, num_heads=8)
    assert count(one).costs[0].bytes_written == 3 * 4 * 1024 * 2


def test_scales_of_eight_bits_make_no_packed_weights() -> None:
    """A product whose operand is an 8-bit constant, not unpacked on the way, is a library's."""
    weight = made.tensor("w", 512, 512, dtype="int8", constant=True)
    source, result = made.tensor("x", 8, 512, dtype="int8"), made.tensor("y", 8, 512, dtype="int32")
    integers = made.work(made.graph(made.node("MatMulInteger", [source, weight], result)))
    assert chosen_by_library(integers).all()
    assert not chosen_by_library(made.work(packed(8, 512, 512))).any()


def attention_of_two(queries: int, keys: int, *, biased: bool = False) -> Graph:
    """MultiHeadAttention of one sequence on another, with a bias for each pair or without."""
    inputs: list[Tensor | None] = [
        made.tensor("q", 1, queries, 512, dtype="float16"),
        made.tensor("k", 1, keys, 512, dtype="float16"),
        made.tensor("v", 1, keys, 512, dtype="float16"),
    ]
    if biased:
        inputs += [None, None, made.tensor("b", 1, 8, queries, keys, dtype="float16")]
    return microsoft(
        "MultiHeadAttention", inputs, [made.tensor("y", 1, queries, 512, dtype="float16")], num_heads=8
    )


def test_attention_across_two_sequences_works_on_their_pairs() -> None:
    """4096 queries on 77 keys, as in an image model that reads a text: a fiftieth of the work on themselves."""
    card = catalogue.device("h100-80gb-sxm")
    assert in_graph(attention_of_two(4096, 77), card) < in_graph(attention_of_two(4096, 4096), card) / 3


def test_a_bias_for_every_pair_is_read() -> None:
    card = catalogue.device("h100-80gb-sxm")
    read = 8 * 8192 * 8192 * 2
    assert in_graph(attention_of_two(8192, 8192, biased=True), card) > read / card.bandwidth_bytes_per_s


def test_rotary_tables_are_read_by_rows() -> None:
    inputs: list[Tensor | None] = [
        made.tensor("x", 2, 3, 256, dtype="float16"),
        made.tensor("p", 2, 3, dtype="int64"),
        made.tensor("cos", 4096, 64, dtype="float16", constant=True),
        made.tensor("sin", 4096, 64, dtype="float16", constant=True),
    ]
    result = made.tensor("y", 2, 3, 256, dtype="float16")
    one = microsoft("RotaryEmbedding", inputs, [result], num_heads=2)
    # Six tokens: six rows of each table, their positions, and themselves.
    assert count(one).costs[0].bytes_read == 2 * 6 * 64 * 2 + 6 * 8 + 6 * 256 * 2


def mixtures(tokens: int, chosen: int, experts: int, *, skewed: bool) -> Mixtures:
    one = np.ones(1)
    return Mixtures(
        tokens=tokens * one, hidden=64 * one, inner=64 * one, chosen=chosen * one, experts=experts * one,
        matrices=3 * one, weight_bytes=2 * one, packed=np.array([False]),
        skewed=np.array([float(skewed)]), kept=0 * one, by_blocks=0 * one,
    )  # fmt: skip


@pytest.mark.parametrize(("tokens", "chosen", "experts"), [(4, 2, 8), (16, 8, 128), (64, 8, 256), (1000, 2, 8)])
def test_tokens_that_choose_at_random_hit_so_many_experts(tokens: int, chosen: int, experts: int) -> None:
    generator = np.random.default_rng(0)
    drawn = [
        len({int(expert) for _ in range(tokens) for expert in generator.choice(experts, chosen, replace=False)})
        for _ in range(50)
    ]
    found = hit_experts(mixtures(tokens, chosen, experts, skewed=True), replace(FITTED.experts, hit=1.0))
    assert found[0] == pytest.approx(np.mean(drawn), rel=0.08)


def moe(tokens: int, chosen: int) -> Graph:
    inputs: list[Tensor | None] = [
        made.tensor("x", tokens, 2048, dtype="float16"),
        made.tensor("r", tokens, 64, dtype="float16"),
        made.tensor("w1", 64, 1408, 2048, dtype="float16", constant=True),
        None,
        made.tensor("w2", 64, 2048, 1408, dtype="float16", constant=True),
        None,
        made.tensor("w3", 64, 1408, 2048, dtype="float16", constant=True),
    ]
    result = made.tensor("y", tokens, 2048, dtype="float16")
    return microsoft("MoE", inputs, [result], k=chosen, activation_type="silu")


def test_a_mixture_reads_the_experts_that_are_hit() -> None:
    """One token of six choices reads six of 64 experts; a thousand read all, and compute."""
    card = catalogue.device("a100-80gb-sxm")
    expert = 3 * 2048 * 1408 * 2
    one, many = in_graph(moe(1, 6), card), in_graph(moe(1024, 6), card)
    assert 0.5 * 6 * expert < (one - 15e-6) * card.bandwidth_bytes_per_s < 2 * 6 * expert
    assert many > 64 * expert / card.bandwidth_bytes_per_s
    assert many > 2 * 1024 * 6 * expert / 2 / card.peak_flops_per_s["fp16"]


def test_attention_by_parts_takes_longer_than_fused() -> None:
    """Its scores pass memory: two products and a softmax against one kernel that keeps them."""
    card = catalogue.device("a100-80gb-sxm")
    heads, tokens, size = 32, 4096, 128
    query, key, value = (made.tensor(name, heads, tokens, size, dtype="float16") for name in "qkv")
    turned = made.tensor("t", heads, size, tokens, dtype="float16")
    scores, shares = (made.tensor(name, heads, tokens, tokens, dtype="float16") for name in "sp")
    result = made.tensor("y", heads, tokens, size, dtype="float16")
    parts = made.graph(
        replace(made.node("Transpose", [key], turned, 0), attributes={"perm": (0, 2, 1)}),
        made.node("MatMul", [query, turned], scores, 1),
        made.node("Softmax", [scores], shares, 2),
        made.node("MatMul", [shares, value], result, 3),
    )
    fused = in_graph(cached_attention(1, tokens, tokens, heads, heads, causal=0), card)
    assert in_graph(parts, card) > 1.3 * fused


def looped(*body: Node, trips: int) -> Graph:
    """A Loop over these operators, as long as its limit says."""
    inside = Graph(
        name="b", nodes=body, inputs=(), outputs=tuple(body[-1].present_outputs), initializers=(), opsets={}
    )
    limit = replace(made.tensor("limit", dtype="int64", constant=True), value=np.array(trips))
    go = replace(made.tensor("go", dtype="bool", constant=True), value=np.array(True))
    start = made.tensor("x", 64, 64)
    node = Node(
        index=0, name="loop", op_type="Loop", domain="ai.onnx", version=21, inputs=(limit, go, start),
        outputs=(made.tensor("y", 64, 64),), graphs={"body": inside},
    )  # fmt: skip
    return made.graph(node)


def host_seconds(one: Graph) -> float:
    card = catalogue.device("a100-80gb-sxm")
    return session_overhead(made.work(one), card).value


def test_a_product_in_a_loop_costs_the_host_no_more_than_one_a_trip() -> None:
    def relu(index: int) -> Node:
        return made.node("Relu", [made.tensor(f"a{index}", 64, 64)], made.tensor(f"a{index + 1}", 64, 64))

    weight = made.tensor("w", 64, 64, constant=True)
    product = made.node("MatMul", [made.tensor("a9", 64, 64), weight], made.tensor("a10", 64, 64))
    ten = [relu(index) for index in range(9)]
    plain = host_seconds(looped(*ten, relu(9), trips=50))
    with_product = host_seconds(looped(*ten, product, trips=50))
    # 50 more expensive nodes, not 500: see PRODUCT_S and NODE_S.
    assert with_product - plain == pytest.approx(50 * (PRODUCT_S - NODE_S), rel=1e-6)


def test_attention_in_a_loop_is_one_kernel_as_outside() -> None:
    card = catalogue.device("a100-80gb-sxm")
    alone = cached_attention(32, 1, 8192, 32, 8)
    ten = in_graph(looped(alone.nodes[0], trips=10), card)
    assert ten / in_graph(alone, card) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("slug", ["l4", "rtx-4090", "a100-80gb-sxm", "h100-80gb-sxm"])
def test_no_end_of_an_interval_is_quicker_than_memory(slug: str) -> None:
    """One row by 400 MB of weights in 16 bits: the cards' memories need so long, caches of 96 MB hold none."""
    card = catalogue.device(slug)
    found = prediction.predict_arrays(made.work(half(1, 25_000, 8_000)), card, precision="fp16")
    assert float(found.low[0]) >= 2 * 25_000 * 8_000 / card.bandwidth_bytes_per_s


@pytest.mark.parametrize(("width", "separate"), [(512, True), (1024, False)])
def test_paged_attention_reads_the_blocks_of_its_table(width: int, separate: bool) -> None:
    # Two sequences of one query and 3 blocks of 16 tokens; 8 heads of size 64 on 4 of keys, packed where alone.
    key = made.tensor("k", 2, 256) if separate else None
    inputs = [made.tensor("q", 2, width), key, key, made.tensor("kc", 9, 16, 4, 64, dtype="int8")]
    inputs += [None, None, None, made.tensor("blocks", 2, 3, dtype="int32")]
    (one,) = microsoft("PagedAttention", inputs, [made.tensor("y", 2, 512)], num_heads=8, kv_num_heads=4,
                       local_window_size=20).nodes  # fmt: skip
    shape = attention_shape(one)
    assert shape is not None
    assert (shape.batch, shape.queries, shape.before, shape.heads, shape.key_heads) == (2, 1, 47, 8, 4)
    assert (shape.size, shape.window, shape.causal, shape.cache_bytes) == (64, 20, True, 1)
