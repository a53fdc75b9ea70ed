"""ONNX models as networks: graphs of operators, read without their weights.

The steps of an import: `model` parses the file, `rules` walks its nodes by the rules of `table`,
`layers` keeps what the outputs need, `document` describes it as a network file would, with repeated
runs as blocks. `docs/onnx.md` says what is read, left out and refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from onnx import ModelProto

    from hypar_opt.onnx.features import Layer
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.workload.network import Network


class ImportedModel(NamedTuple):
    """A model as a network.

    Parameters
    ----------
    content
        The content of the network's file.
    notes
        Sentences on how the model was read, and on omitted parts.
    layers
        The layers in the order of the network's, with the elements of the file that they learn.
    """

    content: dict[str, Any]
    network: Network
    notes: list[str]
    state: ImportState
    layers: list[Layer]

    @property
    def places(self) -> dict[int, int]:
        """The key under which a step's data has each input of the import."""
        names = {layer.name: position for position, layer in enumerate(self.network.layers)}
        names |= {name: ~number for number, name in enumerate(self.network.input_names)}
        stated = {source: axes.stated for source, axes in self.state.inputs.items()}
        return {source: names[name] for source, name in stated.items() if name}


def imported_model(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    *,
    loss: str | None = None,
    untie: bool = False,
    causal: bool = False,
    model: ModelProto | None = None,
    source: str = "",
) -> ImportedModel:
    """Read a model as a network, with where in the file its weights are.

    Parameters
    ----------
    path, dims, loss, untie, causal
        As `hypar_opt.models.imported.read_model` has them.
    model
        The parsed model, if the file is not ONNX; then ``source`` says where it is from.

    Raises
    ------
    InputError
        Names the file, the node and the operator, and says what would be right.
    """
    from hypar_opt.documents.document import validate
    from hypar_opt.onnx.account import check, repeated, uncounted_weights
    from hypar_opt.onnx.document import document
    from hypar_opt.onnx.layers import layers_of
    from hypar_opt.onnx.losses import LOSSES
    from hypar_opt.onnx.model import graph_of, load
    from hypar_opt.onnx.rules import read_graph
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.omitted import sentences

    if loss is not None and loss not in LOSSES:
        raise UnknownNameError("loss", loss, list(LOSSES))
    file = str(path)
    try:
        graph = graph_of(load(path) if model is None else model, dims or {})
        folder = Path(path).parent if model is None else None
        state = read_graph(graph, folder, causal=causal)
        layers = layers_of(state, loss=loss, untie=untie)
        source = source or f"ONNX model {_printable(Path(file).name)}"
        if graph.producer:
            source += f", written by {_printable(graph.producer)}"
        name = _printable(Path(file).stem) or "model"
        content = document(name, source, state.inputs, layers)
        statements: dict[str, Any] = {
            "element_type": state.element_type,
            "not_kept": [*state.omitted(), *uncounted_weights(state, layers)],
            "remarks": [*state.remarks, *repeated(layers)],
        }
        head = {key: value for key, value in statements.items() if value}
        # After the source, where a network file has them.
        first = {key: content.pop(key) for key in ("schema", "name", "source")}
        content = {**first, **head, **content}
        network = validate(Network, content, file=file)
        check(network, layers)
        notes = [*state.notes, *sentences(statements["not_kept"], statements["remarks"])]
        return ImportedModel(content, network, notes, state, layers)
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=file) from None


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:80].strip()
