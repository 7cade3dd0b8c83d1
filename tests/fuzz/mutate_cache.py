"""Entries of the cache of exports that nobody should write, under the key of a model and with right digests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutate_graphs import graph_case
from mutate_records import VALUES, likely, strange
from mutation import Draw, scrambled
from seed_models import perceptron

from analyzer.loading import cache
from analyzer.loading.dependencies import Dependencies

MODULE = b"# Holds no model: where the entry is refused, that is said.\n"

FACTS: dict[str, Any] = {
    "name": "model", "source": "model.py", "symbol": "batch", "static_batch": None, "inputs_origin": "file",
    "guessed": [],
    "exporter": "torch.export", "parameters": 20, "parameter_bytes": 80, "batch_range": [1, None], "notes": [],
    "default_batch": 1,
}  # fmt: skip


def cache_case(seed: int) -> Callable[[Path], None]:
    """Forges the entry of ``model.py`` in a folder, as seen by a command that is started there."""
    draw = Draw(seed, 5)
    number = draw.below(2**31)
    proto = perceptron().SerializeToString() if draw.chance(0.4) else graph_case(number)
    facts = dict(FACTS)
    dependencies: dict[str, Any] = {
        "files": {},
        "folders": {},
        "environment": {},
        "imports": ("os",),
        "home": "",
    }
    # Half of all entries are right but for the graph: where a fact is wrong, nothing else is read.
    for _ in range(draw.few() if draw.chance(0.5) else 0):
        of = facts if draw.chance(0.75) else dependencies
        key = draw.among(list(of) or ["name"])
        way = draw.below(8)
        if way == 0:
            of.pop(key, None)
        elif way == 1:
            of[draw.text()] = draw.among(VALUES)
        elif way <= 5 and isinstance(of.get(key), (str, int)):
            of[key] = likely(of[key], draw)
        else:
            of[key] = strange(of.get(key), draw)
    entry = cache.CacheEntry(proto=proto, facts=facts, dependencies=forged(dependencies))
    damaged = draw.chance(0.1)

    def forge(folder: Path) -> None:
        key = cache.key(source=str((folder / "model.py").resolve()), name=None, opset=20, specs=[], batch=None)
        cache.keep(key, entry)
        for path in cache.cache_folder().glob(f"{key}-*") if damaged else ():
            path.write_bytes(scrambled(path.read_bytes(), Draw(seed, 6)))

    return forge


def forged(parts: dict[str, Any]) -> Dependencies:
    """Dependencies of any types: no check stands between them and the entry."""
    whole = Dependencies()
    for name, item in parts.items():
        if name in Dependencies.__dataclass_fields__:
            object.__setattr__(whole, name, item)
    return whole
