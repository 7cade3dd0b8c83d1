"""Prediction: what a graph's groups cost on a device that need not be there, with a 90 % interval."""

from __future__ import annotations

from analyzer.figures import total as total
from analyzer.prediction.collectives import transfer as transfer
from analyzer.prediction.estimate import Estimate as Estimate
from analyzer.prediction.layout_changes import LayoutCopies as LayoutCopies
from analyzer.prediction.layout_changes import layout_copies as layout_copies
from analyzer.prediction.predict import GroupTimes as GroupTimes
from analyzer.prediction.predict import Sessions as Sessions
from analyzer.prediction.predict import operator_shares as operator_shares
from analyzer.prediction.predict import predict as predict
from analyzer.prediction.predict import predict_arrays as predict_arrays
from analyzer.prediction.predict import predict_session as predict_session
from analyzer.prediction.workload import OperatorPieces as OperatorPieces
from analyzer.prediction.workload import Workload as Workload
from analyzer.prediction.workload import workload as workload
