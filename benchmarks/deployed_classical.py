"""Makes classical models as their users do: scikit-learn, XGBoost and LightGBM through their exporters.

    python -m venv ENV && ENV/bin/pip install skl2onnx onnxmltools xgboost lightgbm
    ENV/bin/python benchmarks/deployed_classical.py FOLDER

Some twenty models with an open number of rows, and beside each the inputs of a thousand rows
(``<model>.npz``). An environment of its own: the exporters bring another onnxruntime. ``deployed.py`` compares
predictions with measurements.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
from skl2onnx import convert_sklearn, update_registered_converter
from skl2onnx.common import data_types as skl_types
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes,
    calculate_linear_regressor_output_shapes,
)
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from xgboost import XGBClassifier, XGBRegressor

ROWS, FEATURES, CLASSES = 1000, 30, 3
OPSET = {"": 17, "ai.onnx.ml": 3}
_COLOURS = np.array(["red", "green", "blue", "violet", "white", "black"])
_WORDS = np.array(
    [
        "the",
        "a",
        "model",
        "runs",
        "fast",
        "slow",
        "on",
        "cpu",
        "gpu",
        "with",
        "many",
        "few",
        "rows",
        "of",
        "data",
        "and",
        "text",
    ]
)


def _register() -> None:
    zipmap = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
    split = {"split": None}
    classes, values = calculate_linear_classifier_output_shapes, calculate_linear_regressor_output_shapes
    for kind, shapes, converter, options in (
        (XGBClassifier, classes, convert_xgboost, zipmap),
        (LGBMClassifier, classes, convert_lightgbm, zipmap),
        (XGBRegressor, values, convert_xgboost, split),
        (LGBMRegressor, values, convert_lightgbm, split),
    ):
        update_registered_converter(kind, kind.__name__, shapes, converter, options=options)


def models() -> dict[str, tuple[Any, bool]]:
    """Estimators, and whether they take labels of classes."""

    return {
        "scaler and logistic regression": (make_pipeline(StandardScaler(), LogisticRegression()), True),
        "support vectors, RBF": (SVC(kernel="rbf", probability=False), True),
        "support vectors, polynomial": (SVC(kernel="poly", degree=3), True),
        "support vector regression": (SVR(), False),
        "nearest neighbours": (KNeighborsClassifier(5, algorithm="brute"), True),
        "nearest neighbours, regression": (KNeighborsRegressor(5, algorithm="brute"), False),
        "random forest": (RandomForestClassifier(100, max_depth=8, random_state=0), True),
        "random forest, regression": (RandomForestRegressor(100, max_depth=10, random_state=0), False),
        "gradient boosting": (GradientBoostingClassifier(n_estimators=60, random_state=0), True),
        "gradient boosting, regression": (GradientBoostingRegressor(n_estimators=100, max_depth=5), False),
        "isolation forest": (IsolationForest(n_estimators=50, random_state=0), False),
        "XGBoost": (XGBClassifier(n_estimators=60, max_depth=6), True),
        "XGBoost, regression": (XGBRegressor(n_estimators=200, max_depth=6), False),
        "LightGBM": (LGBMClassifier(n_estimators=60, verbose=-1), True),
        "LightGBM, regression": (LGBMRegressor(n_estimators=200, verbose=-1), False),
        "perceptron": (MLPClassifier((128, 64), max_iter=20, random_state=0), True),
        "k-means": (KMeans(16, n_init=1, random_state=0), False),
        "components and ridge": (make_pipeline(PCA(10), PolynomialFeatures(2), Ridge()), False),
        "imputer, norm and naive Bayes": (make_pipeline(SimpleImputer(), Normalizer(), GaussianNB()), True),
    }


def main() -> None:
    """Writes all models into the folder that is given."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    _register()
    random = np.random.default_rng(0)
    x = random.standard_normal((3000, FEATURES)).astype(np.float32)
    classes = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int) + (x[:, 3] > 0.5)
    values = x[:, 0] * 2 + x[:, 1] * x[:, 2]
    for name, (estimator, labels) in models().items():
        estimator.fit(x, classes if labels else values)
        try:
            proto = _converted(estimator, labels)
        except Exception as error:  # of releases that do not fit each other: that model is missing then
            print(f"{name}: not converted ({type(error).__name__})", file=sys.stderr)
            continue
        _keep(folder, name, proto, {"x": x[:ROWS]})
    _pipeline(folder, random)
    _text(folder, random)


def _converted(estimator: Any, labels: bool) -> Any:
    types = [("x", skl_types.FloatTensorType([None, FEATURES]))]
    # Scores as one tensor: maps are what "one-hot pipeline" gives.
    options = {id(estimator): {"zipmap": False}} if labels else None
    return convert_sklearn(estimator, initial_types=types, target_opset=OPSET, options=options)


def _keep(folder: Path, name: str, proto: Any, feeds: dict[str, Any]) -> None:
    (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
    np.savez(folder / f"{name}.npz", **feeds)
    print(name)


def _pipeline(folder: Path, random: np.random.Generator) -> None:
    """One-hot codes of strings beside scaled numbers; the answer as maps, as the exporter writes it."""
    colours = random.choice(_COLOURS, (2000, 2))
    numbers = random.standard_normal((2000, 10)).astype(np.float32)
    import pandas

    data = {"c0": colours[:, 0], "c1": colours[:, 1]} | {f"n{i}": numbers[:, i] for i in range(10)}
    frame = pandas.DataFrame(data)
    labels = (numbers[:, 0] > 0).astype(int)
    columns = ColumnTransformer(
        [("text", OneHotEncoder(), ["c0", "c1"]), ("numbers", StandardScaler(), [f"n{i}" for i in range(10)])]
    )
    estimator = make_pipeline(columns, LogisticRegression())
    estimator.fit(frame, labels)
    types = [(name, skl_types.StringTensorType([None, 1])) for name in ("c0", "c1")]
    types += [(f"n{i}", skl_types.FloatTensorType([None, 1])) for i in range(10)]
    proto = convert_sklearn(estimator, initial_types=types, target_opset=OPSET)
    feeds = {name: colours[:ROWS, index : index + 1].astype(object) for index, name in enumerate(("c0", "c1"))}
    feeds |= {f"n{i}": numbers[:ROWS, i : i + 1] for i in range(10)}
    _keep(folder, "one-hot pipeline", proto, feeds)


def _text(folder: Path, random: np.random.Generator) -> None:
    texts = [" ".join(random.choice(_WORDS, 12)) for _ in range(2000)]
    estimator = make_pipeline(TfidfVectorizer(), LogisticRegression())
    estimator.fit(texts, random.integers(0, 2, 2000))
    proto = convert_sklearn(
        estimator,
        initial_types=[("text", skl_types.StringTensorType([None, 1]))],
        target_opset=OPSET,
        options={id(estimator): {"zipmap": False}},
    )
    words = np.array(texts[:ROWS], object).reshape(-1, 1)
    _keep(folder, "words and logistic regression", proto, {"text": words})


if __name__ == "__main__":
    main()
