"""Settings of frameworks for training: a configuration in the words of each."""

from hypar_opt.errors import UnknownNameError
from hypar_opt.execution.formats import FORMATS
from hypar_opt.execution.settings.framework import Framework, TrainingRun
from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.configuration import Configuration

FRAMEWORKS = FrozenDict(
    (name, kind())
    for name, kind in ((name, FORMATS[name]) for name in FORMATS.built_in_names())
    if issubclass(kind, Framework)
)
"""The formats of ``export --to`` that are settings of a framework."""


def framework(name: str) -> Framework:
    """Return a framework by its name.

    Raises
    ------
    HyparError
        If it is unknown.
    """
    if name not in FRAMEWORKS:
        raise UnknownNameError("framework", name, [*FRAMEWORKS])
    return FRAMEWORKS[name]


def settings(name: str, configuration: Configuration, run: TrainingRun) -> str:
    """Return a framework's settings for a configuration, with a comment for each thing left out.

    Raises
    ------
    HyparError
        If the framework is unknown; if the degrees are not those of so many devices, or do not
        divide the batch.

    Examples
    --------
    >>> run = TrainingRun(batch=64, tokens=4096, devices=64, layers=80)
    >>> text = settings("deepspeed", Configuration(dp_shard=64, zero="weights"), run)
    >>> '"stage": 3' in text
    True
    """
    return framework(name).settings(configuration, run)


def lacks(name: str, configuration: Configuration, run: TrainingRun) -> list[str]:
    """Return what a framework has no words for; empty if it trains the configuration.

    Raises
    ------
    HyparError
        If the framework is unknown.

    Examples
    --------
    >>> run = TrainingRun(batch=64, tokens=4096, devices=64, layers=80)
    >>> configuration = Configuration(dp_shard=64, recompute="full", blocks=20, zero="weights")
    >>> lacks("megatron", configuration, run)
    []
    >>> lacks("torchtitan", configuration, run)
    ['full recomputation in 20 of 80 blocks: FullAC wraps every block']
    """
    return framework(name).lacks(configuration, run)


__all__ = ["FRAMEWORKS", "Framework", "TrainingRun", "framework", "lacks", "settings"]
