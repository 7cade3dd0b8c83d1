"""BERT base, an encoder of text: 128 tokens in, a vector for each of them and one for the whole text out.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2018 (arXiv:1810.04805), section 3,
with the vocabulary of the released uncased model and its pooler. Layers are normalised after they are added,
as in the original Transformer. 109,482,240 parameters.
"""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2
WIDTH, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072
TOKENS = 128


class Embeddings(nn.Module):
    """The sum of what a token is, where it stands and which of the two sentences holds it (figure 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.segments = nn.Embedding(SEGMENTS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.norm(self.words(tokens) + self.segments(segments) + self.positions(positions))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    @staticmethod
    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(heads.transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """mask is 1 where there is a token and 0 where there is padding."""
        x = self.embeddings(tokens, segments)
        visible = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, visible)
        return x, torch.tanh(self.pooler(x[:, 0]))


def build_model() -> nn.Module:
    return Bert().eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, VOCABULARY, (batch, TOKENS))
    mask = torch.ones(batch, TOKENS, dtype=torch.int64)
    return tokens, mask, torch.zeros(batch, TOKENS, dtype=torch.int64)
