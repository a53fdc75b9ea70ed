"""Results as figures: descriptions in Vega-Lite, for files, for pages and for notebooks.

Every function except `save` and `draw_paper` returns a chart of Altair, which notebooks show and
which may be changed before it is saved. They need the extra ``figures``.
"""

from importlib.util import find_spec

from hypar_opt.errors import HyparError

if not (find_spec("altair") and find_spec("vl_convert")):
    raise HyparError("figures need altair and vl-convert-python: pip install 'hypar-opt[figures]'")

from hypar_opt.display.figures.bar_charts import bars as bars
from hypar_opt.display.figures.bar_charts import scaling as scaling
from hypar_opt.display.figures.batches import batch_ranges as batch_ranges
from hypar_opt.display.figures.graph import network_graph as network_graph
from hypar_opt.display.figures.maps import exploration_map as exploration_map
from hypar_opt.display.figures.maps import surface as surface
from hypar_opt.display.figures.paper import draw_paper as draw_paper
from hypar_opt.display.figures.paper import paper_figure as paper_figure
from hypar_opt.display.figures.plans import plan_dots as plan_dots
from hypar_opt.display.figures.plans import plans_side_by_side as plans_side_by_side
from hypar_opt.display.figures.points import array_roofline as array_roofline
from hypar_opt.display.figures.points import fronts as fronts
from hypar_opt.display.figures.points import layers_roofline as layers_roofline
from hypar_opt.display.figures.results import figure_of as figure_of
from hypar_opt.display.figures.style import FORMATS as FORMATS
from hypar_opt.display.figures.style import save as save
from hypar_opt.display.figures.sweeps import swept as swept
from hypar_opt.display.figures.timelines import timeline as timeline
from hypar_opt.display.figures.topologies import topology as topology
