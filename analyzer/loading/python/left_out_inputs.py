"""Inputs of a user's model that nobody gives, so that ``forward`` takes another way than with them."""

from __future__ import annotations

from analyzer.loading.dependencies import is_library
from analyzer.loading.python.example_inputs import ExampleInputs, forward_parameters
from analyzer.loading.python.inferred_inputs import infer_inputs
from analyzer.loading.python.user_model import UserModel
from analyzer.record.analysis import LEFT_OUT
from analyzer.text import listed


def left_out(user: UserModel, inputs: ExampleInputs) -> tuple[str, ...]:
    """Return a note on the arguments of the user's own ``forward`` that stay None and could be tensors.

    A library's models have a dozen of them, most of which are of no use together.
    """
    code = getattr(user.model.forward, "__code__", None)
    if code is None or is_library(code.co_filename):
        return ()
    names = [
        item.name
        for item in forward_parameters(user)[len(inputs.arguments) :]
        if item.default is None
        and item.name not in inputs.keywords
        and (item.annotation is item.empty or "Tensor" in str(item.annotation))
    ]
    if not names:
        return ()
    # Of a tuple each tensor; a shape that no call bears out would mislead.
    given = " ".join(f"--input {item.name}=..." for item in infer_inputs(user.model, names))
    verb, it = ("was", "gives it") if len(names) == 1 else ("were", "gives them")
    return (f"{listed(names)} {verb} {LEFT_OUT}; {given} {it}.",)
