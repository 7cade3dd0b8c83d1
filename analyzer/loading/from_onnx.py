"""A user's .onnx file (or a ModelProto in memory) -> Loaded, without torch and without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, UsageError
from analyzer.graph import DTYPES_BY_NUMBER, UNDEFINED
from analyzer.loading import reader
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import Reference
from analyzer.loading.onnx_graph.fitting_sizes import evaluate, symbols
from analyzer.loading.onnx_graph.node_validity import file_problems
from analyzer.loading.onnx_graph.normalize import name_nodes
from analyzer.loading.python.input_spec import InputSpec, is_one_graph, named_by_position, values_problem
from analyzer.loading.python.layers import IMAGE_SIDE
from analyzer.loading.shape_inference.onnx_inference import size_name
from analyzer.reading import DEFAULT_LIMITS, Limits
from analyzer.text import listed

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from analyzer.graph import Tensor


def from_proto(
    proto: onnx.ModelProto,
    *,
    name: str,
    source: str,
    batch: int | None,
    specs: Sequence[InputSpec] = (),
    converted: bool = False,
    reference: Reference | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Loaded:
    """Load a ModelProto that the reading process gave, which is named and changed.

    Raises:
        InputError: A fixed leading dimension differs from the batch, or ``--input`` does not fit.
    """
    notes: tuple[str, ...] = ()
    if converted:
        opset = default_opset(proto)
        notes = (f"Converted from the file's opset to opset {opset} with onnx's version converter.",)
    problems = file_problems(proto)
    specs = named_by_position(specs, [value.name for value in fed_inputs(proto)])
    name_nodes(proto.graph)
    open_negative_sizes(proto)  # before names are asked for: -1 would be a size
    opened, empty_inputs = _open_empty_sizes(proto, specs, batch)
    notes += opened
    notes += _one_batch(proto, specs)
    symbol, fixed = batch_dimension(proto)
    specs = with_declared_batch(proto, specs, symbol if batch is not None else "")
    bindings = given_sizes(proto, specs)
    if batch is None and symbol and takes_one_graph(proto):
        symbol, fixed = "", 1
    if batch is not None and not symbol and fixed is not None and batch != fixed:
        raise InputError(
            f"{source} is fixed to batch {fixed}, not {batch}.",
            hint="Export it with a symbolic batch dimension, or leave --batch out.",
        )
    if batch not in (None, 1) and not symbol and any(map(_is_one_image, fed_inputs(proto))):
        raise InputError(
            f"{source} takes one image: no axis of it is a batch.",
            hint="Export it with a symbolic batch dimension, or leave --batch out.",
        )
    require_one_size(symbol, batch, bindings)
    if symbol in bindings:
        batch = bindings[symbol]
    images = _images_of_usual_size(proto, symbol, bindings)
    usual: dict[str, int] = {}
    for spec in images:  # of two that share a side the first says its size
        usual = given_sizes(proto, [spec]) | usual
    batch = batch or (1 if symbol else fixed)
    sizes = bindings | ({symbol: batch} if symbol and batch else {})
    subject = f"'{source}'"
    fits, assumed, example = reader.open_sizes(
        proto, sizes, usual, example=_EXAMPLE_SIZE, subject=subject, limits=limits
    )
    images, bindings = (images, bindings | usual) if fits else ((), bindings)
    return Loaded(
        reference=reference,
        name=name,
        source=source,
        proto=proto,
        symbol=symbol,
        batch=batch,
        static_batch=None if symbol else fixed,
        inputs_origin="given" if specs else "model",
        guessed=tuple(spec.text for spec in images),
        exporter="onnx",
        notes=(*notes, *_how_to_size(proto, symbol, bindings, example)),
        specs=tuple(specs),
        bindings=bindings,
        assumed=assumed,
        problems=problems,
        empty_inputs=empty_inputs,
        limits=limits,
    )


def _images_of_usual_size(
    proto: onnx.ModelProto, symbol: str, bindings: Mapping[str, int]
) -> tuple[InputSpec, ...]:
    """Return images with an open side that nobody sized, at the size that Python models get too.

    One pixel would be taken else, and no kernel has the time there that it has on an image.
    """
    kinds = {value.name: value.type.tensor_type for value in fed_inputs(proto)}
    single = {value.name for value in fed_inputs(proto) if _is_one_image(value)}
    # What tokens are counted by is no side of an image: a mask of [batch, 1, tokens, tokens].
    elsewhere = {
        dim.dim_param
        for name, kind in kinds.items()
        if len(kind.shape.dim) != _IMAGE_RANK and name not in single
        for dim in kind.shape.dim
    }
    result = []
    for name, kind in kinds.items():
        dims = list(kind.shape.dim)
        for layout, usual in _LAYOUTS:
            sides = [axis for axis, letter in enumerate(layout) if letter in usual]
            if (
                len(layout) != len(dims)
                or (len(layout) == len("HWC") and name not in single)
                or dims[layout.index("C")].dim_value not in _CHANNELS
                or "mask" in name
            ):
                continue
            missing = [axis for axis in sides if not dims[axis].dim_value]
            symbols_there = {size_name(name, axis, dims[axis]) for axis in missing}
            # Two open sides are an image's; one may be a past's, and a volume's may be anything.
            is_image = layout != "NCDHW" and len(missing) == len(sides) and not symbols_there & elsewhere
            if not missing or not (is_image or (layout[1] == "C" and _is_read_by_windows(proto, name))):
                continue
            if symbols_there & {symbol, *bindings}:
                continue
            largest = max(dims[axis].dim_value for axis in sides)
            shape: list[int | None] = [dim.dim_value or None for dim in dims]
            for axis in missing:
                shape[axis] = max(usual[layout[axis]], largest if layout[axis] != "D" else 0)
            dtype = DTYPES_BY_NUMBER.get(kind.elem_type, UNDEFINED).name
            result.append(InputSpec(name=name, shape=tuple(shape), dtype=dtype))
            break
    return tuple(result)


_IMAGE_RANK, _CHANNELS = 4, (1, 3)
# As the layers of Python models get them: ``images`` of loading/python/layers.py.
_SIDES = {"H": int(IMAGE_SIDE), "W": int(IMAGE_SIDE)}
_LAYOUTS = (
    *(("NCHW", _SIDES), ("NHWC", _SIDES), ("HWC", _SIDES), ("CHW", _SIDES)),
    ("NCDHW", {"D": 16, "H": 112, "W": 112}),
)


def _is_read_by_windows(proto: onnx.ModelProto, name: str) -> bool:
    """Return whether a convolution or pool reads an input, behind what computes on its elements one by one."""
    reached = {name}
    for node in proto.graph.node:  # in order of execution, or nearly: what is missed is but a guess
        if reached.intersection(node.input[:1]):
            if node.op_type in _WINDOWS:
                return True
            if node.op_type in _BEFORE_WINDOWS:
                reached.update(node.output[:1])
    return False


_WINDOWS = frozenset({"AveragePool", "Conv", "ConvInteger", "MaxPool", "QLinearConv"})
_BEFORE_WINDOWS = frozenset(
    {
        *("Add", "BatchNormalization", "Cast", "Clip", "DequantizeLinear", "Div", "DynamicQuantizeLinear"),
        *("Identity", "InstanceNormalization", "Mul", "Pad", "QuantizeLinear", "Relu", "Sub"),
    }
)


def _how_to_size(
    proto: onnx.ModelProto, symbol: str, bindings: Mapping[str, int], example: Mapping[str, int]
) -> tuple[str, ...]:
    """Return a note with the options that bind open sizes, if any: each input adds a dimension."""
    lines = []
    left, known = set(example), {**bindings, **example}
    for value in fed_inputs(proto):
        kind = value.type.tensor_type
        names = [size_name(value.name, axis, dim) for axis, dim in enumerate(kind.shape.dim)]
        open_here = {item for name in names for item in (name, *symbols(name))} & left
        if not open_here:
            continue
        left -= open_here
        sizes = tuple(
            None if name == symbol else dim.dim_value or known.get(name, evaluate(name, known))
            for name, dim in zip(names, kind.shape.dim, strict=True)
        )
        dtype = DTYPES_BY_NUMBER.get(kind.elem_type, UNDEFINED).name
        lines.append(f"--input {InputSpec(name=value.name, shape=sizes, dtype=dtype).text}")
    if not lines:
        return ()
    return (f"Open sizes are given with, for example, {' '.join(lines)}.",)


_EXAMPLE_SIZE = 128


def require_one_size(symbol: str, batch: int | None, bindings: Mapping[str, int]) -> None:
    """Refuse a batch that ``--input`` contradicts."""
    size = bindings.get(symbol)
    if None not in (size, batch) and size != batch:
        raise InputError(
            f"--batch {batch}: --input gives {symbol}, which is the batch, the size {size}.",
            hint="Write B for it in --input, or leave --batch out.",
        )


def default_opset(proto: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model imports, 0 where it says none."""
    return next((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), 0)


