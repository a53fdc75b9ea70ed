"""Any graph, in the node-link format of networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from hypar_opt.documents.document import Document, rule
from hypar_opt.documents.files import read_text
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import InputError
from hypar_opt.hardware.links import Graph
from hypar_opt.hardware.topologies.base import LinkSpec, Topology, as_dimensions, check_size
from hypar_opt.hierarchy import Hierarchy

MAX_NODES, MAX_EDGES = 4096, 2**16
"""Upper bounds on a graph's size: a search for routes visits all nodes and edges."""


def _is_printable(value: object) -> object:
    for component in value if isinstance(value, list | tuple) else [value]:
        if isinstance(component, str) and not component.isprintable():
            raise rule(f"should be in printable characters, got {component!r}")
    return value


# networkx names the nodes of its grids by tuples, which JSON has as lists.
Id = Annotated[
    Annotated[int, Strict()] | Annotated[str, Strict()] | tuple[int | str, ...],
    BeforeValidator(_is_printable),
]


class NodeSpec(Document):
    """An accelerator, by its number, or a switch."""

    id: Id
    accelerator: Annotated[int, Strict(), Field(ge=0)] | None = None

    @property
    def graph_node(self) -> int | str:
        """Its node in the interconnect's graph: an accelerator's number, or a switch's name."""
        # Text, as the interconnect reads integers as accelerators.
        if self.accelerator is not None:
            return self.accelerator
        return self.id if isinstance(self.id, str) else f"switch {self.id}"


class EdgeSpec(LinkSpec):
    """A link between two nodes, by their ids."""

    source: Id
    target: Id


def _dropped(_: dict[str, Any]) -> dict[str, Any]:
    # Neither used nor written back, so that an array's digest does not depend on them.
    return {}


class NodeLink(Document):
    """The document that ``networkx.node_link_data`` returns for an undirected graph."""

    directed: Annotated[bool, Strict()] = False
    multigraph: Annotated[bool, Strict()] = False
    graph: Annotated[dict[str, Any], AfterValidator(_dropped)] = Field(default={}, exclude=True)
    """The graph's own attributes, which are ignored and not written back."""
    nodes: Annotated[tuple[NodeSpec, ...], Field(min_length=1)]
    edges: tuple[EdgeSpec, ...]

    @model_validator(mode="before")
    @classmethod
    def _older_networkx(cls, data: Any) -> Any:
        """Accept ``links``, as older versions of networkx name the edges."""
        if isinstance(data, dict) and "links" in data and "edges" not in data:
            return {"edges" if key == "links" else key: value for key, value in data.items()}
        return data

    @model_validator(mode="after")
    def _is_one_simple_graph(self) -> Self:
        if self.directed or self.multigraph:
            key = "directed" if self.directed else "multigraph"
            raise rule(f"{key}: should be false, got true")
        for key, limit in (("nodes", MAX_NODES), ("edges", MAX_EDGES)):
            count = len(getattr(self, key))
            if count > limit:
                raise rule(f"{key}: should be at most {limit:,}, got {count:,}")
        # After the limits above, since these checks visit every node and edge.
        self._check_edges(self._checked_ids())
        check_size(sum(node.accelerator is not None for node in self.nodes))
        return self

    def _checked_ids(self) -> set[Id]:
        """Return the nodes' ids, which are unique, as are the nodes of the interconnect's graph."""
        ids: set[Id] = set()
        graph_nodes: set[int | str] = set()
        for node in self.nodes:
            if node.id in ids:
                raise rule(f"nodes: should have one id each, {node.id!r} appears twice")
            if node.graph_node in graph_nodes:
                what = "switch" if node.accelerator is None else "accelerator"
                raise rule(f"nodes: {what} {node.graph_node!r} appears twice")
            ids.add(node.id)
            graph_nodes.add(node.graph_node)
        return ids

    def _check_edges(self, ids: set[Id]) -> None:
        """Refuse an edge that does not join two nodes, or joins two that another edge joins."""
        pairs: set[frozenset[Id]] = set()
        for number, edge in enumerate(self.edges):
            for key in ("source", "target"):
                if getattr(edge, key) not in ids:
                    problem = f"no node has the id {getattr(edge, key)!r}"
                    raise rule(f"edges[{number}], {key}: {problem}")
            pair = frozenset((edge.source, edge.target))
            if len(pair) == 1:
                raise rule(f"edges[{number}]: should join two nodes, got {edge.source!r} twice")
            if pair in pairs:
                ends = f"{edge.source!r} and {edge.target!r}"
                raise rule(f"edges[{number}]: should be the only one between {ends}")
            pairs.add(pair)


class GraphTopology(Topology):
    """Any connected graph, inline or in a file."""

    summary: ClassVar[str] = "any graph, inline or in a node-link JSON file of networkx"

    kind: Literal["graph"]
    document: NodeLink = Field(alias="graph")

    @classmethod
    def located(cls, table: dict[str, Any], folder: Path) -> dict[str, Any]:
        if ("file" in table) == ("graph" in table):
            count = "both" if "file" in table else "neither"
            raise InputError(f"should have one of file and graph, got {count}", where="topology")
        if "file" not in table:
            return table
        file = table["file"]
        if not isinstance(file, str):
            raise InputError(f"should be a path, got {file!r}", where="topology, file")
        inline = parse_json(read_text(folder / file), file=str(folder / file))
        return {key: value for key, value in table.items() if key != "file"} | {"graph": inline}

    def graph(self) -> Graph:
        names = {node.id: node.graph_node for node in self.document.nodes}
        graph = Graph((name, {}) for name in names.values())
        for edge in self.document.edges:
            graph.add_edge(names[edge.source], names[edge.target], **edge.edge())
        return graph

    def levels(self) -> tuple[tuple[int, ...], ...]:
        count = sum(node.accelerator is not None for node in self.document.nodes)
        # A dimension per prime factor: the levels may split the digits of a graph in any order.
        return as_dimensions(*Hierarchy((count,)).in_primes.sizes)
