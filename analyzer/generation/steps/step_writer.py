"""Write the graphs of steps: operators and tensors, linear layers, norms, states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod
from typing import Any

import numpy as np

from analyzer.generation.architecture import Architecture, Layer, Product, Storage
from analyzer.generation.request import StepSizes, StepTypes
from analyzer.graph import DTYPES, DType, Graph, Node, Tensor

MICROSOFT = "com.microsoft"
# Of the one operator that ONNX Runtime does not have.
OWN_DOMAIN = "analyzer.generation"
# The newest opset for whose operators ONNX Runtime's CUDA provider has kernels in all types that steps use.
OPSETS = {"ai.onnx": 21, MICROSOFT: 1, OWN_DOMAIN: 1}
# Names of what is stored and is no weight: tables of rotations and literals.
TABLES = ("cos_cache", "sin_cache")
LITERALS = ("shape_", "at_", "ones_", "last", "total_")
# Modules of a layer stand behind three parts: model.layers.3.
_IN_LAYERS, _LAYER_PARTS = ("model.layers.", "model.encoder."), 3
# ONNX's type of scales of so many bits; of 16, that of the floats.
_SCALES = {8: "uint8", 16: "", 32: "float32"}


class StepWriter:
    """Collects the operators of one step on one device."""

    def __init__(self, architecture: Architecture, sizes: StepSizes, types: StepTypes) -> None:
        self.model, self.sizes, self.types = architecture, sizes, types
        self.floats = types.float_type
        self.copies = 1
        self.stored: dict[str, Storage] = dict(architecture.stored)
        self._nodes: list[Node] = []
        self._copies: list[int] = []
        self._stored: dict[str, Tensor] = {}
        self._inputs: dict[str, Tensor] = {}
        self._outputs: list[Tensor] = []
        self._carried: dict[str, str] = {}
        self._narrow: dict[str, Tensor] = {}
        self._made: set[str] = set()
        self._module, self._class = "", ""

    def enter_layer(self, layer: Layer | None) -> None:
        """Matrices that follow are stored as this layer's; None for those around the layers."""
        self.stored = dict(self.model.stored if layer is None else layer.stored)

    def enter(self, module: str, kind: str) -> None:
        """Operators that follow belong to this module."""
        self._module, self._class = module, kind

    def graph(self) -> tuple[Graph, tuple[int, ...]]:
        """Return the written graph, and how many operators of the model each node stands for."""
        graph = Graph(
            name=self.model.name,
            nodes=tuple(self._nodes),
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._outputs),
            initializers=tuple(self._stored.values()),
            opsets=dict(OPSETS),
            ir_version=10,
            carried=self._carried,
        )
        return graph, tuple(self._copies)

    # Operators.

    def op(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int] | None,
        *,
        domain: str = "ai.onnx",
        more: Sequence[Tensor | None] = (),
        dtype: DType | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Add an operator; what it writes first.

        ``shape`` and ``dtype`` are those of its first result; no shape where ``more`` holds all results.
        """
        index = len(self._nodes)
        made = None if shape is None else self.tensor(shape, dtype or self.floats)
        outputs = (*([made] if made is not None else []), *more)
        self._nodes.append(
            Node(
                index=index,
                name=f"{self._module}/{op_type}_{index}",
                op_type=op_type,
                domain=domain,
                version=OPSETS[domain],
                inputs=tuple(inputs),
                outputs=outputs,
                attributes=attributes,
                module=self._module,
                module_class=self._class,
            )
        )
        self._copies.append(self.copies)
        first = outputs[0]
        assert first is not None
        return first

    def microsoft(
        self, op_type: str, inputs: Sequence[Tensor | None], shape: Sequence[int], **rest: Any
    ) -> Tensor:
        """Return an operator of ONNX Runtime's own."""
        return self.op(op_type, inputs, shape, domain=MICROSOFT, **rest)

    def add(self, one: Tensor, other: Tensor) -> Tensor:
        """Their sum."""
        return self.op("Add", [one, other], shape_of(one))

    def reshape(self, state: Tensor, *shape: int) -> Tensor:
        """Return the same elements in another shape."""
        return self.op("Reshape", [state, self.sizes_of(*shape)], shape, dtype=state.dtype)

    def cast(self, state: Tensor, dtype: DType) -> Tensor:
        """Return the same numbers in another type; itself where it has that type."""
        if state.dtype == dtype:
            return state
        return self.op("Cast", [state], shape_of(state), dtype=dtype, to=dtype.onnx)

    def columns(self, state: Tensor, first: int, last: int) -> Tensor:
        """Return a slice of the last axis."""
        bounds = [self.literal(f"at_{at}", (1,), np.array([at])) for at in (first, last, -1)]
        return self.op("Slice", [state, *bounds], (*shape_of(state)[:-1], last - first), dtype=state.dtype)

    def fitted(self, state: Tensor, width: int) -> Tensor:
        """As many of the last axis as asked for, repeated where there are fewer."""
        have = shape_of(state)[-1]
        if have < width:
            copies = ceil(width / have)
            state = self.op("Concat", [state] * copies, (*shape_of(state)[:-1], have * copies), axis=-1)
        return state if shape_of(state)[-1] == width else self.columns(state, 0, width)

    def further(self, place: str, products: Sequence[Product], state: Tensor) -> Tensor | None:
        """Write linear layers of which only the sizes are known; None where there are none.

        Each reads the state, or what an earlier one made where that alone has its width. The result is the sum
        of those as wide as the state, else the widest; the others scale it.
        """
        hidden = shape_of(state)[-1]
        made: list[Tensor] = []
        for product in products:
            inner, outer = product.inner, product.outer
            source = state
            if inner == hidden:
                outer = outer if outer == hidden else self.share(outer)
            else:
                inner = self.share(inner)
                read = next((one for one in reversed(made) if shape_of(one)[-1] == inner), None)
                source = self.fitted(state, inner) if read is None else read
                made = [one for one in made if one is not read]
            made.append(self.linear(f"{place}{product.name}", source, outer, bias=product.bias))
        if not made:
            return None
        as_wide = [one for one in made if shape_of(one)[-1] == hidden]
        total = as_wide[0] if as_wide else max(made, key=lambda one: shape_of(one)[-1])
        for one in made:
            if one is not total and shape_of(one)[-1] == hidden:
                total = self.add(total, one)
            elif one is not total and not any(one is wide for wide in as_wide):
                total = self.op("Mul", [total, self.columns(one, 0, 1)], shape_of(total))
        return total

    def scaled_by(self, name: str, elements: int, state: Tensor) -> Tensor:
        """Return the state times one of so many stored numbers: weights of which only the number is known."""
        if not elements:
            return state
        first = self.literal("at_first", (1,), np.array([0]))
        one = self.op("Gather", [self.weight(name, (elements,)), first], (1,))
        return self.op("Mul", [state, one], shape_of(state))

    def activated(self, activation: str, state: Tensor) -> Tensor:
        """Return an activation: what ONNX Runtime has one kernel for."""
        if activation in ("Silu", "QuickGelu"):
            alpha = 1.0 if activation == "Silu" else 1.702
            return self.microsoft("QuickGelu", [state], shape_of(state), alpha=alpha)
        if activation == "Gelu":
            return self.op("Gelu", [state], shape_of(state), approximate="tanh")
        return self.op(activation, [state], shape_of(state))

    def linear(self, name: str, state: Tensor, outer: int, *, bias: bool = False, like: str = "") -> Tensor:
        """Write a linear layer, in the types of the layers' weights.

        ``like`` names a matrix that is stored as it is.
        """
        *lead, inner = shape_of(state)
        shape = (*lead, outer)
        storage = self.storage(like or name)
        if storage is None:
            made = self.op("MatMul", [state, self.weight(f"{name}.weight", (inner, outer))], shape)
        elif self.is_narrow(storage):
            if state.name not in self._narrow:  # once for all products that read it
                # Of the state's own type, as QuantizeLinear asks; the product's is a float32.
                scale = self.weight(f"{name}.input_step", (1,))
                wide = self.reshape(state, prod(lead), inner)
                self._narrow[state.name] = self.op(
                    "QuantizeLinear", [wide, scale], shape_of(wide), dtype=DTYPES["float8e4m3fn"]
                )
            narrow = self._narrow[state.name]
            stored = self.weight(f"{name}.weight", (inner, outer), "float8e4m3fn")
            number, kind = (storage.scales(outer, inner),), _SCALES[storage.scale_bits]
            steps = [
                self.weight(f"{name}.input_scale", (1,), "float32"),
                self.weight(f"{name}.weight_scale", number, kind),
            ]
            flat = (prod(shape[:-1]), outer)
            made = self.microsoft(
                "GemmFloat8", [narrow, stored, None, *steps], flat, dtype=self.floats, transA=0, transB=0
            )
            made = self.reshape(made, *shape)
        else:
            block = storage.block or inner
            packed = (outer, ceil(inner / block), ceil(block * storage.bits / 8))
            stored = self.weight(f"{name}.weight", packed, "uint8")
            inputs = [state, stored, *self.scales(name, storage, (), outer, inner)]
            made = self.microsoft(
                # Level 4 multiplies integers on a CPU, as GenAI's builder has it; CUDA does not look at it.
                "MatMulNBits", inputs, shape, N=outer, K=inner, bits=ceil(storage.bits), block_size=block,
                accuracy_level=4,
            )  # fmt: skip
        return self.op("Add", [made, self.weight(f"{name}.bias", (outer,))], shape) if bias else made

    def storage(self, name: str) -> Storage | None:
        """Return how a matrix is stored; None for floats."""
        if self.types.own is None:
            return self.types.storage
        role = name.split(".", _LAYER_PARTS)[_LAYER_PARTS] if name.startswith(_IN_LAYERS) else name
        return self.stored.get(role)

    def is_narrow(self, storage: Storage | None) -> bool:
        """Return whether a matrix is of 8-bit floats that are multiplied as such."""
        return storage is not None and storage.is_float and self.types.multiplies_narrow

    def scales(
        self, name: str, storage: Storage, lead: tuple[int, ...], outer: int, inner: int
    ) -> tuple[Tensor, *tuple[Tensor, ...]]:
        """Return the scales of a packed matrix and, where it has them, its zero points.

        ``lead`` are axes before the matrix, as experts are.
        """
        number = storage.scales(outer, inner)
        by_row = lead and number % outer == 0 and not storage.table
        shape = (*lead, outer, number // outer) if by_row else (*lead, number + storage.table)
        scales = self.weight(f"{name}.scales", shape, _SCALES[storage.scale_bits])
        if not storage.zero_bits:
            return (scales,)
        packed = ceil(number * storage.zero_bits / 8)
        return (scales, self.weight(f"{name}.zero_points", (*lead, packed), "uint8"))

    def normed(self, name: str, state: Tensor, *, rms: bool | None = None, bias: bool | None = None) -> Tensor:
        """Return the norm of the last axis.

        ``rms`` and ``bias`` are None for those of the model's norms.
        """
        rms = self.model.norm == "rms" if rms is None else rms
        op_type = "SimplifiedLayerNormalization" if rms else "LayerNormalization"
        inputs = [state, *self._norm_weights(name, shape_of(state)[-1], rms=rms, bias=bias)]
        return self.op(op_type, inputs, shape_of(state), axis=-1)

    def summed_and_normed(self, name: str, state: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the norm of a state with what is pending on it, and their sum: one operator."""
        if pending is None:
            return self.normed(name, state), state
        rms = self.model.norm == "rms"
        total = self.tensor(shape_of(state), self.floats)
        op_type = "SkipSimplifiedLayerNormalization" if rms else "SkipLayerNormalization"
        inputs = [state, pending, *self._norm_weights(name, shape_of(state)[-1], rms=rms, bias=None)]
        return self.microsoft(op_type, inputs, shape_of(state), more=[None, None, total]), total

    def _norm_weights(self, name: str, length: int, *, rms: bool, bias: bool | None) -> list[Tensor]:
        if not self.model.norm_weights:
            return [self.literal(f"ones_{length}", (length,), None, self.floats.name)]
        has_bias = (not rms and self.model.norm_bias) if bias is None else bias
        names = [f"{name}.weight", *([f"{name}.bias"] if has_bias else [])]
        return [self.weight(each, (length,)) for each in names]

    # Tensors.

    def rows(self, width: int) -> tuple[int, int, int]:
        """Return the shape of a state of all new tokens."""
        return (self.sizes.batch, self.sizes.tokens, width)

    def share(self, size: int) -> int:
        """Of a size that devices share, what one has."""
        return ceil(size / self.sizes.width)

    def tensor(self, shape: Sequence[int], dtype: DType) -> Tensor:
        """Return the tensor that an operator writes."""
        name = f"{self._module}.{len(self._nodes)}"
        # An operator may write several.
        while name in self._made:
            name += "_"
        self._made.add(name)
        return Tensor(name=name, shape=tuple(shape), dtype=dtype)

    def weight(self, name: str, shape: tuple[int, ...], dtype: str = "") -> Tensor:
        """Return a weight; the same one where its name is known."""
        return self._store(name, shape, DTYPES[dtype] if dtype else self.floats, None)

    def literal(self, name: str, shape: tuple[int, ...], value: Any, dtype: str = "int64") -> Tensor:
        """Return a constant that is no weight."""
        return self._store(name, shape, DTYPES[dtype], value)

    def sizes_of(self, *sizes: int) -> Tensor:
        """Return a shape, as operators take it."""
        return self.literal("shape_" + "_".join(map(str, sizes)), (len(sizes),), np.array(sizes, np.int64))

    def _store(self, name: str, shape: tuple[int, ...], dtype: DType, value: Any) -> Tensor:
        if name not in self._stored:
            self._stored[name] = Tensor(
                name=name, shape=shape, dtype=dtype, constant=True, initializer=True, value=value
            )
        return self._stored[name]

    def given(self, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        """Return an input; the same one where its name is known."""
        if name not in self._inputs:
            self._inputs[name] = Tensor(name=name, shape=shape, dtype=DTYPES[dtype])
        return self._inputs[name]

    def tables(self, rotated: int) -> list[Tensor]:
        """Return cosines and sines of all positions."""
        length = max(self.model.longest, self.sizes.context)
        return [self.weight(f"{table}_{rotated}", (length, rotated // 2)) for table in TABLES]

    def places(self) -> Tensor:
        """Return positions of the new tokens."""
        return self.given("position_ids", (self.sizes.batch, self.sizes.tokens), "int64")

    def state(self, path: str, name: str, shape: tuple[int, ...], dtype: DType) -> tuple[Tensor, Tensor]:
        """Past and present of one thing that a layer keeps: one buffer."""
        past = self.given(f"past_key_values.{number(path)}.{name}", shape, dtype.name)
        present = Tensor(name=f"present.{number(path)}.{name}", shape=shape, dtype=dtype)
        return past, self.keep(past, present)

    def keep(self, past: Tensor, present: Tensor) -> Tensor:
        """Hand a tensor on to the next step."""
        if present is not past:
            self._outputs.append(present)
        self._carried[past.name] = present.name
        return present

    def output(self, tensor: Tensor, *, first: bool = False) -> None:
        """Make a tensor an output of the graph."""
        self._outputs.insert(0 if first else len(self._outputs), tensor)

    def renamed(self, tensor: Tensor, name: str) -> Tensor:
        """Return the last operator's result under a name that users know."""
        named = replace(tensor, name=name)
        last = self._nodes[-1]
        outputs = tuple(named if output is tensor else output for output in last.outputs)
        self._nodes[-1] = replace(last, outputs=outputs)
        return named


def number(path: str) -> str:
    """Return which layer a module belongs to."""
    return path.split(".")[2]


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Its sizes: in a step all are known."""
    return tuple(int(size or 0) for size in tensor.shape or ())
