"""Formats of export: a plan as text for another program. More come by entry point."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.execution.export import jax_module, jax_shardings, torch_file
from hypar_opt.execution.shardings import shardings
from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


class ExportFormat(ABC):
    """A format that a plan is exported in.

    Attributes
    ----------
    summary
        What is written, and for whom, in a line.
    """

    summary: ClassVar[str]

    @abstractmethod
    def text(self, plan: Plan, *, approximate: bool) -> str:
        """Return a plan in this format.

        Parameters
        ----------
        approximate
            Whether a network that does not keep all of its model is wanted all the same; a format
            of programs refuses it otherwise.

        Raises
        ------
        HyparError
            If the plan cannot be written so.
        """


class JaxModule(ExportFormat):
    """A Python module with the training step."""

    summary: ClassVar[str] = "a Python module with the training step, which needs only jax"

    def text(self, plan: Plan, *, approximate: bool) -> str:
        return jax_module(plan, approximate=approximate)


class JaxShardings(ExportFormat):
    """A Python file for one's own JAX program."""

    summary: ClassVar[str] = "a Python file of PartitionSpecs for one's own JAX program, by name"

    def text(self, plan: Plan, *, approximate: bool) -> str:
        return jax_shardings(plan, approximate=approximate)


class Shardings(ExportFormat):
    """Shardings by name, as JSON."""

    summary: ClassVar[str] = "the dimension of each weight and tensor that each level shards"

    def text(self, plan: Plan, *, approximate: bool) -> str:  # noqa: ARG002
        # Says nothing of what is computed, and so is of any network.
        return json.dumps(shardings(plan), indent=2, allow_nan=False) + "\n"


class TorchFile(ExportFormat):
    """A Python file for one's own PyTorch training script."""

    summary: ClassVar[str] = "a Python file that splits one's own PyTorch model, by its names"

    def text(self, plan: Plan, *, approximate: bool) -> str:
        return torch_file(plan, approximate=approximate)


FORMATS: Registry[type[ExportFormat]] = Registry(
    "format",
    "hypar_opt.formats",
    {
        "jax": "hypar_opt.execution.formats:JaxModule",
        "jax-shardings": "hypar_opt.execution.formats:JaxShardings",
        "json": "hypar_opt.execution.formats:Shardings",
        "torch": "hypar_opt.execution.formats:TorchFile",
        "torchtitan": "hypar_opt.execution.settings.torchtitan:Torchtitan",
        "megatron": "hypar_opt.execution.settings.megatron:Megatron",
        "nemo": "hypar_opt.execution.settings.megatron:Nemo",
        "deepspeed": "hypar_opt.execution.settings.deepspeed:DeepSpeed",
        "maxtext": "hypar_opt.execution.settings.maxtext:MaxText",
        "accelerate": "hypar_opt.execution.settings.accelerate:Accelerate",
    },
    base="hypar_opt.execution.formats:ExportFormat",
)
"""The formats of ``export --to``."""
