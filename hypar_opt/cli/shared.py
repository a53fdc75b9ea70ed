"""Groups of options that several commands take, written once.

A command that `takes` a group finds its values in its context, by name; those that it names in
its own signature it is also called with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature

from hypar_opt.cli import options


def problem(
    batch: options.BATCH = 256,
    levels: options.LEVELS = None,
    array: options.ARRAY = None,
    cost: options.COST = "bytes",
    reading: options.READING = None,
    element_bytes: options.ELEMENT_BYTES = 4,
    inference: options.INFERENCE = False,
    choices: options.CHOICES = "data,model",
    level_weights: options.LEVEL_WEIGHTS = None,
    fix: options.FIX = None,
    even: options.EVEN = False,
    memory: options.MEMORY = None,
    optimizer: options.OPTIMIZER = "sgd",
) -> None:
    """State a problem, for `hypar_opt.cli.request.problem`."""


def solving(
    place: options.PLACE = False,
    solver: options.SOLVER = "dp",
    search: options.SEARCH = None,
    backend: options.BACKEND = None,
    solver_option: options.SOLVER_OPTION = None,
    time_limit: options.TIME_LIMIT = None,
    gap: options.GAP = 0.0,
    threads: options.THREADS = None,
    seed: options.SEED = None,
    hint: options.HINT = False,
) -> None:
    """Say how it is solved, for `hypar_opt.cli.request.solved`."""


def takes(*groups: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of some groups, before the rest of its own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True).parameters
        shared = [
            parameter
            for group in groups
            for parameter in signature(group, eval_str=True).parameters.values()
        ]
        names = {parameter.name for parameter in shared}
        first = [each for each in own.values() if each.default is Parameter.empty]
        last = [each for each in own.values() if each not in first and each.name not in names]
        parameters = [*first, *(own.get(each.name, each) for each in shared), *last]

        @wraps(command)
        def called(**given: object) -> None:
            command(**{name: given[name] for name in own})

        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate
