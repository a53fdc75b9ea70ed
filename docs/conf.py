"""The site: Markdown as it stands in docs/, beside what a build makes from the code."""

import sys
from pathlib import Path

from hypar_opt.version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "hypar-opt"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated", "signatures"]
exclude_patterns = ["_ext"]

myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a recipe's sections start below its title

# Names in docstrings are links where the reference has them, and plain where it has not.
default_role = "autolink"
extensions.append("sphinx.ext.autosummary")
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_rtype = False
maximum_signature_line_length = 80

html_theme = "furo"
html_title = f"hypar-opt {release}"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
