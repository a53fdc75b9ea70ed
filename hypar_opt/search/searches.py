"""The searches by name: ``levelwise`` and ``joint``."""

from __future__ import annotations

from types import MappingProxyType

from hypar_opt.search.joint import joint
from hypar_opt.search.levelwise import levelwise

SEARCHES = MappingProxyType({"levelwise": levelwise, "joint": joint})
