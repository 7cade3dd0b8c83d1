"""GPT-3, 175 billion parameters, reading a full context of 2048 tokens.

Analyse it with --no-run: its weights alone take 700 GB in fp32.

Brown et al., "Language Models are Few-Shot Learners", 2020 (arXiv:2005.14165), table 2.1: the architecture of
GPT-2, larger. The paper alternates dense with locally banded sparse attention; every layer here is dense.
174,604,259,328 parameters.
"""

import torch
from gpt2 import GPT, Size
from torch import nn

SIZE = Size(layers=96, width=12288, heads=96, context=2048)


def build_model() -> nn.Module:
    return GPT(SIZE).eval()


def example_inputs(batch: int = 1) -> tuple[torch.Tensor]:
    return (torch.randint(0, SIZE.vocabulary, (batch, SIZE.context)),)
