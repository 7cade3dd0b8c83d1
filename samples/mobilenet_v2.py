"""MobileNetV2, an image classifier for phones: few operations, spread over many small convolutions.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018 (arXiv:1801.04381), table 2, at
width 1. 3,504,872 parameters.
"""

import torch
from torch import nn

# Table 2: expansion t, output channels c, repetitions n, stride s of the first of them.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def conv_norm_relu6(
    in_channels: int, out_channels: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Widen with 1x1, filter each channel with 3x3, narrow again without an activation (table 1)."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        layers: list[nn.Module] = []
        if expansion != 1:
            layers.append(conv_norm_relu6(in_channels, hidden))
        layers += [
            conv_norm_relu6(hidden, hidden, kernel=3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, out_channels, kernel_size=1, bias=False),
            nn.BatchNorm2d(out_channels),
        ]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm_relu6(3, 32, kernel=3, stride=2)]
        channels = 32
        for expansion, out_channels, repeats, stride in STAGES:
            for index in range(repeats):
                step = stride if index == 0 else 1
                layers.append(InvertedResidual(channels, out_channels, stride=step, expansion=expansion))
                channels = out_channels
        layers.append(conv_norm_relu6(channels, 1280))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).mean(dim=(2, 3)))


def build_model() -> nn.Module:
    return MobileNetV2().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 224, 224),)
