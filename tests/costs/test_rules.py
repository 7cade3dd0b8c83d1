"""Every rule's FLOPs, products and bytes: those of ``tests/data/cost_rules.txt``, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzer.costs import Cost, count_node, find, rules
from analyzer.graph import DTYPES, Graph, Node, Tensor

TABLE = Path(__file__).parents[1] / "data" / "cost_rules.txt"
DOMAINS = {
    "ms": "com.microsoft",
    "ml": "ai.onnx.ml",
    "nhwc": "com.ms.internal.nhwc",
    "nchwc": "com.microsoft.nchwc",
    "preview": "ai.onnx.preview",
    "training": "ai.onnx.preview.training",
    "compact": "analyzer.training",
    "generation": "analyzer.generation",
}
TYPES = {
    "u8": "uint8",
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
    "b": "bool",
    "f16": "float16",
    "u4": "uint4",
}
BITS = {"uint8": 8, "int8": 8, "int32": 32, "int64": 64, "bool": 8, "float16": 16, "uint4": 4, "float32": 32}

# FLOPs an element of the output: the passes of the definition, one operation each.
EACH_OUTPUT = {
    0: "MaxUnpool ms:BifurcationDetector ms:NGramRepeatBlock ms:SampleOp",
    1: """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil
    Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Mul Neg Not Or
    Pow Reciprocal Relu Round Scale Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh ThresholdedRelu Where Xor
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    ml:Binarizer ml:Imputer ms:DequantizeBFP ms:DequantizeWithOrder""",
    # Compare and multiply, or multiply and add.
    2: """Affine ImageScaler LeakyRelu PRelu Shrink Hardmax Bernoulli ml:Scaler ms:BiasAdd ms:GatedAdd
    nhwc:BatchNormalization BatchNormalization""",
    # exp, add, log; divide, round, add the zero point; 6 operations for 2 numbers of a complex product.
    3: """Elu ScaledTanh Softplus Softsign ms:ComplexMul ms:ComplexMulConj ms:QuickGelu ms:ScaledSiLU
    QuantizeLinear ms:QuantizeLinear ms:QuantizeBFP ms:QuantizeWithOrder""",
    4: "Celu HardSigmoid Selu HannWindow HammingWindow RMSNormalization SimplifiedLayerNormalization",
    # Gelu is divide, erf, add and two products; softmax maximum, subtract, exp, sum, divide.
    5: """HardSwish Mish ParametricSoftplus ms:Gelu Gelu Softmax LogSoftmax MeanVarianceNormalization
    MelWeightMatrix ms:QLinearConcat""",
    6: "ms:BiasGelu ms:BiasSoftmax ms:QLinearWhere ms:QLinearSigmoid",
    7: """ms:BiasSplitGelu ms:GatedRMSNorm BlackmanWindow InstanceNormalization GroupNormalization
    ms:QLinearLeakyRelu ms:GroupNorm""",
    8: "ms:QLinearAdd ms:QLinearMul",
    9: "ms:QOrderedGelu",
    10: "ms:QLinearSoftmax",
    11: "ms:QOrderedLayerNormalization",
    20: "ImageDecoder",
}
# FLOPs an element of the first input.
EACH_INPUT = {
    1: """ArgMax ArgMin Col2Im CumProd CumSum ReduceMax ReduceMin ReduceProd ReduceSum ms:ReduceSumInteger
    GlobalAveragePool GlobalMaxPool nhwc:GlobalAveragePool nhwc:GlobalMaxPool nchwc:GlobalAveragePool
    nchwc:GlobalMaxPool""",
    2: "GlobalLpPool ReduceL1 ReduceSumSquare ml:Normalizer",
    3: "LpNormalization ms:DynamicTimeWarping",
    5: "DynamicQuantizeLinear",  # minimum and maximum first
}
MOVES = """Cast Concat ConcatFromSequence DepthToSpace Expand MemcpyFromHost MemcpyToHost OneHot Optional
OptionalGetElement OptionalHasElement Pad Range RegexFullMatch ReverseSequence Scatter SequenceAt
SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SpaceToDepth Split SplitToSequence
StringConcat StringNormalizer StringSplit TensorScatter TfIdfVectorizer Tile ms:MurmurHash3 ms:Pad ms:Range
ms:RelativePositionBias ms:RestorePadding ms:Tokenizer ms:Trilu ms:UnfoldTensor nchwc:ReorderInput
nchwc:ReorderOutput nhwc:DepthToSpace nhwc:SpaceToDepth ml:CastMap ml:CategoryMapper ml:DictVectorizer
ml:FeatureVectorizer ml:LabelEncoder ml:OneHotEncoder ml:ZipMap Constant ms:BitmaskDropout"""
VIEWS = "BitCast Flatten Identity Reshape Squeeze Unsqueeze ms:ExpandDims Dropout"
READS_ITS_OUTPUT = (
    "CenterCropPad Crop DynamicSlice GatherElements GatherND Slice Trilu ms:GatherND ms:RemovePadding"
)
READS_NOTHING = "ConstantOfShape EyeLike Shape Size"

ROWS = [
    *(f"{name} | 5x3 -> 2x3 | | 0 | {each}*6" for each, names in EACH_OUTPUT.items() for name in names.split()),
    *(f"{name} | 5x3 -> 2x3 | | 0 | {each}*15" for each, names in EACH_INPUT.items() for name in names.split()),
    *(f"{name} | 5x3 -> 2x3 | | 0 | 0" for name in MOVES.split()),
    *(f"{name} | 5x3 -> 5x3 | | 0 | 0 | 0 | 0" for name in VIEWS.split()),
    *(f"{name} | 5x3 i64:2 -> 2x3 | | 0 | 0 | 24 + 16" for name in READS_ITS_OUTPUT.split()),
    *(f"{name} | i64:2 -> 2x3 | | 0 | 0 | 0" for name in READS_NOTHING.split()),
    *(row for row in TABLE.read_text(encoding="utf-8").splitlines() if row and not row.startswith("#")),
]
# Bodies decide what they cost: tests of their own, in test_control_flow.py and tests/training.
ELSEWHERE = {("ai.onnx", name) for name in ("If", "Loop", "Scan")}
ELSEWHERE |= {("ai.onnx.ml", name) for name in ("TreeEnsembleRegressor", "TreeEnsembleClassifier")}
TREE = {
    "nodes_featureids": (0, 1),
    "nodes_truenodeids": (0, 1),
    "nodes_falsenodeids": (1, 2),
    "nodes_trueleafs": (1, 1),
    "nodes_falseleafs": (0, 1),
    "leaf_targetids": (0, 0, 0),
}


def tensor(text: str, name: str) -> Tensor | None:
    if text == "-":
        return None
    kind, equals, values = text.partition("=")
    if equals:
        value = np.array([int(part) for part in values.split(",")])
        return Tensor(name=name, shape=value.shape, dtype=DTYPES[TYPES[kind]], constant=True, value=value)
    kind, _, sizes = text.rpartition(":")
    shape = () if sizes == "s" else tuple(map(int, sizes.split("x")))
    return Tensor(name=name, shape=shape, dtype=DTYPES[TYPES.get(kind, "float32")])


def stored(tensors: tuple[Tensor | None, ...]) -> int:
    """Bytes of tensors of known sizes, each filled up to a whole byte."""
    return sum(-(-(one.elements or 0) * BITS[one.dtype.name] // 8) for one in tensors if one is not None)


def body(size: int, op_type: str = "Relu") -> Graph:
    x, y = (Tensor(name=name, shape=(size,), dtype=DTYPES["float32"]) for name in "xy")
    relu = Node(index=0, name="relu", op_type=op_type, inputs=(x,), outputs=(y,))
    return Graph(name="body", nodes=(relu,), inputs=(x,), outputs=(y,), initializers=())


def identity(name: str) -> tuple[str, str]:
    domain, _, op_type = name.strip().rpartition(":")
    return DOMAINS.get(domain, "ai.onnx"), op_type


def node_of(row: str) -> Node:
    name, tensors, given, *_ = row.split("|")
    domain, op_type = identity(name)
    sides = [side.split() for side in tensors.split("->")]
    inputs, outputs = (
        tuple(tensor(text, f"{side}{position}") for position, text in enumerate(texts))
        for side, texts in zip(("in", "out"), sides, strict=True)
    )
    attributes: dict[str, Any] = eval(f"dict({given})", {"body": body, "TREE": TREE})
    return Node(
        index=0,
        name="node",
        op_type=op_type,
        domain=domain,
        version=attributes.pop("version", 23),
        inputs=inputs,
        outputs=outputs,
        attributes={key: value for key, value in attributes.items() if not isinstance(value, Graph)},
        graphs={key: value for key, value in attributes.items() if isinstance(value, Graph)},
    )


@pytest.mark.parametrize("row", ROWS)
def test_a_rule_counts_what_the_definition_computes_and_moves(row: str) -> None:
    node = node_of(row)
    macs, extra, *moved = (eval(part) for part in row.split("|")[3:])
    read = moved[0] if moved else stored(node.inputs)
    written = moved[1] if len(moved) > 1 else stored(node.outputs)
    counted = count_node(node)
    assert (counted.flops, counted.macs) == (2 * macs + extra, macs)
    assert (counted.bytes_read, counted.bytes_written) == (read, written)
    # Equal to the dataclass's own: costs are made past its constructor.
    assert counted == Cost(
        flops=counted.flops,
        macs=macs,
        bytes_read=read,
        bytes_written=written,
        basis=counted.basis,
        note=counted.note,
    )
    assert counted.basis == ("modelled" if counted.note and not counted.note.startswith("dense") else "exact")


def test_every_rule_has_a_row() -> None:
    counted = {find(op_type, domain).count for domain, op_type in (identity(row.split("|")[0]) for row in ROWS)}
    missing = {(one.domain, one.op_type) for one in rules() if one.count not in counted}
    assert missing - ELSEWHERE == set()
