"""The network, array or plan that a name or a file stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypar_opt.checked import checked
from hypar_opt.documents import kinds
from hypar_opt.documents.files import exists, is_standard_input, read_text
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.models import GRAPHS, find_network, zoo_name
from hypar_opt.models import names as network_names
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.settings import changed
from hypar_opt.search.plan_file import read_plan, repriced
from hypar_opt.workload.network import Network

NETWORK, ARRAY, PLAN = "a network", "an array", "a plan file"

_TAKES = {"tokens": (NETWORK,), "settings": (NETWORK, ARRAY), "reading": (PLAN,)}


@checked
def show(
    source: str | Path,
    *,
    tokens: int | None = None,
    settings: Mapping[str, Any] | None = None,
    reading: str | None = None,
) -> Network | Array | Plan:
    """Return what a name or file stands for; a notebook or ``rich.print`` shows it in full.

    Parameters
    ----------
    source
        A network of the zoo or the file of one, a preset of an array or the file of one, or a plan
        file.
    tokens
        The length of a network's sequences, in place of its own.
    settings
        Other values of keys of a network or an array, as ``{"topology.link.bandwidth": "1 TB/s"}``.
    reading
        Of a plan: price its choices by another reading.

    Raises
    ------
    HyparError
        If there is nothing of that name, or it does not have what is stated.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> ho.show("lenet-c").name, ho.show("h100-8").name
    ('Lenet-c', 'h100-8')
    """
    name = str(source)
    settings = settings or {}
    if is_plan_file(name):
        _refuse(name, PLAN, tokens=tokens, settings=settings)
        return repriced(read_plan(name), reading=reading)
    if is_array_named(name):
        _refuse(name, ARRAY, tokens=tokens, reading=reading)
        array = arrays.find_array(name)
        return changed(None, array, settings).array or array
    try:
        network = find_network(name, tokens)
        network = changed(network, None, settings).network or network
    except UnknownNameError:
        names = [*network_names(), *arrays.names()]
        raise UnknownNameError("network or array", name, names) from None
    _refuse(name, NETWORK, reading=reading)
    return network


def kind_of(shown: Network | Array | Plan) -> str:
    """Return the kind of a result of `show`, in words."""
    return {Network: NETWORK, Array: ARRAY, Plan: PLAN}[type(shown)]


def refuse(option: str, name: str, kind: str, takes: Sequence[str]) -> None:
    """Refuse an option that does not apply to this kind.

    Raises
    ------
    HyparError
        If the kind is not one of those.
    """
    if kind not in takes:
        raise HyparError(f"{option} takes {' or '.join(takes)}, and {name!r} is {kind}")


def _refuse(name: str, kind: str, **stated: Any) -> None:
    for option, value in stated.items():
        if value:
            refuse(argument(option), name, kind, _TAKES[option])


def is_plan_file(name: str) -> bool:
    """Return whether a name is that of a plan file: JSON starts with a brace, TOML cannot.

    A language model's configuration is JSON, too, and a network.
    """
    path = Path(name)
    if is_standard_input(name):
        return _begins_a_plan(read_text(name))
    if path.suffix == ".json":
        # Also if it is missing or damaged: reading it as a plan then says so.
        return not exists(path) or kinds.kind_of(read_text(path)) != "network"
    if zoo_name(name) in network_names() or path.suffix in GRAPHS or not exists(path):
        return False
    return path.is_file() and _begins_a_plan(read_text(path))


def _begins_a_plan(text: str) -> bool:
    return text.lstrip().startswith("{") and kinds.kind_of(text) != "network"


def is_array_named(name: str) -> bool:
    """Return whether a name is that of an array: a preset, or a file with an array's keys."""
    if is_standard_input(name):
        return kinds.kind_of(read_text(name)) == "array"
    path = Path(name)
    if zoo_name(name) in network_names() or path.suffix in GRAPHS:
        return False
    if name.lower() in arrays.names():
        return True
    # If it cannot be parsed, reading it as a network says what is wrong.
    return exists(path) and path.is_file() and kinds.kind_of(read_text(path)) == "array"
