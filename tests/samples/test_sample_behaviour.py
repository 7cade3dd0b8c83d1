"""The samples compute what the architectures they are named after compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _same_weights_each_time() -> None:
    import torch

    torch.manual_seed(0)


def test_gpt_2_reads_no_token_that_is_still_to_come(sample: Callable[[str], Any]) -> None:
    import torch

    gpt2 = sample("gpt2")
    model = gpt2.GPT(gpt2.Size(layers=2, width=64, heads=4)).eval()
    tokens = torch.randint(0, 50257, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 50257
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] - after[:, 5:]).abs().amax(-1).min() > 1e-4


def test_gpt_2_s_output_layer_is_its_embedding(sample: Callable[[str], Any]) -> None:
    gpt2 = sample("gpt2")
    model = gpt2.GPT(gpt2.Size(layers=1, width=32, heads=2))
    assert model.head.weight is model.words.weight


def test_bert_ignores_tokens_that_are_masked(sample: Callable[[str], Any]) -> None:
    import torch

    bert = sample("bert_base")
    layer = bert.Layer().eval()
    x = torch.randn(1, 6, bert.WIDTH)
    changed = x.clone()
    changed[0, 4:] += 1
    visible = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.bool)[None, None, None, :]
    with torch.no_grad():
        torch.testing.assert_close(layer(x, visible)[:, :4], layer(changed, visible)[:, :4])


def test_vit_s_attention_equals_pytorch_s_own_layer(sample: Callable[[str], Any]) -> None:
    import torch
    from torch import nn

    vit = sample("vit_b16")
    ours = vit.Attention().eval()
    theirs = nn.MultiheadAttention(vit.WIDTH, vit.HEADS, batch_first=True).eval()
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x = torch.randn(2, 5, vit.WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-4, atol=1e-5)


def test_llama_s_norm_equals_pytorch_s_own_layer(sample: Callable[[str], Any]) -> None:
    import torch
    from torch import nn

    ours, theirs = sample("llama_7b").RMSNorm(48), nn.RMSNorm(48, eps=1e-6)
    x = 3 * torch.randn(4, 7, 48)
    torch.testing.assert_close(ours(x), theirs(x))


def test_llama_s_rotary_scores_depend_on_the_distance_of_two_tokens_alone(sample: Callable[[str], Any]) -> None:
    import torch

    rotate = sample("llama_7b").RotaryPositions(width=16, tokens=12)
    query, key = torch.randn(16), torch.randn(16)
    rotated = rotate(query.expand(12, 16)) @ rotate(key.expand(12, 16)).T
    for distance in range(-4, 5):
        diagonal = rotated.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    assert rotated[0].std() > 0.1


def test_the_recommender_feeds_each_pair_of_features_once(sample: Callable[[str], Any]) -> None:
    import torch

    dlrm = sample("recommender")
    with torch.device("meta"):
        dense, ids = dlrm.example_inputs(2)
        assert dense.shape == (2, 13)
        assert ids.shape == (2, 26, 8)
    rows, columns = torch.tril_indices(dlrm.TABLES + 1, dlrm.TABLES + 1, offset=-1)
    assert rows.numel() == 27 * 26 // 2
    assert bool((rows > columns).all())


def test_preprocessing_turns_an_even_photograph_into_its_normalised_colour(build: Callable[[str], Any]) -> None:
    import torch

    colour = torch.tensor([10, 128, 255], dtype=torch.uint8)
    result = build("preprocessing")(colour.expand(1, 480, 640, 3))
    assert result.shape == (1, 3, 224, 224)
    expected = (torch.tensor([10.0, 128.0, 255.0]) / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor(
        [0.229, 0.224, 0.225]
    )
    torch.testing.assert_close(result, expected.view(1, 3, 1, 1).expand(1, 3, 224, 224), rtol=1e-4, atol=1e-4)


def test_preprocessing_keeps_the_middle_of_a_photograph(build: Callable[[str], Any]) -> None:
    import torch

    # Dark but for a bright square of 30 pixels around the centre of 480 x 640: 16 pixels after the resize.
    images = torch.zeros(1, 480, 640, 3, dtype=torch.uint8)
    images[:, 225:255, 305:335] = 255
    bright = build("preprocessing")(images)[0, 0] > 0
    rows, columns = bright.nonzero().unbind(1)
    assert rows.float().mean().item() == pytest.approx(111.5, abs=0.6)
    assert columns.float().mean().item() == pytest.approx(111.5, abs=0.6)
    assert int(bright.sum()) == pytest.approx(16 * 16, abs=40)


def test_resnet_s_last_stage_sees_7_by_7_positions(sample: Callable[[str], Any]) -> None:
    import torch

    with torch.device("meta"):
        model = sample("resnet50").build_model()
        x = model.stem(torch.randn(1, 3, 224, 224))
        sizes = [tuple(x.shape)]
        for stage in (model.stage1, model.stage2, model.stage3, model.stage4):
            x = stage(x)
            sizes.append(tuple(x.shape))
    # Table 1 of the paper.
    assert sizes == [(1, 64, 56, 56), (1, 256, 56, 56), (1, 512, 28, 28), (1, 1024, 14, 14), (1, 2048, 7, 7)]


def test_tokens_read_one_by_one_with_a_cache_give_what_they_give_at_once(sample: Callable[[str], Any]) -> None:
    import torch

    module = sample("generate")
    torch.manual_seed(0)
    model = module.build_model()
    ids, empty = module.example_inputs(batch=2, tokens=6, past=0)
    with torch.no_grad():
        at_once, _ = model(ids, empty)
        cache = empty
        for column in range(6):
            one_by_one, cache = model(ids[:, column : column + 1], cache)
    torch.testing.assert_close(one_by_one, at_once, rtol=1e-4, atol=1e-4)
    assert cache[5][1].shape == (2, module.HEADS, 6, module.SIZE)
