"""ResNet-50, the image classifier that accelerators are compared by.

He et al., "Deep Residual Learning for Image Recognition", 2015 (arXiv:1512.03385), table 1, the column of 50
layers. A block that halves the image does so in its 3x3 convolution, not in its first 1x1 one as the paper
has it: the variant called "v1.5", which is what most libraries ship. 25,557,032 parameters.
"""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, added to the input (figure 5, right)."""

    EXPANSION = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        # Where the shape changes, the shortcut is a projection (option B of section 3.3).
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        self.stage1 = self._stage(64, 64, blocks=3, stride=1)
        self.stage2 = self._stage(256, 128, blocks=4, stride=2)
        self.stage3 = self._stage(512, 256, blocks=6, stride=2)
        self.stage4 = self._stage(1024, 512, blocks=3, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(2048, classes)

    @staticmethod
    def _stage(in_channels: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
        first = Bottleneck(in_channels, width, stride)
        rest = [Bottleneck(width * Bottleneck.EXPANSION, width, 1) for _ in range(blocks - 1)]
        return nn.Sequential(first, *rest)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.classifier(torch.flatten(self.pool(x), 1))


def build_model() -> nn.Module:
    return ResNet50().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 224, 224),)
