"""What the process has imported that commands are forked from: all whose extras are installed.

Packages are those that commands import late; those that start threads, as jax, could not be forked.
Most of the time that OR-Tools takes to import is that of pandas.
"""

from __future__ import annotations

import pkgutil
from contextlib import suppress
from importlib import import_module

import hypar_opt
from hypar_opt.errors import HyparError

PACKAGES = ("altair", "networkx", "pandas", "simpy")

modules = pkgutil.walk_packages(hypar_opt.__path__, "hypar_opt.", lambda _: None)
for name in (*PACKAGES, *(module.name for module in modules)):
    with suppress(ImportError, HyparError):
        if not name.endswith("__main__"):
            import_module(name)
