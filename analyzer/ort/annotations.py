"""Annotations that tell a session where nodes go: in the model a word on each, in the session its meaning.

ONNX Runtime's ``layering_annotations.cc``: the metadata property ``layer_ann`` of a node is looked up in the
session's entry ``session.layer_assignment_settings``; a node whose word belongs to one provider is hidden from
the others. An equals sign asks for the whole word.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

KEY = "layer_ann"
ON_CPU = "to_cpu"
ENTRY = "session.layer_assignment_settings"
SETTINGS = {ENTRY: f"cpu(={ON_CPU})"}


def annotate(proto: onnx.ModelProto, names: Collection[str]) -> int:
    """Marks nodes of a model for the CPU, in place; returns how many it found.

    An annotation that a node has already is replaced: the model may come from an earlier plan.
    """
    found = 0
    for node in proto.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != KEY]
        if len(kept) < len(node.metadata_props):
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
        if node.name in names:
            node.metadata_props.add(key=KEY, value=ON_CPU)
            found += 1
    return found
