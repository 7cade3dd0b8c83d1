"""GPT-2, the smallest of its four sizes, reading 128 tokens: the logits of the next token at each position.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3 and table 2: a
decoder of the Transformer, normalised before each layer and once more at the end. The output layer is the
transposed embedding. 124,439,808 parameters.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 128


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    context: int = 1024
    vocabulary: int = 50257


class CausalAttention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size.width)
        self.attention = CausalAttention(size)
        self.norm2 = nn.LayerNorm(size.width)
        self.expand = nn.Linear(size.width, 4 * size.width)
        self.gelu = nn.GELU(approximate="tanh")
        self.contract = nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.contract(self.gelu(self.expand(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        # As Hugging Face writes it: `analyze generate` makes steps with a cache from it.
        self.config = {
            "model_type": "gpt2",
            "vocab_size": size.vocabulary,
            "n_embd": size.width,
            "n_layer": size.layers,
            "n_head": size.heads,
            "n_positions": size.context,
        }
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.head.weight = self.words.weight
        # Embeddings start at a standard deviation of 1, too much for a layer that also gives the logits.
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


SIZE = Size(layers=12, width=768, heads=12)


def build_model() -> nn.Module:
    return GPT(SIZE).eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randint(0, SIZE.vocabulary, (batch, TOKENS)),)
