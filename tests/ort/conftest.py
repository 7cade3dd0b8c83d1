"""Lets tests import the models that several rooms share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
