"""Small PyTorch models of six families, exported for the judge: a few layers each, all that the families do."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody writes it

from analyzer.loading.torch_private import translations_gathered_once

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


def residual() -> Built:
    stem = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(*stem, Residual(16), Residual(16), *head), (torch.randn(2, 3, 64, 64),)


class Inverted(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 4 * channels, 1, bias=False),
            nn.BatchNorm2d(4 * channels),
            nn.Hardswish(),
            nn.Conv2d(4 * channels, 4 * channels, 3, padding=1, groups=4 * channels, bias=False),
            nn.BatchNorm2d(4 * channels),
            nn.ReLU6(),
            nn.Conv2d(4 * channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def mobile() -> Built:
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.ELU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10))
    return nn.Sequential(*stem, Inverted(8), Inverted(8), *head), (torch.randn(2, 3, 32, 32),)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, 0.0, F.gelu, batch_first=True) for _ in "ab"
        )
        self.head = nn.Linear(32, 2)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            q = k = v = layer.norm1(x).view(x.shape[0], x.shape[1], 4, 8).transpose(1, 2)
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].bool())
            x = x + layer.self_attn.out_proj(heads.transpose(1, 2).reshape(x.shape))
            x = layer.norm2(x + layer.linear2(F.gelu(layer.linear1(x))))
        return torch.tanh(self.head(x[:, 0]))


def encoder() -> Built:
    return Encoder().eval(), (torch.randint(0, 100, (2, 16)), torch.ones(2, 16, dtype=torch.int64))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.norm = nn.RMSNorm(32)
        self.gate, self.up, self.down = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 32)
        self.qkv = nn.Linear(32, 96, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for _ in range(2):
            q, k, v = self.qkv(self.norm(x)).view(x.shape[0], x.shape[1], 3, 4, 8).permute(2, 0, 3, 1, 4)
            where = torch.arange(x.shape[1])[:, None] * torch.ones(8)
            q = q * where.cos() + torch.cat((-q[..., 4:], q[..., :4]), -1) * where.sin()
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + heads.transpose(1, 2).reshape(x.shape)
            x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return F.log_softmax(x @ self.words.weight.T, -1)


def decoder() -> Built:
    return Decoder(), (torch.randint(0, 100, (2, 16)),)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


def recurrent() -> Built:
    return Recurrent(), (torch.randn(2, 12, 8),)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.LeakyReLU()
        )
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.deep(F.max_pool2d(a, 2))
        b = F.interpolate(F.avg_pool2d(b, 2), scale_factor=2, mode="bilinear")
        return F.softmax(self.head(torch.cat((a, self.up(b)), 1)), 1)


def unet() -> Built:
    return UNet(), (torch.randn(2, 3, 32, 32),)


MODELS: dict[str, Callable[[], Built]] = {
    "residual": residual,
    "mobile": mobile,
    "encoder": encoder,
    "decoder": decoder,
    "recurrent": recurrent,
    "unet": unet,
}


def exported(name: str, opset: int, *, half: bool = False, symbolic: bool = False) -> onnx.ModelProto:
    """One of ``MODELS``, exported once for all tests of the session, also those of other workers."""
    kind = f"{'-half' * half}{'-symbolic' * symbolic}"
    path = Path(os.environ["ANALYZER_CACHE_DIR"]).with_name("small-models") / f"{name}-{opset}{kind}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_bytes(export(MODELS[name](), opset, half=half, symbolic=symbolic).SerializeToString())
        aside.replace(path)
    return onnx.load(path)


def export(built: Built, opset: int, *, half: bool = False, symbolic: bool = False) -> onnx.ModelProto:
    """Exports a model with its weights; every node gets a name of its own."""
    model, inputs = built
    model = model.eval()
    if half:
        model = model.half()
        inputs = tuple(x.half() if x.is_floating_point() else x for x in inputs)
    dynamic: Any = tuple({0: "batch"} for _ in inputs) if symbolic else None
    with warnings.catch_warnings(), torch.no_grad(), translations_gathered_once():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            model,
            inputs,
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=dynamic,
            verbose=False,
            external_data=False,
        )
    exported = program.model_proto if program is not None else onnx.ModelProto()
    return named(exported)


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives every node a name that no other has, in subgraphs too."""
    _name_all(model.graph, "")
    return model


def _name_all(graph: onnx.GraphProto, prefix: str) -> None:
    for index, node in enumerate(graph.node):
        node.name = f"{prefix}{node.op_type}_{index}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _name_all(attribute.g, f"{node.name}/{attribute.name}/")
