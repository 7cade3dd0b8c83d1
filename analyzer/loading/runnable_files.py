"""A model and its weights as files that ONNX Runtime can run, in a folder and under names of our own.

A Graph gets random weights: enough to time it, whatever it came from.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MeasurementError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Tensor
from analyzer.loading.from_onnx import bound_proto, convert, default_opset
from analyzer.loading.onnx_graph.evaluation import node_proto
from analyzer.loading.onnx_graph.normalize import name_nodes
from analyzer.run_folder import is_about_writing

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch

    Array = np.ndarray[Any, Any]

MODEL_FILE = "model.onnx"
WEIGHTS = "weights.bin"
_ALIGNMENT = 4096  # a page, so that the file can be mapped


def write_bound(
    proto: onnx.ModelProto, opset: int | None, sizes: Mapping[str, int], folder: Path, *, home: Path | None
) -> None:
    """Write a model at this opset, bound to these sizes.

    Args:
        proto: It may be changed.
        opset: None leaves the model's own.
        sizes: Of symbolic dimensions.
        folder: A folder that holds nothing else.
        home: The model's file, beside which its external data lie: they are linked; None for a model in memory.

    Raises:
        MeasurementError: Weights lie outside the model's folder, or cannot be read.
        UsageError: There is no conversion to the opset.
    """
    own = default_opset(proto)
    if opset and own and own != opset:
        proto = convert(proto, opset)
    name_nodes(proto.graph)
    bound = bound_proto(proto, sizes)
    if home is not None:
        link_external_data(bound, home, folder)
    (folder / MODEL_FILE).write_bytes(bound.SerializeToString())


def link_external_data(proto: onnx.ModelProto, home: Path, folder: Path) -> None:
    """Put the files that hold weights beside the copy; ONNX Runtime refuses to read outside its folder.

    The model's own names for them are not used: a link shares its file with the original, so that a name which
    something else writes to would let it write there. ``proto`` is changed to the links' names.

    Raises:
        MeasurementError: A location leads out of the model's folder, is no plain file or cannot be read.
    """
    names: dict[Path, str] = {}
    for tensor in stored_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location":
                source = _inside(entry.value, home)
                if source not in names:
                    names[source] = f"weights-{len(names)}.bin"
                    _link(source, folder / names[source])
                entry.value = names[source]


def _inside(location: str, home: Path) -> Path:
    """Return the file of an external location, links resolved."""
    # A model that is a link itself (a store of files under their hashes) may have its data beside its target.
    homes = {Path(os.path.realpath(home.parent)), Path(os.path.realpath(home)).parent}
    shown = location if location.isprintable() else repr(location)
    if location and location.isprintable() and not os.path.isabs(location):
        source = Path(os.path.realpath(home.parent / location))
        if any(source.is_relative_to(folder) for folder in homes):
            return source
    raise MeasurementError(
        f"The model names {shown[:200]} as a weights file, which lies outside its own folder.",
        hint="Save the model again with its weights next to it.",
    )


def _link(source: Path, target: Path) -> None:
    try:
        if not stat.S_ISREG(source.stat().st_mode):  # a pipe or device would be waited for
            raise MeasurementError(
                f"The weights file {source} is no plain file.", hint="Save the model again with its weights."
            )
        # A link costs nothing; between file systems there is none, of another user's file often none either.
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    except OSError as error:
        if is_about_writing(error, target.parent):
            raise
        raise MeasurementError(f"The weights file {source} cannot be read: {error.strerror}.") from error


def stored_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that a model stores: initializers, attributes, those of bodies and functions."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        for node in function.node:
            yield from _of_node(node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _of_node(node)


def _of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _of_graph(graph)


def write_model(
    proto: onnx.ModelProto, sizes: Mapping[str, int], state: Mapping[str, torch.Tensor], folder: Path
) -> Path:
    """Write a weight-free model, bound to these sizes, with the weights that ``state`` holds by name.

    Raises:
        MeasurementError: A weight is not there.
    """
    proto = bound_proto(proto, sizes)
    without_data = [item for item in proto.graph.initializer if item.data_location == item.EXTERNAL]
    # Small weights have the values of the build that was exported, whose random numbers are others.
    for item in proto.graph.initializer:
        if item.HasField("raw_data") and item.name in state:
            content = numpy_array(state[item.name])[0].tobytes()
            item.raw_data = content if len(content) == len(item.raw_data) else item.raw_data
    missing = [item.name for item in without_data if item.name not in state]
    if missing:
        raise MeasurementError(
            f"The values of {missing[0]} are not among the model's parameters and buffers.",
            hint="A tensor made while the model is traced should be a buffer (register_buffer).",
        )
    with open(folder / WEIGHTS, "wb") as file:
        for item in without_data:
            tensor = state[item.name]
            array, _ = numpy_array(tensor)
            offset = -file.tell() % _ALIGNMENT + file.tell()  # rounded up
            file.seek(offset)
            # As it lies in memory: a copy of a large weight may be what does not fit.
            file.write(array.reshape(-1).view("u1").data)
            del item.external_data[:]
            for key, value in (("location", WEIGHTS), ("offset", offset), ("length", array.nbytes)):
                item.external_data.add(key=key, value=str(value))
    path = folder / MODEL_FILE
    path.write_bytes(proto.SerializeToString())
    return path


def numpy_array(tensor: torch.Tensor) -> tuple[Array, str]:
    """Return a torch tensor as a NumPy array, and its ONNX type's name where NumPy lacks it (then raw bits)."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.is_complex():  # ONNX has no complex tensors here: a last axis of two holds both parts
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy(), "bfloat16"
    return tensor.numpy(), ""


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
        """Write a graph under this file name.

        Raises:
            MeasurementError: It has bodies, open sizes, or a type that no value can be made for.
        """
        import onnx
        from onnx import helper

        if any(node.graphs for node in graph.nodes):
            raise MeasurementError("A graph with loops or branches is not run with random weights.")
        nodes = [proto for node in graph.nodes if (proto := node_proto(node)) is not None]
        if len(nodes) < len(graph.nodes):
            raise MeasurementError("An attribute of an operator cannot be written.")
        model = helper.make_model(
            helper.make_graph(
                nodes,
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
        onnx.save(model, path)
        return path

    def _stored(self, tensor: Tensor) -> onnx.TensorProto:
        import onnx
        from onnx import helper, numpy_helper

        shape = _sizes(tensor)
        if tensor.value is not None:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.dtype.onnx)
            return numpy_helper.from_array(tensor.value.reshape(shape).astype(dtype), tensor.name)
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
        for entry, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
            stored.external_data.add(key=entry, value=str(value))
        return stored

    def _appended(self, tensor: Tensor) -> tuple[int, int]:
        data = self._bytes(tensor)
        offset = -self._end % _ALIGNMENT + self._end  # rounded up
        with (self.folder / WEIGHTS).open("r+b" if self._end else "wb") as file:
            file.seek(offset)
            file.write(data)
        self._end = offset + len(data)
        return offset, len(data)

    def _bytes(self, tensor: Tensor) -> bytes:
        if tensor.nbytes is None:
            raise MeasurementError(f"No values can be made for {tensor.name} ({tensor.dtype.name}).")
        return random_bytes(tensor, self._drawn, len(self._places))


def random_bytes(tensor: Tensor, drawn: dict[str, Any], number: int) -> bytes:
    """Values as they lie in memory, others by ``number``: small floats, random bits, zeros of indices, true."""
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


def _value(tensor: Tensor) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(tensor.name, tensor.dtype.onnx, _sizes(tensor))


# Smaller ones stay in the model's file: shapes, axes, scalars.
_STORED_APART_BYTES = 1024


def restore(model: Path, folder: Path) -> Mapping[str, int]:
    """Write a model, with the one operator of ONNX Runtime in place of each of its patterns, into a folder.

    onnxscript's rules know the graphs of PyTorch's exporter (attention from ``scaled_dot_product_attention``,
    rotary embeddings, RMS norms), which ONNX Runtime's own optimiser does not fuse. Weights stay in their file:
    they are mapped, and written one after the other.

    Returns:
        How often each rule was applied; those that were not are left out.
    """
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    rewritten, counts = optimize_for_ort(onnx_ir.load(model))
    onnx_ir.save(
        rewritten, folder / model.name, external_data=WEIGHTS, size_threshold_bytes=_STORED_APART_BYTES
    )
    return {rule: count for rule, count in counts.items() if count}
