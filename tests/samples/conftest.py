"""Loads sample files the way a user's script would, with their folder on the import path."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"


@pytest.fixture
def samples_folder() -> Path:
    return SAMPLES


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A function that imports a sample by its name."""
    monkeypatch.syspath_prepend(str(SAMPLES))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (SAMPLES / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def build(sample: Callable[[str], ModuleType]) -> Callable[[str], Any]:
    """A function that builds a sample's model; the plain function of tensors comes as a module."""
    from torch import nn

    def build_one(name: str) -> nn.Module:
        module = sample(name)
        if hasattr(module, "build_model"):
            return module.build_model()

        class Function(nn.Module):
            forward = staticmethod(getattr(module, name))

        return Function()

    return build_one


@contextmanager
def _counted_in_full() -> Iterator[Any]:
    """PyTorch's own counter, with the fused kernels off that it does not see into."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # of a flag for Intel GPUs that mkldnn.flags sets along
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            torch.backends.mkldnn.flags(enabled=False),
            FlopCounterMode(display=False) as counter,
        ):
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@pytest.fixture
def counted_in_full() -> Callable[[], Any]:
    """A context in which PyTorch counts all products, whatever kernel computes them."""
    return _counted_in_full
