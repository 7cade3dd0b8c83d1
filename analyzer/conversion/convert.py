"""A precision and a graph of floats -> the graph in that precision, or why there is none.

What has no kernel for the narrow type stays in float32 between two Casts
(``DEFAULT_OP_BLOCK_LIST`` of ``onnxruntime/transformers/float16.py`` names such operators by hand; here the
kernel registry says which).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from analyzer.conversion.graph_writer import GraphWriter
from analyzer.conversion.static_int8 import in_int8, preprocessed
from analyzer.graph import DEFAULT_DOMAIN, DTYPES, Graph, Node, Tensor
from analyzer.operators import CONTRIB_DOMAIN
from analyzer.ort.capability import unsupported
from analyzer.ort.execution import Provider
from analyzer.ort.kernels import Registry, refusal, registry

HALF = {"fp16": "float16", "bf16": "bfloat16"}
"""Element types by the precisions that are 16 bits wide."""

_WIDTHS = frozenset({"float32", "float16", "bfloat16"})
# Inputs that ONNX defines as float32, whatever the data are: sizes, not data.
_ALWAYS_WIDE: Mapping[str, frozenset[int]] = MappingProxyType(
    {"Resize": frozenset({1, 2}), "Upsample": frozenset({1})}
)
_TYPE_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype"}
)


def in_floats(graph: Graph, dtype: str) -> Graph:
    """Return the graph with every float of 16 or 32 bits as ``dtype``, inputs and outputs included."""
    return _Retyping(dtype).graph(graph)


def without_half_kernel(
    graph: Graph, dtype: str, provider: Provider = "cuda", *, release: str = ""
) -> Iterator[int]:
    """Operators of a model in float32 with a kernel for that and none for ``dtype``, a narrow type, by index.

    ``release`` is ONNX Runtime's, as in ``Placement``.
    """
    retyping, kernels = _Retyping(dtype), registry(release)
    # Kernels are chosen by operator, opset and types: thousands of operators are a few dozen cases.
    known: dict[object, bool] = {}
    for node in graph.nodes:
        key = (node.identity, node.version, *(None if t is None else t.dtype.name for t in node.inputs))
        if key not in known:
            known[key] = _has_kernel(node, provider, kernels) and not _has_kernel(
                retyping.node(node), provider, kernels
            )
        if known[key]:
            yield node.index


def _has_kernel(node: Node, provider: Provider, kernels: Registry) -> bool:
    return not refusal(node, provider=provider, known=kernels)[0] and not (
        provider == "cuda" and unsupported(node)
    )


class _Retyping:
    """Keeps a tensor one object for its producer and all readers."""

    def __init__(self, dtype: str) -> None:
        self._dtype = DTYPES[dtype]
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def graph(self, graph: Graph) -> Graph:
        return replace(
            graph,
            nodes=tuple(map(self.node, graph.nodes)),
            inputs=tuple(map(self._tensor, graph.inputs)),
            outputs=tuple(map(self._tensor, graph.outputs)),
            initializers=tuple(map(self._tensor, graph.initializers)),
        )

    def node(self, node: Node) -> Node:
        wide = _ALWAYS_WIDE.get(node.op_type, frozenset())
        return replace(
            node,
            inputs=tuple(
                tensor if tensor is None or position in wide else self._tensor(tensor)
                for position, tensor in enumerate(node.inputs)
            ),
            outputs=tuple(None if tensor is None else self._tensor(tensor) for tensor in node.outputs),
            attributes=self._attributes(node),
            graphs={name: self.graph(body) for name, body in node.graphs.items()},
        )

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.name not in _WIDTHS:
            return tensor
        if id(tensor) not in self._made:
            # With the tensor itself, whose id is taken by no other while it lives.
            self._made[id(tensor)] = (tensor, replace(tensor, dtype=self._dtype))
        return self._made[id(tensor)][1]

    def _attributes(self, node: Node) -> Mapping[str, Any]:
        name = _TYPE_ATTRIBUTES.get(node.op_type)
        before = None if name is None else node.attributes.get(name)
        if name is None or before not in {DTYPES[width].onnx for width in _WIDTHS}:
            return node.attributes
        return {**node.attributes, name: self._dtype.onnx}


_INTEGERS = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"),
        *("QLinearConv", "QLinearMatMul", "QGemm", "MatMulNBits", "MatMulBnb4", "MatMulFpQ4", "QAttention"),
        *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat", "GatherBlockQuantized"),
    }
)
# ``BaseQuantizer`` of onnxruntime/python/tools/quantization/base_quantizer.py
_OPSET_OF_QUANTISERS = 11
_FOUR_BITS = frozenset({"int4", "uint4"})
_NOTHING_TO_PACK = "no MatMul or Gemm outside of subgraphs has stored weights of two axes to pack in 4 bits"
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoForm:
    """There is no such form of this model; ``why`` says so in a sentence."""

    why: str


def integer_form(graph: Graph) -> str | None:
    """``int8`` or ``int4`` where a graph holds integers in place of floats already."""
    quantised = [node for node in graph.nodes if node.op_type in _INTEGERS]
    if not quantised:
        return None
    packed = any(node.op_type == "MatMulNBits" and node.attributes.get("bits", 4) == 4 for node in quantised)
    return "int4" if packed or any(tensor.dtype.name in _FOUR_BITS for tensor in graph.initializers) else "int8"


def convert(graph: Graph, precision: str) -> Graph | NoForm:
    """Return the graph, at one batch, in ``int8`` or ``int4``; one that has this form already stays as it is.

    The first is by QuantizeLinear and DequantizeLinear, as ``quant_pre_process`` and ``quantize_static`` put
    them, the second has weights of products packed in blocks of 32.
    """
    own = integer_form(graph)
    if own is not None:
        return graph if own == precision else NoForm(why=f"the model is quantised already, to {own}")
    if precision == "int4":
        if not any(map(weights_of, graph.nodes)):
            return NoForm(why=_NOTHING_TO_PACK)
        return in_int4(graph)
    if graph.opsets.get(DEFAULT_DOMAIN, 0) < _OPSET_OF_QUANTISERS:
        return NoForm(why=f"ONNX Runtime quantises models from opset {_OPSET_OF_QUANTISERS} on")
    if not any(map(_multiplies_floats, graph.nodes)):
        return NoForm(why="it has no convolution and no matrix multiplication of floats to quantise")
    return in_int8(preprocessed(graph))


def _multiplies_floats(node: Node) -> bool:
    result = node.output(0)
    return (
        node.op_type in PRODUCTS
        and result is not None
        and not result.constant
        and result.dtype.name == "float32"
    )


# Weights of products in 4 bits: MatMulNBits, as ``MatMulNBitsQuantizer`` and GenAI's model builder write it.
#
# Blocks of 32 along K, symmetric (no zero points), ``accuracy_level`` 4: what GenAI's builder makes for CPUs
# (``int4_block_size``, ``int4_accuracy_level``); CUDA's kernel does not look at the level. The tools leave a
# Gemm as it is: here it is packed as the MatMul and the Add that it can be split into. All else stays, bodies
# of If and Loop too.
BITS, BLOCK, ACCURACY_LEVEL = 4, 32, 4
_FLOATS = frozenset({"float32", "float16", "bfloat16"})


def in_int4(graph: Graph) -> Graph:
    """Return the graph with packed weights; the very same one where no product has any."""
    if not any(map(weights_of, graph.nodes)):
        return graph
    writer = GraphWriter(graph)
    packed: dict[tuple[str, bool], tuple[Tensor, Tensor]] = {}
    for node in graph.nodes:
        weights = weights_of(node)
        if weights is None:
            writer.add(node)
        else:
            _pack(writer, node, weights, packed)
    return writer.finish(graph.inputs, graph.outputs, {**graph.opsets, CONTRIB_DOMAIN: 1})


def weights_of(node: Node) -> Tensor | None:
    """Return the weights of a product that can be packed: stored floats of two axes, on the right."""
    weights, result = node.input(1), node.output(0)
    if node.identity not in (("ai.onnx", "MatMul"), ("ai.onnx", "Gemm")) or weights is None or result is None:
        return None
    attributes = node.attributes
    # A Gemm is a MatMul and an Add to the quantisers; one that scales or turns its rows is left alone.
    scaled = attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0
    plain = not scaled and not attributes.get("transA", 0)
    usual = weights.constant and weights.dtype.name in _FLOATS and weights.rank == 2 and not result.constant
    return weights if plain and usual and weights.elements else None


def _pack(
    writer: GraphWriter, node: Node, weights: Tensor, packed: dict[tuple[str, bool], tuple[Tensor, Tensor]]
) -> None:
    turned = bool(node.attributes.get("transB", 0))
    shape = weights.shape or ()
    columns, depth = (shape[0], shape[1]) if turned else (shape[1], shape[0])
    assert columns is not None  # `weights_of` has looked
    assert depth is not None
    stored = packed.get((weights.name, turned))
    if stored is None:
        blocks = -(-depth // BLOCK)
        name = f"{weights.name}_{'rows' if turned else 'columns'}"
        stored = packed[weights.name, turned] = (
            writer.store(f"{name}_Q4", (columns, blocks, BLOCK * BITS // 8), "uint8"),
            writer.store(f"{name}_scales", (columns * blocks,), weights.dtype.name),
        )
    bias, result = node.input(2), node.outputs[0]
    assert result is not None
    attributes = {
        "K": depth, "N": columns, "bits": BITS, "block_size": BLOCK, "accuracy_level": ACCURACY_LEVEL,
    }  # fmt: skip
    product = result
    if bias is not None:
        product = Tensor(name=writer.fresh(f"{result.name}_product"), shape=result.shape, dtype=result.dtype)
    writer.add(
        node,
        op_type="MatMulNBits",
        domain=CONTRIB_DOMAIN,
        version=1,
        inputs=(node.inputs[0], *stored),
        outputs=(product,),
        attributes=attributes,
    )
    if bias is not None:
        writer.insert("Add", node, (product, bias), result)
