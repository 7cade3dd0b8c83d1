"""What is told of sizes that the data decide: how each is known, or which input would tell it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzer.graph import Graph, SizeOrigin, Tensor
from analyzer.loading.from_onnx import sizes_as_written
from analyzer.loading.input_values import by_graph_name, deciding_inputs
from analyzer.loading.loaded import Loaded
from analyzer.loading.onnx_graph.data_dependent_sizes import open_tensors
from analyzer.loading.python.input_spec import parse_input
from analyzer.record.notes import DECIDE_SIZES
from analyzer.text import first_few, plural


def size_notes(loaded: Loaded, graph: Graph) -> tuple[str, ...]:
    """A sentence for each way in which sizes are known, and one for those that are not."""
    if loaded.step is not None:
        return ()
    return tuple(_Notes(loaded, graph).sentences())


class _Notes:
    def __init__(self, loaded: Loaded, graph: Graph) -> None:
        self._loaded = loaded
        self._graph = graph
        guesses = [parse_input(text) for text in loaded.guessed]
        self._specs = {**by_graph_name(guesses), **by_graph_name(loaded.specs)}

    def sentences(self) -> Iterator[str]:
        by_origin: dict[SizeOrigin, list[str]] = {}
        for name, origin in self._graph.size_origins.items():
            by_origin.setdefault(origin, []).append(name)
        for origin, names in by_origin.items():
            yield self._known(origin, names)
        unknown = open_tensors(self._graph)
        if unknown and (inputs := deciding_inputs(self._graph, unknown)):
            yield self._unknown(inputs, unknown)

    def _known(self, origin: SizeOrigin, names: Sequence[str]) -> str:
        first = self._graph.tensors[names[0]]
        sizes = "x".join(map(str, first.shape or ())) or "a number"
        what = f"{DECIDE_SIZES} {plural(len(names), 'tensor')} ({first.name} is {sizes})"
        if origin.kind == "measured":
            inputs = deciding_inputs(self._graph, names)
            who = f"The values of {first_few(tensor.name for tensor in inputs)}" if inputs else "The data"
            options = self._options(inputs, "others")
            return f"{who} {what}: as measured, which holds for the data of that run alone{options}."
        who = f"The values of {first_few(origin.inputs)}"
        texts = first_few(f"--input {self._specs[name].text}" for name in origin.inputs)
        return f"{who} {what}: by those given ({texts}); others make other sizes and times."

    def _unknown(self, inputs: Sequence[Tensor], names: Sequence[str]) -> str:
        named = first_few(tensor.name for tensor in inputs)
        who = f"The values of {named} {DECIDE_SIZES} {first_few(names)}"
        return f"{who}, and are not known before a run{self._options(inputs, 'them')}."

    def _options(self, inputs: Sequence[Tensor], gives: str) -> str:
        """How to give the values of inputs of whole numbers; of floats nothing is worked out."""
        whole = [tensor for tensor in inputs if not tensor.dtype.is_float and tensor.dtype.bits is not None]
        if not whole or len(whole) < len(inputs):
            return ""
        return f" ({' '.join(map(self._option, whole[:3]))} gives {gives})"

    def _option(self, tensor: Tensor) -> str:
        spec = self._specs.get(tensor.name)
        if spec is not None:
            return f"--input {spec.name}={spec.sizes_text}:{spec.dtype}=LOW..HIGH"
        sizes = sizes_as_written(self._loaded.proto, self._loaded.symbol, tensor)
        return f"--input {tensor.name}={sizes}:{tensor.dtype.name}=LOW..HIGH"
