"""ViT-B/16, an image classifier made of attention alone: 196 patches of 16x16 pixels and a class token.

Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020 (arXiv:2010.11929), table 1, "Base". Layers are
normalised before they are applied, and the classifier is a single linear layer, as after fine-tuning.
86,567,656 parameters.
"""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072
IMAGE, PATCH = 224, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.out(heads.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        tokens = (IMAGE // PATCH) ** 2 + 1
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, tokens, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(images.shape[0], -1, -1)
        x = torch.cat([class_token, patches], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def build_model() -> nn.Module:
    return VisionTransformer().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, IMAGE, IMAGE),)
