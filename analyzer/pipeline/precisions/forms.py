"""The graph that the decision is about: the model's own, or the one that ``--precision int8`` stands for."""

from __future__ import annotations

from analyzer.conversion import HALF, NoForm, convert, in_floats, integer_form
from analyzer.decision import DecisionInput
from analyzer.errors import UsageError
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.pipeline.target_devices import model_precision
from analyzer.precision import INTEGER_FORMS

HOW_MADE = {
    "int8": "as onnxruntime.quantization.quantize_static makes it by default (QDQ, one scale a tensor)",
    "int4": "with the weights of MatMul in 4 bits (MatMulNBits, blocks of 32), Gemm split into MatMul and Add",
}
"""What an integer form is."""


def in_form(graph: Graph, options: Options) -> Graph:
    """The graph in the precision that was asked for; the very same one for another width of floats.

    Raises:
        UsageError: The model has no such form.
    """
    if options.precision is None:
        return graph
    if options.precision not in INTEGER_FORMS:
        # Of 32-bit floats any width is counted as they are; halves are made whole first.
        return graph if model_precision(graph) == options.precision else in_full(graph)
    form = convert(in_full(graph), options.precision)
    if isinstance(form, NoForm):
        raise UsageError(
            f"--precision {options.precision}: {form.why}.",
            hint="Leave --precision out: the report then shows every precision that the model can have.",
        )
    return form


def in_full(graph: Graph) -> Graph:
    """The graph with its halves as 32-bit floats, as quantisers read them; one that has none as it is."""
    halves = model_precision(graph) in HALF and integer_form(graph) is None
    return in_floats(graph, "float32") if halves else graph


def asked_precision(options: Options, decision_input: DecisionInput) -> str:
    """The precision that the record tells: the form that was asked for, else that of the floats."""
    asked = options.precision
    return asked if asked is not None and asked in INTEGER_FORMS else decision_input.precision


def note(precision: str) -> str:
    """What the report says of a model that was converted."""
    how = HOW_MADE.get(precision, "made of its floats in 32 bits")
    return f"The model is predicted in {precision}, {how}; nothing was run in that form."
