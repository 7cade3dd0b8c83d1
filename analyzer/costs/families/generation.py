"""Counting text generation: ONNX Runtime's operators that run a decoder, a subgraph, again and again."""

from __future__ import annotations

from analyzer.costs.cost import ZERO, Cost, cost, dims, out, value
from analyzer.costs.families.control_flow import times
from analyzer.costs.families.per_element import CONTRIB, moves, per_output
from analyzer.costs.registry import count_graph, rule
from analyzer.graph import Node

_STEPS = (
    "no sequence ends before max_length; each step costs what the decoder's declared shapes say, open sizes 1"
)


@rule("GreedySearch", "Sampling", domain=CONTRIB, assumes=_STEPS)
def greedy_search(node: Node) -> Cost:
    """(max_length - prompt) * decoder * batch, and one run of init_decoder or encoder where there is one."""
    return _generate(node, beams=1)


@rule("BeamSearch", "WhisperBeamSearch", domain=CONTRIB, assumes=_STEPS)
def beam_search(node: Node) -> Cost:
    """(max_length - prompt) * decoder * batch * beams.

    And one run of init_decoder or encoder where there is one.
    """
    beams = value(node.input(3))
    return _generate(node, beams=int(beams[0]) if beams else 1)


def _generate(node: Node, *, beams: int) -> Cost:
    # Input_ids, max_length; num_beams is 3 where there are beams (core/graph/contrib_ops/contrib_defs.cc).
    prompt = dims(node.inputs[0])
    longest = value(node.input(1))
    # A decoder without encoder goes on from the prompt, whose tokens count towards max_length. With an encoder
    # the prompt is what that reads, and the decoder begins with one token.
    is_text = len(prompt) == 2 and "encoder" not in node.graphs
    steps = max(int(longest[0]) - (prompt[1] if is_text else 1), 1) if longest else 1
    total = times(count_graph(node.graphs["decoder"]), steps * prompt[0] * beams)
    for name in ("init_decoder", "encoder"):
        graph = node.graphs.get(name)
        total += times(count_graph(graph), prompt[0]) if graph is not None else ZERO
    return total


per_output(
    {
        "BifurcationDetector": (0, "compares tokens; reads and writes them"),
        "NGramRepeatBlock": (0, "looks up n-grams; reads and writes the scores"),
        "SampleOp": (0, "an identity for tests; reads and writes"),
    },
    family=__name__,
    domain=CONTRIB,
)


moves({"MurmurHash3": "integer hashing of bytes, read and written once."}, family=__name__, domain=CONTRIB)


@rule("NGramHashMapping", "VarlenNGramHashMapping", domain=CONTRIB)
def ngram_hash(node: Node) -> Cost:
    """Outputs * (2 * max_ngram_size + 1): a product and an exclusive-or a shift, one remainder."""
    return cost(node, flops=out(node) * (2 * node.attributes.get("max_ngram_size", 2) + 1))
