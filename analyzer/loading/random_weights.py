"""A Graph -> files that ONNX Runtime can run, with random weights: enough to time it, whatever it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MeasurementError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

_WEIGHTS_FILE = "weights.bin"
_ALIGNMENT = 4096  # a page, so that the file can be mapped
# Elements that are drawn; larger weights repeat them, and each begins a step further on: ONNX Runtime packs
# and keeps equal ones once, and a layer would find in the cache what the layer before it read. A deviation as
# trained weights have it: with 1 states would grow beyond all floats.
_DRAWN, _STEP, _DEVIATION = 2**20, 4099, 0.02
_EXTERNAL_BYTES = 1024


@dataclass(kw_only=True)
class RandomWeights:
    """The weights of graphs of one model, each stored once, by name and size.

    Attributes:
        folder: Where the file is, and every model that reads it.
    """

    folder: Path
    _places: dict[tuple[str, str, tuple[int, ...]], tuple[int, int]] = field(default_factory=dict)
    _drawn: dict[str, Any] = field(default_factory=dict)
    _end: int = 0

    def write(self, graph: Graph, name: str) -> Path:
        """Writes a graph under this file name.

        Raises:
            MeasurementError: It has bodies, open sizes, or a type that no value can be made for.
        """
        import onnx
        from onnx import helper

        if any(node.graphs for node in graph.nodes):
            raise MeasurementError("A graph with loops or branches is not run with random weights.")
        proto = helper.make_model(
            helper.make_graph(
                [_node(node) for node in graph.nodes],
                graph.name or "model",
                [_value(tensor) for tensor in graph.inputs],
                [_value(tensor) for tensor in graph.outputs],
                [self._stored(tensor) for tensor in graph.initializers],
            ),
            opset_imports=[
                helper.make_opsetid("" if domain == DEFAULT_DOMAIN else domain, version)
                for domain, version in graph.opsets.items()
            ],
            ir_version=graph.ir_version,
        )
        path = self.folder / name
        onnx.save(proto, path)
        return path

    def _stored(self, tensor: Tensor) -> onnx.TensorProto:
        import onnx
        from onnx import numpy_helper

        shape = _sizes(tensor)
        if tensor.value is not None:
            made: onnx.TensorProto = numpy_helper.from_array(
                tensor.value.reshape(shape).astype(_numpy_type(tensor)), tensor.name
            )
            return made
        key = (tensor.name, tensor.dtype.name, shape)
        if key not in self._places:
            self._places[key] = self._appended(tensor)
        offset, length = self._places[key]
        if length <= _EXTERNAL_BYTES:
            return onnx.TensorProto(
                name=tensor.name, data_type=tensor.dtype.onnx, dims=shape, raw_data=self._bytes(tensor)
            )
        stored = onnx.TensorProto(
            name=tensor.name, data_type=tensor.dtype.onnx, dims=shape, data_location=onnx.TensorProto.EXTERNAL
        )
        for entry, value in (("location", _WEIGHTS_FILE), ("offset", offset), ("length", length)):
            stored.external_data.add(key=entry, value=str(value))
        return stored

    def _appended(self, tensor: Tensor) -> tuple[int, int]:
        data = self._bytes(tensor)
        offset = -self._end % _ALIGNMENT + self._end  # rounded up
        with (self.folder / _WEIGHTS_FILE).open("r+b" if self._end else "wb") as file:
            file.seek(offset)
            file.write(data)
        self._end = offset + len(data)
        return offset, len(data)

    def _bytes(self, tensor: Tensor) -> bytes:
        if tensor.nbytes is None:
            raise MeasurementError(f"No values can be made for {tensor.name} ({tensor.dtype.name}).")
        return random_bytes(tensor, self._drawn, len(self._places))


def random_bytes(tensor: Tensor, drawn: dict[str, Any], number: int) -> bytes:
    """Values as they lie in memory: small floats, random bits of what is packed, zeros of indices, true.

    Args:
        tensor: Its type and size.
        drawn: What was drawn so far, by type.
        number: Of the tensor: others of its size get other values.
    """
    import ml_dtypes
    import numpy as np

    name, count = tensor.dtype.name, tensor.nbytes or 0
    if name not in drawn:
        generator = np.random.default_rng(0)
        floats = {"bfloat16": ml_dtypes.bfloat16, "float8e4m3fn": ml_dtypes.float8_e4m3fn}
        if name in ("uint8", "int8", "uint4", "int4"):
            values = generator.integers(0, 256, _DRAWN, dtype=np.uint8)
        elif name == "bool":
            values = np.ones(_DRAWN, dtype=np.uint8)
        elif tensor.dtype.is_float:
            normal = generator.standard_normal(_DRAWN, dtype=np.float32) * np.float32(_DEVIATION)
            values = normal.astype(floats.get(name) or name)
        else:
            values = np.zeros(_DRAWN, dtype=name)
        drawn[name] = values.tobytes()
    block: bytes = drawn[name]
    start = number * _STEP % _DRAWN * (len(block) // _DRAWN)
    return (block * ((start + count) // len(block) + 1))[start : start + count]


def _sizes(tensor: Tensor) -> tuple[int, ...]:
    if tensor.shape is None or None in tensor.shape:
        raise MeasurementError(f"The size of {tensor.name} is not known.")
    return tuple(int(size or 0) for size in tensor.shape)


def _numpy_type(tensor: Tensor) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(tensor.dtype.onnx)


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(tensor.name, tensor.dtype.onnx, _sizes(tensor))


def _node(node: Node) -> onnx.NodeProto:
    from onnx import helper

    domain = "" if node.domain == DEFAULT_DOMAIN else node.domain
    inputs, outputs = (
        ["" if tensor is None else tensor.name for tensor in side] for side in (node.inputs, node.outputs)
    )
    made = helper.make_node(node.op_type, inputs, outputs, name=node.name, domain=domain)
    for key, value in node.attributes.items():
        # An empty list has no type of its own; an operator takes it for left out.
        if not isinstance(value, tuple | list) or value:
            made.attribute.append(helper.make_attribute(key, _attribute(value)))
    return made


def _attribute(value: Any) -> Any:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
