"""Loading: output types of ``ai.onnx.ml``, of which ONNX's inference tells few: as many rows out as in.

As ONNX Runtime 1.31.1's kernels write them (``onnxruntime/core/providers/cpu/ml``), which the tests ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from analyzer.graph import DTYPES, Dim, DType, Tensor
from analyzer.loading.shape_inference.onnx_inference import AttributeMap, InputTensors
from analyzer.loading.shape_inference.protobuf_values import Type

_FLOAT, _INTEGER, _STRING = DTYPES["float32"], DTYPES["int64"], DTYPES["string"]


def classical_types(op_type: str, inputs: InputTensors, attributes: AttributeMap) -> Sequence[Type | None]:
    """The types of an operator's outputs; empty for one that is not known or whose input's rank is open."""
    rule, data = _RULES.get(op_type), inputs[0] if inputs else None
    if rule is None or data is None or data.shape is None or not data.shape:
        return ()
    try:
        return rule(data, inputs, attributes)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):  # attributes that fit no model
        return ()


def _rows(data: Tensor) -> Dim:
    """A row of features alone has one axis."""
    assert data.shape is not None
    return data.shape[0] if len(data.shape) > 1 else 1


def _features(data: Tensor) -> int:
    assert data.shape is not None
    last = data.shape[1:] if len(data.shape) > 1 else data.shape
    return prod(size or 0 for size in last)


def _labels(attributes: AttributeMap) -> tuple[DType, int]:
    """Type and number of the classes that a classifier names."""
    for name, kind in (
        ("classlabels_strings", _STRING),
        ("classlabels_int64s", _INTEGER),
        ("classlabels_ints", _INTEGER),
    ):
        if attributes.get(name):
            return kind, len(attributes[name])
    return _INTEGER, 0


def _encoded(data: Tensor, _: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    kinds = (("values_strings", _STRING), ("values_int64s", _INTEGER), ("values_floats", _FLOAT))
    for name, kind in kinds:
        if attributes.get(name):
            return [(kind, data.shape)]
    tensor = attributes.get("values_tensor")
    if tensor is not None:
        return [(DTYPES[str(tensor.dtype)], data.shape)]
    # Version 1: between strings and numbers.
    return [(_INTEGER if data.dtype.name == "string" else _STRING, data.shape)]


def _linear_classifier(data: Tensor, _: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    kind, labels = _labels(attributes)
    scores = len(attributes.get("intercepts", ())) or len(attributes["coefficients"]) // _features(data)
    # One row of coefficients tells two classes apart.
    scores = 2 if scores == 1 and labels == 2 else scores
    return [(kind, (_rows(data),)), (_FLOAT, (_rows(data), scores))]


def _svm_classifier(data: Tensor, _: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    kind, labels = _labels(attributes)
    classes = len(attributes.get("vectors_per_class", ())) or labels
    pairs = classes * (classes - 1) // 2
    # Without probabilities there is a score for each pair of classes, and of two classes for both.
    votes = attributes.get("vectors_per_class") and not attributes.get("prob_a")
    scores = pairs if votes and classes > 2 else max(classes, 2)
    return [(kind, (_rows(data),)), (_FLOAT, (_rows(data), scores))]


def _one_hot(data: Tensor, _: InputTensors, attributes: AttributeMap) -> list[Type | None]:
    categories = attributes.get("cats_int64s") or attributes.get("cats_strings") or ()
    return [(_FLOAT, (*(data.shape or ()), len(categories)))]


def _columns(data: Tensor, inputs: InputTensors, _: AttributeMap) -> list[Type | None]:
    taken = inputs[1]
    count = None if taken is None else taken.elements
    shape = data.shape or ()
    return [(data.dtype, (*(shape[:-1] or (1,)), count))]


_RULES: dict[str, Callable[[Tensor, InputTensors, AttributeMap], list[Type | None]]] = {
    "ArrayFeatureExtractor": _columns,
    "Binarizer": lambda data, *_: [(data.dtype, data.shape)],
    "CategoryMapper": lambda data, *_: [(_INTEGER if data.dtype.name == "string" else _STRING, data.shape)],
    "FeatureVectorizer": lambda data, _, given: [(_FLOAT, (_rows(data), sum(given["inputdimensions"])))],
    "Imputer": lambda data, *_: [(data.dtype, data.shape)],
    "LabelEncoder": _encoded,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": lambda data, _, given: [(_FLOAT, (_rows(data), int(given.get("targets", 1))))],
    "Normalizer": lambda data, *_: [(_FLOAT, data.shape)],
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": lambda data, *_: [(_FLOAT, (_rows(data), 1))],
    "Scaler": lambda data, *_: [(_FLOAT, data.shape)],
    "TreeEnsembleClassifier": lambda data, _, given: [
        (_labels(given)[0], (_rows(data),)),
        (_FLOAT, (_rows(data), _labels(given)[1])),
    ],
    "TreeEnsembleRegressor": lambda data, _, given: [(_FLOAT, (_rows(data), int(given.get("n_targets", 1))))],
}
