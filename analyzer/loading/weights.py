"""A loaded model -> files that ONNX Runtime can run: the graph bound to one batch, real weights, real inputs.

Weights are made here and only here. Random ones are the same in every run (the seed is fixed), as is what fills
inputs that nobody gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, MeasurementError
from analyzer.graph import Graph
from analyzer.loading import reader
from analyzer.loading.from_onnx import default_opset, fed_inputs, sizes_as_written
from analyzer.loading.input_values import deciding_inputs, range_filled, whole_values
from analyzer.loading.load import stored_tensors
from analyzer.loading.loaded import Loaded
from analyzer.loading.python.example_inputs import resolve_inputs, tensor_names
from analyzer.loading.python.input_spec import InputSpec, drawn_values, parse_input, tensors_in_containers
from analyzer.loading.python.model_weights import cuda_is_elsewhere, plain_transformers
from analyzer.loading.runnable_files import MODEL_FILE, numpy_array, write_bound, write_model
from analyzer.loading.torch_private import tree_leaves
from analyzer.text import first_few

if TYPE_CHECKING:
    import numpy as np
    import torch

    from analyzer.graph import Tensor

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Runnable:
    """A session's files and inputs.

    Attributes:
        model_path: The .onnx file; weights lie beside it.
        feeds: Inputs by name; types that NumPy lacks as raw bits.
        feed_types: ONNX type by name of those inputs.
        eager: Runs the user's own model on the same inputs with PyTorch; None where there is none.
        gradients: Of a training step: its loss and gradients by PyTorch in float64, by name; None where there
            are none or they are random.
    """

    model_path: Path
    feeds: Mapping[str, Array]
    feed_types: Mapping[str, str] = field(default_factory=dict)
    eager: Callable[[], list[Array]] | None = None
    gradients: Callable[[], Mapping[str, Array]] | None = None


def materialise(loaded: Loaded, batch: int | None, folder: Path, *, as_if_trained: bool = False) -> Runnable:
    """Write the model with its weights into ``folder``.

    Args:
        loaded: The weight-free model.
        batch: The batch to bind.
        folder: An empty folder that outlives the run and in which nothing else is written.
        as_if_trained: Whether weights of a Python model that are equal are told apart, for times.

    Raises:
        InputError: The example inputs do not fit the graph.
        MeasurementError: A constant of the graph cannot be told from the model.
    """
    if loaded.exporter == "onnx" and (loaded.reference is None or loaded.reference.path is None):
        import onnx

        proto = onnx.ModelProto()
        proto.CopyFrom(loaded.live)  # the caller's model stays as it is
        write_bound(proto, default_opset(loaded.proto), _sizes_of_the_file(loaded, batch), folder, home=None)
        return _with_random_feeds(folder / MODEL_FILE, loaded.graph(batch), loaded.specs)
    if loaded.exporter in ("onnx", "pt2"):
        assert loaded.reference is not None
        assert loaded.reference.path is not None
        path, sizes = loaded.reference.path, _sizes_of_the_file(loaded, batch)
        if loaded.exporter == "pt2":
            write_model(loaded.proto, sizes, stored_tensors(loaded.reference), folder)
        else:  # which the reading process opens
            reader.write_file(path, default_opset(loaded.proto), sizes, folder, loaded.limits)
        return _with_random_feeds(folder / MODEL_FILE, loaded.graph(batch), loaded.specs)
    return _from_python(loaded, batch, folder, as_if_trained=as_if_trained)


def _from_python(loaded: Loaded, batch: int | None, folder: Path, *, as_if_trained: bool) -> Runnable:
    from contextlib import redirect_stdout

    from analyzer.loading.python.user_model import load_user_model

    if loaded.live is not None:
        user = loaded.live
        if user.meta:
            raise MeasurementError(
                "The model has no weights: it is on the meta device.",
                hint="Build it on the CPU to have it measured.",
            )
    else:
        assert loaded.reference is not None
        user = load_user_model(
            loaded.reference, weights="real", specs=loaded.specs, training=loaded.step is not None
        )
    import sys

    import torch

    with redirect_stdout(sys.stderr):
        inputs = resolve_inputs(user, loaded.specs, batch)
    if loaded.step is not None:
        from analyzer.loading.training.load_step import eager_gradients, feeds_of, runnable_proto

        graph = loaded.graph()
        fed = feeds_of(user, inputs, loaded.step, graph)
        path = folder / MODEL_FILE  # what is large is an input
        path.write_bytes(runnable_proto(loaded.proto, graph, loaded.step).SerializeToString())
        feeds, types = _feeds_and_types(fed, list(fed.values()))
        gradients = eager_gradients(user, inputs, loaded.step, graph) if loaded.compared else None
        return Runnable(model_path=path, feeds=feeds, feed_types=types, gradients=gradients)
    tensors = [leaf for leaf in inputs.leaves if hasattr(leaf, "detach")]
    state = dict(user.model.named_parameters(remove_duplicate=False))
    scripted = isinstance(user.model, torch.jit.ScriptModule)  # which takes no other weights for a call
    apart = distinguished(state) if as_if_trained and not scripted else {}
    state |= dict(user.model.named_buffers(remove_duplicate=False)) | apart
    model_path = write_model(loaded.proto, loaded.bound_to(batch), state, folder)
    names, known = [value.name for value in fed_inputs(loaded.proto)], tensor_names(user, inputs)
    if len(names) < len(tensors) and set(names) <= set(known):  # TorchScript drops those that became constants
        tensors = [tensors[known.index(name)] for name in names]
    feeds, types = _feeds_and_types(names, tensors)

    def eager() -> list[Array]:
        with torch.no_grad(), plain_transformers(), cuda_is_elsewhere("cpu"), redirect_stdout(sys.stderr):
            outputs = (
                torch.func.functional_call(user.model, apart, inputs.arguments, dict(inputs.keywords))
                if apart
                else user.model(*inputs.arguments, **inputs.keywords)
            )
        return [
            numpy_array(leaf)[0]
            for leaf in tree_leaves(tensors_in_containers(outputs))
            if hasattr(leaf, "detach")
        ]

    return Runnable(model_path=model_path, feeds=feeds, feed_types=types, eager=eager)


def _sizes_of_the_file(loaded: Loaded, batch: int | None) -> dict[str, int]:
    """Return the sizes of open axes by the names that they have in the file.

    There an axis that was taken for the batch may have none, as classical models leave it: it is ``x[0]``.
    """
    sizes = {**loaded.assumed, **loaded.bound_to(batch)}
    unnamed = {
        f"{value.name}[{axis}]": sizes[dim.dim_param]
        for value in fed_inputs(loaded.proto)
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param in sizes
    }
    return unnamed | sizes


def _feeds_and_types(
    names: Iterable[str], tensors: list[torch.Tensor]
) -> tuple[dict[str, Array], dict[str, str]]:
    listed = list(names)
    if len(listed) != len(tensors):
        raise InputError(
            f"The exported graph takes {len(listed)} inputs ({', '.join(listed)}), "
            f"the example inputs are {len(tensors)}."
        )
    feeds, types = {}, {}
    for name, tensor in zip(listed, tensors, strict=True):
        feeds[name], kind = numpy_array(tensor)
        if kind:
            types[name] = kind
    return feeds, types


def _with_random_feeds(path: Path, graph: Graph, specs: Iterable[InputSpec]) -> Runnable:
    types = {tensor.name: "bfloat16" for tensor in graph.inputs if tensor.dtype.name == "bfloat16"}
    return Runnable(model_path=path, feeds=random_feeds(graph, specs), feed_types=types)


# Weights that are equal and not tied, as untrained copies of a layer have them.
# Smaller weights, and those of one axis, are in the nearest cache whoever has them.
_TOLD_APART_BYTES, _LOOKED_AT = 4096, 64
_DIFFERENCE = 2.0**-7


def distinguished(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights that are equal to others and not tied to them, each with one value that differs.

    Copies of one layer begin alike (``nn.TransformerEncoder`` makes such), and training tells them apart. ONNX
    Runtime packs equal weights once and keeps them once (1.31.1): six layers took 1.9 ms that take 4.7 when
    trained, since each found in the cache what the one before it had read.
    """
    import torch

    known = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
    # No other classes, as libraries of quantisers have them.
    plain = (torch.Tensor, torch.nn.Parameter)
    seen: dict[Any, list[torch.Tensor]] = {}
    changed: dict[str, torch.Tensor] = {}
    instead: dict[int, torch.Tensor] = {}  # by the address of what they replace, which several names may have
    for name, tensor in parameters.items():
        held = tensor.numel() * tensor.element_size()
        if tensor.dim() < 2 or held < _TOLD_APART_BYTES or tensor.dtype not in known:
            continue
        if type(tensor) not in plain or tensor.layout is not torch.strided:
            continue
        # Few elements tell most weights apart without a pass over them.
        some = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _LOOKED_AT)]
        alike = seen.setdefault((tensor.shape, tensor.dtype, tuple(some.tolist())), [])
        tied = any(one.data_ptr() == tensor.data_ptr() for one in alike)
        if not tied and any(torch.equal(one, tensor) for one in alike):
            other = tensor.detach().clone(memory_format=torch.contiguous_format)
            other.view(-1)[len(alike) % other.numel()] += _DIFFERENCE
            instead[tensor.data_ptr()] = other
        if tensor.data_ptr() in instead:
            changed[name] = instead[tensor.data_ptr()]
        if not tied:
            alike.append(tensor)
    return changed


