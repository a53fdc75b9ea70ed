"""The commands by name; a command is imported when it is called, or when its options are needed.

So ``hypar-opt --help`` imports none of them, and a call its own alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

SUMMARIES = {
    "solve": "Find a plan: each layer's parallelism at each level, and what it communicates.",
    "simulate": "Simulate a training step on an array: where its time and energy go.",
    "run": "Run a step of a plan on virtual devices and count every byte; ends with 1 if one"
    " differs.",
    "compare": "Compare Model and Data Parallelism, the Trick, HyPar, the optima and Megatron-LM's"
    " plans.",
    "explore": "Price every plan of a subspace: where the best are, and where the solver's plan"
    " ranks.",
    "pareto": "Find the fewest bytes, the least time and energy within M bytes of memory, for all"
    " M.",
    "sweep": "Solve and simulate all combinations of a file; run it again to go on.",
    "verify": "Check a plan and its certificate, or that solvers agree; ends with 1 where they do"
    " not.",
    "reproduce": "Show the paper's numbers beside ours; ends with 1 where one is no longer as"
    " listed.",
    "report": "Write a page about a plan and its step: one HTML file that needs no network.",
    "show": "Show a network's layers; a plan, which is priced again first; or an array.",
    "import": "Write the network file of an ONNX model, and say what was read.",
    "export": "Write a plan as a program for JAX, or as shardings for other frameworks.",
    "model": "Write the model of all levels together, for other solvers, without solving it.",
    "list": "List what can be named: networks, arrays, solvers and more.",
}
"""The first paragraph of each command's help, in the order of ``--help``."""

_MODULES = {"import": "import_", "list": "lists"}


def _made(name: str) -> dict[str, Any]:
    """Return the attributes of a command, of its module."""
    function = _MODULES.get(name, name)
    module = import_module(f"hypar_opt.cli.{function}")
    if name == "list":
        app = module.app
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name, epilog=module.EPILOG)(getattr(module, function))
    return vars(typer.main.get_command(app))


class _Late:
    """A command with its name and its summary; the rest is there when it is first needed."""

    def __init__(self, name: str, summary: str) -> None:
        self._known = {"name": name, "short_help": summary}
        super().__init__(**self._known)
        for later in ("callback", "epilog", "help", "no_args_is_help", "params"):
            del vars(self)[later]

    def __getattr__(self, attribute: str) -> Any:
        # Python asks here for what is not there yet; `copy` asks for methods that no command has.
        if not attribute.startswith("__"):
            vars(self).update(_made(self._known["name"]) | self._known)
        if attribute not in vars(self):
            raise AttributeError(attribute)
        return vars(self)[attribute]


class _LateCommand(_Late, TyperCommand):
    pass


class _LateGroup(_Late, TyperGroup):
    pass


class Commands(TyperGroup):
    """All of `SUMMARIES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command((_LateGroup if name == "list" else _LateCommand)(name, summary))
