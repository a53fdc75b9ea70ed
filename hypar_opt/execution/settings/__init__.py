"""Settings files of training frameworks: a configuration in the terms of each."""

from hypar_opt.errors import UnknownNameError
from hypar_opt.execution.formats import FORMATS
from hypar_opt.execution.settings.framework import Framework, TrainingRun
from hypar_opt.frozen import FrozenDict

FRAMEWORKS = FrozenDict(
    (name, kind())
    for name in FORMATS.built_in_names()
    if issubclass(kind := FORMATS[name], Framework)
)
"""The formats of ``export --to`` that are settings of a framework."""


def framework(name: str) -> Framework:
    """Return a framework by its name.

    Raises
    ------
    HyparError
        If it is unknown.

    Examples
    --------
    >>> from hypar_opt.plan.configuration import Configuration
    >>> run = TrainingRun(batch=64, tokens=4096, devices=64, layers=80)
    >>> configuration = Configuration(dp_shard=64, recompute="full", blocks=20, zero="weights")
    >>> '"stage": 3' in framework("deepspeed").settings(configuration, run)
    True
    >>> framework("megatron").lacks(configuration, run)
    []
    >>> framework("torchtitan").lacks(configuration, run)
    ['full recomputation in 20 of 80 blocks: FullAC wraps every block']
    """
    if name not in FRAMEWORKS:
        raise UnknownNameError("framework", name, [*FRAMEWORKS])
    return FRAMEWORKS[name]


__all__ = ["FRAMEWORKS", "Framework", "TrainingRun", "framework"]
