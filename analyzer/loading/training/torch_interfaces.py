"""PyTorch's interfaces for a training step: operators that stay whole, decompositions, translations.

The calls of private names stand in loading/torch_private.py, which decides nothing; here is what they are
called with.

Most operators are decomposed before the tracer differentiates: the gradient then is autograd's own, of smaller
operators. What neither PyTorch nor this module decomposes or translates stays whole, as an operator of unknown
cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import inf, prod
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import (
    REFUSED,
    Slot,
    add_translation,
    at_opset,
    core_decompositions,
    describe_input,
    describe_output,
    gradient_kernels,
    is_operator,
    joint_graph_module,
    operator,
    operator_name,
    overload_name,
    registered_decompositions,
    replaced,
    translate_into,
    translation_registry,
    unchecked_distributions,
    whole_operators,
)

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch import Tensor, fx
    from torch.autograd.function import FunctionCtx
    from torch.nn import Module

    from analyzer.loading.torch_private import OpOverload, PythonKernel, Refused, Tree

    Pair = tuple[Tensor, Tensor]

# Resizing that PyTorch would take apart into dozens of gathers before it differentiates: these have Python
# kernels for Autograd in torch/_decomp/decompositions.py.
_WHOLE = (
    *(f"upsample_{kind}" for kind in ["linear1d", "bilinear2d", "trilinear3d"]),
    *(f"{kind}{axes}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Attention, recurrent layers and resizing as operators that have gradients and translations."""
    import warnings

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            # Other kernels of attention have gradients that nothing translates; MATH is made of products.
            sdpa_kernel(SDPBackend.MATH),
            # On a CPU recurrent layers would be one mkldnn_rnn_layer, whose gradient has no translation either.
            torch.backends.mkldnn.flags(enabled=False),
            whole_operators(_WHOLE, ("default", "vec")),
            gradient_kernels(before_differentiation()),
            unchecked_distributions(),
            replaced(torch.nn.functional, "ctc_loss", _ctc_loss),
        ):
            yield


@cache
def _ctc_operator() -> PythonKernel:
    """Return an operator with a gradient, for losses of speech and of text in images.

    Inside PyTorch's (aten/src/ATen/native/LossCTC.cpp) the table of paths is as wide as a value says.
    """
    import torch

    library, signature = torch.library, "Tensor scores, Tensor targets, Tensor lengths, Tensor sizes, int blank"
    library.define("analyzer::ctc_loss", f"({signature}) -> Tensor")
    library.define("analyzer::ctc_loss_backward", f"(Tensor gradient, {signature}) -> Tensor")
    library.register_fake("analyzer::ctc_loss", lambda scores, *_: scores.new_empty(scores.shape[1:-1]))
    library.register_fake("analyzer::ctc_loss_backward", lambda _, scores, *__: torch.empty_like(scores))

    # PyTorch passes both by name (register_autograd of torch/library.py).
    def save(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
        ctx.save_for_backward(*inputs[:4])
        ctx.blank = inputs[4]  # type: ignore[attr-defined]  # a context holds what it is given

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        to_scores = torch.ops.analyzer.ctc_loss_backward(gradient, *ctx.saved_tensors, ctx.blank)
        return to_scores, None, None, None, None

    library.register_autograd("analyzer::ctc_loss", backward, setup_context=save)
    return torch.ops.analyzer.ctc_loss


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0,
    reduction: str = "mean", *_rest: object, **_options: object,
) -> Tensor:  # fmt: skip
    import torch

    lengths, sizes = (torch.as_tensor(size) for size in (input_lengths, target_lengths))
    losses: Tensor = _ctc_operator()(log_probs, targets, lengths, sizes, blank)
    if reduction == "mean":
        return (losses / sizes.clamp_min(1)).mean()
    return losses.sum() if reduction == "sum" else losses


