"""Example inputs: given with ``--input``, offered by the file, or inferred from the first layers."""

from __future__ import annotations

import inspect
import logging
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from analyzer.errors import AnalyzerError, InputError, ModelError, UsageError
from analyzer.loading.dependencies import is_library
from analyzer.loading.python.inferred_inputs import (
    InferredInput,
    infer_inputs,
    options_to_complete,
    options_to_give,
)
from analyzer.loading.python.input_spec import (
    GRAPH_EDGES,
    InputSpec,
    drawn_values,
    is_one_graph,
    named_by_position,
    names_in_order,
    nested,
    own_batch,
    parameter_of,
    register_containers,
)
from analyzer.loading.python.layers import (
    MASKS,
    OpenLength,
    OpenSide,
    OpenWidth,
    call,
    first_rows,
    given_width,
    misfit,
)
from analyzer.loading.python.model_weights import ValuedWeights, built_with, cuda_is_elsewhere, on_meta
from analyzer.loading.python.source_lines import first_line
from analyzer.loading.python.user_model import DEFAULT_BATCH, UserModel, call_offered
from analyzer.loading.torch_private import leaves_with_steps, tree_leaves, tree_map
from analyzer.record.analysis import LEFT_OUT
from analyzer.text import listed

if TYPE_CHECKING:
    from torch import Tensor

    from analyzer.loading.torch_private import Tree

InputsOrigin = Literal["given", "file", "script", "inferred"]

