"""Parameters and products of each sample against published figures and derivations by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest


def unet_parameters() -> int:
    """Each double convolution a -> b -> b: weights, biases, and a scale and a shift for each of two norms."""
    widths = (3, 64, 128, 256, 512, 1024)

    def double(a: int, b: int) -> int:
        return 9 * a * b + b + 9 * b * b + b + 2 * 2 * b

    down = sum(double(a, b) for a, b in pairwise(widths))
    up = sum(4 * 2 * b * b + b + double(2 * b, b) for b in widths[1:-1])
    return down + up + 64 * 2 + 2


def perceptron_parameters(*widths: int) -> int:
    return sum(a * b + b for a, b in pairwise(widths))


PARAMETERS = {
    "linear": 1024 * 512 + 512,
    "mlp": 1024 * 512 + 512 + 512 * 10 + 10,
    "batch_matmul": 0,
    "conv": 3 * 64 * 9 + 64,
    "attention": 0,
    "preprocessing": 0,
    # Published: the model cards of the libraries that ship these architectures.
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "vit_b16": 86_567_656,
    "bert_base": 109_482_240,
    "gpt2": 124_439_808,
    "llama_7b": 6_738_415_616,
    # 12 w^2 + 13 w a layer, two embeddings and the last norm.
    "gpt3_175b": 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048) * 12288 + 2 * 12288,
    # 12 w^2 + 13 w a layer, both embeddings (the head's is the words') and the last norm.
    "generate": 6 * (12 * 384**2 + 13 * 384) + (50257 + 1024) * 384 + 2 * 384,
    "unet": unet_parameters(),
    # Four gates of input and state weights with two biases each, twice; the head.
    "lstm": 4 * 512 * (128 + 512 + 2) + 4 * 512 * (512 + 512 + 2) + 512 * 10 + 10,
    # 27 features have 351 pairs; 16 values of the dense ones go along.
    "recommender": 26 * 100_000 * 16
    + perceptron_parameters(13, 512, 256, 64, 16)
    + perceptron_parameters(16 + 351, 512, 256, 1),
}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_sample_built_without_memory_has_the_published_number_of_parameters(
    build: Callable[[str], Any], name: str
) -> None:
    import torch

    with torch.device("meta"):
        parameters = list(build(name).parameters())
    assert {parameter.device.type for parameter in parameters} <= {"meta"}
    assert sum(parameter.numel() for parameter in parameters) == PARAMETERS[name]


def test_gpt_3_is_as_large_as_its_paper_says() -> None:
    # Table 2.1 of the paper rounds to 175.0 billion.
    assert PARAMETERS["gpt3_175b"] == pytest.approx(175.0e9, rel=0.005)


def mobilenet_macs() -> int:
    """Table 2 of the paper, row by row: widen with 1x1, 3x3 by channel, narrow with 1x1."""
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    side, channels = 112, 32
    macs = side**2 * 3 * 32 * 9
    for expansion, out, repeats, first_stride in rows:
        for stride in (first_stride, *[1] * (repeats - 1)):
            hidden = expansion * channels
            if expansion > 1:
                macs += side**2 * channels * hidden
            side //= stride
            macs += side**2 * hidden * 9 + side**2 * hidden * out
            channels = out
    return macs + side**2 * 320 * 1280 + 1280 * 1000


def transformer_flops(*, layers: int, tokens: int, width: int, weights: int, head: int) -> int:
    """Each token meets each weight once; scores and their use are two products of tokens x tokens x width."""
    layer = 2 * tokens * weights + 2 * 2 * tokens**2 * width
    return layers * layer + 2 * tokens * width * head


def unet_flops() -> int:
    widths = (3, 64, 128, 256, 512, 1024)
    macs = 0
    for level, (a, b) in enumerate(pairwise(widths)):
        macs += (256 >> level) ** 2 * 9 * b * (a + b)
    for level, b in enumerate(widths[1:-1]):
        pixels = (256 >> level) ** 2
        # Every pixel of the coarser level meets 2 x 2 taps, and so each finer pixel one.
        macs += pixels * 2 * b * b + pixels * 9 * b * (2 * b + b)
    return 2 * (macs + 256**2 * 64 * 2)


BERT_WEIGHTS = 4 * 768**2 + 2 * 768 * 3072
LLAMA_WEIGHTS = 4 * 4096**2 + 3 * 4096 * 11008
FLOPS = {
    "linear": 2 * 64 * 1024 * 512,
    "mlp": 2 * 64 * (1024 * 512 + 512 * 10),
    "batch_matmul": 2 * 256 * 1024 * 2048,
    "conv": 2 * 32 * 64 * 224 * 224 * 3 * 9,
    "attention": 2 * 2 * 32 * 8 * 128 * 128 * 64,
    # Published: PyTorch's own counter on the same architectures as its libraries ship them.
    "resnet50": 8_178_368_512,
    "vit_b16": 35_127_656_448,
    "mobilenet_v2": 2 * mobilenet_macs(),
    "bert_base": transformer_flops(layers=12, tokens=128, width=768, weights=BERT_WEIGHTS, head=0) + 2 * 768**2,
    "gpt2": transformer_flops(layers=12, tokens=128, width=768, weights=BERT_WEIGHTS, head=50257),
    "llama_7b": transformer_flops(layers=32, tokens=2048, width=4096, weights=LLAMA_WEIGHTS, head=32000),
    "gpt3_175b": transformer_flops(layers=96, tokens=2048, width=12288, weights=12 * 12288**2, head=50257),
    # One token through all weights; it looks at 64 others and at itself.
    "generate": 6 * (2 * 12 * 384**2 + 2 * 2 * 65 * 384) + 2 * 384 * 50257,
    "lstm": 2 * 16 * (50 * (4 * 512 * (128 + 512) + 4 * 512 * (512 + 512)) + 512 * 10),
    "recommender": 2
    * 256
    * (13 * 512 + 512 * 256 + 256 * 64 + 64 * 16 + 27 * 27 * 16 + 367 * 512 + 512 * 256 + 256),
    "preprocessing": 0,
    "unet": unet_flops(),
}


@pytest.mark.parametrize("name", sorted(FLOPS))
def test_pytorch_s_own_counter_agrees_with_the_derivation_at_the_default_batch(
    sample: Callable[[str], Any], build: Callable[[str], Any], counted_in_full: Any, name: str
) -> None:
    import torch

    with torch.device("meta"):
        model, inputs = build(name), sample(name).example_inputs()
    with counted_in_full() as counter:
        model(*inputs)
    assert counter.get_total_flops() == FLOPS[name]


def test_mobilenet_v2_is_as_light_as_its_paper_says() -> None:
    # Table 4 of the paper: 300 million multiply-adds.
    assert mobilenet_macs() == pytest.approx(300e6, rel=0.005)


def test_the_table_of_samples_shows_these_figures(samples_folder: Any) -> None:
    rows = {}
    for line in (samples_folder / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| [`") and ".py`" in line.split("|")[1]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows[cells[0].split(".py")[0].removeprefix("[`")] = cells
    assert sorted(rows) == sorted(FLOPS)
    for name, cells in rows.items():
        *_, parameters, gflops = cells
        number, _, unit = parameters.replace(",", "").partition(" ")
        scale = {"": 1, "M": 1e6, "B": 1e9}[unit]
        digits = len(number.partition(".")[2])
        assert round(PARAMETERS[name] / scale, digits) == float(number), name
        gflops = gflops.replace(",", "")
        assert round(FLOPS[name] / 1e9, len(gflops.partition(".")[2])) == float(gflops), name
