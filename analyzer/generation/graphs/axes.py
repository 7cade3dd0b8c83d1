"""The symbolic axes of a decoder's inputs -> what each is: sequences, new tokens, what is cached, all tokens.

Names of axes are the exporter's own. What an axis is follows from the input that it belongs to, as Optimum,
transformers and ONNX Runtime GenAI write them: ``input_ids`` is [batch, tokens], ``attention_mask`` [batch, all
tokens], ``position_ids`` [batch, tokens], a cache [batch, heads, cached tokens, elements].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from analyzer.errors import UsageError
from analyzer.generation.request import StepSizes

Role = Literal["batch", "tokens", "past", "buffer", "context"]
AxisSize = int | str

_DYNAMIC = (
    "Export it with symbolic axes: torch.onnx.export(..., dynamo=True, dynamic_shapes=...) or optimum-cli "
    "export onnx --task text-generation-with-past; or give the folder with its config.json."
)
_WITH_PAST = (
    "Export it with its cache (optimum-cli export onnx --task text-generation-with-past, or ONNX Runtime "
    "GenAI's builder), or give the folder with its config.json."
)
_CACHE_AXES = {3: 1, 4: 2, 5: 3}
# Of five axes the first is key and value (onnxruntime/python/tools/transformers/models/gpt2/gpt2_helper.py).
_JOINED = 5
# What keeps no tokens: states of constant size.
_STATE = re.compile(r"conv|ssm|recurrent|(^|[^a-z])states?([^a-z]|$)")
_ENCODER = re.compile(r"encoder|cross")
# What a graph of both calls the ids of its decoder, whose own graph calls them input_ids.
_OF_BOTH = "decoder_input"
_FROM_CONFIG = "Give the model's config.json instead: encoder and decoder are predicted from it."


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """An input as a file declares it.

    A size is a number, or the name of a symbolic axis.
    """

    name: str
    shape: tuple[AxisSize, ...]
    is_integer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptInput:
    """An input that is what an earlier step has left.

    ``axis`` is the one that grows with the tokens; None of a state of constant size.
    """

    name: str
    axis: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Every symbolic axis of a decoder.

    Attributes:
        roles: By the axis's name.
        caches: Inputs that are the past.
        unknown: Names of axes that nothing tells of: they are 1.
        grows: Whether a step writes its caches anew, longer by the new tokens.
    """

    roles: Mapping[str, Role]
    caches: tuple[KeptInput, ...]
    unknown: tuple[str, ...] = ()
    grows: bool = True

    def sizes(self, step: StepSizes) -> dict[str, int]:
        """Each axis in a step."""
        known: dict[Role, int] = {
            "batch": step.batch,
            "tokens": step.tokens,
            "past": step.context - step.tokens,
            "buffer": step.context,
            "context": step.context,
        }
        return {**{name: known[role] for name, role in self.roles.items()}, **dict.fromkeys(self.unknown, 1)}


def axes_of(inputs: Sequence[GivenInput], *, name: str, shared: bool) -> Axes:
    """Return the meaning of the axes.

    ``shared`` says whether past and present of a cache are one buffer, as long as the whole context.

    Raises:
        UsageError: An axis that must vary is fixed, or there is no cache.
    """
    roles: dict[str, Role] = {}
    caches: list[KeptInput] = []
    # Ids first: their axes are certain; where a name stands for two things, the first counts.
    certain: tuple[list[GivenInput], ...] = ([], [], [])
    for given in inputs:
        certain[1 if _is_cache(given) else 2 if "mask" in given.name.lower() else 0].append(given)
    for given in chain.from_iterable(certain):
        if _ENCODER.search(given.name.lower()):
            raise UsageError(
                f"{name}: {given.name} comes from an encoder: such a decoder alone is not predicted.",
                hint=_FROM_CONFIG,
            )
        if _OF_BOTH in given.name.lower():
            raise UsageError(
                f"{name}: {given.name} is the decoder's part of a graph that has an encoder too: "
                "such a graph is not predicted.",
                hint=_FROM_CONFIG,
            )
        if _is_cache(given):
            caches.append(_cache(given, roles, name, shared=shared))
        else:
            for axis, role in _roles(given):
                _take(roles, given, axis, role, name)
    if not caches:
        raise UsageError(
            f"{name} is a model without a cache: no input is the past of an earlier step.", hint=_WITH_PAST
        )
    every = (size for given in inputs for size in given.shape if isinstance(size, str))
    unknown = tuple(dict.fromkeys(size for size in every if size not in roles))
    return Axes(roles=roles, caches=tuple(caches), unknown=unknown, grows=not shared)


# What an export of ours calls them (``loading/decoder_export.py``).
OWN_NAMES: Mapping[str, Role] = {"batch": "batch", "tokens": "tokens", "past": "past", "context": "context"}


