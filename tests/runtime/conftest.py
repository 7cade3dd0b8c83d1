"""Makes this folder's models, and the judge's stand-in libraries, importable by the tests beside it."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "judge"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
