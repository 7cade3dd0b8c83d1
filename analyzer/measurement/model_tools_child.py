"""The child process of rewriting tools: ``python -m analyzer.measurement.model_tools_child``.

Its task names a tool, a model and a folder: ``float16`` (onnxruntime.transformers), ``int8``
(onnxruntime.quantization), ``rules`` (onnxscript's rewriter), ``transformers``
(onnxruntime.transformers.optimizer). A process of its own, because the tools hold whole models in memory, log
as they like and are no part of what is measured.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, MeasurementError
from analyzer.loading.runnable_files import WEIGHTS, restore
from analyzer.measurement import tensor_files
from analyzer.measurement.child_messages import Reporter, work_as_child
from analyzer.measurement.tensor_files import varied
from analyzer.process import run_as_child

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

# Smaller tensors stay in the model's file: shapes, axes, scalars.
_STORED_APART_BYTES = 1024
_ALIGNMENT = 4096  # a page, so that the file can be mapped
_LONGEST_ERROR = 300  # characters


def _rewrite(task: Mapping[str, Any], _folder: Path, reporter: Reporter) -> None:
    logging.disable(logging.CRITICAL)
    try:
        reporter.progress(f"rewriting the model ({task['tool']})", 0.0)
        reporter.update(told=dict(TOOLS[task["tool"]](task, Path(task["model"]), Path(task["folder"]))))
    except (AnalyzerError, MemoryError):
        raise
    except Exception as error:  # a tool's own: AttributeErrors and KeyErrors of graphs that it does not know
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = f"{type(error).__name__}: {lines[0][:_LONGEST_ERROR]}" if lines else type(error).__name__
        raise MeasurementError(text) from error


def _float16(task: Mapping[str, Any], model: Path, folder: Path) -> Mapping[str, Any]:
    """Return weights and arithmetic in float16; inputs and outputs keep their types.

    The tool works on a graph without weights; each is then read, rounded and written by itself, so that memory
    holds one at a time.
    """
    import onnx
    from onnxruntime.transformers import float16

    proto = _without_weights(model)
    # It would read the values to learn the shape that the tensor says anyway.
    float16.make_value_info_from_tensor = lambda tensor: onnx.helper.make_tensor_value_info(
        tensor.name, tensor.data_type, tensor.dims
    )
    before = {tensor.name: tensor.data_type for tensor in proto.graph.initializer}
    # No operator by its type: which have no kernel says the registry of kernels, node by node.
    made = float16.convert_float_to_float16(
        proto, keep_io_types=True, op_block_list=[], node_block_list=task["blocked"]
    )
    _in_order(made.graph)
    narrow = {
        tensor.name
        for tensor in made.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT16 and before[tensor.name] == onnx.TensorProto.FLOAT
    }

    def rounded(tensor: onnx.TensorProto, data: bytes) -> bytes:
        import numpy as np

        if tensor.name not in narrow:
            return data
        values: Array = float16.convert_np_to_float16(np.frombuffer(data, dtype=np.float32))
        return values.tobytes()

    _write(made, model, folder, rounded)
    return {}


def _int8(task: Mapping[str, Any], model: Path, folder: Path) -> Mapping[str, Any]:
    """QuantizeLinear and DequantizeLinear, with the tool's defaults.

    Ranges come from the model's own inputs and varied ones. Both tools load the whole model, weights included.
    """
    from onnxruntime.quantization import CalibrationDataReader, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    given = tensor_files.load_tensors(Path(task["feeds"]))
    taken = {value.name for value in _without_weights(model).graph.input}
    given = {name: value for name, value in given.items() if name in taken}

    class Inputs(CalibrationDataReader):  # type: ignore[misc]  # it ships no types
        """The model's own inputs, then varied ones."""

        def __init__(self) -> None:
            self._left: Iterator[dict[str, Any]] = iter(
                [dict(given), *(varied(given, seed) for seed in range(1, task["sets"]))]
            )

        def get_next(self) -> dict[str, Any] | None:
            """Return the next inputs; None where there are no more."""
            return next(self._left, None)

    work = folder / "quantised"
    work.mkdir()
    ready, made = work / "ready.onnx", work / model.name
    # Weights apart whatever their size: with some inside of the file it does not find those beside it again.
    quant_pre_process(
        str(_with_own_weights(model, work)),
        str(ready),
        skip_symbolic_shape=True,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
    )
    quantize_static(str(ready), str(made), Inputs(), use_external_data_format=True)
    _stored_apart(made, folder)
    return {"sets": task["sets"]}


