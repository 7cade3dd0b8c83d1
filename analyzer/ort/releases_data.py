"""The releases of ONNX Runtime whose kernel registries the analyzer carries, and how they are read.

``data/ort_kernels_<version>.json`` is the newest release's whole listing, ``data/ort_kernels_older.json`` what
is another in each older one, told from the release after it. ``tests/judge/rebuild_registry.py`` writes both
from the release wheels, and with each release the digest of its whole listing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

REGISTRY_VERSION = "1.31.1"
"""The newest release: what everything is worked out by where no other is asked for."""

OLDER = "ort_kernels_older.json"


def releases() -> tuple[str, ...]:
    """Every release whose registry is known, oldest first."""
    older = [str(difference["version"]) for difference in _older()["releases"]]
    return (*reversed(older), REGISTRY_VERSION)


@cache
def listing(version: str) -> Mapping[str, Any]:
    """The kernels and schemas of one of ``releases()``, as ``tests/judge/rebuild_registry.py`` lists them."""
    if version == REGISTRY_VERSION:
        return _read(f"ort_kernels_{REGISTRY_VERSION}.json")
    whole = {**listing(REGISTRY_VERSION)}
    # Differences name their types behind those of the whole listing.
    whole["types"] = [*whole["types"], *_older()["types"]]
    for difference in _older()["releases"]:
        whole = _before(whole, difference)
        if difference["version"] == version:
            return whole
    raise KeyError(version)


def _before(newer: Mapping[str, Any], difference: Mapping[str, Any]) -> dict[str, Any]:
    """The listing of a release, from that of the next newer one."""
    plain = {name: value for name, value in difference.items() if name not in ("kernels", "schemas")}
    return {
        **newer,
        **plain,
        "host_memory": _changed(newer["host_memory"], difference["host_memory"]),
        "schemas": _changed_domains(newer["schemas"], difference["schemas"]),
        "kernels": {
            provider: _changed_domains(domains, difference["kernels"].get(provider, {}))
            for provider, domains in newer["kernels"].items()
        },
    }


def _changed_domains(domains: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    every = {
        domain: _changed(domains.get(domain, {}), changes.get(domain, {}))
        for domain in dict.fromkeys((*domains, *changes))
    }
    return {domain: operators for domain, operators in every.items() if operators}


def _changed(operators: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Rows by operator; None among the changes is an operator that is not there."""
    return {name: rows for name, rows in {**operators, **changes}.items() if rows is not None}


@cache
def _older() -> Mapping[str, Any]:
    return _read(OLDER)


def _read(name: str) -> Mapping[str, Any]:
    text = (files("analyzer.ort") / "data" / name).read_text(encoding="utf-8")
    data: Mapping[str, Any] = json.loads(text)
    return data
