"""Makes quantised models as their users do: networks with random weights through ``onnxruntime.quantization``.

    python benchmarks/deployed_quantized.py FOLDER

Thirty models and the float network that each came from (``<network>.onnx``); ``deployed.py`` compares
predictions with measurements on them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "judge"))

import onnx
import small_models
import torch
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from quantized_matrix import STATIC, quantize_in_blocks, quantize_statically
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody writes it


class Block(nn.Module):
    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, filters, 3, stride, 1)
        self.two = nn.Conv2d(filters, filters, 3, 1, 1)
        self.skip = nn.Conv2d(channels, filters, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.skip(x) + self.two(F.relu(self.one(x))))


def residual() -> small_models.Built:
    widths = (64, 128, 256, 512)
    stages = [Block(a, b, 1 if a == b else 2) for a, b in zip((64, *widths), widths, strict=False)]
    stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return nn.Sequential(stem, *stages, head), (torch.randn(1, 3, 160, 160),)


class Inverted(nn.Module):
    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        wide = channels * 4
        self.body = nn.Sequential(
            nn.Conv2d(channels, wide, 1),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide),
            nn.ReLU6(),
            nn.Conv2d(wide, filters, 1),
        )
        self.skip = stride == 1 and channels == filters

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.skip else self.body(x)


def mobile() -> small_models.Built:
    rows = ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 96, 1))
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU6())
    head = nn.Sequential(nn.Conv2d(96, 512, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))
    return nn.Sequential(stem, *(Inverted(*row) for row in rows), head), (torch.randn(1, 3, 160, 160),)


def plain() -> small_models.Built:
    convs = [layer for _ in range(6) for layer in (nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())]
    return nn.Sequential(*convs), (torch.randn(1, 64, 56, 56),)


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in ((3, 32), (32, 64), (64, 128)))
        self.up = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in ((192, 64), (96, 32)))
        self.last = nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.down[0](x))
        b = F.relu(self.down[1](F.max_pool2d(a, 2)))
        c = F.relu(self.down[2](F.max_pool2d(b, 2)))
        d = F.relu(self.up[0](torch.cat([F.interpolate(c, scale_factor=2.0), b], 1)))
        return self.last(F.relu(self.up[1](torch.cat([F.interpolate(d, scale_factor=2.0), a], 1))))


def segmenter() -> small_models.Built:
    return Segmenter(), (torch.randn(1, 3, 96, 96),)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if self.causal:
            scores = scores + torch.full((tokens, tokens), -1e4).triu(1)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.down(F.gelu(self.up(x))))


def encoder() -> small_models.Built:
    return nn.Sequential(*(Layer(384, 6, False) for _ in range(3))), (torch.randn(1, 128, 384),)


def decoder() -> small_models.Built:
    body = (Layer(512, 8, True) for _ in range(2))
    return nn.Sequential(nn.Embedding(1000, 512), *body, nn.Linear(512, 1000)), (
        torch.randint(0, 1000, (1, 32)),
    )


def products(rows: int) -> Callable[[], small_models.Built]:
    def build() -> small_models.Built:
        layers = [layer for _ in range(4) for layer in (nn.Linear(2048, 2048, bias=False), nn.ReLU())]
        return nn.Sequential(*layers), (torch.randn(1, rows, 2048),)

    return build


NETWORKS: dict[str, Callable[[], small_models.Built]] = {
    "residual": residual, "mobile": mobile, "plain": plain, "segmenter": segmenter, "encoder": encoder,
    "decoder": decoder, "products1": products(1), "products64": products(64),
}  # fmt: skip
QDQ, OPERATORS = QuantFormat.QDQ, QuantFormat.QOperator
# Network, form, options: what people do to such a network.
MODELS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("residual", "static", {"types": "u8s8", "form": QDQ}),
    ("residual", "static", {"types": "u8s8 by channel", "form": QDQ}),
    ("residual", "static", {"types": "u8s8", "form": OPERATORS}),
    ("residual", "static", {"types": "s8s8", "form": QDQ}),
    ("residual", "static", {"types": "u8u8", "form": QDQ}),
    ("mobile", "static", {"types": "u8s8", "form": QDQ}),
    ("mobile", "static", {"types": "u8s8 by channel", "form": QDQ}),
    ("mobile", "static", {"types": "u8s8", "form": OPERATORS}),
    ("plain", "static", {"types": "u8s8", "form": QDQ}),
    ("plain", "static", {"types": "u8s8", "form": OPERATORS}),
    ("segmenter", "static", {"types": "u8s8", "form": QDQ}),
    ("segmenter", "static", {"types": "u8u8", "form": OPERATORS}),
    ("encoder", "static", {"types": "u8s8", "form": QDQ}),
    ("encoder", "static", {"types": "u8u8", "form": QDQ}),
    ("encoder", "dynamic", {"kind": QuantType.QInt8}),
    ("encoder", "dynamic", {"kind": QuantType.QUInt8, "by_channel": True}),
    ("encoder", "blocks", {"bits": 4, "form": QDQ}),
    ("encoder", "blocks", {"bits": 4, "form": OPERATORS}),
    ("encoder", "blocks", {"bits": 8, "form": OPERATORS}),
    ("decoder", "static", {"types": "u8s8", "form": QDQ}),
    ("decoder", "dynamic", {"kind": QuantType.QInt8}),
    ("decoder", "blocks", {"bits": 4, "form": QDQ}),
    ("decoder", "blocks", {"bits": 4, "form": OPERATORS}),
    ("products1", "static", {"types": "u8s8", "form": QDQ}),
    ("products1", "dynamic", {"kind": QuantType.QInt8}),
    ("products1", "blocks", {"bits": 4, "form": QDQ}),
    ("products1", "blocks", {"bits": 8, "form": OPERATORS}),
    ("products64", "static", {"types": "s8s8", "form": QDQ}),
    ("products64", "dynamic", {"kind": QuantType.QInt8}),
    ("products64", "blocks", {"bits": 4, "form": QDQ}),
)
_BLOCK = 32


def make(folder: Path, opset: int = 21) -> list[tuple[Path, Path]]:
    """Writes all models; each with the float network that it came from."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for network, form, options in MODELS:
        source = folder / f"{network}.onnx"
        if not source.exists():
            torch.manual_seed(0)
            onnx.save(small_models.export(NETWORKS[network](), opset), source)
        words = " ".join(str(getattr(value, "name", value)) for value in options.values())
        target = folder / f"{network} {form} {words}.onnx"
        if not target.exists():
            _FORMS[form](source, target, **options)
        made.append((target, source))
    return made


def _static(source: Path, target: Path, *, types: str, form: QuantFormat) -> None:
    quantize_statically(source, target, form, STATIC[types])


def _dynamic(source: Path, target: Path, *, kind: QuantType, by_channel: bool = False) -> None:
    quantization.quantize_dynamic(str(source), str(target), weight_type=kind, per_channel=by_channel)


def _blocks(source: Path, target: Path, *, bits: int, form: QuantFormat) -> None:
    quantize_in_blocks(source, target, bits, form, block=_BLOCK)


_FORMS: dict[str, Callable[..., None]] = {"static": _static, "dynamic": _dynamic, "blocks": _blocks}

if __name__ == "__main__":
    for path, _ in make(Path(sys.argv[1])):
        print(path.name)
