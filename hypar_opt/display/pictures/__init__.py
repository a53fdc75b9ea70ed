"""Results as pictures: the paper's figures in its form, with our values beside the printed ones.

Every function except `save` and `draw_paper` returns a matplotlib figure, which may be changed
before it is saved. They need the extra ``plot``.
"""

from hypar_opt.display.pictures.bar_chart import bars, scaling
from hypar_opt.display.pictures.batches import batch_ranges
from hypar_opt.display.pictures.canvas import FORMATS, save
from hypar_opt.display.pictures.configurations import configured
from hypar_opt.display.pictures.dots import plan_dots, plans_side_by_side
from hypar_opt.display.pictures.fronts import fronts
from hypar_opt.display.pictures.graph import network_graph
from hypar_opt.display.pictures.heat import exploration_map, surface
from hypar_opt.display.pictures.memory import device_memory
from hypar_opt.display.pictures.paper import draw_paper
from hypar_opt.display.pictures.results import pareto_fronts, picture, speed_ups
from hypar_opt.display.pictures.roofline import array_roofline
from hypar_opt.display.pictures.swept import swept
from hypar_opt.display.pictures.time import timeline
from hypar_opt.display.pictures.topology import topology
from hypar_opt.display.pictures.validation import validated_steps

__all__ = [
    "FORMATS",
    "array_roofline",
    "bars",
    "batch_ranges",
    "configured",
    "device_memory",
    "draw_paper",
    "exploration_map",
    "fronts",
    "network_graph",
    "pareto_fronts",
    "picture",
    "plan_dots",
    "plans_side_by_side",
    "save",
    "scaling",
    "speed_ups",
    "surface",
    "swept",
    "timeline",
    "topology",
    "validated_steps",
]
