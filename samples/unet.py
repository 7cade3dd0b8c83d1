"""U-Net, which labels every pixel: convolutions at five scales, down and up, with shortcuts between equals.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015
(arXiv:1505.04597), figure 1. As in most later code, convolutions pad their input, so that the output has its
size, and are followed by batch normalisation. 31,043,586 parameters.
"""

import torch
from torch import nn

WIDTHS = (64, 128, 256, 512, 1024)


def double_conv(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, in_channels: int = 3, classes: int = 2) -> None:
        super().__init__()
        before = (in_channels, *WIDTHS[:-1])
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip(before, WIDTHS, strict=True))
        self.pool = nn.MaxPool2d(2)
        wide_to_narrow = [(2 * width, width) for width in reversed(WIDTHS[:-1])]
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in wide_to_narrow)
        self.up = nn.ModuleList(double_conv(a, b) for a, b in wide_to_narrow)
        self.head = nn.Conv2d(WIDTHS[0], classes, kernel_size=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.down[0](images)
        shortcuts = []
        for block in list(self.down)[1:]:
            shortcuts.append(x)
            x = block(self.pool(x))
        for enlarge, block, shortcut in zip(self.enlarge, self.up, reversed(shortcuts), strict=True):
            x = block(torch.cat([shortcut, enlarge(x)], dim=1))
        return self.head(x)


def build_model() -> nn.Module:
    return UNet().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 256, 256),)
