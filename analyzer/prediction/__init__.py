"""Prediction: what a graph's groups cost on a device that need not be there, with a 90 % interval."""

from __future__ import annotations

from analyzer.figures import total
from analyzer.prediction.collectives import transfer
from analyzer.prediction.estimate import Estimate
from analyzer.prediction.layout_changes import LayoutCopies, layout_copies
from analyzer.prediction.predict import (
    GroupTimes,
    operator_shares,
    predict,
    predict_arrays,
    predict_session,
    session_overhead,
)
from analyzer.prediction.workload import OperatorPieces, Workload, workload

__all__ = [
    "Estimate",
    "GroupTimes",
    "LayoutCopies",
    "OperatorPieces",
    "Workload",
    "layout_copies",
    "operator_shares",
    "predict",
    "predict_arrays",
    "predict_session",
    "session_overhead",
    "total",
    "transfer",
    "workload",
]
