"""A language model that writes: GPT with a key-value cache, six layers of 384, 30,339,456 parameters.

A step takes the ids of new tokens with the keys and values of all tokens before them, and returns the logits of
the last token with the longer cache. `analyze generate samples/generate.py` predicts prompts and answers of any
length; `python samples/generate.py` writes 32 tokens of nonsense, since the weights are random.
"""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, POSITIONS = 50257, 1024
WIDTH, LAYERS, HEADS = 384, 6, 6
SIZE = WIDTH // HEADS

Cache = list[tuple[torch.Tensor, torch.Tensor]]


class CachedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor], seen: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        batch, tokens, _ = x.shape
        shape = (batch, tokens, HEADS, SIZE)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        keys, values = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        heads = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        return self.out(heads.transpose(1, 2).reshape(batch, tokens, WIDTH)), (keys, values)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = CachedAttention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.contract = nn.Linear(4 * WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor], seen: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        mixed, present = self.attention(self.norm1(x), past, seen)
        x = x + mixed
        return x + self.contract(F.gelu(self.expand(self.norm2(x)))), present


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight
        # Embeddings start at a standard deviation of 1, too much for a layer that also gives the logits.
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, ids: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
        tokens, before = ids.shape[1], cache[0][0].shape[2]
        places = torch.arange(tokens, device=ids.device) + before
        # A token sees all before it and itself.
        seen = torch.arange(before + tokens, device=ids.device) <= places[:, None]
        x = self.words(ids) + self.positions(places)
        presents = []
        for block, past in zip(self.blocks, cache, strict=True):
            x, present = block(x, past, seen)
            presents.append(present)
        return self.head(self.norm(x[:, -1])), presents


def build_model() -> nn.Module:
    return Writer().eval()


def example_inputs(batch: int = 1, tokens: int = 1, past: int = 64) -> tuple[torch.Tensor, Cache]:
    shape = (batch, HEADS, past, SIZE)
    cache = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]
    return torch.randint(0, VOCABULARY, (batch, tokens)), cache


@torch.no_grad()
def main() -> None:
    model = build_model()
    ids, cache = example_inputs(tokens=16, past=0)
    written = []
    for _ in range(32):
        logits, cache = model(ids, cache)
        ids = torch.multinomial(logits.softmax(dim=-1), 1)
        written.append(int(ids))
    print(*written)


if __name__ == "__main__":
    main()
