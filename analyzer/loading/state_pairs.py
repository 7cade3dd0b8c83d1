"""State of a model that generates: inputs that are the past of outputs (key-value caches, recurrent state).

From one run to the next a program hands such an output back as that input: it stays on the device that made
it. Nothing in ONNX says so, hence it is told by names and by what writes the output. What only has the same
shape is no state: an image and the image made of it, the input of a block and its output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from analyzer.errors import UsageError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor
from analyzer.operators import CONTRIB_DOMAIN, is_view
from analyzer.text import did_you_mean

# What a name says besides which tensor it is: of the past, and of the present. ONNX Runtime GenAI, Optimum and
# transformers write past_key_values.0.key and present.0.key, past_key_self_0 and present_key_self_0; others a
# prefix or a suffix of their own.
_PAST = frozenset({"past", "prev", "previous", "old"})
_PRESENT = frozenset({"present", "new", "next", "updated"})
_WEAK_PAST = frozenset({"in", "input", "init", "initial"})
_WEAK_PRESENT = frozenset({"out", "output", "final"})
# One word of the format, in which "key" and "values" name no tensor.
_WHOLE = re.compile(r"(past|present)_key_values?")
# Ways to write one state: of PyTorch's h_0 and h_n what is left is h.
_SPELT = re.compile(r"(h|c)_?[0n]|(state)n")
# Neither key and value nor memory, which are inputs of any attention; c counts beside h alone.
_STATE = frozenset({"state", "states", "cache", "caches", "kv", "hidden", "cell", "h", "hx", "cx"})
# What a block of a transformer is given and gives, and what a policy sees.
_NO_STATE = re.compile(r"hidden_states?|^states$")
# What keeps the same elements, or some of them, in another place; a Cast in another type.
_CARRIES_ON = frozenset({"Transpose", "Cast", "Slice", "Split", "Expand"})
_SCATTERS = frozenset({"ScatterND", "ScatterElements", "Scatter", "TensorScatter"})
# Operators that one follows: a state lies behind few views, and a stranger's graph may have thousands in a row.
_FARTHEST = 50
# By operator, pairs of the input that is the past and the output that is the present, by position: schemas of
# ONNX 1.23 (onnx/defs/nn/defs.cc, onnx/defs/rnn/defs.cc) and of ONNX Runtime 1.31.1
# (onnxruntime/core/graph/contrib_ops/bert_defs.cc).
_SLOTS: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = {
    (DEFAULT_DOMAIN, "Attention"): ((4, 1), (5, 2)),
    (DEFAULT_DOMAIN, "LSTM"): ((5, 1), (6, 2)),
    (DEFAULT_DOMAIN, "GRU"): ((5, 1),),
    (DEFAULT_DOMAIN, "RNN"): ((5, 1),),
    (CONTRIB_DOMAIN, "GroupQueryAttention"): ((3, 1), (4, 2)),
    (CONTRIB_DOMAIN, "SparseAttention"): ((3, 1), (4, 2)),
    (CONTRIB_DOMAIN, "PagedAttention"): ((3, 1), (4, 2)),
    (CONTRIB_DOMAIN, "MultiHeadAttention"): ((6, 1), (7, 2)),
    (CONTRIB_DOMAIN, "DecoderMaskedMultiHeadAttention"): ((5, 1), (6, 2)),
    (CONTRIB_DOMAIN, "Attention"): ((4, 1),),
    (CONTRIB_DOMAIN, "DecoderMaskedSelfAttention"): ((4, 1),),
    (CONTRIB_DOMAIN, "QAttention"): ((8, 1),),
}


def state_pairs(graph: Graph) -> dict[str, str]:
    """Return the state of a graph of inference: by input, the output that is its next value.

    A cache that never changes, as that of a cross attention, is its own next value where it is no output.
    """
    inputs = [tensor for tensor in graph.inputs if tensor.shape]
    outputs = [tensor for tensor in graph.outputs if tensor.shape and not tensor.constant]
    pairs = dict(_unambiguous(_by_name(inputs, outputs)))
    for pairing in (_by_writer, _by_order):
        left_inputs = [tensor for tensor in inputs if tensor.name not in pairs]
        left_outputs = [tensor for tensor in outputs if tensor.name not in pairs.values()]
        if left_inputs and left_outputs:
            pairs |= _unambiguous(pairing(graph, left_inputs, left_outputs))
    pairs |= _unchanged(inputs, pairs)
    # In the order of the inputs, whichever way told of them.
    return {tensor.name: pairs[tensor.name] for tensor in inputs if tensor.name in pairs}


def corrected(graph: Graph, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the pairs that are found, with those that a user gave in their place or besides them.

    Raises:
        UsageError: A name is none of the graph's, or the two cannot be one tensor at two times.
    """
    pairs = state_pairs(graph)
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    outputs = {tensor.name: tensor for tensor in graph.outputs}
    for past, present in given:
        option = f"--state {past}={present}"
        before = _named(past, inputs, option, "input")
        after = before if past == present else _named(present, outputs, option, "output")
        if not is_next(before, after):
            raise UsageError(
                f"{option}: {_shown(before)} cannot be {_shown(after)} one run earlier.",
                hint="Both need the same type and the same axes; one axis may grow.",
            )
        pairs = {name: new for name, new in pairs.items() if name != past and new != present}
        pairs[past] = present
    return {name: pairs[name] for name in inputs if name in pairs}


