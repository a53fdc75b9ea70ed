"""Export formats: a plan as text for another program. Plug-ins may register more."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.documents.files import write_whole
from hypar_opt.execution.export import jax_module, jax_shardings, torch_file
from hypar_opt.execution.shardings import shardings
from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.plan.plan import Plan


class ExportFormat(ABC):
    """A format in which a plan is exported.

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
            Whether to export a network that omits parts of its model; formats of programs refuse it
            otherwise.

        Raises
        ------
        HyparError
            If the plan cannot be written so.
        """

    def files(self, plan: Plan) -> Iterator[tuple[str, bytes]]:  # noqa: ARG002
        """Yield the files that belong beside the text's: the end of each name, and the content.

        Raises
        ------
        HyparError
            As for `text`, which is called first.
        """
        yield from ()

    def write(self, plan: Plan, output: str | Path, *, approximate: bool) -> str:
        """Write a plan in this format, and return the text.

        Parameters
        ----------
        output
            The text's file; others have its name up to the suffix.
        approximate
            As for `text`.

        Raises
        ------
        HyparError
            If the plan cannot be written so, or a file cannot be written.
        """
        text = self.text(plan, approximate=approximate)
        for end, content in self.files(plan):
            write_whole(Path(output).with_suffix(end), content)
        write_whole(output, text)
        return text


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
        # Describes no computation, and so suits any network.
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
        "chakra": "hypar_opt.studies.chakra:Chakra",
    },
    base="hypar_opt.execution.formats:ExportFormat",
)
"""The formats of ``export --to``."""