@contextmanager
def own_functions() -> Iterator[list[str]]:
    """Names of ``torch.autograd.Function`` classes outside PyTorch that are called inside the block."""
    import torch

    called: list[str] = []
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type[torch.autograd.Function], /, *arguments: object, **keywords: object) -> object:
        if not cls.__module__.startswith("torch.") and cls.__name__ not in called:
            called.append(cls.__name__)
        return original.__get__(None, cls)(*arguments, **keywords)  # a C method from PyTorch 2.14 on

    with replaced(torch.autograd.Function, "apply", classmethod(apply)):
        yield called


def joint_graph(module: Module, arguments: tuple[Tree, ...], translated: Collection[str]) -> fx.GraphModule:
    """Return the fx graph of forward and backward of a module with a scalar result.

    ``translated`` are operators by qualified name that we translate: they stay whole.
    """
    joint = joint_graph_module(module, arguments, _decompositions(translated))
    graph = joint.graph
    for node in [node for node in graph.nodes if node.op == "placeholder" and "val" not in node.meta]:
        graph.erase_node(node)  # no tensor: targets that the loss does not take
    return joint


def _decompositions(translated: Collection[str]) -> Mapping[OpOverload, PythonKernel]:
    """Operators to take apart: their translation is wrong or missing, and their parts are few."""
    names = (
        "mse_loss_backward "
        "smooth_l1_loss_backward huber_loss_backward l1_loss hardswish_backward "
        "hardsigmoid_backward leaky_relu_backward elu_backward softplus_backward logit_backward "
        "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits "
        "native_group_norm native_group_norm_backward select_scatter "
        "slice_scatter diagonal_backward unfold_backward _prelu_kernel_backward rrelu_with_noise_backward "
        "log_sigmoid_backward glu_backward _safe_softmax native_dropout_backward mish_backward "
        "_fused_rms_norm _fused_rms_norm_backward im2col col2im masked_fill_ addcdiv addcmul "
        "linalg_vector_norm logsumexp var_mean std_mean rsub index_add index_copy new_zeros new_ones new_full "
        "new_empty zeros_like ones_like full_like"
    )
    registry = translation_registry()
    untranslatable = {
        target: function
        for target, function in core_decompositions().items()
        if is_operator(target)
        and overload_name(target).partition(".")[0] not in translated
        and not registry.is_registered(target)
    }
    # The last wins: ours mend what PyTorch's have wrong or refuse.
    return {**untranslatable, **registered_decompositions(names.split()), **after_differentiation()}


