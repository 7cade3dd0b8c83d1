"""What PyTorch and users' files do that no tracer can follow, put off while a model is built and traced."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import causal_masks_by_word

if TYPE_CHECKING:
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

_CUDA = re.compile(r"cuda(:\d+)?")


@contextmanager
def plain_transformers() -> Iterator[None]:
    """Inside the block ``nn.Transformer`` and its parts do as while training.

    Otherwise they look at the values of their masks, to skip padding and to know a causal mask: neither
    changes what they compute for what is no padding.
    """
    import torch

    # The fast path is one fused operator without an ONNX translation (aten::_transformer_encoder_layer_fwd, in
    # torch/nn/modules/transformer.py).
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with causal_masks_by_word(lambda _mask, is_causal=None, _size=None: is_causal is True):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def cuda_is_elsewhere(home: str | None = None) -> Iterator[None]:
    """Inside the block whatever asks for CUDA stays where it is, on a machine without it: the GPU is predicted.

    Args:
        home: The device on which new tensors are made that ask for CUDA, None for the default one.
    """
    import torch

    if torch.cuda.is_available():
        yield
        return
    with _cuda_mode(home), warnings.catch_warnings():
        # What PyTorch warns of inside the mode would be told of a line of ours.
        warnings.filterwarnings("ignore", module=re.escape(__name__))
        yield


def _cuda_mode(home: str | None) -> TorchFunctionMode:
    import torch
    from torch.overrides import TorchFunctionMode

    def at_home(tensor: Tensor) -> Tensor:
        return tensor if home is None or tensor.device.type == home else tensor.to(home)

    class WithoutCuda(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., object], _types: Any, arguments: Any = (), keywords: Any = None
        ) -> object:
            keywords = dict(keywords or {})
            # A mode of functions, not of operators: .cuda() fails before it reaches an operator.
            if function is torch.Tensor.cuda:
                return at_home(arguments[0])
            if function is torch.Tensor.pin_memory:
                return arguments[0]
            asked = _is_cuda(keywords.get("device"))
            if asked:
                keywords["device"] = home
            # Without values a tensor cannot be moved, and need not: `.to(device)` where device is the CPU.
            stays = function is torch.Tensor.to and arguments[0].is_meta and _is_cpu(arguments[1:], keywords)
            if stays:
                keywords.pop("device", None)
            if function is torch.Tensor.to and (
                asked or stays or any(_is_cuda(item) for item in arguments[1:])
            ):
                # What is left may be a type; whether to wait or to copy has gone with the device.
                arguments = arguments[:1] + tuple(item for item in arguments if isinstance(item, torch.dtype))
                keywords = {key: item for key, item in keywords.items() if key in ("dtype", "memory_format")}
                arguments = (at_home(arguments[0]), *arguments[1:])
                if len(arguments) == 1 and not keywords:
                    return arguments[0]
            return function(*arguments, **keywords)

    return WithoutCuda()


def _is_cpu(arguments: Sequence[object], keywords: Mapping[str, object]) -> bool:
    import torch

    devices = [*arguments[:1], keywords.get("device")]
    return any(item == "cpu" or (isinstance(item, torch.device) and item.type == "cpu") for item in devices)


def _is_cuda(value: object) -> bool:
    import torch

    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and _CUDA.fullmatch(value) is not None
