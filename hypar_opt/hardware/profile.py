"""Measured seconds of a network's layers, in place of computed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hypar_opt.documents.document import Document, Printable, Size, rule, validate
from hypar_opt.documents.files import read_text
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_toml
from hypar_opt.errors import HyparError, argument
from hypar_opt.hardware.quantities import Time

PROFILE = argument("profile")
SCHEMA: Literal["hypar-opt/profile/1"] = "hypar-opt/profile/1"


class LayerProfile(Document):
    """Seconds of one layer's passes over the full batch, on one accelerator."""

    name: str
    forward: Time
    backward: Time | None = None
    """Not needed for inference."""
    gradient: Time | None = None


class Profile(Document):
    """The seconds of a network's layers on one accelerator that has the full batch.

    A plan on N accelerators divides them by N: every choice of parallelism splits a layer's
    work.
    """

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/profile/1"] = Field(default=SCHEMA, alias="schema")
    source: Printable = ""
    batch: Size
    """The batch that was measured; times of other batches are not derived from it."""
    # Singular, as the file has a [[layer]] table for every layer.
    layer: Annotated[tuple[LayerProfile, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        counts = Counter(layer.name for layer in self.layer)
        repeated = next((name for name, count in counts.items() if count > 1), None)
        if repeated is not None:
            raise rule(f"layer {repeated!r}, name: should be unique, appears twice")
        return self

    def seconds(
        self, layers: Sequence[str], batch: int, phases: Sequence[str]
    ) -> dict[str, list[Fraction]]:
        """Return, by pass, the seconds of every layer on one accelerator.

        Parameters
        ----------
        layers
            The network's names, in order.
        batch
            The plan's.
        phases
            ``forward``, ``backward`` or ``gradient``.

        Raises
        ------
        HyparError
            If it was measured with another batch, lacks a layer or pass, or has an unknown layer.
        """
        # Time is not proportional to the batch, so other batches are not scaled.
        if batch != self.batch:
            raise HyparError(f"{PROFILE}: measured with batch {self.batch}, the plan's is {batch}")
        # Every layer exactly once: a misspelt name must not fall back to computed seconds.
        measured = {layer.name: layer for layer in self.layer}
        unknown = [name for name in measured if name not in layers]
        missing = [name for name in layers if name not in measured]
        if unknown or missing:
            problem = (
                f"has no layer {missing[0]!r}" if missing else f"layer {unknown[0]!r} is unknown"
            )
            raise HyparError(f"{PROFILE}: {problem}; the network's are {', '.join(layers)}")
        seconds: dict[str, list[Fraction]] = {}
        for phase in phases:
            times = [getattr(measured[name], phase) for name in layers]
            if None in times:
                raise HyparError(f"{PROFILE}: layer {layers[times.index(None)]!r} has no {phase}")
            seconds[phase] = times
        return seconds


def read_profile(path: str | Path) -> Profile:
    """Read a profile from a TOML file.

    Raises
    ------
    InputError
        Naming the file, the layer and the key, and what would be right.
    """
    file, text = str(path), read_text(path)
    with read_as("profile", text, file):
        return validate(Profile, parse_toml(text, file=file), file=file)
