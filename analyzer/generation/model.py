"""A decoder whose steps can be had at any sizes: of a known architecture, or a graph."""

from __future__ import annotations

from analyzer.generation.configured_model import ConfiguredModel
from analyzer.generation.graphs.graph_model import GraphModel

GeneratingModel = ConfiguredModel | GraphModel
