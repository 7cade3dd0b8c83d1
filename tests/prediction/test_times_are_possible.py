"""No time is negative and no interval reversed, whatever the sizes: laws that need no oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import prediction_graphs as made
import pytest
from hypothesis import given, settings
from session_totals import predict_total

from analyzer import prediction
from analyzer.costs.registry import rules
from analyzer.devices import catalogue
from analyzer.figures import Way
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.prediction.estimate import Estimate
from analyzer.record.outcome import RankedWay
from analyzer.training_operators.definition import DOMAIN

CPUS = [catalogue.device(slug) for slug in ("epyc-9654", "graviton3")]
GPUS = [catalogue.device(slug) for slug in ("t4", "l4", "h100")]


def check(one: Graph) -> None:
    """Predict the graph everywhere; a prediction that is no time raises."""
    for device in CPUS:
        for threads in (1, 8):
            times = prediction.predict_arrays(made.work(one, "cpu"), device, threads=threads)
            assert (times.low >= 0).all()
            assert (times.low <= times.value).all()
            assert (times.value <= times.high).all()
            assert math.isfinite(times.high.sum())
    for device in GPUS:
        for precision in ("fp32", "fp16"):
            prediction.predict_session(made.work(one), device, precision=precision).estimates()
            predict_total(made.work(one), device, precision=precision)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(sorted(GATES)),
    steps=st.sampled_from((0, 1, 2, 32)),
    batch=st.sampled_from((0, 1, 3, 64)),
    width=st.sampled_from((0, 1, 40, 1024)),
    hidden=st.sampled_from((1, 16, 512)),
    directions=st.sampled_from((1, 2)),
    layout=st.sampled_from((0, 1)),
    constant=st.booleans(),
)
def test_a_recurrence_takes_a_time_whatever_its_sizes(
    op: str, steps: int, batch: int, width: int, hidden: int, directions: int, layout: int, constant: bool
) -> None:
    rows = GATES[op] * hidden
    lead = (batch, steps) if layout else (steps, batch)
    out = (batch, steps, directions, hidden) if layout else (steps, directions, batch, hidden)
    inputs = [
        made.tensor("x", *lead, width),
        made.tensor("w", directions, rows, width, constant=constant),
        made.tensor("r", directions, rows, hidden, constant=constant),
        made.tensor("b", directions, 2 * rows, constant=constant),
    ]
    attributes = {
        "hidden_size": hidden,
        "layout": layout,
        "direction": "bidirectional" if directions == 2 else "",
    }
    check(made.graph(made.node(op, inputs, made.tensor("y", *out), **attributes)))


def test_one_step_of_a_recurrence_takes_no_less_than_reading_its_weights_from_the_nearest_cache() -> None:
    # 2 directions x 4 gates x 512 x (512 + 512) weights of 4 bytes: 16.8 MB. No core reads more than two
    # vectors of 64 bytes a clock: 128 x 3.7 GHz = 474 GB/s, 35 us on the one thread.
    inputs = [
        made.tensor("x", 1, 1, 512),
        *(made.tensor(name, 2, 2048, 512, constant=True) for name in "wr"),
    ]
    one = made.graph(made.node("LSTM", inputs, made.tensor("y", 1, 2, 1, 512), hidden_size=512))
    times = prediction.predict_arrays(made.work(one, "cpu"), CPUS[0], threads=1)
    assert times.low[0] > 35e-6


SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 8, 256)), max_size=5).map(tuple)
TENSORS = st.builds(
    lambda shape, dtype, constant: Tensor(
        name="", shape=shape, dtype=DTYPES[dtype], constant=constant, initializer=constant
    ),
    SHAPES,
    st.sampled_from(("float32", "float32", "float16", "int64", "int8", "bool")),
    st.booleans(),
)
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "axis": st.integers(-3, 4),
        "kernel_shape": st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
        "strides": st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
        "group": st.integers(1, 8),
        "num_heads": st.integers(1, 8),
        "mode": st.sampled_from(("nearest", "linear", "cubic", "CRD")),
        "antialias": st.integers(0, 1),
        "equation": st.sampled_from(("ij,jk->ik", "bij,bkj->bik", "ij->j")),
        "perm": st.permutations(range(4)).map(tuple),
        "hidden_size": st.integers(1, 64),
        "layout": st.integers(0, 1),
        "block_size": st.integers(0, 32),
        "blocksize": st.integers(1, 4),
        "k": st.integers(1, 8),
        "N": st.integers(0, 64),
        "K": st.integers(0, 64),
        "bits": st.sampled_from((2, 4, 8)),
        "num_groups": st.integers(1, 8),
        "transB": st.integers(0, 1),
    },
)


@settings(max_examples=100, deadline=None)
@given(
    rule=st.sampled_from(
        # Operators of a training step are made by this program alone, and never malformed.
        [(rule.domain, rule.op_type) for rule in rules() if rule.domain != DOMAIN]
    ),
    inputs=st.lists(TENSORS, max_size=5),
    outputs=st.lists(TENSORS, min_size=1, max_size=3),
    attributes=ATTRIBUTES,
)
def test_an_operator_takes_a_time_whatever_its_sizes_types_and_attributes(
    rule: tuple[str, str], inputs: list[Tensor], outputs: list[Tensor], attributes: dict[str, Any]
) -> None:
    one = Node(
        index=0,
        name="n0",
        op_type=rule[1],
        domain=rule[0],
        version=20,
        inputs=tuple(replace(tensor, name=f"i{place}") for place, tensor in enumerate(inputs)),
        outputs=tuple(
            replace(tensor, name=f"o{place}", constant=False, initializer=False)
            for place, tensor in enumerate(outputs)
        ),
        attributes=attributes,
    )
    check(made.graph(one))


def test_bytes_of_stored_integers_are_read_by_one_part_of_an_attention() -> None:
    query = made.tensor("q", 8, 4, 64, dtype="int8", constant=True)
    check(made.graph(made.node("Attention", [query], made.tensor("y", 8, 4, 64), num_heads=2)))


def test_experts_of_no_tokens_are_no_fault() -> None:
    inputs = [made.tensor("x"), made.tensor("r", 256, 0), made.tensor("w", 0, 8, constant=True)]
    check(made.graph(made.node("MoE", [*inputs, made.tensor("b", 3)], made.tensor("y"))))


@pytest.mark.parametrize(
    "figures",
    [(2.0, 1.0, 3.0), (1.0, 3.0, 2.0), (-2.0, -1.0, 3.0), (-1.0, 1.0, 2.0), (math.nan,) * 3, (0, 1, math.nan)],
)
def test_what_is_no_time_is_refused_where_it_is_made(figures: tuple[float, float, float]) -> None:
    low, time, high = figures
    with pytest.raises(ValueError, match="no figure"):
        Estimate(value=time, low=low, high=high, origin="predicted")


def test_dollars_whose_ends_rounding_put_past_them_are_a_figure_all_the_same() -> None:
    """A run without spread: usd * time / time is now and then the next number above usd."""
    above = math.nextafter(0.1, 1)
    way = Way(usd_per_million=0.1, usd_low_per_million=above, usd_high_per_million=above)
    assert way.dollars.ends == (0.1, 0.1, above)


def test_an_interval_of_a_strangers_record_that_lacks_its_value_is_no_fault_of_ours() -> None:
    cell = RankedWay(device="l4", kind="gpu", plan="gpu", latency_s=1.0, low_s=2.0, high_s=3.0)
    assert cell.latency.ends == (1.0, 1.0, 3.0)
