"""The zoo: the ten networks of the paper, and modern ones, one TOML file each.

Source: section 6.1, with the shapes that the paper's figures imply; each file's ``source``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, argument

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hypar_opt.workload.network import Network

PAPER_NETWORKS = (
    *("sfc", "sconv", "lenet-c", "cifar-c", "alexnet"),
    *("vgg-a", "vgg-b", "vgg-c", "vgg-d", "vgg-e"),
)
"""The paper's ten, in the order of its figures, which is neither alphabetical nor a folder's."""

ALIASES = {"vgg11": "vgg-a", "vgg13": "vgg-b", "vgg16": "vgg-d", "vgg19": "vgg-e"}
"""Networks by their layers with weights, where the zoo has the letters of Simonyan and Zisserman.

Source: Simonyan and Zisserman, "Very deep convolutional networks", ICLR 2015, table 1; of their two
with 16 layers, C and D, D is what frameworks call VGG-16."""

GRAPHS = (".onnx", ".pt2")
"""How files of graphs of operators end: of ONNX, and of exported programs of PyTorch."""

MODELS = (".json", *GRAPHS)
"""How the files of models of others end: of a ``config.json``, too."""


@cache
def names() -> tuple[str, ...]:
    """The zoo's names, the paper's ten in the paper's order, then any further file."""
    packaged = {
        f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml")
    }
    return (*PAPER_NETWORKS, *sorted(packaged.difference(PAPER_NETWORKS)))


def zoo_name(name: str) -> str:
    """Return the zoo's name of a network also known as ``resnet50``, ``GPT-2`` or ``vgg16``.

    Any other name is returned unchanged.
    """
    return _zoo().get(_plain(name), name)


@cache
def _zoo() -> dict[str, str]:
    return {_plain(name): name for name in names()} | ALIASES


def _plain(name: str) -> str:
    # Names are written with or without a hyphen before a number.
    return name.lower().replace("-", "").replace("_", "")


def named(word: str) -> tuple[str, ...]:
    """Return the networks that a word stands for: ``all``, ``paper``, or itself."""
    return {"all": names(), "paper": PAPER_NETWORKS}.get(word, (word,))


@checked
def load(name: str) -> Network:
    """Return a network of the zoo by its name, in any case, or an alias.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    # Imported late, as below: listing names must not import pydantic (`--help` stays quick).
    from hypar_opt.documents.document import load_preset
    from hypar_opt.workload.network import Network

    return load_preset("network", Network, __name__, names(), zoo_name(name))


def find_network(network: str | Path | Network, tokens: int | None = None) -> Network:
    """Return a network of the zoo by its name or an alias, in any case, or read a network file.

    ``gpt:layers=24,hidden=2304,heads=24`` is a GPT of that size.

    Parameters
    ----------
    tokens
        The length of its sequences, in place of its own.

    Raises
    ------
    InputError
        If the file cannot be read or is not a network.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    HyparError
        If the network is not one of sequences of so many tokens.
    """
    loaded = _parsed_name(network)
    if tokens is None:
        return loaded
    from hypar_opt.workload.sequence_length import with_tokens

    return with_tokens(loaded, tokens)


def _parsed_name(network: str | Path | Network) -> Network:
    from hypar_opt.documents.document import find
    from hypar_opt.workload.network import Network

    if isinstance(network, str):
        kind, keyed, keys = network.partition(":")
        if keyed and kind.lower() == "gpt":
            from hypar_opt.models.gpt import gpt_of_keys

            return gpt_of_keys(keys)
        network = zoo_name(network)
    return find("network", network, Network, names(), load, read_network)


def file_text(network: str) -> str:
    """Return the text of a network's file: of the zoo's, or one's own.

    Raises
    ------
    InputError
        If the file cannot be read or is no network.
    HyparError
        If it is a model of others, which is no network file.
    """
    from hypar_opt.documents.document import preset_text
    from hypar_opt.documents.files import read_text

    name = zoo_name(network).lower()
    if name in names():
        return preset_text(__name__, name)
    find_network(network)
    if network.endswith(MODELS):
        raise HyparError(f"{network!r} is a model of others: hypar-opt import writes it as TOML")
    return read_text(network)


@checked
def read_network(
    path: str | Path,
    *,
    dims: Mapping[str, int] | None = None,
) -> Network:
    """Read a network file; by its suffix a language model's ``config.json``, or a graph.

    Without a suffix, as from standard input, what begins with a brace is a ``config.json``. ONNX
    models, and exported programs of PyTorch, are read as `hypar_opt.import_` does.

    Parameters
    ----------
    dims
        Of a model alone: the sizes of its dynamic dimensions by name.

    Raises
    ------
    InputError
        Naming the file, the layer and the key, and what would be right.
    """
    from pathlib import Path

    from hypar_opt.documents.document import validate
    from hypar_opt.documents.files import file_name, is_standard_input, read_text
    from hypar_opt.documents.kinds import read_as
    from hypar_opt.documents.parsing import parse_toml
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.routers import with_counts

    file = file_name(path)
    if file.endswith(MODELS):
        from hypar_opt.models.imported import import_

        return import_(path, dims=dims)
    if dims:
        raise HyparError(f"{argument('dims')} goes with an ONNX model, or a program of PyTorch's")
    text = read_text(path)
    if text.lstrip().startswith("{"):
        from hypar_opt.models.config import read_config

        return validate(Network, read_config(path), file=file)
    beside = Path() if is_standard_input(path) else Path(path).parent
    with read_as("network", text, file):
        return validate(Network, with_counts(parse_toml(text, file=file), beside), file=file)
