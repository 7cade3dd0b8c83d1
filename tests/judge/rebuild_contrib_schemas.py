"""Rebuilds the schemas of ONNX Runtime's own operators that the analyzer carries, from the installed wheel.

Run ``python tests/judge/rebuild_contrib_schemas.py [OUTPUT]``; no GPU is needed. Of each operator of
``com.microsoft``: how many inputs and outputs, which inputs must be there, of which types each may be,
and its attributes' types.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "analyzer" / "loading" / "onnx_graph" / "data"
DOMAIN = "com.microsoft"
# AttributeProto.AttributeType.
KINDS = (
    *("UNDEFINED", "FLOAT", "INT", "STRING", "TENSOR", "GRAPH"),
    *("FLOATS", "INTS", "STRINGS", "TENSORS", "GRAPHS", "SPARSE_TENSOR"),
)


def listing() -> dict[str, Any]:
    """What the installed ONNX Runtime says of its own operators; all have one version, 1."""
    import onnxruntime
    import onnxruntime.capi.onnxruntime_pybind11_state as state

    operators = {}
    kinds: dict[str, int] = {}
    for schema in sorted(state.get_all_operator_schema(), key=lambda item: item.name):
        if schema.domain != DOMAIN:
            continue
        operators[schema.name] = {
            "inputs": [schema.min_input, schema.max_input],
            "outputs": [schema.min_output, schema.max_output],
            "needed": [
                [place, item.name] for place, item in enumerate(schema.inputs) if item.option.name == "Single"
            ],
            "types": [
                [
                    item.name,
                    item.typeStr if item.isHomogeneous else "",
                    kinds.setdefault(" ".join(sorted(item.types)), len(kinds)),
                ]
                for item in schema.inputs
            ],
            "attributes": {name: _kind(item.type) for name, item in sorted(schema.attributes.items())},
            "required": sorted(name for name, item in schema.attributes.items() if item.required),
        }
    return {
        "source": f"onnxruntime-gpu {onnxruntime.__version__}: its own listing of schemas",
        "version": onnxruntime.__version__,
        "types": list(kinds),
        "operators": operators,
    }


def _kind(kind: Any) -> int:
    return KINDS.index(kind.name)


def main() -> None:
    """Writes the schemas of the installed version."""
    content = listing()
    default = DATA / f"contrib_schemas_{content['version']}.json"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(content, separators=(",", ":")) + "\n")
    print(f"{target}: {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
