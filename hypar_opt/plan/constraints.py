"""The constraints that a plan has to satisfy, as a problem states them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, Strict

from hypar_opt.documents.document import LARGEST_SIZE, Document, Printable, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.documents.sizes import parse_bytes
from hypar_opt.hardware.accelerator import OPTIMIZERS, state_bytes

SHOWN_PINS = 4
"""The number of pins that a message lists; it counts the others."""


def _optimizer(value: object) -> object:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    is_size = type(value) is int and 0 <= value <= LARGEST_SIZE
    if not is_size and (not isinstance(value, str) or value not in OPTIMIZERS):
        names = ", ".join(OPTIMIZERS)
        raise rule(f"should be {names} or the bytes it keeps for a weight, got {shown(value)}")
    return value


Flag = Annotated[bool, Strict()]


class Constraints(Document):
    """The constraints that a plan has to satisfy."""

    fix: tuple[Printable, ...] = ()
    """Pinned choices, each ``LAYER[@LEVEL]=CHOICE``; the layer may be a pattern."""
    even: Flag = False
    """Only splits that divide the batch and the channels without remainder."""
    runnable: Flag = False
    """Only splits that leave each part at least one image, channel or head, as a program needs."""
    memory: (
        Annotated[int, BeforeValidator(parse_bytes), Strict(), Field(ge=1, le=2**63 - 1)] | None
    ) = None
    """Bytes of an accelerator's memory, for weights, gradients, the optimizer's state, and the
    feature maps and errors at each layer's input and output; in inference, for weights and
    feature maps."""
    optimizer: Annotated[str | int, BeforeValidator(_optimizer)] = "sgd"
    """``sgd``, ``momentum``, ``adam``, or the bytes it keeps for each weight."""

    @property
    def any(self) -> bool:
        """Whether there is any constraint."""
        return self.limits_splits or self.memory is not None

    @property
    def limits_splits(self) -> bool:
        """Whether there is any but the memory."""
        return bool(self.fix) or self.even or self.runnable

    @property
    def within(self) -> str:
        """The constraints as text, ``with --fix conv1=model, --even``; empty if there are none.

        It qualifies every message that calls a plan optimal, proved or best.
        """
        options = [f"--fix {pin}" for pin in self.fix]
        if len(options) > SHOWN_PINS:
            options[SHOWN_PINS - 1 :] = [f"{len(options) - SHOWN_PINS + 1} more pins"]
        options += ["--even"] if self.even else []
        if self.memory is not None:
            options.append(f"--memory {self.memory}")
            options += [f"--optimizer {self.optimizer}"] if self.optimizer != "sgd" else []
        limits = f" with {', '.join(options)}" if options else ""
        return f" among runnable plans{limits}" if self.runnable else limits

    def optimizer_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the optimizer's state for each weight."""
        return state_bytes(self.optimizer, element_bytes)
