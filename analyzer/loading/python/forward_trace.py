"""The graph of a model's ``forward`` by ``torch.fx``, as far as it can be recorded without tensors."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analyzer.loading.torch_private import autowrap, tensor_factories

if TYPE_CHECKING:
    from torch import fx
    from torch.fx import Graph, Node
    from torch.nn import Module

# Far above the first readers of usual models, in a tenth of a second.
_MOST_NODES = 1000
# Conditions that depend on values count as false, then as true where that ends in an error.
_MOST_TRACES = 6


def longest_graph(model: Module, names: Sequence[str]) -> tuple[Graph, frozenset[str]]:
    """Return what is recorded of a ``forward`` before an error, and the inputs that are conditions."""
    from torch import fx

    longest, flags = fx.Graph(), set[str]()
    decisions: list[bool] = []
    for _ in range(_MOST_TRACES):
        tracer: Any = _tracer(model, names, decisions)
        ended = True
        try:
            tracer.trace(model)
        except OverflowError:
            pass
        except Exception:  # whatever a forward raises that is given no tensors
            ended = False
        graph = getattr(tracer, "graph", longest)
        longest = graph if len(graph.nodes) > len(longest.nodes) else longest
        flags |= tracer.flags
        while tracer.taken and tracer.taken[-1]:
            tracer.taken.pop()
        if ended or not tracer.taken:
            break
        decisions = [*tracer.taken[:-1], True]
    switches = [node.kwargs.get("training") for node in longest.nodes]
    flags |= {str(item.target) for item in switches if isinstance(item, fx.Node) and item.op == "placeholder"}
    return longest, frozenset(flags)


def _tracer(model: Module, names: Sequence[str], decisions: Sequence[bool]) -> fx.Tracer:
    """Return a tracer of a model's ``forward`` for which conditions that depend on values hold or not.

    Args:
        model: The model.
        names: Inputs that are traced in addition to those without a default.
        decisions: Whether the first conditions hold; further ones do not.
    """
    from torch import fx
    from torch.nn.utils import rnn

    signature = inspect.signature(model.forward)

    class Tracer(fx.Tracer):
        proxy_buffer_attributes = True

        def __init__(self) -> None:
            functions = (rnn.pack_padded_sequence, rnn.pad_packed_sequence, rnn.pad_sequence)
            super().__init__(autowrap_functions=(*tensor_factories(), *functions))
            autowrap(self, rnn)
            self.taken: list[bool] = []
            self.flags: set[str] = set()

        def is_leaf_module(self, m: Module, _: str) -> bool:
            return _is_leaf(m)

        def create_args_for_root(self, *_: object, **__: object) -> tuple[Any, list[Any]]:
            bound = signature.bind_partial()
            for name, item in signature.parameters.items():
                is_variadic = item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
                if name in names or (item.default is item.empty and not is_variadic):
                    bound.arguments[name] = self.create_proxy("placeholder", name, (), {})
            return lambda: model.forward(*bound.args, **bound.kwargs), []

        def create_node(self, *arguments: Any, **keywords: Any) -> Node:
            if len(self.graph.nodes) >= _MOST_NODES:
                raise OverflowError
            return super().create_node(*arguments, **keywords)

        def to_bool(self, obj: fx.Proxy) -> bool:
            if obj.node.op == "placeholder":
                self.flags.add(str(obj.node.target))
            position = len(self.taken)
            self.taken.append(position < len(decisions) and decisions[position])
            return self.taken[-1]

    return Tracer()


def is_of_transformers(layer: Module) -> bool:
    """Return whether a module is of Hugging Face's library, whose arguments have standard names."""
    return type(layer).__module__.startswith("transformers.")


def _is_leaf(layer: Module) -> bool:
    where = str(getattr(type(layer).forward, "__module__", ""))
    return is_of_transformers(layer) or (
        where.startswith("torch.nn.modules.") and not where.endswith(".container")
    )
