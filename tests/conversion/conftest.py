"""Lets tests import their models and those that several rooms share."""

import sys
from pathlib import Path

for _folder in (Path(__file__).parent, Path(__file__).parent.parent):
    sys.path.insert(0, str(_folder))
