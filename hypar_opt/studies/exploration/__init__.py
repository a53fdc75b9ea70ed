"""Every plan of a subspace priced at once: the paper's figures 9 and 10, for any network."""

from hypar_opt.studies.exploration.pricing import explore
from hypar_opt.studies.exploration.result import Exploration, Grid

__all__ = ["Exploration", "Grid", "explore"]
