"""The same model in another form: the graph that ONNX Runtime's own tools would make of it.

``convert`` gives it, or says why there is none. What a form takes is then what any graph takes: it is placed,
fused, counted and predicted by the same rules, so that "int8" and "fp16" promise nothing that no kernel keeps.
"""

from analyzer.conversion.convert import (
    HALF,
    PRODUCTS,
    NoForm,
    convert,
    in_floats,
    integer_form,
    without_half_kernel,
)

__all__ = ["HALF", "PRODUCTS", "NoForm", "convert", "in_floats", "integer_form", "without_half_kernel"]