def _named(name: str, known: Mapping[str, Tensor], option: str, kind: str) -> Tensor:
    if name in known:
        return known[name]
    hint = did_you_mean(name, known, f"Its {kind}s are {', '.join([*known][:8])}.")
    raise UsageError(f"{option}: the model has no {kind} {name!r}.", hint=hint)


def _shown(tensor: Tensor) -> str:
    sizes = (
        "?" if tensor.shape is None else "x".join("?" if size is None else str(size) for size in tensor.shape)
    )
    return f"{tensor.name} ({tensor.dtype.name} {sizes})"


def is_next(past: Tensor, present: Tensor) -> bool:
    """Return whether a tensor may be another a run later: of its type and axes, one maybe longer."""
    before, after = past.shape, present.shape
    if past.dtype != present.dtype or before is None or after is None or len(before) != len(after):
        return False
    changed = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
    return not changed or (
        len(changed) == 1 and all(one is None or two is None or two > one for one, two in changed)
    )


def _unambiguous(candidates: Iterable[tuple[Tensor, Tensor]]) -> dict[str, str]:
    """Of pairs those that fit, and of which neither side has another partner."""
    fitting = {(past.name, present.name) for past, present in candidates if is_next(past, present)}
    pasts = Counter(past for past, _ in fitting)
    presents = Counter(present for _, present in fitting)
    return {past: new for past, new in fitting if pasts[past] == presents[new] == 1}


def _words(name: str) -> tuple[str, ...]:
    plain = _WHOLE.sub(r"\1", name.lower())
    spelt = _SPELT.fullmatch(plain)
    plain = (spelt[1] or spelt[2]) if spelt else plain
    return tuple(word for word in re.split(r"[^a-z0-9]+", plain) if word)


def _is_named_state(words: tuple[str, ...]) -> bool:
    return not _STATE.isdisjoint(words) and not _NO_STATE.search("_".join(words))


