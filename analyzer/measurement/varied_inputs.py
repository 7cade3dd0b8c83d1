"""More inputs of a model, made from one set of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def varied(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Other inputs that are as good: floats drawn anew as wide as they were, all else in another order.

    Each ``seed`` gives others, the same in every run.
    """
    import numpy as np

    generator = np.random.default_rng(seed)

    def drawn(value: Any) -> Any:
        if isinstance(value, list):
            return [drawn(element) for element in value]
        if value.dtype.kind == "f" and value.size:
            finite = value[np.isfinite(value)].astype(np.float64)
            if finite.size:
                floats = generator.normal(finite.mean(), finite.std(), value.shape)
                return np.clip(floats, finite.min(), finite.max()).astype(value.dtype)
        # Indices and masks stay valid where only their order changes.
        return generator.permuted(value.reshape(-1)).reshape(value.shape)

    return {name: drawn(value) for name, value in given.items()}


def later_changed(given: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """Inputs that differ in the last of so many tokens (the second axis) alone; empty where none has them."""
    import numpy as np

    changed = dict(given)
    found = False
    for name, value in given.items():
        # Tokens are numbers, [batch, tokens], or embedded, with a third axis; a cache has four.
        if isinstance(value, list) or value.ndim not in (2, 3) or value.shape[1] != tokens:
            continue
        if value.dtype.kind not in "fiu":
            continue
        other = value.copy()
        last = value[:, -1]
        low, high = value.min(), value.max()
        # What a value was allowed to be it still is: between the least and the largest. Where all are one value
        # nothing says what else is allowed; 0 and 1 of a mask change places.
        if value.dtype.kind == "f":
            other[:, -1] = low + high - last if low < high else 1 - last
        else:
            first, final = (int(low), int(high)) if low < high else (0, max(1, int(high)))
            other[:, -1] = first + (last.astype(np.int64) - first + 1) % (final - first + 1)
        changed[name] = other
        found = True
    return changed if found else {}
