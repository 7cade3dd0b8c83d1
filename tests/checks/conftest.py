"""Makes this folder's factory, and the parts it is made from, importable by the tests beside it."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
