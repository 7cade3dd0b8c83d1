"""One convolution, 3 -> 64 channels, 3x3 taps, over images of 224x224: the first layer of VGG.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014
(arXiv:1409.1556).
"""

import torch
from torch import nn


def build_model() -> nn.Module:
    return nn.Conv2d(3, 64, kernel_size=3, padding=1)


def example_inputs(batch: int = 32) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, 224, 224),)
