"""Which attributes and constants a kernel refuses when it is made: as sessions of ONNX Runtime's CPU do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.graph import Node
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.capability import failing, unsupported


def model(
    op_type: str, shape: tuple[int, ...], *stored: Any, domain: str = "", opset: int = 20, **attributes: Any
) -> onnx.ModelProto:
    """One operator of data and of these stored inputs."""
    names = [f"stored{number}" if value is not None else "" for number, value in enumerate(stored)]
    kind = TensorProto.INT32 if op_type == "Div" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], ["y"], "it", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(value, name) for name, value in zip(names, stored, strict=True) if name],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def is_refused(made: onnx.ModelProto) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of several types
        return "INVALID_GRAPH" not in str(error)
    return False


def resizes() -> Iterator[onnx.ModelProto]:
    for mode, rank in itertools.product(("nearest", "linear", "cubic"), (2, 3, 4, 5)):
        for scales in itertools.product((0.5, 1, 2), repeat=rank):
            if len(set(scales)) < 3:
                yield model("Resize", (4,) * rank, None, np.array(scales, np.float32), mode=mode)


def others() -> Iterator[onnx.ModelProto]:
    image, sequence = (1, 3, 8, 8), (5, 2, 3)
    for pad in range(4):
        for op_type in ("MaxPool", "AveragePool", "LpPool"):
            yield model(op_type, image, kernel_shape=[2, 3], pads=[0, 0, 0, pad])
            yield model(op_type, image, kernel_shape=[2, 3], pads=[pad, 0, 0, 0])
    for size in range(1, 7):
        yield model("LRN", image, size=size)
    for op_type, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for directions, count, layout in itertools.product((1, 2), range(7), (0, 1)):
            activations: dict[str, Any] = {"activations": ["Tanh"] * count} if count else {}
            yield model(
                op_type,
                sequence,
                np.ones((directions, gates * 4, 3), np.float32),
                np.ones((directions, gates * 4, 4), np.float32),
                hidden_size=4,
                layout=layout,
                direction="bidirectional" if directions == 2 else "reverse",
                **activations,
            )
    for divisor in ([1, 2], [1, 0]):
        yield model("Div", (2,), np.array(divisor, np.int32))
    for mode in ("DCR", "CRD", "CDR"):
        yield model("DepthToSpace", (1, 8, 2, 2), blocksize=2, mode=mode)
    for block, bits in itertools.product((8, 16, 32, 48, 64, 128, 256), (2, 4, 8)):
        packed = np.zeros((8, -(-256 // block), block * bits // 8), np.uint8)
        scales = np.ones(8 * -(-256 // block), np.float32)
        attributes = {"K": 256, "N": 8, "bits": bits, "block_size": block}
        yield model("MatMulNBits", (4, 256), packed, scales, domain="com.microsoft", **attributes)


def test_a_resize_is_refused_for_the_scales_that_the_session_refuses() -> None:
    wrong = [str(made.graph) for made in resizes() if is_refused(made) != bool(reason(made))]
    assert wrong == []


def test_an_operator_is_refused_for_the_attributes_that_the_session_refuses() -> None:
    wrong = [str(made.graph) for made in others() if is_refused(made) != bool(reason(made))]
    assert wrong == []


TAKEN: list[tuple[str, dict[str, Any], str]] = [
    # RNNNeedFallbackToCPU and ConvTransposeNeedFallbackToCPU of cuda_execution_provider.cc.
    ("RNN", {}, ""),
    ("RNN", {"activations": ["Relu"]}, ""),
    ("RNN", {"activations": ["Affine"]}, "takes tanh or relu alone"),
    ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh"] * 2, "direction": "bidirectional"}, ""),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh"]}, "takes the default activations alone"),
    ("LSTM", {"clip": 1.0}, "does not take clip"),
    ("LSTM", {"activation_alpha": [1.0]}, "does not take activation_alpha"),
    ("LSTM", {"input_forget": 1}, "does not take input_forget=1"),
    ("GRU", {}, "needs linear_before_reset=1"),
    ("GRU", {"linear_before_reset": 1}, ""),
    ("ConvTranspose", {"pads": [1, 2, 1, 2]}, ""),
    ("ConvTranspose", {"pads": [1, 2, 2, 1]}, "the same padding on both sides"),
    ("ConvTranspose", {"auto_pad": "VALID"}, ""),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER"}, "does not take auto_pad SAME"),
]


@pytest.mark.parametrize(("op_type", "attributes", "refused"), TAKEN)
def test_cuda_leaves_to_the_cpu_what_cudnn_cannot_do(
    op_type: str, attributes: dict[str, Any], refused: str
) -> None:
    one = Node(index=0, name="it", op_type=op_type, version=20, attributes=attributes)
    assert refused in unsupported(one)
    assert bool(unsupported(one)) == bool(refused)


@pytest.mark.parametrize(
    ("op_type", "attributes", "told"),
    [
        ("LSTM", {"activations": ["Tanh"] * 2, "direction": "bidirectional"}, "2 activations in place of 6"),
        ("GRU", {"activations": ["Tanh"]}, "1 activations in place of 2"),
        ("GRU", {"layout": 1}, "layout=1"),
        (
            "MaxPool",
            {"kernel_shape": [3, 2], "pads": [0, 0, 0, 2]},
            "pads=[0, 0, 0, 2] with a kernel of [3, 2]",
        ),
        ("LRN", {"size": 4}, "size=4, which is even"),
        ("LRN", {"size": 5}, ""),
    ],
)
def test_the_value_that_a_kernel_refuses_is_named(op_type: str, attributes: dict[str, Any], told: str) -> None:
    one = Node(index=0, name="it", op_type=op_type, version=20, attributes=attributes)
    assert failing(one, "cpu") == (f"no kernel of {op_type} takes {told} (it)" if told else "")


def test_scales_along_some_axes_are_one_along_the_others() -> None:
    made = model("Resize", (4, 4, 4), None, np.array([2, 0.5], np.float32), mode="cubic", axes=[-1, 1])
    assert reason(made) == "no kernel of Resize takes mode=cubic with scales of [1.0, 0.5, 2.0] (it)"
    made = model("Resize", (4, 4), None, np.array([0.0], np.float32), axes=[0])
    assert reason(made) == "no kernel of Resize takes scales of [0.0, 1.0] (it)"


def test_cuda_refuses_a_batch_normalization_that_trains() -> None:
    each = [np.ones(3, np.float32)] * 4
    (one,) = to_graph(model("BatchNormalization", (1, 3, 4, 4), *each, training_mode=1)).nodes
    assert "does not take training_mode=1" in failing(one, "cuda")
    assert failing(one, "cpu") == ""


def reason(made: onnx.ModelProto) -> str:
    return failing(to_graph(made).nodes[0], "cpu")