def convert(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return the model at another opset.

    Raises:
        UsageError: onnx has no conversion for one of its operators.
    """
    from onnx import version_converter

    try:
        return version_converter.convert_version(proto, opset)
    except Exception as error:  # the converter raises bare RuntimeErrors from C++
        lines = str(error).strip().splitlines()
        raise UsageError(
            f"--opset {opset}: onnx cannot convert the model: {lines[-1] if lines else type(error).__name__}",
            hint="Leave --opset out, or export the model anew at that opset.",
        ) from error


def open_negative_sizes(proto: onnx.ModelProto) -> None:
    """Turn sizes of -1, by which some exporters mean an open dimension, into open dimensions."""
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_value < 0:
                dim.dim_param = f"{value.name}[{axis}]"
    for value in (*proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("value")


def _open_empty_sizes(
    proto: onnx.ModelProto, specs: Sequence[InputSpec], batch: int | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Turn sizes of 0, by which some exporters mean an open one, into open ones.

    A past that is empty before the first token is what it says: it is joined to what is new.

    Returns:
        A note on the inputs that the user sizes, and a sentence on each that nobody does.
    """
    joined = {
        name for node in proto.graph.node if node.op_type in _JOINING or node.domain for name in node.input
    }
    opened, left = [], []
    for value in fed_inputs(proto):
        dims = value.type.tensor_type.shape.dim
        empty = [axis for axis, dim in enumerate(dims) if dim.HasField("dim_value") and not dim.dim_value]
        if not empty or value.name in joined or "past" in value.name:
            continue
        given = next((spec.shape for spec in specs if spec.name == value.name), ())
        unsized = [axis for axis in empty if not (axis < len(given) or (axis == 0 and batch is not None))]
        sizes = ",".join(
            str(dim.dim_value or (int(IMAGE_SIDE) if place > 1 else 1)) for place, dim in enumerate(dims)
        )
        for axis in empty:
            dims[axis].ClearField("value")
        if unsized:
            axes = f"{'axis' if len(unsized) == 1 else 'axes'} {listed(map(str, unsized))}"
            left.append(
                f"The file gives input {value.name} the size 0 at {axes}, by which some exporters mean an open "
                f"size. Give it (--input {value.name}={sizes}), or name the axis in the file."
            )
        else:
            opened.append(value.name)
    note = (
        f"The file declares a size of 0 for {', '.join(opened)}: ONNX Runtime takes the size that is given only"
        " where the file leaves the axis open."
    )
    return (note,) if opened else (), tuple(left)


_JOINING = frozenset({"Concat", "If", "Loop", "Scan"})


def fed_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that the caller feeds: those that are no initializers."""
    # Before IR version 4 every initializer had to be an input too: a default that the caller may replace.
    stored = {item.name for item in proto.graph.initializer}
    return [value for value in proto.graph.input if value.name not in stored]


def sizes_as_written(proto: onnx.ModelProto, symbol: str, tensor: Tensor) -> str:
    """Return shape of an input as ``--input`` takes it, with ``B`` where the model's own axis is the batch."""
    sizes = tensor.shape or ()
    declared = next((value for value in fed_inputs(proto) if value.name == tensor.name), None)
    dims = () if declared is None else declared.type.tensor_type.shape.dim
    names = [size_name(tensor.name, axis, dim) for axis, dim in enumerate(dims)]
    return ",".join(
        "B" if symbol and name == symbol else str(size)
        for size, name in zip_longest(sizes, names[: len(sizes)], fillvalue="")
    )


def batch_dimension(proto: onnx.ModelProto) -> tuple[str, int | None]:
    """Return the name of the first symbolic leading dimension (empty: none) and the first fixed one."""
    fixed = None
    for value in fed_inputs(proto):
        dims = value.type.tensor_type.shape.dim
        if not dims or _is_one_image(value):
            continue
        first = dims[0]
        if first.HasField("dim_value") and first.dim_value >= 0:
            fixed = (first.dim_value or None) if fixed is None else fixed
        else:
            return size_name(value.name, 0, first), None
    return "", fixed


def _is_one_image(value: onnx.ValueInfoProto) -> bool:
    """Return whether an input is an image of open sides without a batch: ``[H, W, 3]`` or ``[3, H, W]``."""
    kind = value.type.tensor_type
    dims = list(kind.shape.dim)
    sides = [dim for dim in dims if not dim.dim_value]
    if len(dims) != len("HWC") or len(sides) != len("HW") or 3 not in (dims[0].dim_value, dims[2].dim_value):
        return False
    # Points are [batch, points, 3] too: bytes or names tell.
    names = {dim.dim_param.lower() for dim in sides}
    return DTYPES_BY_NUMBER.get(kind.elem_type, UNDEFINED).name == "uint8" or names <= _SIDE_NAMES


_SIDE_NAMES = frozenset({"h", "w", "height", "width", "image_height", "image_width"})


def takes_one_graph(proto: onnx.ModelProto) -> bool:
    """Return whether the inputs whose sizes are open are the nodes and the edges of one graph."""
    kinds = [(value.name, value.type.tensor_type) for value in fed_inputs(proto)]
    inputs = [
        (
            name,
            [dim.dim_value if dim.dim_value > 0 else None for dim in kind.shape.dim],
            DTYPES_BY_NUMBER.get(kind.elem_type, UNDEFINED).name,
        )
        for name, kind in kinds
    ]
    # What has a fixed size grows with no graph.
    return is_one_graph(each for each in inputs if None in each[1])


def _one_batch(proto: onnx.ModelProto, specs: Sequence[InputSpec]) -> tuple[str, ...]:
    """Give the unnamed first axes of inputs the batch's name; a note says so where there are several inputs.

    Exporters of classical models leave the number of rows of each input without a name.
    """
    symbol, _ = batch_dimension(proto)
    given = {spec.name for spec in specs if spec.shape[:1] != (None,)}  # B is the batch
    joined = []
    for value in fed_inputs(proto):
        dims = value.type.tensor_type.shape.dim
        if not dims or dims[0].dim_param or (dims[0].HasField("dim_value") and dims[0].dim_value >= 0):
            continue
        # What the user sized is left as it is: it may be no batch.
        if symbol and not _is_one_image(value) and value.name not in given and symbol != f"{value.name}[0]":
            dims[0].dim_param = symbol
            joined.append(value.name)
    if not joined:
        return ()
    names = ", ".join(joined[:3]) + (f" and {len(joined) - 3} more" if len(joined) > 3 else "")
    return (f"The first axis of {names} has no name: it is taken for the batch, {symbol}.",)


def with_declared_batch(
    proto: onnx.ModelProto, specs: Sequence[InputSpec], symbol: str
) -> tuple[InputSpec, ...]:
    """Return inputs whose values are there with the axes of that name as the batch, and all other axes sized.

    Without a name the values' own rows are the batch: the model declares which axis that is.
    """
    declared = {value.name: value.type.tensor_type.shape.dim for value in fed_inputs(proto)}

    def sized(spec: InputSpec, array: NDArray[Any]) -> InputSpec:
        names = [size_name(spec.name, axis, dim) for axis, dim in enumerate(declared.get(spec.name, ()))]
        batch_axes = {axis for axis, name in enumerate(names) if symbol and name == symbol}
        sizes = tuple(None if axis in batch_axes else size for axis, size in enumerate(array.shape))
        return replace(spec, shape=sizes)

    return tuple(spec if spec.array is None else sized(spec, spec.array) for spec in specs)


def given_sizes(proto: onnx.ModelProto, specs: Sequence[InputSpec]) -> dict[str, int]:
    """Return sizes of symbolic dimensions that ``--input`` gives.

    Raises:
        InputError: The model has no such input, or declares another shape of it or a type that cannot hold the
            values.
    """
    inputs = {value.name: value for value in fed_inputs(proto)}
    bindings: dict[str, int] = {}
    for spec in specs:
        if spec.name not in inputs:
            raise InputError(
                f"{spec.option}: the model takes no input {spec.name}.",
                hint=f"It takes {', '.join(inputs)}.",
            )
        _bind(inputs[spec.name], spec, bindings)
        _check_values(inputs[spec.name], spec)
    source = next((spec.where for spec in specs if spec.array is not None), "")
    missing = [name for name in inputs if source and name not in {spec.name for spec in specs}]
    if missing:
        raise InputError(
            f"{source}: the model also takes {listed(missing)}.",
            hint=f"Add {'it' if len(missing) == 1 else 'them'} to the file, or give --input NAME=SHAPE:DTYPE.",
        )
    return bindings


def _check_values(value: onnx.ValueInfoProto, spec: InputSpec) -> None:
    declared = DTYPES_BY_NUMBER.get(value.type.tensor_type.elem_type, UNDEFINED).name
    # What the option leaves out is float32: the type that counts is the file's.
    if spec.array is not None:
        # NumPy has no bfloat16: its values are given in the next wider type.
        if spec.dtype not in (declared, "float32" if declared == "bfloat16" else declared):
            raise InputError(
                f"{spec.option}: the model declares {spec.name} as {declared}.",
                hint=f"Save it as that type: array.astype('{declared}').",
            )
        return
    problem = values_problem(spec.values, declared) if spec.values is not None else None
    if spec.word is not None and declared != "string":
        problem = ("a text cannot be given for it.", "Write a number, or a range LOW..HIGH.")
    if problem:
        raise InputError(
            f"{spec.option}: the model declares {spec.name} as {declared}, and {problem[0]}",
            hint=problem[1],
        )


def _bind(value: onnx.ValueInfoProto, spec: InputSpec, bindings: dict[str, int]) -> None:
    dims = value.type.tensor_type.shape.dim
    declared = [dim.dim_param or dim.dim_value or "?" for dim in dims]
    other = InputError(
        f"{spec.option}: the model declares {spec.name} as {declared}.", hint="A name stands for any size."
    )
    if len(dims) != len(spec.shape):
        raise other
    for axis, (dim, size) in enumerate(zip(dims, spec.shape, strict=True)):
        if size is None:
            continue
        if dim.HasField("dim_value") and dim.dim_value > 0:
            if dim.dim_value != size:
                raise other
            continue
        symbol = size_name(value.name, axis, dim)
        if bindings.setdefault(symbol, size) != size:
            raise InputError(
                f"{spec.option}: dimension {symbol} is {bindings[symbol]} elsewhere.",
                hint="Give both one size.",
            )


def bound_proto(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Return a copy with the inputs' symbolic dimensions replaced, the rest 1, and no inner shapes."""
    import onnx

    bound = onnx.ModelProto()
    bound.CopyFrom(proto)
    for value in bound.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            name = size_name(value.name, axis, dim)
            if not dim.HasField("dim_value") or dim.dim_value < 0 or (dim.dim_value == 0 and name in sizes):
                dim.dim_value = sizes.get(name, 1)
    for value in bound.graph.output:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                dim.dim_param = f"{value.name}_{axis}"
    # Inner shapes were inferred for the symbol, or for another batch: ONNX Runtime infers them again.
    del bound.graph.value_info[:]
    return bound
