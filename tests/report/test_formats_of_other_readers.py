"""Formats that other programs read: a card for Hugging Face's hub, node data for Google's Model Explorer."""

import json
from dataclasses import replace
from typing import Any

import pytest
import ranking_records
import yaml

from analyzer.record.analysis import Analysis


@pytest.fixture
def analysis() -> Analysis:
    return ranking_records.analysis()


def _metadata(card: str) -> Any:
    _, head, _ = card.split("---\n", 2)
    return yaml.safe_load(head)


def test_a_card_has_the_answers_figures_and_its_text(analysis: Analysis) -> None:
    answer, card = analysis.answer, analysis.render("model-card")
    (index,) = _metadata(card)["model-index"]
    assert index["name"] == analysis.model.name
    values = {metric["type"]: metric["value"] for metric in index["results"][0]["metrics"]}
    assert values["latency_s"] == answer.latency_s
    assert values["usd_per_million"] == answer.usd_per_million
    assert set(values) == {name for name in values if getattr(answer, name) is not None}
    assert all(
        metric["name"].endswith(f"({answer.device_name}, {answer.origin})")
        for metric in index["results"][0]["metrics"]
    )
    assert f"## {analysis.model.name}: " in card


@pytest.mark.parametrize("latency_s", [5e-05, 1e-300, 1.25e-05, 0.5, 3.0, 1e22])
def test_every_number_of_a_card_is_a_number_for_yaml(analysis: Analysis, latency_s: float) -> None:
    # YAML 1.1, which PyYAML and so huggingface_hub read, takes 5e-05 for a text.
    assert analysis.answer is not None
    changed = replace(analysis, answer=replace(analysis.answer, latency_s=latency_s, low_s=0.0, high_s=2e22))
    (index,) = _metadata(changed.render("model-card"))["model-index"]
    assert index["results"][0]["metrics"][0]["value"] == latency_s


def test_huggingface_hub_reads_the_card(analysis: Analysis) -> None:
    hub = pytest.importorskip("huggingface_hub")
    named = replace(analysis, model=replace(analysis.model, name='a: "b" # c\n- d'))
    read = hub.ModelCard(named.render("model-card")).data
    assert read.model_name == 'a: "b" # c - d'
    assert read.eval_results[0].metric_value == analysis.answer.latency_s
    again = hub.ModelCardData(model_name=read.model_name, eval_results=read.eval_results, tags=read.tags)
    assert again.to_dict() == read.to_dict()


def test_a_card_without_an_answer_has_no_results(analysis: Analysis) -> None:
    assert _metadata(replace(analysis, answer=None).render("model-card")) == {"tags": ["pytorch"]}


# Of each object the keys and their types: dataclasses of model_explorer/node_data_builder.py,
# ai-edge-model-explorer 0.1.34. A `results` without another inside is a file for the graph that is shown
# (getNodeDataProviderData of node_data_provider_extension_service.ts).
_GRAPH = {"name": str, "results": dict, "gradient": list}
_RESULT = {"value": float}
_GRADIENT_ITEM = {"stop": int, "bgColor": str}


def test_node_data_has_the_schema_of_model_explorer_and_the_time_in_the_best_plan(analysis: Analysis) -> None:
    data = json.loads(analysis.render("model-explorer"))
    for schema, values in (
        (_GRAPH, [data]),
        (_RESULT, list(data["results"].values())),
        (_GRADIENT_ITEM, data["gradient"]),
    ):
        assert values
        for value in values:
            assert {key: type(item) for key, item in value.items()} == schema
    assert "results" not in data["results"]
    assert [item["stop"] for item in data["gradient"]] == [0, 1]
    for operator in analysis.operators:
        timed = operator.gpu if operator.placement == "gpu" else operator.cpu
        assert data["results"][operator.name]["value"] == pytest.approx(timed.time_s * 1e6)


def test_model_explorers_own_builder_takes_the_node_data(analysis: Analysis) -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder")
    data = json.loads(analysis.render("model-explorer"))
    graph = builder.GraphNodeData(
        name=data["name"],
        results={name: builder.NodeDataResult(**value) for name, value in data["results"].items()},
        gradient=[builder.GradientItem(**item) for item in data["gradient"]],
    )
    assert data.items() <= json.loads(graph.to_json_string()).items()
