"""The site: Markdown as it stands in docs/, beside what a build makes from the code."""

import sys
from pathlib import Path

from hypar_opt.version import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "hypar-opt"
version = release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "generated",
    "signatures",
]
exclude_patterns = ["_ext"]

myst_heading_anchors = 3

# A name in single backquotes is a link, as numpydoc has it; a parameter's is plain.
default_role = "autolink"
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_attr_annotations = False
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
maximum_signature_line_length = 80

# Every name of ours leads somewhere; the site builds without a network, so others' do not.
# The last line's are ours, names of unions and the like, which no page would explain.
nitpick_ignore_regex = [
    ("py:.*", r"(collections\.abc|fractions|altair|networkx|numpy|nx|pathlib)\..+"),
    ("py:.*", r"(pydantic|typing)\..+"),
    # As a NamedTuple or a type variable writes them.
    ("py:class", r"hypar_opt\.hierarchy\.Numbers"),
    ("py:class", r"(Axes|Fraction|FrozenDict|Map|NDArray|StoredLayout|np\..+)"),
    (
        "py:.*",
        r"(Changed|Proof|Sizes|Task|hypar_opt\.simulator\.tasks\.Changed|hypar_opt\.display\.figures\.paper\.DrawnRow)",
    ),
    (
        "py:class",
        r"hypar_opt\.(frozen\.FrozenDict|results\.(Columns|Entry)|workload\.layouts\.Layouts)",
    ),
    ("py:class", "Entry|ElementBytes|Part|Shape"),
    (
        "py:.*",
        r"(hypar_opt\.solvers\.solution\.solver\.SolutionFile|mathopt\..+|ortools\..+|pulp\..+)",
    ),
    # What a kind of layer or a topology of one's own seldom states.
    ("py:.*", r"hypar_opt\.workload\.(repeats\.Repeats|halos\.Border)"),
    ("py:.*", r"hypar_opt\.workload\.operators\.(kernels\.(Fused|PassKernels)|saved\.Saved)"),
    ("py:.*", r"hypar_opt\.(hardware\.folded\..+|studies\.batches\.ranges\.Amounts)"),
    ("py:.*", r"hypar_opt\.instance\.pricing\.Charged"),
    ("py:class", r"hypar_opt\.costs\.(kinds\.Kinds|state_classes\.ChargeCache)"),
    # Parts of results, and of arguments, that a user does not make.
    ("py:class", r"hypar_opt\.(simulator\.(pipeline|step)|search\.(degrees|solver_settings))\.\w+"),
    ("py:class", r"hypar_opt\.(plan\.(plan|stages)\.\w+|workload\.network\.\w+Input)"),
    ("py:class", "Candidate|Cell|Columns|Input|Price|StageCost|Whole|Words"),
]

# The type `bytes` is the name of several results' fields, too.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"hypar-opt {release}"
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
