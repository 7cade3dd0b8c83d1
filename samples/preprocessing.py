"""What stands in front of an image classifier: photographs of 640x480 to normalised squares of 224x224.

The usual evaluation of ImageNet (He et al., 2015, arXiv:1512.03385, section 3.4): the shorter side becomes
256, the middle 224x224 is cut out, and each channel is centred and scaled by the statistics of the training
images. No product and no convolution: this work is moved rather than computed.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Preprocess(nn.Module):
    def __init__(self, resize: int = 256, crop: int = 224) -> None:
        super().__init__()
        self.resize, self.crop = resize, crop
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """images is uint8, [batch, height, width, 3], as decoders give it."""
        x = images.permute(0, 3, 1, 2).float() / 255
        height, width = x.shape[-2:]
        shorter = min(height, width)
        size = (height * self.resize // shorter, width * self.resize // shorter)
        x = F.interpolate(x, size=size, mode="bilinear", antialias=True)
        top, left = (size[0] - self.crop) // 2, (size[1] - self.crop) // 2
        x = x[..., top : top + self.crop, left : left + self.crop]
        return (x - self.mean) / self.std


def build_model() -> nn.Module:
    return Preprocess().eval()


def example_inputs(batch: int = 32) -> tuple[torch.Tensor]:
    return (torch.randint(0, 256, (batch, 480, 640, 3), dtype=torch.uint8),)
