"""The reading process: ``python -m analyzer.loading.reading_process``.

It parses, infers and computes what a stranger's file says, within the
limits that each request brings, and runs nothing of it. It is no sandbox: it has the user's rights.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError, OutputError
from analyzer.loading.reader import CACHED_MODELS, model_of
from analyzer.process import now_at, run_as_child
from analyzer.reading import READING, Handlers, Limits, serve
from analyzer.run_folder import is_about_writing

if TYPE_CHECKING:
    import onnx

_cached: OrderedDict[int, onnx.ModelProto] = OrderedDict()


@contextmanager
def reading_process() -> Iterator[None]:
    """Begin the reading process by a fork where that is safe, with what it needs imported before; ends it."""
    # Imported here, both processes share the modules' memory, and neither waits for them twice.
    import ml_dtypes  # noqa: F401
    import numpy as np  # noqa: F401
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
    from onnx import defs, helper, inliner, numpy_helper, shape_inference  # noqa: F401

    from analyzer.loading.onnx_graph import build, construction, node_validity, onnx_file  # noqa: F401

    READING.fork(HANDLERS)
    try:
        yield
    finally:
        READING.end()


def _parse(
    source: bytes, is_path: bool, subject: str, opset: int | None, limits: Mapping[str, Any]
) -> tuple[bytes, bool]:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    from analyzer.loading.from_onnx import convert, default_opset
    from analyzer.loading.onnx_graph.node_validity import check_budget, check_texts
    from analyzer.loading.onnx_graph.onnx_file import WireError, read_model, without_weights

    now_at("parsing")
    try:
        # Of a model in memory the weights are out already; large trees are not.
        model = (
            read_model(os.fsdecode(source))
            if is_path
            else onnx.ModelProto.FromString(without_weights(source, keep_bytes=len(source)))
        )
    except (DecodeError, WireError) as error:
        raise ModelError(
            f"{subject} is no ONNX model: {error}", hint="give one that was saved whole"
        ) from error
    check_budget(model, Limits(**limits), subject)
    check_texts(model, subject)
    convert_it = opset is not None and opset != default_opset(model)
    if opset is not None and convert_it:
        now_at("the conversion to another opset")
        model = convert(model, opset)
        check_budget(model, Limits(**limits), subject)
    return model.SerializeToString(deterministic=True), convert_it


def _keep(number: int, content: bytes) -> None:
    _cached[number] = model_of(content)
    while len(_cached) > CACHED_MODELS:
        _cached.popitem(last=False)


def _open_sizes(
    content: bytes, sizes: Mapping[str, int], usual: Mapping[str, int], example: int, limits: Mapping[str, Any]
) -> tuple[bool, Mapping[str, int], Mapping[str, int]]:
    from analyzer.loading.onnx_graph.build import open_sizes

    return open_sizes(model_of(content), sizes, usual, example=example, limits=Limits(**limits))


def _graph(
    number: int, sizes: Mapping[str, int], pruned: bool, limits: Mapping[str, Any], **options: Any
) -> bytes | None:
    from analyzer.loading.onnx_graph.build import prune, to_graph
    from analyzer.loading.onnx_graph.construction import to_message

    model = _cached.get(number)
    if model is None:
        return None
    _cached.move_to_end(number)
    graph = to_graph(model, bindings=sizes, limits=Limits(**limits), **options)
    return to_message(prune(graph) if pruned else graph)


def _inlined(content: bytes, op_type: str) -> bytes | None:
    """Return the graph of a model of one node, its operator's definition in its place; None without one."""
    import onnx
    from onnx import inliner, shape_inference

    model = model_of(content)
    try:
        # The inliner puts nothing in the place of attributes that a call leaves to its schema.
        node = model.graph.node[0]
        given = {attribute.name for attribute in node.attribute}
        for name, known in onnx.defs.get_schema(op_type, model.opset_import[0].version).attributes.items():
            if name not in given and known.default_value.name:
                node.attribute.append(known.default_value)
        model = inliner.inline_selected_functions(model, [("", op_type)], inline_schema_functions=True)
        model = shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return None
    return model.graph.SerializeToString()


def _write_file(path: bytes, opset: int | None, sizes: Mapping[str, int], folder: bytes) -> None:
    import onnx

    from analyzer.loading.runnable_files import write_bound

    now_at("writing a model that can be run")
    file, place = Path(os.fsdecode(path)), Path(os.fsdecode(folder))
    try:
        proto = onnx.load(str(file), load_external_data=False)
        write_bound(proto, opset, sizes, place, home=file)
    except OSError as error:  # what cannot be written, and what cannot be read
        reason = error.strerror or error
        if is_about_writing(error, place):
            raise OutputError(
                f"{place} cannot be written: {reason}.", hint="Choose a folder with more room."
            ) from error
        raise ModelError(f"{os.fsdecode(error.filename)} cannot be read: {reason}.") from error


HANDLERS: Handlers = {
    "parse": _parse,
    "keep": _keep,
    "graph": _graph,
    "open_sizes": _open_sizes,
    "inlined": _inlined,
    "write_file": _write_file,
}


if __name__ == "__main__":
    run_as_child(lambda channel: serve(channel, HANDLERS))