def _rules(_task: Mapping[str, Any], model: Path, folder: Path) -> Mapping[str, Any]:
    work = folder / "linked"
    work.mkdir()
    applied = restore(_with_own_weights(model, work), folder)
    shutil.rmtree(work)
    return {"applied": dict(applied)}


def _transformers(_task: Mapping[str, Any], model: Path, folder: Path) -> Mapping[str, Any]:
    """Return the fusions of BERT's kind, which most encoders are of; the tool loads the whole model."""
    from onnxruntime.transformers.optimizer import optimize_model

    work = folder / "fused"
    work.mkdir()
    # Level 0: its Python rules alone, since a session does ONNX Runtime's own fusions anyway.
    made = optimize_model(str(_with_own_weights(model, work)), model_type="bert", opt_level=0, use_gpu=True)
    applied = {name: count for name, count in made.get_fused_operator_statistics().items() if count}
    made.save_model_to_file(str(work / model.name), use_external_data_format=True)
    _stored_apart(work / model.name, folder)
    return {"applied": applied}


def _without_weights(model: Path) -> onnx.ModelProto:
    import onnx

    proto = onnx.load(str(model), load_external_data=False)
    for tensor in proto.graph.initializer:
        # Shape inference needs the values of shapes and axes.
        if onnx.external_data_helper.uses_external_data(tensor) and _length(tensor) <= _STORED_APART_BYTES:
            tensor.raw_data = _data(tensor, model)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return proto


def _length(tensor: onnx.TensorProto) -> int:
    return next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), 1 << 62)


def _data(tensor: onnx.TensorProto, model: Path) -> bytes:
    """Return the bytes next to a model; onnx itself reads no file with a second name, such as a link."""
    places = {entry.key: entry.value for entry in tensor.external_data}
    with open(model.parent / places["location"], "rb") as source:
        source.seek(int(places.get("offset", 0)))
        return source.read(int(places["length"])) if "length" in places else source.read()


def _with_own_weights(model: Path, work: Path) -> Path:
    """Return the model with weights that no other folder has, for tools that have onnx read them."""
    if all(path.stat().st_nlink == 1 for path in model.parent.iterdir()):
        return model
    own = work / "original"
    shutil.copytree(model.parent, own)
    return own / model.name


def _write(
    proto: onnx.ModelProto,
    model: Path,
    folder: Path,
    changed: Callable[[onnx.TensorProto, bytes], bytes],
) -> None:
    """Write a model whose weights lie beside another one, each of them changed on its way."""
    import onnx

    with open(folder / WEIGHTS, "wb") as file:
        for tensor in proto.graph.initializer:
            if onnx.external_data_helper.uses_external_data(tensor):
                data = changed(tensor, _data(tensor, model))
                offset = -file.tell() % _ALIGNMENT + file.tell()  # rounded up
                file.seek(offset)
                file.write(data)
                del tensor.external_data[:]
                for key, value in (("location", WEIGHTS), ("offset", offset), ("length", len(data))):
                    tensor.external_data.add(key=key, value=str(value))
    (folder / model.name).write_bytes(proto.SerializeToString())


def _stored_apart(model: Path, folder: Path) -> None:
    """Store a model that a tool wrote with its weights in one file next to it."""
    import onnx

    onnx.save(
        onnx.load(str(model)),
        str(folder / model.name),
        save_as_external_data=True,
        location=WEIGHTS,
        size_threshold=_STORED_APART_BYTES,
    )
    shutil.rmtree(model.parent)


def _in_order(graph: onnx.GraphProto) -> None:
    """Put each node behind those that write what it reads, and leaves out what is written twice.

    The tool adds its Casts at the end, one for each blocked operator that reads a tensor, all of one name.
    """
    import onnx

    writer = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    order: dict[int, None] = {}
    for start in range(len(graph.node)):
        stack = [start]
        while stack:
            index = stack[-1]
            behind = {writer.get(name, index) for name in _read(graph.node[index])} - {index} - order.keys()
            if behind and index not in order:
                stack.extend(sorted(behind, reverse=True))
            else:
                order.setdefault(stack.pop())
    nodes = []
    for index in order:
        if all(writer[name] == index for name in graph.node[index].output if name):
            nodes.append(onnx.NodeProto())
            nodes[-1].CopyFrom(graph.node[index])
    del graph.node[:]
    graph.node.extend(nodes)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield names that a node reads, its bodies included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _read(inner)


TOOLS: Mapping[str, Callable[[Mapping[str, Any], Path, Path], Mapping[str, Any]]] = {
    "float16": _float16,
    "int8": _int8,
    "rules": _rules,
    "transformers": _transformers,
}


if __name__ == "__main__":
    run_as_child(lambda channel: work_as_child(channel, _rewrite, "use a machine with more memory"))