# Calls to try before inputs count as unknown.
_MOST_TRIALS = 24
# Beyond the frequencies, steps and pixels of usual inputs a trial takes seconds.
_LARGEST_SIZE = 1024
# Of all layers together, in usual models.
_STRIDES = 32
_PART_OF_A_BYTE = re.compile(r"u?int[24]|float[46]e\w*")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_POSITIONAL_ONLY = (inspect.Parameter.POSITIONAL_ONLY, *_VARIADIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleInputs:
    """The arguments of the model's call.

    Attributes:
        arguments, keywords: As in ``model(*arguments, **keywords)``.
        batch_axes: By position in the flattened inputs, the axes that follow the batch.
        origin: Who chose them.
        axis_names: By position, the names of axes that vary; empty where all of ``batch_axes`` are the batch.
        guessed: What was inferred; empty where somebody said what the inputs are.
    """

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    batch: int
    batch_axes: Mapping[int, tuple[int, ...]]
    origin: InputsOrigin
    axis_names: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    guessed: tuple[InputSpec, ...] = ()

    @property
    def tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments and keywords as one tree."""
        return self.arguments, dict(self.keywords)

    @property
    def leaves(self) -> list[Any]:
        """All leaves in the order in which the exported graph takes them."""
        return tree_leaves(self.tree)


def resolve_inputs(user: UserModel, specs: Sequence[InputSpec], batch: int | None) -> ExampleInputs:
    """Return the example inputs of a Python model, in the contract's order: ``--input``, the file, inferred.

    Raises:
        InputError: None of the three works, or an input is a packed sequence, whose rows are not the batch.
    """
    from torch.nn.utils.rnn import PackedSequence

    with cuda_is_elsewhere("meta" if user.meta else "cpu"):
        inputs = _first_source(user, specs, batch)
        if any(isinstance(value, PackedSequence) for value in (*inputs.arguments, *inputs.keywords.values())):
            raise InputError(
                f"{user.name} gets a packed sequence, and no graph takes one.",
                hint="Let example_inputs(batch) give the padded batch and its lengths; pack inside forward.",
            )
        _complete_lazy_layers(user, inputs)
    return inputs


def _first_source(user: UserModel, specs: Sequence[InputSpec], batch: int | None) -> ExampleInputs:
    if specs:
        names = [item.name for item in forward_parameters(user) if item.kind not in _VARIADIC]
        specs, batch = named_by_position(specs, names), batch or own_batch(specs) or 1
        _require_batch(specs, batch)
        return _from_specs(user, specs, batch)
    offered = call_offered(user, "example_inputs", batch)
    if offered is not None:
        inputs = _from_file(user, offered, batch)
        assumed = _assumed(user, inputs)
        return replace(inputs, origin="inferred", guessed=assumed) if assumed else inputs
    if user.forward is not None and user.forward.arguments is not None:
        # A script gives the layers their data; without weights these have no values either.
        arguments, keywords = user.forward.arguments, user.forward.keywords
        if user.meta:
            arguments, keywords = on_meta((arguments, keywords))
        inputs = _with_values(arguments, keywords, batch)
        if _is_sequence_first(user, inputs):
            inputs = _with_values(arguments, keywords, batch, axis=1)
        return replace(inputs, origin="script")
    # Nothing is said of inputs that are but tried.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _inferred(user, batch or 1)
    except InputError as error:
        error.hint = " ".join(filter(None, [user.no_forward, error.hint]))
        raise
    finally:
        logging.disable(before)


def _assumed(user: UserModel, inputs: ExampleInputs) -> tuple[InputSpec, ...]:
    """Return the assumptions about inputs of a configuration."""
    return tuple(
        InputSpec(
            name=name,
            shape=tuple(None if axis == 0 else size for axis, size in enumerate(tensor.shape)),
            dtype=str(tensor.dtype).removeprefix("torch."),
            values=user.assumed[name],
        )
        for name, tensor in inputs.keywords.items()
        if name in user.assumed
    )


def _require_batch(specs: Sequence[InputSpec], batch: int) -> None:
    """Refuse a batch on which no input depends: costs would be shared out over requests that are not there."""
    shapes = [spec.shape for spec in specs if spec.shape]
    if batch == 1 or any(None in shape for shape in shapes) or (shapes and {s[0] for s in shapes} == {batch}):
        return
    hint = "The nodes of a graph are no batch: leave --batch out, or give more nodes and edges instead."
    if not is_one_graph((spec.name, spec.shape, spec.dtype) for spec in specs):
        written = next((spec for spec in specs if spec.shape), None)
        text = replace(written, shape=(None, *written.shape[1:])).text if written else "x=B,..."
        hint = f"Write B where the batch goes, as in --input {text}, or leave --batch out."
    given = ", ".join(spec.text for spec in specs)
    raise InputError(f"--batch {batch}: no input depends on the batch ({given}).", hint=hint)


def _complete_lazy_layers(user: UserModel, inputs: ExampleInputs) -> None:
    """Call a model with lazy layers once, which gives them their sizes."""
    import torch
    from torch.nn.parameter import is_lazy

    if any(is_lazy(parameter) for parameter in user.model.parameters()):
        if user.weights == "small":
            raise ModelError(f"The layers of {user.name} get their sizes in its first call.")
        # A call that fails is explained where the model is traced.
        with suppress(Exception), torch.no_grad(), built_with(user.weights, user.memory_bytes):
            arguments, keywords = first_rows(inputs)
            user.model(*arguments, **keywords)


def tensor_names(user: UserModel, inputs: ExampleInputs) -> list[str]:
    """Return a name for each input tensor, in the order of ``flatten``: its parameter and the path into it."""
    parameters = [item.name for item in forward_parameters(user) if item.kind not in _VARIADIC]
    positional = [*parameters, *(f"input_{i}" for i in range(len(parameters), len(inputs.arguments)))]
    # A leaf's way begins with 0 for arguments or 1 for keywords, then the argument's position or name.
    names: list[str] = []
    for steps, leaf in leaves_with_steps(inputs.tree):
        if not _is_tensor(leaf):
            continue
        first = steps[1] if steps[0] else positional[steps[1]]
        name = "_".join(str(step) for step in (first, *steps[2:]))
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    import torch

    return isinstance(value, torch.Tensor)


def arguments_and_keywords(user: UserModel, offered: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return offered inputs as arguments and keywords; a dict or list that is one argument stays whole."""
    parameters = forward_parameters(user)
    if isinstance(offered, Mapping):
        keywords = {item.name for item in parameters if item.kind not in _POSITIONAL_ONLY}
        one = not any(item.kind is item.VAR_KEYWORD for item in parameters) and keywords.isdisjoint(offered)
        return ((offered,), {}) if one and parameters else ((), dict(offered))
    if isinstance(offered, list) and len(parameters) == 1 and parameters[0].kind not in _VARIADIC:
        return ((offered,), {}) if len(offered) > 1 else (tuple(offered), {})
    if isinstance(offered, (tuple, list)):
        return tuple(offered), {}
    return (offered,), {}


def _from_file(user: UserModel, offered: Tree, batch: int | None) -> ExampleInputs:
    arguments, keywords = arguments_and_keywords(user, offered)
    register_containers(arguments, keywords)
    leaves = tree_leaves((arguments, dict(keywords)))
    leading = _rows(leaves)
    # The batch of a graph is told to be 1, and asked for as that where the model is run.
    requested = batch if _takes_batch(user.module.example_inputs) else None if batch == 1 else batch
    if requested is None:
        one = ExampleInputs(arguments=arguments, keywords=keywords, batch=1, batch_axes={}, origin="file")
        tensors = [leaf for leaf in leaves if _is_tensor(leaf)]
        shapes = ((tuple(leaf.shape), str(leaf.dtype).removeprefix("torch.")) for leaf in tensors)
        names = tensor_names(user, one)
        if is_one_graph((name, *typed) for name, typed in zip(names, shapes, strict=True)):
            return one
    if callable(user.module.example_inputs):
        called = batch or _default_batch(user.module.example_inputs) or leading
        grown: list[Any] | None = None
        with suppress(InputError):  # it may not be safe on the meta device, which allocates nothing
            one_more = call_offered(user, "example_inputs", called + 1, weights="meta")
            grown = tree_leaves(arguments_and_keywords(user, one_more))
        axes = _batch_axes(leaves, grown, called) if _takes_batch(user.module.example_inputs) else {}
        other = grown is not None and _shapes(grown) != _shapes(leaves)
        if batch not in (None, leading) and not axes and not (other or grown is None):
            raise InputError(
                f"--batch {batch}: example_inputs gives the same inputs at every batch, {leading} rows.",
                hint="Write example_inputs(batch) and give as many rows, or leave --batch out.",
            )
        batch = batch or (called if axes or other else leading)
        return ExampleInputs(
            arguments=arguments, keywords=keywords, batch=batch, batch_axes=axes, origin="file"
        )
    return _with_values(arguments, keywords, batch)


def _is_sequence_first(user: UserModel, inputs: ExampleInputs) -> bool:
    """Return whether a layer with the batch on axis 1 gets the first input's axes in order."""
    import torch

    layers = (layer for layer in user.model.modules() if getattr(layer, "batch_first", True) is False)
    layer = next(layers, None)
    leaves = inputs.leaves
    tensor = next((leaf for leaf in leaves if _is_tensor(leaf) and leaf.dim() > 1), None)
    if layer is None or tensor is None or tensor.shape[0] == tensor.shape[1]:
        return False
    seen: list[Any] = []
    hook = layer.register_forward_pre_hook(
        lambda _, taken: seen.extend(item.shape[:2] for item in taken if isinstance(item, torch.Tensor))
    )
    with suppress(Exception):  # explained where the model is traced
        call(user, inputs)
    hook.remove()
    return bool(seen) and seen[0] == tensor.shape[:2]


def _with_values(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], batch: int | None, *, axis: int = 0
) -> ExampleInputs:
    """Return inputs given as values; those with as many rows on an axis as the first follow the batch."""
    register_containers(arguments, keywords)
    leaves = tree_leaves((arguments, dict(keywords)))
    leading = _rows(leaves, axis)
    axes = {
        position: (axis,)
        for position, leaf in enumerate(leaves)
        if _is_tensor(leaf) and leaf.dim() > axis and leaf.shape[axis] == leading
    }
    if batch is not None and batch != leading:
        arguments, keywords = _rebatched(arguments, keywords, leading, batch, axis)
    return ExampleInputs(
        arguments=arguments, keywords=keywords, batch=batch or leading, batch_axes=axes, origin="file"
    )


