"""Small models for fleets: ONNX files that need no PyTorch, and Python files that misbehave."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def write_onnx(path: Path, width: int = 4, operator: str = "Relu") -> Path:
    """An operator on a batch of rows; digests differ by width and operator."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], path.stem, info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


GOOD = """
import torch
from torch import nn
from layers import WIDTH

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, WIDTH)

    def forward(self, x):
        return self.first(x).relu()

def example_inputs(batch):
    return torch.zeros(batch, 8)
"""
RAISES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        raise RuntimeError("no weights")
"""
_FORWARD = """
import os
import time
import torch

print("said before the end")

class Net(torch.nn.Module):
    def forward(self, x):
        {statement}
        return x

def example_inputs(batch):
    return torch.zeros(batch, 8)
"""
HANGS = _FORWARD.format(statement="time.sleep(1000)")
KILLED = _FORWARD.format(statement="os.kill(os.getpid(), 9)")
FORKS = _FORWARD.format(statement="os.fork() == 0 and time.sleep(30); os.kill(os.getpid(), 9)")
EXITS = _FORWARD.format(statement="os._exit(3)")
EATS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.empty(2**60, device="cpu")
"""
