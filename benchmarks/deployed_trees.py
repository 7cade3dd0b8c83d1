"""Makes forty ensembles of trees as their users do: five kinds, trained on four sets of data that differ.

    python -m venv ENV && ENV/bin/pip install skl2onnx onnxmltools xgboost lightgbm
    ENV/bin/python benchmarks/deployed_trees.py FOLDER

What a tree takes depends on how well the processor guesses its branches, so on the data. The sets are two that
scikit-learn generates and two that it ships (diabetes, digits). Beside each model lie the inputs of a thousand
rows (``<model>.npz``); ``deployed.py`` compares predictions with measurements.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import load_diabetes, load_digits, make_classification, make_friedman1
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from xgboost import XGBClassifier, XGBRegressor

ROWS, TREES, SAMPLES = 1000, 60, 6000


def main() -> None:
    """Trains, exports and stores."""
    warnings.filterwarnings("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for data, features, targets, classes in _data():
        rows = features[random.integers(0, len(features), ROWS)]
        if len(features) < SAMPLES:  # a set of a few hundred would come again and again
            noise = 0.02 * features.std(axis=0) * random.normal(size=rows.shape)
            rows = (rows + noise).astype(np.float32)
        for name, model in _models(features, targets, classes):
            (folder / f"{data} {name}.onnx").write_bytes(model.SerializeToString())
            np.savez(folder / f"{data} {name}.npz", **{model.graph.input[0].name: rows})


def _data() -> Iterator[tuple[str, Any, Any, bool]]:
    """Name, features, targets, and whether they are classes."""
    generated = make_classification(SAMPLES, 25, n_informative=10, n_classes=2, random_state=5)
    yield "two classes", generated[0].astype(np.float32), generated[1], True
    friedman = make_friedman1(SAMPLES, 12, noise=1.0, random_state=6)
    yield "Friedman", friedman[0].astype(np.float32), friedman[1], False
    diabetes = load_diabetes()
    yield "diabetes", diabetes.data.astype(np.float32), diabetes.target, False
    digits = load_digits()
    yield "digits", digits.data.astype(np.float32), digits.target, True


def _models(features: Any, targets: Any, classes: bool) -> Iterator[tuple[str, Any]]:
    boosting = GradientBoostingClassifier if classes else GradientBoostingRegressor
    forest = RandomForestClassifier if classes else RandomForestRegressor
    extra = ExtraTreesClassifier if classes else ExtraTreesRegressor
    light = LGBMClassifier if classes else LGBMRegressor
    extreme = XGBClassifier if classes else XGBRegressor
    for depth in (2, 3, 5):
        model = boosting(n_estimators=TREES, max_depth=depth, random_state=0)
        yield f"gradient boosting {depth}", to_onnx(model.fit(features, targets), features[:1])
    for most in (8, None):
        model = forest(n_estimators=TREES, max_depth=most, random_state=0)
        yield f"random forest {most or 'whole'}", to_onnx(model.fit(features, targets), features[:1])
    model = extra(n_estimators=TREES, random_state=0)
    yield "extra trees", to_onnx(model.fit(features, targets), features[:1])
    inputs = [("x", FloatTensorType([None, features.shape[1]]))]
    for leaves in (15, 63):
        fitted = light(n_estimators=TREES, num_leaves=leaves, verbose=-1).fit(features, targets)
        without_map = {"zipmap": False} if classes else {}
        yield f"LightGBM {leaves}", convert_lightgbm(fitted, initial_types=inputs, **without_map)
    for depth in (4, 8):
        fitted = extreme(n_estimators=TREES, max_depth=depth).fit(features, targets)
        yield f"XGBoost {depth}", convert_xgboost(fitted, initial_types=inputs)


if __name__ == "__main__":
    main()