def _rows(leaves: Sequence[Any], axis: int = 0) -> int:
    """Return the size of this axis of the first tensor that has it."""
    leading = next((leaf.shape[axis] for leaf in leaves if _is_tensor(leaf) and leaf.dim() > axis), None)
    if leading is None:
        kinds = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves)) or "nothing"
        raise InputError(
            f"The inputs hold no tensor with a leading dimension but {kinds}.",
            hint="Give torch tensors: one, a tuple of them, or a dict by name.",
        )
    return int(leading)


def _takes_batch(offered: object) -> bool:
    return callable(offered) and bool(inspect.signature(offered).parameters)


def _shapes(leaves: Sequence[Any]) -> list[Any]:
    return [getattr(leaf, "shape", leaf) for leaf in leaves]


def _default_batch(function: Callable[..., object]) -> int | None:
    """Return batch at that ``example_inputs`` was called where none was asked for; None where it takes none."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind in _VARIADIC:
        return None
    if first.default is first.empty:
        return DEFAULT_BATCH
    is_size = isinstance(first.default, int) and not isinstance(first.default, bool) and first.default > 0
    return first.default if is_size else None


def _batch_axes(
    leaves: list[Any], leaves_of_one_more: list[Any] | None, batch: int
) -> dict[int, tuple[int, ...]]:
    """Axes whose size is the batch: those that are one more with one more row.

    Empty where something follows the batch in another way (five rows for each, a tensor for each, a number):
    such inputs are right for this batch alone.
    """
    if leaves_of_one_more is None:  # the leading axis has to do
        return {
            i: (0,)
            for i, leaf in enumerate(leaves)
            if _is_tensor(leaf) and leaf.dim() and leaf.shape[0] == batch
        }
    if len(leaves) != len(leaves_of_one_more):
        return {}
    batch_axes = {}
    for position, (leaf, leaf_of_one_more) in enumerate(zip(leaves, leaves_of_one_more, strict=True)):
        if not (_is_tensor(leaf) and _is_tensor(leaf_of_one_more)):
            if type(leaf) is not type(leaf_of_one_more) or (
                isinstance(leaf, (bool, int, float, str)) and leaf != leaf_of_one_more
            ):
                return {}
            continue
        if leaf.dim() != leaf_of_one_more.dim():
            return {}
        pairs = list(enumerate(zip(leaf.shape, leaf_of_one_more.shape, strict=True)))
        axes = tuple(axis for axis, (size, grown) in pairs if size == batch and grown == batch + 1)
        if any(size != grown for axis, (size, grown) in pairs if axis not in axes):
            return {}
        if axes:
            batch_axes[position] = axes
    return batch_axes


def _rebatched(
    arguments: Tree, keywords: Tree, leading: int, batch: int, axis: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    def repeat(leaf: object) -> object:
        if not _is_tensor(leaf) or leaf.dim() <= axis or leaf.shape[axis] != leading:
            return leaf
        # The user's own rows again: valid ids stay valid.
        return leaf.index_select(axis, torch.arange(batch, device=leaf.device) % leading)

    repeated = tree_map(repeat, (arguments, dict(keywords)))
    return tuple(repeated[0]), dict(repeated[1])


def forward_parameters(user: UserModel) -> list[inspect.Parameter]:
    """Return the parameters of the model's ``forward``; of a compiled one, what its schema says."""
    schema = getattr(user.model.forward, "schema", None)
    if schema is None:
        return list(inspect.signature(user.model.forward).parameters.values())
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=item.default_value if item.has_default_value() else inspect.Parameter.empty,
        )
        for item in schema.arguments[1:]  # without self
    ]