def random_feeds(graph: Graph, specs: Iterable[InputSpec] = ()) -> dict[str, Array]:
    """Random inputs: normal floats, true booleans, integers valid in every table, texts that the graph knows.

    Raises:
        InputError: An input is no tensor of numbers or texts, or has an open shape.
    """
    import numpy as np

    generator = np.random.default_rng(0)  # the same inputs in every run
    specs = tuple(specs)
    given = {spec.name: spec for spec in specs if spec.values is not None}
    words = {spec.name: (spec.word,) for spec in specs if spec.word is not None}
    texts_of = {spec.name: spec for spec in specs if spec.array is not None and spec.dtype == "string"}
    feeds: dict[str, Array] = {}
    for tensor in graph.inputs:
        shape = tuple(size or 0 for size in tensor.shape or ())  # whole, where the elements are known
        if tensor.dtype.name == "string" and tensor.elements is not None:
            if tensor.name in texts_of:
                feeds[tensor.name] = texts_of[tensor.name].rows(shape)
                continue
            texts = np.array(words.get(tensor.name) or known_texts(graph, tensor.name) or _WORDS, dtype=object)
            feeds[tensor.name] = texts[generator.integers(0, len(texts), shape)]
            continue
        if tensor.elements is None or tensor.dtype.bits is None:
            raise InputError(f"No values can be made for the input {tensor.name} ({tensor.dtype.name}).")
        if tensor.dtype.is_float:
            width = {64: np.float64, 32: np.float32, 16: np.float16}.get(tensor.dtype.bits)
            if width is None:
                raise InputError(f"No values can be made for the input {tensor.name} ({tensor.dtype.name}).")
            spec = given.get(tensor.name)
            values = (
                generator.standard_normal(shape) if spec is None else drawn_values(spec, shape, whole=False)
            )
            if tensor.dtype.name == "bfloat16":  # the upper half of a float32
                feeds[tensor.name] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            else:
                feeds[tensor.name] = values.astype(width)
        else:
            feeds[tensor.name] = whole_values(graph, tensor, given.get(tensor.name))
    return feeds


