"""Weights of a model: values, sizes, and tensors that need CUDA.

What is built, called and traced without values takes neither memory nor arithmetic.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from analyzer.errors import MemoryForeseenError
from analyzer.loading.torch_private import (
    causal_masks_by_word,
    dispatch_mode_class,
    held_tensors,
    tensor_factories,
    tree_leaves,
    tree_map,
)
from analyzer.units import byte_count

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.overrides import TorchFunctionMode

    from analyzer.loading.torch_private import FakeTensorMode, Tree

ValuedWeights = Literal["meta", "small", "real"]
"""Which tensors of a model have values: none (PyTorch's meta device), those of few elements, or all."""

WEIGHTLESS: tuple[ValuedWeights, ...] = ("meta", "small")
"""The ways to build a model in little memory, in the order to try them."""

# Tables of steps, slopes and rates that constructors read back (`.item()`, `.tolist()`) have fewer; a layer's
# weights that have as few cost nothing.
_SMALL_ELEMENTS = 2**16
# Smaller tensors are not worth a look at how much memory is in use.
_WORTH_A_LOOK_BYTES = 2**20


def parameter_sizes(parameters: Iterable[Tensor]) -> tuple[int, int]:
    """Return the number of elements of these tensors, and their bytes."""
    tensors = list(parameters)
    elements = sum(tensor.numel() for tensor in tensors)
    return elements, sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def built_with(weights: ValuedWeights, memory_bytes: int | None = None) -> AbstractContextManager[object]:
    """Return a block in which PyTorch makes new tensors so.

    Raises:
        MemoryForeseenError: In the block, before the tensor that would exceed the limit is made.
    """
    import torch

    if weights == "meta":
        return torch.device("meta")
    if weights == "small":
        return _small_with_values()
    return nullcontext() if memory_bytes is None else within_memory(memory_bytes)


def _small_with_values() -> AbstractContextManager[object]:
    import torch
    from torch.overrides import TorchFunctionMode

    factories = tensor_factories() - {torch.tensor, torch.as_tensor, torch.asarray}  # whose values are there

    class SmallWithValues(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], _types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            keywords = dict(keywords or {})
            on_cpu = torch.device(keywords.get("device") or "cpu").type == "cpu"
            if function in factories and on_cpu and keywords.get("out") is None:
                shaped = {key: value for key, value in keywords.items() if key != "generator"}
                without_values = function(*arguments, **{**shaped, "device": "meta"})
                if without_values.numel() > _SMALL_ELEMENTS:
                    return without_values
            return function(*arguments, **keywords)

    return SmallWithValues()


def within_memory(memory_bytes: int) -> AbstractContextManager[object]:
    """Return a block in which PyTorch's operators allocate at most so many bytes more than are in use now.

    The size of each result is inferred on the meta device before the operator runs.
    """
    import psutil
    import torch

    process = psutil.Process()

    def in_use() -> int:
        memory = process.memory_info()
        return int(getattr(memory, "data", memory.rss))  # on Linux what is allocated, written or not

    def on_meta(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    most = in_use() + memory_bytes

    class WithinMemory(dispatch_mode_class()):  # type: ignore[misc]  # a class of PyTorch's, looked up
        def __torch_dispatch__(
            self, operator: Callable[..., Any], _types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            keywords = keywords or {}
            try:
                shaped, named = tree_map(on_meta, (arguments, keywords))
                if "device" in named:
                    named["device"] = "meta"
                results = tree_leaves(operator(*shaped, **named))
            except Exception:  # its size depends on values
                results = []
            size = sum(item.nbytes for item in results if isinstance(item, torch.Tensor))
            if size > _WORTH_A_LOOK_BYTES and in_use() + size > most:
                raise MemoryForeseenError(
                    f"It takes more than {byte_count(memory_bytes)} of memory: "
                    f"the next tensor has {byte_count(size)}.",
                    hint="Raise the limit with --limit memory=8GB, or make the model or its inputs smaller.",
                )
            return operator(*arguments, **keywords)

    return WithinMemory()


@contextmanager
def without_data(model: Module, mode: FakeTensorMode, *, only_meta: bool = False) -> Iterator[None]:
    """Put fake tensors on the CPU in the place of a model's tensors; give modules their attributes back after.

    PyTorch gives no gradients for tensors on the meta device and mixes them with no others. A ``forward`` may
    store what it computes.

    Args:
        model: Its parameters and buffers are replaced, tied ones by one, and tensors among its attributes.
        mode: Of the fake tensors.
        only_meta: Whether tensors that have values stay.
    """
    import torch

    fakes: dict[int, Tensor] = {}
    with unchanged(model):
        for module in model.modules():
            for table in _tables(module):
                for name, tensor in list(table.items()):
                    if not isinstance(tensor, torch.Tensor):
                        continue
                    if tensor.is_meta if only_meta or table is vars(module) else True:
                        # Tied tensors stay tied: two fakes would be two parameters, each with half a gradient.
                        if id(tensor) not in fakes:
                            fakes[id(tensor)] = fake_like(tensor, mode)
                        table[name] = fakes[id(tensor)]
        yield


@contextmanager
def unchanged(model: Module) -> Iterator[None]:
    """Give modules their attributes, parameters and buffers back after the block."""
    tables = [(table, dict(table)) for module in model.modules() for table in _tables(module)]
    try:
        yield
    finally:
        for table, before in tables:
            if table.keys() != before.keys() or any(table[name] is not before[name] for name in before):
                table.clear()
                table.update(before)


def _tables(module: Module) -> tuple[dict[str, Any], ...]:
    return (*held_tensors(module), vars(module))


def on_meta(tree: Tree) -> Tree:
    """Return a tree with its tensors without values."""
    import torch

    return tree_map(lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf, tree)


def fake_like(value: Tree, mode: FakeTensorMode) -> Tree:
    """Return a tensor's twin without data, on the CPU; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    with mode:
        fake = torch.empty(tuple(value.shape), dtype=value.dtype, device="cpu")
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=value.requires_grad)
    return fake


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
            wants_cuda = _is_cuda(keywords.get("device"))
            if wants_cuda:
                keywords["device"] = home
            # Without values a tensor cannot be moved, and need not: `.to(device)` where device is the CPU.
            stays = function is torch.Tensor.to and arguments[0].is_meta and _is_cpu(arguments[1:], keywords)
            if stays:
                keywords.pop("device", None)
            if function is torch.Tensor.to and (
                wants_cuda or stays or any(_is_cuda(item) for item in arguments[1:])
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