def _from_specs(user: UserModel, specs: Sequence[InputSpec], batch: int) -> ExampleInputs:
    parameters = forward_parameters(user)
    known = [item.name for item in parameters]
    variadic = any(item.kind in _VARIADIC for item in parameters)
    given = {parameter_of(spec.name) for spec in specs}
    for spec in specs:
        if parameter_of(spec.name) not in known and not variadic:
            # Of dicts what the model reads in them.
            members = [item for item in infer_inputs(user.model, known) if item.name not in known]
            read = f", of which it reads {options_to_give(members)}" if members else ""
            raise InputError(
                f"{spec.option}: {user.name} takes no input {spec.name}.",
                hint=f"It takes {', '.join(known)}{read}.",
            )
    missing = [
        item.name
        for item in parameters
        if item.default is item.empty and item.kind not in _VARIADIC and item.name not in given
    ]
    if missing:
        further = [_as_long_as_given(item, specs) for item in infer_inputs(user.model, missing)]
        raise InputError(
            f"{user.name} also needs {', '.join(missing)}.", hint=f"Add {options_to_give(further)}."
        )
    return _called_with(user, specs, batch, "given")


def _as_long_as_given(item: InferredInput, given: Sequence[InputSpec]) -> InferredInput:
    """Return a mask as long as the tokens that are given, pairs of nodes among the nodes that are given."""
    tokens = next((spec for spec in given if spec.name == "input_ids"), None)
    if tokens is not None and item.name in MASKS:
        return replace(item, specs=tuple(replace(spec, shape=tokens.shape) for spec in item.specs))
    nodes = next((spec.shape[0] for spec in given if spec.shape), None)
    if nodes is not None and item.name == GRAPH_EDGES:
        return replace(item, specs=tuple(replace(spec, values=(0, nodes - 1)) for spec in item.specs))
    return item


