"""The scripts of .ci, which tests import by their names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / ".ci"))
