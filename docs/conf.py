"""The documentation as a site: `make docs` builds it into docs/_build, without the network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# The checkout's own package, also in the notebook's kernel, and the extension beside this file.
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

from analyzer import __version__  # noqa: E402 - found by the path above

project = "analyze"
version = release = __version__
copyright = "the authors of onnx-analyzer, Apache-2.0"  # noqa: A001 - Sphinx's name

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "_outside_links",
    "_reference",
]
exclude_patterns = ["_build"]
# They would make one dash of the two that begin an option.
smartquotes = False
nitpicky = True
# Values of these types are made by the program, not by its users; what they hold stands in the record's pages.
# A bound of a figure is shown with its type.
nitpick_ignore = [
    ("py:class", name)
    for name in (
        "1e+30",
        "Amount",
        "Count",
        "Model",
        "PathLike",
        "Progress",
        "analyzer.costs.cost.Cost",
        "analyzer.graph.Node",
        "analyzer.graph.Tensor",
        "analyzer.ort.placement.ReleasePlacement",
        "analyzer.pipeline.apply.request.OpsetCost",
        "analyzer.record.fleet.Fleet",
        "analyzer.record.outcome.PlanResult",
    )
]
# Types of other projects: their pages are on the network.
nitpick_ignore_regex = [
    ("py:.*", r"(?:collections|concurrent|msgspec|numpy|onnx|onnx_ir|os|pathlib|torch|typing)\..*"),
]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# Not from a cache, whose key is the notebook and not the package.
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "analyze"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# A summary is fetched, which a page that was opened as a file may not do.
html_show_search_summary = False
html_copy_source = False
html_show_sourcelink = False
# Prompts are shown and not copied, output neither.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