def named_axes(inputs: Sequence[GivenInput], cached: Iterable[str], *, name: str) -> Axes:
    """Return the axes of an export of ours, which names them by what they are.

    ``cached`` are inputs whose next value a step returns.

    Raises:
        UsageError: There is no cache.
    """
    names = set(cached)
    caches = [
        KeptInput(
            name=given.name,
            axis=next((axis for axis, size in enumerate(given.shape) if size in ("past", "context")), None),
        )
        for given in inputs
        if given.name in names or (not given.is_integer and "past" in given.shape and _is_cache(given))
    ]
    if not caches:
        raise UsageError(
            f"{name} is a model without a cache: no output is an input one step later.", hint=_RETURN
        )
    grown = any("past" in given.shape for given in inputs)
    return Axes(roles=OWN_NAMES, caches=tuple(caches), grows=grown)


_RETURN = "Let example_inputs(batch, tokens, past) give the cache, and the model return it with the new tokens."


def without_partner(pasts: Iterable[str], presents: Mapping[str, str], *, name: str) -> None:
    """Refuse a cache that no step hands on."""
    missing = [past for past in pasts if past not in presents]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UsageError(
            f"{name}: the cache {missing[0]}{others} is not fed back: no output is its next value.",
            hint="Return it under a name such as present.0.key, with the new tokens in it.",
        )


def _is_cache(given: GivenInput) -> bool:
    name = given.name.lower()
    if any(word in name for word in ("mask", "position", "embed", "hidden_state")):
        return False
    # Quantised caches are integers; ids have two axes.
    return len(given.shape) >= min(_CACHE_AXES) and (not given.is_integer or "past" in name or "cache" in name)


def _roles(given: GivenInput) -> Iterable[tuple[int, Role]]:
    name, rank = given.name.lower(), len(given.shape)
    if "mask" in name:
        masks: dict[int, tuple[tuple[int, Role], ...]] = {
            2: ((0, "batch"), (1, "context")),
            3: ((0, "batch"), (1, "tokens"), (2, "context")),
            4: ((0, "batch"), (2, "tokens"), (3, "context")),
        }
        return masks.get(rank, ())
    if "position" in name and rank != 2:
        # One row for all sequences (``cache_position``), or several rows of each token (Qwen 2 VL's).
        return ((0, "tokens"),) if rank == 1 else ((rank - 2, "batch"), (rank - 1, "tokens"))
    if given.is_integer and rank > 1 and "seqlens" not in name:
        return ((0, "batch"), (1, "tokens"))
    if not given.is_integer and rank == min(_CACHE_AXES):  # embedded already
        return ((0, "batch"), (1, "tokens"))
    return ((0, "batch"),) if rank and "total" not in name and "length" not in name else ()


def _take(roles: dict[str, Role], given: GivenInput, axis: int, role: Role, name: str) -> None:
    size = given.shape[axis]
    if isinstance(size, str):
        roles.setdefault(size, role)
    elif len(given.shape) > 1 and not (role == "tokens" and "mask" in given.name.lower()):
        # A list of one element may be a switch (use_cache_branch of Optimum's merged decoders).
        raise _fixed(given, axis, role, name)


_STANDS_FOR: Mapping[Role, str] = {
    "batch": "the sequences",
    "tokens": "the new tokens",
    "past": "the cached tokens",
    "buffer": "the cached tokens",
    "context": "all tokens",
}


def _fixed(given: GivenInput, axis: int, role: Role, name: str) -> UsageError:
    return UsageError(
        f"{name}: axis {axis} of {given.name} ({_STANDS_FOR[role]}) is fixed to {given.shape[axis]}: steps of "
        "other sizes cannot be inferred from it.",
        hint=_DYNAMIC,
    )


def _cache(given: GivenInput, roles: dict[str, Role], name: str, *, shared: bool) -> KeptInput:
    rank = len(given.shape)
    _take(roles, given, 1 if rank == _JOINED else 0, "batch", name)
    role: Role = "buffer" if shared else "past"
    symbols = [
        (axis, size)
        for axis, size in enumerate(given.shape)
        if isinstance(size, str) and roles.get(size) not in ("batch", "tokens")
    ]
    cached = [axis for axis, size in symbols if re.search(r"past|seq|len|total|context", str(size).lower())]
    usual = _CACHE_AXES.get(rank, 2)
    axis = next(iter(cached), None)
    if axis is None:
        axis = (
            usual if any(usual == position for position, _ in symbols) else next((a for a, _ in symbols), None)
        )
    if axis is None:
        if _STATE.search(given.name.lower()):
            return KeptInput(name=given.name, axis=None)
        raise _fixed(given, usual, role, name)
    _take(roles, given, axis, role, name)
    return KeptInput(name=given.name, axis=axis)
