"""One-operator models whose time gives one ceiling each; the keys are those of ``devices.calibration``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NCHWC_DOMAIN

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MICROSOFT, BLOCKED, CLASSICAL = CONTRIB_DOMAIN, NCHWC_DOMAIN, CLASSICAL_DOMAIN
_OPSET = 20  # as the exporter's default
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """A node to be timed alone.

    Attributes:
        key: ``{T}`` stands for the number of threads.
        amount: Work of one node: FLOPs, bytes or elements.
        per: ``rate`` gives work per second, ``time`` seconds per work.
        op_type, domain, opset, attributes: The node.
        inputs: What it reads: arrays that are fed, by position; None for an optional one that is absent.
        constants: Positions of inputs that are stored with the model, as weights are.
        outputs: How many it writes.
        copies: So many of the same node in one model, where one is shorter than a call.
        fresh_constants: Whether each copy has its own constants, so that they come from memory, not from cache.
    """

    key: str
    amount: float
    per: Literal["rate", "time"]
    op_type: str
    inputs: Sequence[Array | None]
    constants: frozenset[int] = frozenset()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = _OPSET
    outputs: int = 1
    copies: int = 1
    fresh_constants: bool = False

    def repeated(self, copies: int, *, fresh_constants: bool = False) -> Probe:
        """The same with so many copies."""
        return replace(self, copies=copies, fresh_constants=fresh_constants)


def model_of(probe: Probe) -> bytes:
    """The model: ``copies`` of the node side by side, reading the same inputs."""
    import numpy as np
    from onnx import helper, numpy_helper

    stored: dict[str, Any] = {}
    nodes: list[Any] = []
    results: list[str] = []
    for copy in range(probe.copies):
        names = [_name(probe, position, copy) for position in range(len(probe.inputs))]
        outputs = [f"o{copy}_{number}" for number in range(probe.outputs)]
        # Only the last is a result: the others' memory comes from the arena, as inside a graph.
        results = outputs
        nodes.append(
            helper.make_node(
                probe.op_type, names, outputs, name=f"node{copy}", domain=probe.domain, **probe.attributes
            )
        )
        for position in probe.constants:
            array = probe.inputs[position] if position < len(probe.inputs) else None
            if array is not None and names[position] not in stored:
                # ONNX Runtime packs and keeps equal weights once.
                turned = np.roll(array.reshape(-1), copy).reshape(array.shape)
                stored[names[position]] = numpy_helper.from_array(turned, names[position])
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds_of(probe).items()
    ]
    values = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph(nodes, "probe", fed, values, list(stored.values()))
    opsets = [helper.make_opsetid("", probe.opset)]
    # LabelEncoder names its keys and values since version 2 of ai.onnx.ml, which 3 keeps.
    opsets += [helper.make_opsetid(probe.domain, 3 if probe.domain == CLASSICAL else 1)] if probe.domain else []
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _name(probe: Probe, position: int, copy: int) -> str:
    if probe.inputs[position] is None:
        return ""
    return f"i{position}_{copy}" if probe.fresh_constants and position in probe.constants else f"i{position}"


def feeds_of(probe: Probe) -> dict[str, Array]:
    """The arrays to feed, by input name."""
    return {
        f"i{position}": array
        for position, array in enumerate(probe.inputs)
        if array is not None and position not in probe.constants
    }


def floats(*shape: int, dtype: str = "float32") -> Array:
    """Values between 0.5 and 1.5, the same each time."""
    import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16 by name
    import numpy as np

    # Neither 0 nor denormal numbers, which some processors multiply slowly, nor values that exp and log mind.
    generator = np.random.default_rng(1)
    return np.asarray((generator.random(shape, dtype=np.float32) + 0.5).astype(dtype))


# M, N, K with constant weights; skinny ones are what batch 1 and token by token give.
_SQUARES = (16, 32, 64, 128, 256, 512, 1024)
_SKINNY = (1, 2, 4, 8, 16, 32, 64, 128)
LARGE_GEMM = (1024, 1024, 1024)


def gemms() -> Iterator[Probe]:
    """Products by size and type, weights constant or not."""
    shapes = [(n, n, n) for n in _SQUARES] + [(m, 1024, 1024) for m in _SKINNY]
    shapes += [
        (1, 4096, 4096),
        (16, 4096, 4096),
        (128, 768, 3072),
        (128, 3072, 768),
        (8192, 768, 768),
        (1, 256, 256),
        (8, 256, 256),
    ]
    for m, n, k in dict.fromkeys(shapes):
        yield _gemm("gemm", m, n, k)
    # Constant weights are packed when the session is created, others at each run.
    for m, n, k in ((64, 64, 64), (256, 256, 256), (1024, 1024, 1024)):
        yield _gemm("gemm_dynamic", m, n, k, constant=False)
    for m, n, k in ((1, 1024, 1024), (64, 1024, 1024), (512, 512, 512)):
        yield _gemm("gemm_trans", m, n, k)
    for n in (256, 1024):
        yield _gemm("gemm", n, n, n, dtype="float64")
    for m, n, k in ((1, 1024, 1024), (128, 1024, 1024), (512, 512, 512)):
        yield _int8_gemm(m, n, k)
    for batch, m, n, k in ((12, 128, 128, 64), (12, 128, 64, 128), (96, 64, 64, 64), (12, 512, 512, 64)):
        yield Probe(
            key=f"bmm.float32.t{{T}}.b{batch}.m{m}.n{n}.k{k}",
            amount=2.0 * batch * m * n * k,
            per="rate",
            op_type="MatMul",
            inputs=(floats(batch, m, k), floats(batch, k, n)),
        )


def _gemm(family: str, m: int, n: int, k: int, *, dtype: str = "float32", constant: bool = True) -> Probe:
    transposed = family == "gemm_trans"
    weights = floats(n, k, dtype=dtype) if transposed else floats(k, n, dtype=dtype)
    bias = (floats(n, dtype=dtype),) if transposed else ()
    flops = 2.0 * m * n * k
    return Probe(
        key=f"{family}.{dtype}.t{{T}}.m{m}.n{n}.k{k}",
        amount=flops,
        per="rate",
        op_type="Gemm" if transposed else "MatMul",
        inputs=(floats(m, k, dtype=dtype), weights, *bias),
        constants=frozenset({1, 2}) if constant else frozenset(),
        attributes={"transB": 1} if transposed else _NONE,
        # Below 1 MFLOP a product takes microseconds, as a call of the model does.
        copies=32 if flops < 1e6 else 1,
    )


def _int8_gemm(m: int, n: int, k: int) -> Probe:
    import numpy as np

    return Probe(
        key=f"gemm.int8.t{{T}}.m{m}.n{n}.k{k}",
        amount=2.0 * m * n * k,
        per="rate",
        op_type="MatMulInteger",
        inputs=(np.ones((m, k), np.uint8), np.ones((k, n), np.int8)),
        constants=frozenset({1}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvClass:
    """A kind of convolution: input and output channels, size, kernel, stride, groups; how it is executed."""

    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    group: int = 1
    rank: int = 2
    batch: int = 1
    op_type: str = "Conv"
    blocked: bool = True


CONV_CLASSES: Mapping[str, ConvClass] = MappingProxyType(
    {
        "stem7x7s2": ConvClass(channels=3, filters=64, size=224, kernel=7, stride=2),
        "stem3x3s2": ConvClass(channels=3, filters=32, size=224, kernel=3, stride=2),
        "3x3": ConvClass(channels=64, filters=64, size=56, kernel=3),
        "3x3small": ConvClass(channels=512, filters=512, size=7, kernel=3),
        "3x3s2": ConvClass(channels=128, filters=128, size=56, kernel=3, stride=2),
        "1x1": ConvClass(channels=64, filters=256, size=56, kernel=1),
        "1x1small": ConvClass(channels=512, filters=2048, size=7, kernel=1),
        "5x5": ConvClass(channels=32, filters=32, size=56, kernel=5),
        "group32": ConvClass(channels=256, filters=256, size=28, kernel=3, group=32, blocked=False),
        "depthwise3x3": ConvClass(channels=192, filters=192, size=56, kernel=3, group=192),
        "depthwise3x3s2": ConvClass(channels=192, filters=192, size=56, kernel=3, stride=2, group=192),
        # The same from memory, large and small planes: 154 and 116 MB.
        "depthwise3x3far56": ConvClass(channels=192, filters=192, size=56, kernel=3, group=192, batch=32),
        "depthwise3x3far14": ConvClass(channels=576, filters=576, size=14, kernel=3, group=576, batch=128),
        "depthwise5x5": ConvClass(channels=192, filters=192, size=28, kernel=5, group=192),
        # Few channels: how integers gather each position's taps (integer_kernels.py).
        "3x3few": ConvClass(channels=16, filters=16, size=80, kernel=3),
        "conv1d": ConvClass(channels=128, filters=128, size=1024, kernel=3, rank=1, blocked=False),
        "conv3d": ConvClass(channels=16, filters=32, size=24, kernel=3, rank=3, blocked=False),
        # Neither is computed in blocks: each channel's taps are gathered and multiplied.
        "depthwise1d": ConvClass(
            channels=256, filters=256, size=400, kernel=9, group=256, rank=1, blocked=False
        ),
        "depthwise3d": ConvClass(channels=64, filters=64, size=12, kernel=3, group=64, rank=3, blocked=False),
        "transpose2x2s2": ConvClass(
            channels=128, filters=64, size=28, kernel=2, stride=2, op_type="ConvTranspose", blocked=False
        ),
    }
)


def convolutions() -> Iterator[Probe]:
    """One convolution by class; the blocked layout first, the plain one where there is none."""
    for name, kind in CONV_CLASSES.items():
        if kind.blocked:
            yield _convolution(name, kind, BLOCKED)
        yield _convolution(name, kind, "")


def _convolution(name: str, kind: ConvClass, domain: str) -> Probe:
    transposed = kind.op_type == "ConvTranspose"
    pad = 0 if transposed else kind.kernel // 2
    size = kind.size * kind.stride if transposed else (kind.size + 2 * pad - kind.kernel) // kind.stride + 1
    per_output = kind.channels // kind.group * kind.kernel**kind.rank
    # A transposed convolution multiplies at each position of its input, an ordinary one of its output.
    positions = kind.size**kind.rank if transposed else size**kind.rank
    kernel = (kind.kernel,) * kind.rank
    weights = (kind.channels, kind.filters) if transposed else (kind.filters, kind.channels // kind.group)
    return Probe(
        key=f"conv.float32.t{{T}}.{name}",
        amount=2.0 * kind.batch * kind.filters * positions * per_output,
        per="rate",
        op_type=kind.op_type,
        domain=domain,
        inputs=(floats(kind.batch, kind.channels, *(kind.size,) * kind.rank), floats(*weights, *kernel)),
        constants=frozenset({1}),
        attributes={
            "kernel_shape": kernel,
            "strides": (kind.stride,) * kind.rank,
            "pads": (pad,) * 2 * kind.rank,
            "group": kind.group,
        },
    )


COPY_BYTES = tuple(1 << exponent for exponent in (14, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28))


def copies() -> Iterator[Probe]:
    """Streaming by working set, from the first cache to memory."""
    for nbytes in COPY_BYTES:
        yield Probe(
            key=f"copy.t{{T}}.{nbytes}",
            amount=float(nbytes),
            per="rate",
            op_type="Neg",
            # A Neg of float32 reads 4 bytes and writes 4.
            inputs=(floats(nbytes // 8),),
            copies=16 if nbytes <= 1 << 16 else 4 if nbytes <= 1 << 19 else 1,
        )


# One row times a matrix of 4 MiB, so many of them: their weights push each other out of ever larger caches.
_READ_SIDE = 1024
READ_COPIES = (1, 2, 4, 6, 8, 16)


def reads() -> Iterator[Probe]:
    """Weights that are only read, by the bytes of all of them, as in a step of a model that generates."""
    one, nbytes = _gemm("gemm", 1, _READ_SIDE, _READ_SIDE), 4 * _READ_SIDE**2
    for copies in READ_COPIES:
        probe = replace(one, key=f"read.t{{T}}.{copies * nbytes}", amount=float(nbytes))
        yield probe.repeated(copies, fresh_constants=True)


ROWS, COLUMNS = 256, 1024  # 1 MiB of float32: in the second or last cache
_UNARY = (
    *("Neg", "Abs", "Relu", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Tanh", "Sigmoid", "Gelu", "HardSwish"),
    *("HardSigmoid", "Elu", "LeakyRelu", "Selu", "Softplus", "Softsign", "Mish", "Sin", "Cos", "Floor", "Ceil"),
    *("Round", "Sign", "IsNaN"),
)
# What some of these do with numbers below 0 is a branch, which no processor foresees in numbers of either sign.
_BY_SIGN = frozenset({"PRelu", "LeakyRelu", "Elu", "Selu", "HardSwish", "HardSigmoid", "Softplus", "Mish"})
_BINARY = ["Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu", "Equal", "Greater", "Less"]


def elementwise() -> Iterator[Probe]:
    """Time per element, in cache."""
    x = floats(ROWS, COLUMNS)
    yield from (vector(op, x - 1.0 if op in _BY_SIGN else x) for op in _UNARY)
    yield from (vector(op, x - 1.0 if op in _BY_SIGN else x, x) for op in _BINARY)
    yield from _variants()
    yield from _normalizations()
    yield from _quantization()


def vector(
    op: str,
    *inputs: Array | None,
    key: str | None = None,
    attributes: Mapping[str, Any] = _NONE,
    domain: str = "",
    constants: Iterable[int] = (),
    outputs: int = 1,
    opset: int = _OPSET,
    family: str = "elementwise",
    elements: float | None = None,
) -> Probe:
    """A probe of the time per element, by default of its first input."""
    size = inputs[0].size if inputs[0] is not None else 0
    return Probe(
        key=f"{family}.{key or op}.t{{T}}",
        amount=float(size if elements is None else elements),
        per="time",
        op_type=op,
        inputs=inputs,
        attributes=attributes,
        domain=domain,
        constants=frozenset(constants),
        outputs=outputs,
        opset=opset,
    )


def _variants() -> Iterator[Probe]:
    import numpy as np

    x, row, whole = floats(ROWS, COLUMNS), floats(COLUMNS), np.ones((ROWS, COLUMNS), np.int64)
    yield vector("Add", x, row, key="AddBias", constants=(1,))
    yield vector("Add", x, np.array(2, np.float32), key="AddScalar", constants=(1,))
    yield vector("Mul", x, np.array(2, np.float32), key="MulScalar", constants=(1,))
    yield vector("Pow", x, np.array(2, np.float32), constants=(1,))
    yield vector("Pow", x, np.array(1.5, np.float32), key="PowScalar", constants=(1,))
    yield vector("Pow", x, x, key="PowTensor")
    yield vector("PRelu", floats(1, 64, 64, 64) - 1.0, floats(64, 1, 1), key="PReluChannels", constants=(1,))
    yield vector("Mod", x, np.array(0.7, np.float32), attributes={"fmod": 1}, constants=(1,))
    yield vector("Mod", whole, np.array(7, np.int64), key="ModInt64", constants=(1,))
    yield vector("Gelu", x, key="GeluTanh", attributes={"approximate": "tanh"})
    yield vector("Clip", x, np.array(0, np.float32), np.array(6, np.float32), constants=(1, 2))
    yield vector("Cast", x, key="CastHalf", attributes={"to": 10})
    yield vector("Cast", x.astype(np.float16), key="CastFloat", attributes={"to": 1})
    yield vector("Cast", x, key="CastInt", attributes={"to": 7})
    yield vector("Add", whole, whole, key="AddInt64")
    yield vector("Mul", whole, whole, key="MulInt64")
    yield vector("Equal", whole, whole, key="EqualInt64")
    yield vector("And", whole.astype(bool), whole.astype(bool))
    yield vector("Not", whole.astype(bool))
    yield vector("BiasGelu", x, row, domain=MICROSOFT, constants=(1,))
    yield vector("FastGelu", x, domain=MICROSOFT)
    yield vector("QuickGelu", x, domain=MICROSOFT, attributes={"alpha": 1.702})


def _normalizations() -> Iterator[Probe]:
    x, row = floats(ROWS, COLUMNS), floats(COLUMNS)
    image, channel = floats(1, 64, 64, 64), floats(64)
    yield vector("Softmax", x, attributes={"axis": -1})
    yield vector("LogSoftmax", x, attributes={"axis": -1})
    yield vector("LayerNormalization", x, row, row, constants=(1, 2))
    yield vector("RMSNormalization", x, row, constants=(1,), opset=23)
    yield vector("SimplifiedLayerNormalization", x, row, constants=(1,))
    deep = x.reshape(1, ROWS, COLUMNS)
    yield vector("SkipLayerNormalization", deep, deep, row, row, domain=MICROSOFT, constants=(2, 3))
    yield vector("SkipSimplifiedLayerNormalization", deep, deep, row, domain=MICROSOFT, constants=(2,))
    yield vector("BatchNormalization", image, channel, channel, channel, channel, constants=(1, 2, 3, 4))
    yield vector("InstanceNormalization", image, channel, channel, constants=(1, 2))
    yield vector("LpNormalization", x, attributes={"axis": -1})
    yield vector("LRN", floats(1, 64, 28, 28), attributes={"size": 5})


def _quantization() -> Iterator[Probe]:
    import numpy as np

    x, scale, zero = floats(ROWS, COLUMNS), np.array(0.02, np.float32), np.array(128, np.uint8)
    yield vector("QuantizeLinear", x, scale, zero, constants=(1, 2))
    yield vector("DequantizeLinear", np.ones((ROWS, COLUMNS), np.uint8), scale, zero, constants=(1, 2))
    yield vector("DynamicQuantizeLinear", x, outputs=3)


def reductions() -> Iterator[Probe]:
    """Time per input element, along the last or the first axis."""
    import numpy as np

    x = floats(ROWS, COLUMNS)
    for axis, where in ((1, "inner"), (0, "outer")):
        axes = np.array([axis], np.int64)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"):
            yield _reduction(op, where, x, axes)
        yield _reduction("ArgMax", where, x, attributes={"axis": axis})
        yield _reduction("CumSum", where, x, np.array(axis, np.int64))
    yield _reduction("TopK", "inner", x, np.array([8], np.int64), outputs=2)
    yield _reduction("GlobalAveragePool", "inner", floats(1, 256, 32, 32))


def _reduction(
    op: str, where: str, *inputs: Array, attributes: Mapping[str, Any] = _NONE, outputs: int = 1
) -> Probe:
    return Probe(
        key=f"reduce.{op}.t{{T}}.{where}",
        amount=float(inputs[0].size),
        per="time",
        op_type=op,
        inputs=inputs,
        constants=frozenset({1}),
        attributes=attributes,
        outputs=outputs,
    )


def pools() -> Iterator[Probe]:
    """Time per window element."""
    for op in ("MaxPool", "AveragePool"):
        for domain in (BLOCKED, ""):
            yield Probe(
                key=f"pool.{op}.t{{T}}",
                amount=64.0 * 56 * 56 * 9,  # 64 channels, 56 x 56 windows of 3 x 3
                per="time",
                op_type=op,
                domain=domain,
                inputs=(floats(1, 64, 112, 112),),
                attributes={"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
            )
        for rank, size in ((1, 4096), (3, 16)):  # of sequences and volumes, 64 channels
            yield Probe(
                key=f"pool.{op}{rank}d.t{{T}}",
                amount=64.0 * (size // 2) ** rank * 3**rank,
                per="time",
                op_type=op,
                inputs=(floats(1, 64, *(size,) * rank),),
                attributes={"kernel_shape": (3,) * rank, "strides": (2,) * rank, "pads": (1,) * 2 * rank},
            )
