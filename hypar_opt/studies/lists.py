"""Everything registered by name: networks, arrays, solvers and more, for ``hypar-opt list``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, UnknownNameError

if TYPE_CHECKING:
    from hypar_opt.registry import Registry

Rows = Sequence[dict[str, Any]]


@checked
def list(what: str) -> Rows:  # noqa: A001
    """Return what is registered by name, one row of a data frame each.

    Parameters
    ----------
    what
        ``networks``, ``arrays``, ``topologies``, ``costs``, ``operators``, ``choices``,
        ``formats``, ``solvers``, or ``backends`` of the solver ``ilp``.

    Raises
    ------
    UnknownNameError
        If there is no such list.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> [row["name"] for row in ho.list("costs")]
    ['bytes', 'time', 'energy']
    """
    if what not in LISTS:
        raise UnknownNameError("list", what, [*LISTS])
    return LISTS[what]()


def networks() -> Rows:
    """List the networks of the zoo."""
    from hypar_opt import models
    from hypar_opt.workload.tensors import workload_of

    return [
        {
            "name": name,
            "layers": len(network.layers),
            # For a batch of one, on which weights do not depend; shared weights count once.
            "weights": sum(workload_of(network, 1).stored),
            "source": network.source,
        }
        for name, network in ((name, models.load(name)) for name in models.names())
    ]


def arrays() -> Rows:
    """List the accelerator arrays, their topologies and their collectives."""
    from hypar_opt.hardware.arrays import load, names

    return [
        {
            "name": name,
            "accelerators": array.interconnect.accelerators,
            "topology": ", ".join([array.topology.kind, *array.kinds]),
            "collective": array.collective,
            "source": array.source,
        }
        for name, array in ((name, load(name)) for name in names())
    ]


def topologies() -> Rows:
    """List the topologies that an array file may use, and the keys of each."""
    from hypar_opt.hardware.topologies import TOPOLOGIES

    def keys(topology: Any) -> dict[str, Any]:
        fields = topology.model_fields.items()
        return {"keys": ", ".join(field.alias or name for name, field in fields if name != "kind")}

    return _rows(TOPOLOGIES, keys)


def costs() -> Rows:
    """List the objectives that --cost takes."""
    from hypar_opt.costs import COSTS

    return _rows(COSTS)


def operators() -> Rows:
    """List the kinds of layers of a network file, and the axis that each choice splits."""
    from hypar_opt.workload.operators import OPERATORS

    def splits(operator: Any) -> dict[str, Any]:
        halved = (f"{choice.word} {choice.axis}".strip() for choice in operator.choices.values())
        return {"axes": str(operator.contraction), "choices": ", ".join(halved)}

    return _rows(OPERATORS, splits)


def choices() -> Rows:
    """List what --choices takes, and what each kind of layer splits under it."""
    from hypar_opt.workload.operators import OPERATORS
    from hypar_opt.workload.parallelism import CHOICES_WITH_QUERIES, WHOLE_LAYER

    rows = []
    for word in CHOICES_WITH_QUERIES:
        kinds: dict[str, Any] = {}
        for name in OPERATORS:
            choice = OPERATORS[name].choices.get(word)
            if choice is not None:
                kinds.setdefault(f"{choice.part}s" if choice.axis else "nothing", []).append(name)
        rows += [
            {"name": word, "splits": split, "kinds": ", ".join(of_split)}
            for split, of_split in kinds.items()
        ]
    kinds_of_whole = "every other, where no split of it fits"
    rows.append({"name": WHOLE_LAYER, "splits": "nothing", "kinds": kinds_of_whole})
    return rows


def formats() -> Rows:
    """List the formats that export --to takes."""
    from hypar_opt.execution.formats import FORMATS

    return _rows(FORMATS)


def solvers() -> Rows:
    """List the solvers, with their guarantees and options."""
    from hypar_opt.solvers import SOLVERS
    from hypar_opt.solvers.base import flags

    return _rows(SOLVERS, lambda solver: {"takes": " ".join(flags(solver.supported_options))})


def backends() -> Rows:
    """List the installed backends of the solver ilp."""
    from hypar_opt.solvers.backends.catalogue import installed_backends
    from hypar_opt.solvers.base import flags

    return [
        {
            "name": backend.name,
            "version": backend.version,
            "takes": " ".join(flags(backend.supported_options)),
        }
        for backend in installed_backends()
    ]


LISTS: dict[str, Callable[[], Rows]] = {
    function.__name__: function
    for function in (
        *(networks, arrays, topologies, costs, operators, choices, formats, solvers, backends),
    )
}
"""The functions that list, by name."""


def _rows(registry: Registry[Any], more: Callable[[Any], dict[str, Any]] = lambda _: {}) -> Rows:
    """Return one row per entry; for a plug-in that cannot be loaded, with the reason."""
    rows = []
    for name in registry:
        try:
            entry = registry[name]
            rows.append({"name": name, "summary": _summary(entry), **more(entry)})
        except HyparError as error:
            rows.append({"name": name, "summary": error.for_shell})
    # A table has the columns of its first row; those of a broken plug-in are empty.
    return [{**dict.fromkeys(rows[0], ""), **row} for row in rows]


def _summary(entry: Any) -> str:
    """Return one line about a class: its ``summary``, or the first line of its docstring."""
    summary = getattr(entry, "summary", None)
    if isinstance(summary, str):
        return summary
    first = (entry.__doc__ or "").strip().partition("\n")[0]
    return first.replace("``", "'").removesuffix(".")
