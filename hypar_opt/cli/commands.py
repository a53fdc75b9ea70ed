"""The commands by name; each is imported when it is called, or when its options are needed.

``hypar-opt --help`` imports no command, and a call imports one.
"""

from __future__ import annotations

import textwrap
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from hypar_opt.cli import output

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

SUMMARIES = {
    "solve": "Find a plan: the parallelism of each layer at each level, and its communication.",
    "configure": "Find the fastest configurations that training frameworks run: degrees,"
    " micro-batches, ZeRO, recomputation.",
    "simulate": "Simulate a training step on an array, and break down its time and energy.",
    "memory": "Break down the peak memory of an accelerator in a training step, tensor by tensor.",
    "run": "Run a plan on virtual devices and count every byte; exits with status 1 if any"
    " differs.",
    "compare": "Compare Model and Data Parallelism, OWT, HyPar, the optima and Megatron-LM's"
    " plans.",
    "explore": "Price every plan of a subspace; lists the best, and ranks the solver's plan.",
    "pareto": "Trace the Pareto fronts of bytes, time and energy against memory.",
    "sweep": "Solve and simulate every combination in a sweep file; rerun to resume.",
    "verify": "Check a plan and its certificate, or compare solvers; exits with status 1 on any"
    " failure.",
    "validate": "Compare predicted with published step times.",
    "calibrate": "Fit an array's constants to your own measured steps; writes an array file.",
    "reproduce": "Compare the paper's numbers with ours; exits with status 1 if any is no longer as"
    " listed.",
    "report": "Write a self-contained HTML page about a plan and its training step.",
    "show": "Show a network's layers, a plan (repriced) or an array.",
    "import": "Convert an ONNX model, a PyTorch program or a config.json to a network file.",
    "export": "Export a plan as a program, shardings, settings or traces.",
    "model": "Export the joint optimisation model for another solver.",
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
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        examples = "\n".join(module.EXAMPLES)
        app.command(name, help=SUMMARIES[name], epilog=examples)(getattr(module, function))
    return vars(typer.main.get_command(app))


class _Late:
    """A command with only its name and summary; the rest is imported when first needed."""

    def __init__(self, name: str, summary: str) -> None:
        self._known: dict[str, Any] = {
            "name": name,
            "short_help": summary,
            "rich_markup_mode": None,
        }
        super().__init__(**self._known)
        for later in ("callback", "epilog", "help", "params"):
            del vars(self)[later]

    def __getattr__(self, attribute: str) -> Any:
        # Python calls this for missing attributes; `copy` also asks for methods no command has.
        if not attribute.startswith("__"):
            vars(self).update(_imported(self._known["name"]) | self._known)
        if attribute not in vars(self):
            raise AttributeError(attribute)
        return vars(self)[attribute]


class _LateCommand(_Late, TyperCommand):
    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        # Typer's options take a value always or never, so ``all`` would be an argument.
        ctx.meta[_ALL] = ("--help", "all") in pairwise(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        from hypar_opt.cli.options import FURTHER

        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                if isinstance(param, TyperOption):
                    heading = param.rich_help_panel or "Options"
                else:
                    heading = "Arguments"
                groups.setdefault(heading, []).append(record)
        further = [(heading, groups.pop(heading)) for heading in FURTHER if heading in groups]
        groups["Options"] = groups.pop("Options")
        shown = [*groups.items(), *(further if ctx.meta[_ALL] else ())]
        for heading, rows in shown:
            with formatter.section(heading):
                _write_definitions(formatter, rows)
        if further and not ctx.meta[_ALL]:
            count = sum(len(rows) for _, rows in further)
            formatter.write(f"\n{count} more options: {ctx.command_path} --help all\n")

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            for example in (self.epilog or "").splitlines():
                formatter.write(_wrapped(example, formatter.width, "  ", "      ") + "\n")


class _Group(TyperGroup):
    """A group whose help is printed where no command is named, with the status of an error."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            output.print_text(ctx.get_help())
            ctx.exit(2)
        return super().parse_args(ctx, args)


class _LateGroup(_Late, _Group):
    pass


class Commands(_Group):
    """The group of all commands in `SUMMARIES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command((_LateGroup if name == "list" else _LateCommand)(name, summary))


_ALL = "hypar_opt: all options"
"""The key of a context: whether its help has all options."""


def _wrapped(text: str, width: int, first: str, next_lines: str) -> str:
    """Wrap text between words alone, since a part of an option or of an example is none."""
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=next_lines,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _write_definitions(formatter: HelpFormatter, rows: list[tuple[str, str]]) -> None:
    """Write options beside what they mean, or above it those that are too long."""
    column = min(max(len(name) for name, _ in rows), formatter.width // 3) + 4
    for name, text in rows:
        start = f"  {name}  "
        if len(start) > column:
            formatter.write(start.rstrip() + "\n")
            start = ""
        formatter.write(_wrapped(text, formatter.width, start.ljust(column), " " * column) + "\n")
