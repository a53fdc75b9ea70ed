"""The commands by name; each is imported when it is called, or when its options are needed.

``hypar-opt --help`` imports no command, and a call imports one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

SUMMARIES = {
    "solve": "Find a plan: the parallelism of each layer at each level, and its communication.",
    "configure": "Find the fastest configurations that training frameworks run: degrees,"
    " micro-batches, ZeRO, recomputation.",
    "simulate": "Simulate a training step on an array, and break down its time and energy.",
    "memory": "Count what an accelerator holds in a training step: each tensor once, and the peak.",
    "run": "Run a plan on virtual devices and count every byte; exits with status 1 if any"
    " differs.",
    "compare": "Compare Model and Data Parallelism, the Trick, HyPar, the optima and Megatron-LM's"
    " plans.",
    "explore": "Price every plan of a subspace: the best plans, and the rank of the solver's plan.",
    "pareto": "Trace the Pareto fronts of bytes, time and energy against memory.",
    "sweep": "Solve and simulate every combination in a sweep file; rerun to resume.",
    "verify": "Check a plan and its certificate, or compare solvers; exits with status 1 on any"
    " failure.",
    "validate": "Calculate training steps that were measured, and compare: seconds of published"
    " runs.",
    "calibrate": "Fit an array's constants on measured steps of one's own, and write its file.",
    "reproduce": "Compare the paper's numbers with ours; exits with status 1 if any is no longer as"
    " listed.",
    "report": "Write a self-contained HTML page about a plan and its training step.",
    "show": "Show a network's layers, a plan (after repricing it) or an array.",
    "import": "Convert an ONNX model to a network file, and report what was read.",
    "export": "Export a plan as a program, shardings, settings or traces.",
    "model": "Write the optimisation model of all levels jointly for other solvers, without solving"
    " it.",
    "doctor": "Check what is installed and whether it works; exits with status 1 if any part is"
    " broken.",
    "list": "List the known networks, arrays, solvers and more.",
}
"""What each command does, as its help says, in the order of ``--help``."""

_MODULES = {"import": "import_", "list": "lists"}


def _imported(name: str) -> dict[str, Any]:
    """Import a command's module, and return the attributes of the command."""
    function = _MODULES.get(name, name)
    module = import_module(f"hypar_opt.cli.{function}")
    if name == "list":
        app = module.app
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name, help=SUMMARIES[name], epilog=module.EPILOG)(getattr(module, function))
    return vars(typer.main.get_command(app))


class _Late:
    """A command that has its name and summary; the rest is imported when first needed."""

    def __init__(self, name: str, summary: str) -> None:
        self._known = {"name": name, "short_help": summary}
        super().__init__(**self._known)
        for later in ("callback", "epilog", "help", "no_args_is_help", "params"):
            del vars(self)[later]

    def __getattr__(self, attribute: str) -> Any:
        # Python calls this for missing attributes; `copy` also asks for methods no command has.
        if not attribute.startswith("__"):
            vars(self).update(_imported(self._known["name"]) | self._known)
        if attribute not in vars(self):
            raise AttributeError(attribute)
        return vars(self)[attribute]


class _LateCommand(_Late, TyperCommand):
    pass


class _LateGroup(_Late, TyperGroup):
    pass


class Commands(TyperGroup):
    """The group of all commands in `SUMMARIES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command((_LateGroup if name == "list" else _LateCommand)(name, summary))