def _called_with(
    user: UserModel, specs: Sequence[InputSpec], batch: int, origin: InputsOrigin
) -> ExampleInputs:
    """Return a call with what these say."""
    import torch

    parameters = forward_parameters(user)
    known = [item.name for item in parameters]
    order = {parameter: place for place, parameter in enumerate(known)}
    by_name = {spec.name: spec for spec in specs}
    names = sorted(by_name, key=lambda name: order.get(parameter_of(name), len(known)))
    ordered = [by_name[name] for name in names_in_order(names)]
    tensors = nested({spec.name: make_tensor(spec, batch, user.weights, user.memory_bytes) for spec in ordered})
    axes = {
        position: tuple(axis for axis, size in enumerate(spec.shape) if size is None)
        for position, spec in enumerate(ordered)
        if None in spec.shape
    }
    first = parameters[: len(tensors)]
    # A program that was unflattened takes what it was exported with by position, under no names.
    by_position = isinstance(user.model, torch.export.UnflattenedModule) or (
        [item.name for item in first] == list(tensors)
        and not any(item.kind is item.KEYWORD_ONLY for item in first)
    )
    return ExampleInputs(
        arguments=tuple(tensors.values()) if by_position else (),
        keywords={} if by_position else tensors,
        batch=batch,
        batch_axes=axes,
        origin=origin,
        guessed=tuple(ordered) if origin == "inferred" else (),
    )


def make_tensor(spec: InputSpec, batch: int, weights: ValuedWeights, memory_bytes: int | None = None) -> Tensor:
    """Values as they are said; else normal floats, true booleans, integers 0 or 1 (valid in any table).

    Raises:
        UsageError: PyTorch makes no tensors of that type.
    """
    import torch

    # What takes less than a byte has but a name in PyTorch; the others are float8_e4m3fn and float8_e8m0fnu.
    name = re.sub(r"e8m0$", "e8m0fnu", spec.dtype).replace("float8e", "float8_e")
    dtype = None if _PART_OF_A_BYTE.fullmatch(name) else getattr(torch, name, None)
    if dtype is None:
        raise UsageError(
            f"{spec.option}: PyTorch makes no tensors of {spec.dtype}.",
            hint="Give the type that the model's forward takes, such as uint8 where it unpacks them itself.",
        )
    sizes = spec.sizes(batch)
    whole = not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool
    if spec.values is None and whole:
        # Drawn by the input's name, as said ones are: the sizes that they decide are then known without a run.
        spec = replace(spec, values=(0, 1))
    with built_with(weights, memory_bytes):
        if spec.values is not None and weights != "meta":
            return torch.from_numpy(drawn_values(spec, sizes, whole=not dtype.is_floating_point)).to(dtype)
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(sizes).to(dtype)
        if dtype is torch.bool:
            return torch.ones(sizes, dtype=torch.bool)
        return torch.randint(0, 2, sizes, dtype=dtype)


def _inferred(user: UserModel, batch: int) -> ExampleInputs:
    """Return inputs that the model's first layers and their names decide, with usual sizes for the rest."""
    parameters = [item for item in forward_parameters(user) if item.kind not in _VARIADIC]
    # A model that can do with none of its inputs (text or embeddings, one of both) usually means the first.
    needed = [item.name for item in parameters if item.default is item.empty]
    names = needed or [item.name for item in parameters[:1]]
    inferred = infer_inputs(user.model, names)
    line = options_to_give(inferred or (InferredInput(name="x"),))
    if any(item.name == GRAPH_EDGES for item in parameters):
        raise InputError(
            f"The inputs of {user.name} are nodes and edges, and how many there are decides the time.",
            hint=f"Add example_inputs(batch) to the file, or give {line}.",
        )
    if not inferred or not all(item.specs for item in inferred):
        raise InputError(
            f"The inputs of {user.name} cannot be inferred from its layers.",
            hint=f"Add example_inputs(batch) to the file, or give {line}.",
        )
    trials = _combinations([item.specs for item in inferred])
    # A forward whose parameters all have defaults may need the masks of its tokens.
    masks = [item.name for item in parameters[1:] if item.name in MASKS and not needed]
    if masks:
        trials += _combinations([item.specs for item in infer_inputs(user.model, [*names, *masks])])
    problems: list[Exception] = []
    for specs in trials:
        inputs = _called_with(user, specs, batch, "inferred")
        problem = _call_failure(user, inputs)
        if problem is None:
            return inputs
        problems.append(problem)
    misfits = [(specs, misfit(user.model, problem)) for specs, problem in zip(trials, problems, strict=True)]
    specs, result = next((item for item in misfits if item[1] is not None), misfits[0])
    solved = None if result is None else _solved(user, result.path, result.taken, specs)
    if solved is not None:
        inputs = _called_with(user, solved, batch, "inferred")
        if _call_failure(user, inputs) is None:
            return inputs
    cause = result.text if result is not None else first_line(problems[0])
    raise InputError(
        f"Inputs inferred from the first layers of {user.name} do not fit: {cause.removesuffix('.')}.",
        # Not the very sizes that failed.
        hint=f"Give the right shape{'s' if len(inferred) > 1 else ''}: {options_to_complete(inferred)}.",
    )


