"""``--fix last-logits``: a decoder's logits of its last token alone."""

from __future__ import annotations

from dataclasses import replace

from analyzer.conversion.last_logits import TOKENS, NoLogits, cut, last_logits
from analyzer.loading.runnable_files import link_external_data
from analyzer.measurement.applied_session import verify
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.pipeline.apply.fixes.bench import Bench, NotApplied, Stage
from analyzer.pipeline.apply.fixes.fixed import FixedStage


def cut_logits(stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    """The last row of what the last product reads, where earlier rows do not read later tokens."""
    import onnx

    found = last_logits(stage.prepared.graph)
    if isinstance(found, NoLogits):
        return NotApplied(why=found.why)
    side = to_message(SessionSide(model=stage.path))
    task = {
        "kind": "later_tokens",
        "applied": side,
        "feeds": str(bench.feeds),
        "output": found.output,
        "tokens": found.tokens,
    }
    read = verify([task], bench.progress)["later_tokens"]
    if "trouble" in read:
        return NotApplied(why=f"whether it is a decoder was not found out: {read['trouble']}")
    if not read["causal"]:
        return NotApplied(why="it is no decoder: earlier rows of its logits read later tokens")
    proto = onnx.load(str(stage.path), load_external_data=False)
    cut(proto, found)
    folder = bench.new_folder()
    link_external_data(proto, stage.path, folder)
    path = folder / stage.path.name
    path.write_bytes(proto.SerializeToString())
    terms = replace(stage.terms, last_rows={**stage.terms.last_rows, found.output: TOKENS})
    fixed = bench.stage(path, terms)
    if bench.where_faster and fixed.latency.value >= stage.latency.value:
        return NotApplied(why="the last row alone is predicted to take no less time")
    numbers = bench.numbers(path, terms)
    if not numbers["agrees"]:
        return NotApplied(why=numbers["why"], disagrees=True)
    return FixedStage(
        stage=fixed,
        what=f"The logits {found.output} hold the last of {found.tokens:,} tokens alone, "
        f"[batch, 1, {found.vocabulary:,}].",
        numbers=numbers,
    )
