"""LLaMA 7B reading 2048 tokens. Analyse it with --no-run: its weights take 27 GB in fp32.

Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023 (arXiv:2302.13971), section 2.2
and table 2: RMSNorm before each layer (arXiv:1910.07467), rotary positions (arXiv:2104.09864), SwiGLU
(arXiv:2002.05202), no biases, and an output layer of its own. 6,738,415,616 parameters.
"""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 32000
WIDTH, LAYERS, HEADS, HIDDEN = 4096, 32, 32, 11008
TOKENS = 2048


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class RotaryPositions(nn.Module):
    """Turns each pair of values of a query or a key by an angle that grows with the token's position."""

    def __init__(self, width: int, tokens: int, base: float = 10000.0) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(tokens), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.shape[-2]
        left, right = x.chunk(2, dim=-1)
        return x * self.cos[:tokens] + torch.cat([-right, left], dim=-1) * self.sin[:tokens]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, rotate: nn.Module) -> torch.Tensor:
        shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        q = rotate(self.query(x).view(shape).transpose(1, 2))
        k = rotate(self.key(x).view(shape).transpose(1, 2))
        v = self.value(x).view(shape).transpose(1, 2)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(heads.transpose(1, 2).reshape(x.shape))


class SwiGLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(WIDTH)
        self.attention = Attention()
        self.mlp_norm = RMSNorm(WIDTH)
        self.mlp = SwiGLU()

    def forward(self, x: torch.Tensor, rotate: nn.Module) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rotate)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # As Hugging Face writes it: `analyze generate` makes steps with a cache from it.
        self.config = {
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "max_position_embeddings": TOKENS,
        }
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.rotate = RotaryPositions(WIDTH // HEADS, TOKENS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, self.rotate)
        return self.head(self.norm(x))


def build_model() -> nn.Module:
    return Llama().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randint(0, VOCABULARY, (batch, TOKENS)),)
