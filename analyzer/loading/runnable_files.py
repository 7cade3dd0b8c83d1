"""A model and its weights as files that ONNX Runtime can run, in a folder and under names of our own."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MeasurementError
from analyzer.loading.from_onnx import bound_proto, convert, default_opset, name_nodes
from analyzer.run_folder import is_about_writing

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from torch import Tensor

    Array = np.ndarray[Any, Any]

MODEL_FILE = "model.onnx"
_WEIGHTS_FILE = "weights.bin"
_ALIGNMENT = 4096  # a page, so that the file can be mapped


def write_file(path: Path, opset: int | None, sizes: Mapping[str, int], folder: Path) -> None:
    """Writes an .onnx file's model at this opset, bound to these sizes; its weights are linked beside it.

    Raises:
        MeasurementError: Weights lie outside the model's folder, or cannot be read.
        UsageError: There is no conversion to the opset.
    """
    import onnx

    proto = onnx.load(str(path), load_external_data=False)
    write_bound(proto, opset, sizes, folder, home=path)


def write_bound(
    proto: onnx.ModelProto, opset: int | None, sizes: Mapping[str, int], folder: Path, *, home: Path | None
) -> None:
    """Writes a model at this opset, bound to these sizes.

    Args:
        proto: It may be changed.
        opset: None leaves the model's own.
        sizes: Of symbolic dimensions.
        folder: A folder that holds nothing else.
        home: The model's file, beside which its external data lie; None for a model in memory.
    """
    own = default_opset(proto)
    if opset and own and own != opset:
        proto = convert(proto, opset)
    name_nodes(proto)
    bound = bound_proto(proto, sizes)
    if home is not None:
        link_external_data(bound, home, folder)
    (folder / MODEL_FILE).write_bytes(bound.SerializeToString())


def link_external_data(proto: onnx.ModelProto, home: Path, folder: Path) -> None:
    """Puts the files that hold weights beside the copy; ONNX Runtime refuses to read outside its folder.

    The model's own names for them are not used: a link shares its file with the original, so that a name which
    something else writes to would let it write there.

    Args:
        proto: The model; its external locations are changed to the links' names.
        home: The model's own file.
        folder: Where the copy is written.

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
    """The file of an external location, links resolved."""
    # A model that is a link itself (a store of files under their hashes) may have its data beside its target.
    homes = {Path(os.path.realpath(home.parent)), Path(os.path.realpath(home)).parent}
    shown = location if location.isprintable() else repr(location)
    if location and location.isprintable() and not os.path.isabs(location):
        source = Path(os.path.realpath(home.parent / location))
        if any(source.is_relative_to(folder) for folder in homes):
            return source
    raise MeasurementError(
        f"The model names {shown[:200]} as a weights file, which lies outside its own folder.",
        hint="Save the model again with its weights beside it.",
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
    """Every tensor that a model stores: initializers, attributes, those of bodies and functions."""
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
    proto: onnx.ModelProto, sizes: Mapping[str, int], state: Mapping[str, Tensor], folder: Path
) -> Path:
    """Writes a weight-free model, bound to these sizes, with the weights that ``state`` holds by name.

    Raises:
        MeasurementError: A weight is not there.
    """
    proto = bound_proto(proto, sizes)
    without_data = [item for item in proto.graph.initializer if item.data_location == item.EXTERNAL]
    missing = [item.name for item in without_data if item.name not in state]
    if missing:
        raise MeasurementError(
            f"The values of {missing[0]} are not among the model's parameters and buffers.",
            hint="A tensor made while the model is traced should be a buffer (register_buffer).",
        )
    with open(folder / _WEIGHTS_FILE, "wb") as file:
        for item in without_data:
            tensor = state[item.name]
            array, _ = numpy_array(tensor)
            offset = -file.tell() % _ALIGNMENT + file.tell()  # rounded up
            file.seek(offset)
            # As it lies in memory: a copy of a large weight may be what does not fit.
            file.write(array.reshape(-1).view("u1").data)
            del item.external_data[:]
            for key, value in (("location", _WEIGHTS_FILE), ("offset", offset), ("length", array.nbytes)):
                item.external_data.add(key=key, value=str(value))
    path = folder / MODEL_FILE
    path.write_bytes(proto.SerializeToString())
    return path


def numpy_array(tensor: Tensor) -> tuple[Array, str]:
    """A torch tensor as a NumPy array, and its ONNX type's name where NumPy lacks it (then raw bits)."""
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.is_complex():  # ONNX has no complex tensors here: a last axis of two holds both parts
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy(), "bfloat16"
    return tensor.numpy(), ""