def slots(graph: fx.Graph) -> tuple[list[Slot], list[Slot]]:
    """Return what the inputs and outputs of a joint graph are, in its order."""
    inputs = [describe_input(node.meta.get("desc")) for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    return inputs, [describe_output(descriptor) for descriptor in output.meta["desc"]]


def translate(graph_module: fx.GraphModule, translations: Mapping[str, PythonKernel], opset: int) -> ir.Model:
    """Translate an fx graph of aten operators, each with its ``val``, to an onnx_ir model."""
    import onnx_ir
    from torch import Tensor

    for node in list(graph_module.graph.nodes):
        tensor = getattr(graph_module, node.target, None) if node.op == "get_attr" else None
        if isinstance(tensor, Tensor):  # constants of the user's code, whose values the tracer hides
            node.meta["val"] = tensor
        name = str(node.target)  # assertions give nothing and have no translation
        if node.op == "call_function" and not node.users and ("_assert" in name or "check_errors" in name):
            graph_module.graph.erase_node(node)
    promote(graph_module.graph)  # reads values, so after constants have theirs
    registry = translation_registry()
    for node in graph_module.graph.nodes:
        target = node.target
        if not is_operator(target):
            continue
        # An overload of its own name goes before the operator's.
        function = translations.get(overload_name(target)) or translations.get(
            overload_name(target).partition(".")[0]
        )
        if function is None and not registry.is_registered(target):
            function = translations["opaque"](target, node)
        if function is not None:
            add_translation(registry, target, function)
    model = onnx_ir.Model(
        onnx_ir.Graph([], [], nodes=[], name="training_step"), ir_version=10, producer_name="analyzer"
    )
    translate_into(model, graph_module.graph, registry)
    # torchlib is written at one opset (18); others are made by conversion.
    return model if opset == registry.opset_version else at_opset(model, opset)


# Operators whose operands ONNX wants of one type (its type constraint T). What PyTorch gives is known from the
# trace, so its rules (torch/_prims_common/__init__.py, elementwise_dtypes) need not be repeated here.
_ARITHMETIC = (
    "add sub mul div pow remainder fmod maximum minimum where atan2 lerp addcmul addcdiv rsub hypot xlogy "
    "sum prod cumsum mean"
)
_COMPARISONS = "eq ne lt le gt ge"


def promote(graph: fx.Graph) -> None:
    """Cast the operands of element-wise operators and reductions to the type that PyTorch computes in."""
    import torch

    comparisons = frozenset(_COMPARISONS.split())
    promoted = comparisons | frozenset(_ARITHMETIC.split())
    for node in list(graph.nodes):
        name = operator_name(node.target)
        if node.op != "call_function" or name not in promoted:
            continue
        operands = {
            position: value for position, item in enumerate(node.args) if (value := _tensor(item)) is not None
        }
        # A power or quotient of whole numbers is real already; numbers change no comparison of tensors.
        dtype = getattr(node.meta.get("val"), "dtype", None)
        if name in comparisons:
            dtype = torch.result_type(*operands.values()) if len(operands) == 2 else None
        for position, value in operands.items():
            # The condition of Where is of truth values, whatever it chooses between.
            if dtype is None or value.dtype == dtype or (name == "where" and position == 0):
                continue
            with graph.inserting_before(node):
                cast = graph.call_function(operator("_to_copy"), (node.args[position],), {"dtype": dtype})
            cast.meta = {**node.meta, "val": value.to(dtype)}
            node.update_arg(position, cast)


def _tensor(argument: object) -> Tensor | None:
    value = getattr(argument, "meta", {}).get("val")
    return value if hasattr(value, "dtype") and hasattr(value, "shape") else None


# PyTorch decomposes these forwards, and has no decomposition of their gradients.
_BY_PYTORCH = (
    "_weight_norm_interface",
    "grid_sampler_2d",
    "unfold",
    *(f"replication_pad{axes}d" for axes in (1, 2, 3)),
)


def before_differentiation() -> Mapping[OpOverload, PythonKernel]:
    """Return, by operator, the function that the tracer differentiates in its place."""
    import torch

    aten = torch.ops.aten
    return {
        **registered_decompositions(_BY_PYTORCH),
        operator("_cdist_forward"): _distances,
        operator("_embedding_bag"): _bags,
        operator("_linalg_check_errors"): lambda *_, **__: None,
        aten.bilinear.default: _bilinear,
        aten.adaptive_avg_pool2d.default: _adaptive_average,
        aten.adaptive_avg_pool3d.default: _adaptive_average,
        aten.cumprod.default: _running_products,
        aten.masked_scatter.default: _filled_in,
    }


def after_differentiation() -> Mapping[OpOverload, PythonKernel]:
    """Return, by operator of the joint graph, the function that gives the same from smaller operators."""
    import torch

    aten = torch.ops.aten
    # What torch/_decomp knows goes unmentioned, unless it makes what has no translation itself: squeeze.dims
    # and sort.stable have none in onnxscript/function_libs/torch_lib/ops/core.py, though squeeze.dim and sort
    # have.
    table: dict[OpOverload, PythonKernel] = {
        aten.squeeze.dims: _squeezed,
        aten.sort.stable: _sorted,
        aten.var.correction: _variance,
        aten.diagonal_scatter.default: _diagonal_written,
        aten.exponential.default: _exponential,
        aten.index_put.default: _written,
        aten.scatter_reduce.two: _scatter_reduced,
        aten.amax.default: partial(_extreme, aten.amax),
        aten.amin.default: partial(_extreme, aten.amin),
        operator("_embedding_bag_forward_only"): _bags,
    }
    for axes in (2, 3):
        pool, pool_backward = (
            operator(f"max_pool{axes}d_with_indices{suffix}") for suffix in ("", "_backward")
        )
        table[operator(f"adaptive_max_pool{axes}d")] = partial(_adaptive_maximum, pool)
        table[operator(f"adaptive_max_pool{axes}d_backward")] = partial(
            _adaptive_maximum_backward, axes, pool_backward
        )
    return table


def _distances(x: Tensor, y: Tensor, p: float, _mode: object = None) -> Tensor:
    """Between each row of ``x`` and each of ``y``, in the norm ``p``; no gradient where they coincide."""
    import torch

    difference = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == inf:
        return difference.amax(-1)
    if p in (0, 1):
        return (difference.sign() if p == 0 else difference).sum(-1)
    powers = difference.square().sum(-1) if p == 2 else difference.pow(p).sum(-1)
    apart = powers > 0
    return torch.where(apart, torch.where(apart, powers, 1.0).pow(1 / p), 0.0)


def _bags(
    table: Tensor, indices: Tensor, offsets: Tensor, scale: bool = False, mode: int = 0, _sparse: bool = False,
    weights: Tensor | None = None, include_last: bool = False, padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return sums (mode 0), means (1) or maxima (2), as aten/src/ATen/native/EmbeddingBag.h counts modes."""
    import torch

    shape = (offsets.shape[0] - include_last, table.shape[1])
    marks = indices.new_zeros(indices.shape[0] + 1).scatter_add(0, offsets, torch.ones_like(offsets))
    bags = marks.cumsum(0).narrow(0, 0, indices.shape[0]) - 1
    rows = torch.embedding(table, indices, padding, scale)
    used = indices != padding
    sizes = indices.new_zeros(shape[0]).scatter_add(0, bags, used.to(indices.dtype))
    places = bags.unsqueeze(1).expand_as(rows)
    if mode == 2:
        rows = torch.where(used.unsqueeze(1), rows, -inf)
        result = table.new_zeros(shape).scatter_reduce(0, places, rows, "amax", include_self=False)
        return torch.where(result == -inf, 0.0, result), bags, sizes, bags  # a bag of padding alone
    factors = used.to(rows.dtype) if weights is None else used * weights
    result = table.new_zeros(shape).scatter_add(0, places, rows * factors.unsqueeze(1))
    if mode == 1:
        result = result / sizes.clamp_min(1).to(result.dtype).unsqueeze(1)
    return result, bags, sizes, bags


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    import torch

    product = torch.einsum("...i,kij,...j->...k", x, weight, y)
    return product if bias is None else product + bias


def _adaptive_average(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Windows of one size are an average pool; others are a product along each axis."""
    import torch

    if prod(output_size) == 1:
        return x.mean(list(range(-len(output_size), 0)), keepdim=True)
    if (windows := _even_windows(x, output_size)) is not None:
        pool = torch.nn.functional.avg_pool2d if len(output_size) == 2 else torch.nn.functional.avg_pool3d
        return pool(x, windows, windows)
    for axis, after in enumerate(output_size, x.dim() - len(output_size)):
        before = x.shape[axis]
        # start_index and end_index of aten/src/ATen/native/AdaptivePooling.h.
        bounds = [(row * before // after, -(-(row + 1) * before // after)) for row in range(after)]
        rows = [[(start <= at < end) / (end - start) for at in range(before)] for start, end in bounds]
        x = (x.movedim(axis, -1) @ torch.tensor(rows, dtype=x.dtype).T).movedim(-1, axis)
    return x


def _adaptive_maximum(pool: PythonKernel, x: Tensor, output_size: Sequence[int]) -> Pair | Refused:
    windows = _even_windows(x, output_size)
    return REFUSED if windows is None else pool(x, windows, windows)


def _adaptive_maximum_backward(
    axes: int, pool: PythonKernel, gradient: Tensor, x: Tensor, places: Tensor
) -> Tensor | Refused:
    windows = _even_windows(x, gradient.shape[-axes:])
    return REFUSED if windows is None else pool(gradient, x, windows, windows, 0, 1, False, places)


def _even_windows(x: Tensor, output_size: Sequence[int]) -> list[int] | None:
    """Return the windows of an adaptive pool where all have one size and do not overlap."""
    sizes = x.shape[-len(output_size) :]
    if any(size % part for size, part in zip(sizes, output_size, strict=True)):
        return None
    return [size // part for size, part in zip(sizes, output_size, strict=True)]


def _running_products(x: Tensor, axis: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Each round over twice as many.

    The gradient that PyTorch has (``cumprod_backward`` of aten/src/ATen/native/ReduceOps.cpp) finds the first
    zero by the largest of truth values, which ONNX's TopK and ReduceMax do not take at opset 18.
    """
    import torch

    product = x if dtype is None else x.to(dtype)
    reach, length = 1, x.shape[axis] if x.dim() else 1
    while reach < length:
        ones = torch.ones_like(product.narrow(axis, 0, reach))
        product = product * torch.cat([ones, product.narrow(axis, 0, length - reach)], axis)
        reach *= 2
    return product


def _filled_in(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """By numbers: onnxscript/function_libs/torch_lib/ops/core.py takes NonZero, whose size hangs on values."""
    import torch

    mask = mask.expand(x.shape)
    number = (mask.flatten().long().cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten().index_select(0, number).reshape(x.shape), x)


def _squeezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    dropped = {axis % x.dim() for axis in axes if x.shape[axis] == 1} if x.dim() else set()
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in dropped])


def _sorted(x: Tensor, *, dim: int = -1, descending: bool = False, **_stable: object) -> Pair:
    """ONNX's TopK puts the lower index of equal values first (its operator's documentation): it is stable."""
    return x.sort(dim, descending)


def _variance(
    x: Tensor, axes: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    chosen = list(axes) if axes else list(range(x.dim()))
    number = prod(x.shape[axis] for axis in chosen)
    centred = x - x.mean(chosen, keepdim=True)
    # Not below 0, where a quotient by 0 is infinite as PyTorch's is.
    free = max(0, number - (1 if correction is None else correction))
    return (centred * centred).sum(chosen, keepdim=keepdim) / free


def _diagonal_written(x: Tensor, diagonal: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    import torch

    moved = x.movedim((first, second), (-2, -1))
    *outer, _, columns = moved.shape
    number = torch.arange(diagonal.shape[-1])
    places = (number + max(-offset, 0)) * columns + number + max(offset, 0)
    flat = moved.reshape([*outer, -1]).index_copy(-1, places, diagonal)
    return flat.reshape(moved.shape).movedim((-2, -1), (first, second))


def _exponential(x: Tensor, rate: float = 1.0, **_generator: object) -> Tensor:
    import torch

    # 1 - u, since u may be 0 and never is 1; torch/_refs/__init__.py has the logarithm of u itself.
    return -torch.log1p(-torch.rand_like(x)) / rate


def _scatter_reduced(
    x: Tensor, axis: int, places: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor | Refused:
    """Return a mean as a sum over a count; ONNX has the other reductions."""
    import torch

    if reduce != "mean":
        return REFUSED
    if not include_self:
        x = x.scatter(axis, places, 0.0)
    ones = torch.ones_like(source)
    own_count = torch.ones_like(x) if include_self else torch.zeros_like(x)
    number = own_count.scatter_add(axis, places, ones)
    return x.scatter_add(axis, places, source) / number.clamp_min(1)


def _extreme(op: PythonKernel, x: Tensor, axes: Sequence[int] = (), keepdim: bool = False) -> Tensor | Refused:
    """All axes written out: ``aten_amax`` of onnxscript/function_libs/torch_lib/ops/core.py has no default."""
    return x.clone() if not x.dim() else REFUSED if axes else op(x, list(range(x.dim())), keepdim)


def _written(
    x: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor | Refused:
    """Return where a mask chooses what gets one value, its places need not be known.

    PyTorch's translation of a mask is NonZero, which gives a size that only values tell.
    """
    import torch

    mask = indices[0]
    if accumulate or len(indices) > 1 or mask.dtype != torch.bool or values.dim() > x.dim() - mask.dim():
        return REFUSED
    return torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim())), values.to(x.dtype), x)
