"""The zoo: the ten networks of the paper, one TOML file each.

Source: section 6.1, with the shapes that the paper's figures imply.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from hypar_opt.errors import UnknownNameError

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

_ORDER = (
    *("sfc", "sconv", "lenet-c", "cifar-c", "alexnet"),
    *("vgg-a", "vgg-b", "vgg-c", "vgg-d", "vgg-e"),
)


@cache
def names() -> tuple[str, ...]:
    """The zoo's names, the paper's ten in the paper's order, then any further file."""
    found = {
        f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml")
    }
    return (*(n for n in _ORDER if n in found), *sorted(found.difference(_ORDER)))


def load(name: str) -> Network:
    """Return a network of the zoo by its name, in any case.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    from hypar_opt.documents import parse_toml, read_text, validate
    from hypar_opt.workload.network import Network

    if name.lower() not in names():
        raise UnknownNameError("network", name, list(names()))
    file = f"{name.lower()}.toml"
    with as_file(files(__name__).joinpath(file)) as path:
        text = read_text(path)
    return validate(Network, parse_toml(text, file=file), file=file)