def deciding_values(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """Return notes on assumed integer inputs that decide how much is computed."""
    if loaded.step is not None or (loaded.inputs_origin in ("file", "script") and loaded.exporter != "pt2"):
        return ()
    given = {spec.name for spec in loaded.specs if spec.values is not None}
    # A guess may say values, such as lengths as long as the sequences.
    guesses = [parse_input(text) for text in loaded.guessed]
    guessed = {spec.name: spec.values for spec in guesses}
    # A graph of one batch alone has forgotten which of its sizes that is.
    sizes = {spec.name: spec.sizes_text for spec in (*guesses, *loaded.specs)}
    notes = []
    for tensor in deciding_inputs(graph):
        whole = not tensor.dtype.is_float and tensor.dtype.bits is not None and tensor.dtype.name != "bool"
        if tensor.name in given or tensor.name in graph.carried or not whole:
            continue
        if any(tensor.name in origin.inputs for origin in graph.size_origins.values()):  # a note says so
            continue
        is_drawn_here = loaded.exporter in ("onnx", "pt2")  # see whole_values
        filled = range_filled(graph, tensor.name) if is_drawn_here else (0, 1)
        low, high = guessed.get(tensor.name) or filled
        joint = "or" if high - low == 1 else "to"
        values = f"{low}" if low == high else f"{low} {joint} {high}"
        written = (
            f"{tensor.name}={sizes.get(tensor.name) or sizes_as_written(loaded.proto, loaded.symbol, tensor)}"
        )
        notes.append(
            f"Input {tensor.name} decides sizes or steps, and was filled with {values} "
            f"(--input {written}:{tensor.dtype.name}=LOW..HIGH says others)."
        )
    return tuple(notes)


# Text for inputs of strings: what the graph itself compares it with, else a few short words.
# By operator of ai.onnx.ml and of ONNX, the attribute that holds the texts which it knows.
_KNOWN_TEXTS: Mapping[str, str] = {
    "CategoryMapper": "cats_strings",
    "LabelEncoder": "keys_strings",
    "OneHotEncoder": "cats_strings",
    "TfIdfVectorizer": "pool_strings",
}
# What hands texts on as they are, or as others of which a vocabulary was made.
_HANDED_ON = frozenset(
    (
        *("ArrayFeatureExtractor", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
        *("Split", "Squeeze", "StringNormalizer", "StringSplit", "Tokenizer", "Transpose", "Unsqueeze"),
    )
)
_WORDS = ("a", "be", "sea", "door", "eight")
# A vocabulary has thousands; more of them make no other work.
_MOST = 64


def known_texts(graph: Graph, name: str) -> tuple[str, ...]:
    """Return the texts that the readers of an input know, in their order; empty where they know none."""
    return tuple(islice(dict.fromkeys(_read(graph, name)), _MOST))


def _read(graph: Graph, start: str) -> Iterator[str]:
    waiting, seen = [start], {start}
    while waiting:
        name = waiting.pop()
        for index in graph.consumers.get(name, ()):
            node = graph.nodes[index]
            texts = node.attributes.get(_KNOWN_TEXTS.get(node.op_type, ""), ())
            yield from (text for text in texts if isinstance(text, str))
            if node.op_type not in _HANDED_ON:
                continue
            for output in node.present_outputs:
                if output.dtype.name == "string" and output.name not in seen:
                    seen.add(output.name)
                    waiting.append(output.name)


def filled_with_text(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """Return which inputs were filled with texts that nobody gave, and with which, in a sentence or two."""
    given = {spec.name for spec in loaded.specs if spec.word is not None or spec.array is not None}
    made = [item for item in graph.inputs if item.dtype.name == "string" and item.name not in given]
    groups: dict[str, list[Tensor]] = {}
    for tensor in made:
        what = "texts that the model knows" if known_texts(graph, tensor.name) else "short words"
        groups.setdefault(what, []).append(tensor)
    return tuple(
        f"{'Input' if len(tensors) == 1 else 'Inputs'} {first_few([item.name for item in tensors])} of strings "
        f"{'was' if len(tensors) == 1 else 'were'} filled with {what} (--input {tensors[0].name}="
        f"{sizes_as_written(loaded.proto, loaded.symbol, tensors[0])}:string=TEXT says another)."
        for what, tensors in groups.items()
    )