def _combinations(specs: Sequence[tuple[InputSpec, ...]]) -> list[tuple[InputSpec, ...]]:
    """Return what to try for several inputs: the same choice of each (sequences as long), then any of them."""
    same = [tuple(each[min(i, len(each) - 1)] for each in specs) for i in range(max(map(len, specs)))]
    return list(dict.fromkeys([*same, *islice(product(*specs), _MOST_TRIALS)]))[:_MOST_TRIALS]


def _solved(
    user: UserModel, path: str, taken: int, specs: tuple[InputSpec, ...]
) -> tuple[InputSpec, ...] | None:
    """Return the inputs with open sizes at which a layer gets the width it takes, None without any."""

    def sized(position: int, axes: Sequence[int], size: int) -> tuple[InputSpec, ...]:
        shape = tuple(size if axis in axes else old for axis, old in enumerate(specs[position].shape))
        return (*specs[:position], replace(specs[position], shape=shape), *specs[position + 1 :])

    def width_at(specs: tuple[InputSpec, ...]) -> int:
        # What ends before the layer is too small for a kernel, or for a pooling.
        return given_width(user, path, _called_with(user, specs, 1, "inferred")) or 0

    width = width_at(specs)
    for position, spec in enumerate(specs):
        kinds = (OpenLength, OpenSide, OpenWidth)
        usual = {axis: size for axis, size in enumerate(spec.shape) if isinstance(size, kinds)}
        deciding = [
            axis for axis, size in usual.items() if width_at(sized(position, [axis], 2 * size)) != width
        ]
        if deciding:
            # Larger inputs give larger widths.
            least = 1 + bisect_left(
                range(1, _LARGEST_SIZE), taken, key=lambda size: width_at(sized(position, deciding, size))
            )
            # Of several sizes that strides bring to one width, a multiple of 8 is the most usual.
            sizes = [least, *(size for size in range(least, least + _STRIDES) if size % 8 == 0)]
            fitting = [solved for size in sizes if width_at(solved := sized(position, deciding, size)) == taken]
            if fitting:
                return fitting[-1]
    return None


def _call_failure(user: UserModel, inputs: ExampleInputs) -> Exception | None:
    """Return what a forward call raises, None if it does not."""
    try:
        call(user, inputs)
    except AnalyzerError:
        raise
    except Exception as error:
        return error
    return None


def left_out(user: UserModel, inputs: ExampleInputs) -> tuple[str, ...]:
    """Return a note on the arguments of the user's own ``forward`` that stay None and could be tensors.

    A library's models have a dozen of them, most of which are of no use together.
    """
    code = getattr(user.model.forward, "__code__", None)
    if code is None or is_library(code.co_filename):
        return ()
    names = [
        item.name
        for item in forward_parameters(user)[len(inputs.arguments) :]
        if item.default is None
        and item.name not in inputs.keywords
        and (item.annotation is item.empty or "Tensor" in str(item.annotation))
    ]
    if not names:
        return ()
    # Of a tuple each tensor; a shape that no call bears out would mislead.
    given = " ".join(f"--input {item.name}=..." for item in infer_inputs(user.model, names))
    verb, it = ("was", "gives it") if len(names) == 1 else ("were", "gives them")
    return (f"{listed(names)} {verb} {LEFT_OUT}; {given} {it}.",)