def _by_name(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield names that are the same but for the word that says past or present."""
    presents: dict[tuple[str, ...], list[Tensor]] = {}
    for tensor in outputs:
        words = _words(tensor.name)
        rest = _without(words, _PRESENT)
        # h_out says less than new_h: as state alone it is the next h.
        presents.setdefault(_without(rest, _WEAK_PRESENT) if _is_named_state(rest) else rest, []).append(tensor)
    for tensor in inputs:
        words = _words(tensor.name)
        rest = _without(words, _PAST)
        if _is_named_state(rest) or rest == ("c",):
            rest = _without(rest, _WEAK_PAST)
        elif "past" not in words:
            continue  # an image and a new image
        result = presents.get(rest, [])
        if len(result) == 1 and (not _PRESENT.isdisjoint(_words(result[0].name)) or _is_named_state(rest)):
            yield tensor, result[0]


def _without(words: tuple[str, ...], marks: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in marks)


def _unchanged(inputs: Iterable[Tensor], pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the encoder's caches, which no output renews, of a model whose decoder caches outputs renew."""
    result = {}
    siblings = {_words(name) for name in pairs}
    for tensor in inputs:
        words = _words(tensor.name)
        if tensor.name in pairs or not _PAST.intersection(words):
            continue
        own = [
            tuple({cross: word}.get(each, each) for each in words)
            for cross, word in (("encoder", "decoder"), ("cross", "self"))
            if cross in words
        ]
        if siblings.intersection(own):
            result[tensor.name] = tensor.name
    return result


class _Walker:
    """Follows tensors back to the inputs that they are, or were before something was added."""

    def __init__(self, graph: Graph, inputs: Iterable[Tensor]) -> None:
        self._graph = graph
        self._inputs = {tensor.name: number for number, tensor in enumerate(inputs)}
        self.of_operators: set[str] = set()  # what an operator's own state was found to be

    @cached_property
    def _depends(self) -> Mapping[str, int]:
        """By tensor, the inputs that it depends on, a bit each: one pass over the graph for all of them."""
        depends = {name: 1 << number for name, number in self._inputs.items()}
        for node, names in zip(self._graph.nodes, self._graph.names_read, strict=True):
            mask = 0
            for name in names:
                mask |= depends.get(name, 0)
            if mask:
                depends.update((tensor.name, mask) for tensor in node.present_outputs)
        return depends

    def depends(self, tensor: Tensor, name: str) -> bool:
        """Return whether a tensor depends on an input."""
        return bool(self._depends.get(tensor.name, 0) >> self._inputs[name] & 1)

    def origin(self, tensor: Tensor | None) -> str | None:
        """Return the input whose elements a tensor holds, or some of them; None where it is computed."""
        for _ in range(_FARTHEST):
            if tensor is None or tensor.name in self._inputs:
                break
            node = self._writer(tensor)
            tensor = node.input(0) if node is not None and _carries_on(node) else None
        return tensor.name if tensor is not None and tensor.name in self._inputs else None

    def past(self, tensor: Tensor, *, part: bool = False, read: bool = False) -> str | None:
        """Return the input of that a tensor is the next value, by what wrote it; None where that tells nothing.

        Args:
            tensor: A result of the model, or a part of one.
            part: Whether it is a part.
            read: Whether the model itself is known to read it.
        """
        expected = int(part)
        for _ in range(_FARTHEST):
            node = self._writer(tensor)
            if node is None:
                break
            read = read or len(self._graph.consumers.get(tensor.name, ())) > expected
            slot = self._of_slot(node, tensor)
            if slot is not None:
                return slot
            source = node.input(0)
            if not _carries_on(node) or source is None:
                return self._of_update(node, read=read, part=part)
            tensor, expected = source, 1
        return None

    def _writer(self, tensor: Tensor) -> Node | None:
        index = self._graph.producer.get(tensor.name)
        return None if index is None else self._graph.nodes[index]

    def _of_slot(self, node: Node, tensor: Tensor) -> str | None:
        for past, present in _SLOTS.get(node.identity, ()):
            output = node.output(present)
            if output is not None and output.name == tensor.name:
                result = self.origin(node.input(past))
                self.of_operators.update(() if result is None else (result,))
                return result
        return None

    def _of_update(self, node: Node, *, read: bool, part: bool) -> str | None:
        if node.domain != DEFAULT_DOMAIN:
            return None
        if node.op_type == "Concat":
            # The states of several layers one after the other: every part is the next value of the same input.
            parts = {None if part or tensor is None else self.past(tensor, part=True) for tensor in node.inputs}
            if len(node.inputs) > 1 and len(parts) == 1 and None not in parts:
                return parts.pop()
            # Of two axes it is features side by side.
            wide = any(len(tensor.shape or ()) > 2 for tensor in node.present_outputs)
            return self._updated(node.inputs, node.inputs) if wide and read else None
        if node.op_type in _SCATTERS and read:
            return self._updated(node.inputs[:1], node.inputs[1:], nested=not part)
        if node.op_type == "Where" and read:
            return self._updated(node.inputs[1:], node.inputs[1:])
        return None

    def _updated(
        self, old: Sequence[Tensor | None], added: Sequence[Tensor | None], *, nested: bool = False
    ) -> str | None:
        """Return the one input that is kept, where what is added does not follow from it.

        What a network makes of its input and joins to it (a skip connection, a mask over an image) does follow
        from it; the keys and values of a new token do not follow from those that they join.
        """
        origins = {tensor.name: self.origin(tensor) for tensor in old if tensor is not None}
        result = {name for name in origins.values() if name is not None}
        if len(result) != 1:
            return None
        past = result.pop()
        others = [tensor for tensor in added if tensor is not None and origins.get(tensor.name) != past]
        following = [tensor for tensor in others if self.depends(tensor, past)]
        if nested:  # ``cache[:, :, at] = new`` writes the whole cache back, with the new rows in it
            following = [each for each in following if self.past(each, part=True, read=True) != past]
        # A constant that is joined (a token for the class, padding) is no next part of a past.
        new = any(tensor.name in self._depends for tensor in others)
        return past if new and not following else None


def _carries_on(node: Node) -> bool:
    return is_view(node) or (node.domain == DEFAULT_DOMAIN and node.op_type in _CARRIES_ON)


def _by_writer(
    graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield outputs that an operator with a state writes, or an input with something added or replaced."""
    by_name = {tensor.name: tensor for tensor in inputs}
    walker = _Walker(graph, graph.inputs)
    pasts = [(walker.past(output), output) for output in outputs]
    pairs = [(by_name[past], output) for past, output in pasts if past in by_name]
    # Keys come with values: one tensor alone to which another is joined may be a picture before its text.
    several = len({past.name for past, _ in pairs}) > 1
    for past, output in pairs:
        words = _words(past.name)
        if several or past.name in walker.of_operators or _is_named_state(words) or "past" in words:
            yield past, output


def _by_order(
    graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs named as state, and as many outputs of the same shape that follow from them, in order.

    An export of PyTorch names its outputs after what wrote them: of ``forward(x, h, c)`` the input's names are
    all that tells. The model needs an input and an output beside its state.
    """
    words = {tensor.name: _words(tensor.name) for tensor in inputs}
    has_h = any("h" in each for each in words.values())
    named = [
        tensor
        for tensor in inputs
        # A lone `state` may as well be that of what a model looks at, as of a controller: ``state, action``.
        if (_is_named_state(words[tensor.name]) and words[tensor.name] != ("state",))
        or "past" in words[tensor.name]
        or (has_h and words[tensor.name] == ("c",))
    ]
    if not named or len(named) == len(graph.inputs):
        return
    walker = _Walker(graph, graph.inputs)
    kinds = {(tensor.dtype, tensor.shape): None for tensor in named}
    pairs: list[tuple[Tensor, Tensor]] = []
    for dtype, shape in kinds:
        pasts = [tensor for tensor in named if (tensor.dtype, tensor.shape) == (dtype, shape)]
        presents = [tensor for tensor in outputs if (tensor.dtype, tensor.shape) == (dtype, shape)]
        if len(pasts) == len(presents) and all(map(walker.depends, presents, [past.name for past in pasts])):
            pairs += zip(pasts, presents, strict=True)
    if len(pairs) < len(graph.outputs):
        yield from pairs
