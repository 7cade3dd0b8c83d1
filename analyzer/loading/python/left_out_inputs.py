"""Inputs of a user's model that nobody gives, so that ``forward`` takes another way than with them."""

from __future__ import annotations

from analyzer.loading.dependencies import is_library
from analyzer.loading.python.example_inputs import ExampleInputs, forward_parameters
from analyzer.loading.python.user_model import UserModel
from analyzer.record.analysis import LEFT_OUT
from analyzer.text import listed

# Annotations, as written or evaluated, of what is fed: none at all, or a tensor among others.
_TENSOR = "Tensor"


def left_out(user: UserModel, inputs: ExampleInputs) -> tuple[str, ...]:
    """A note on the arguments of the user's own ``forward`` that stay None and could be tensors.

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
        and (item.annotation is item.empty or _TENSOR in str(item.annotation))
    ]
    if not names:
        return ()
    given = " ".join(f"--input {name}=..." for name in names)
    verb, it = ("was", "gives it") if len(names) == 1 else ("were", "gives them")
    return (f"{listed(names)} {verb} {LEFT_OUT}; {given} {it}.",)
