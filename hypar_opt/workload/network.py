"""A network as described by one TOML file: its layers, their inputs and sizes.

`docs/network-format.md` documents the format; `json_schema` derives its JSON Schema from
these classes. Sizes in a file are a whole number or ``[height, width]``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from hypar_opt.documents.document import (
    Document,
    Name,
    Printable,
    Size,
    Table,
    digest_of,
    rule,
)
from hypar_opt.documents.parsing import shown
from hypar_opt.frozen import FrozenDict
from hypar_opt.results import Displayed
from hypar_opt.units import format_dimensions
from hypar_opt.workload.blocks import Block, Layer
from hypar_opt.workload.expansion import INPUT, Expanded, Repeat, expand
from hypar_opt.workload.layer_tensors import memoised, tensors_of
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import ADDENDS, REPLICATED
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.maps import (
    ExpertMap,
    FeatureMap,
    LayerMaps,
    Map,
    TokenMap,
    described,
)
from hypar_opt.workload.operators.words import words_of
from hypar_opt.workload.routers import check_routers

SCHEMA: Literal["hypar-opt/network/2"] = "hypar-opt/network/2"
CHAIN_SCHEMA: Literal["hypar-opt/network/1"] = "hypar-opt/network/1"
"""Version 1: convolutions and fully-connected layers, each reading the one before it."""

_ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}


class ImageInput(Document):
    channels: Size
    height: Size
    width: Size

    def feature_map(self) -> FeatureMap:
        return FeatureMap(self.channels, self.height, self.width)


class VectorInput(Document):
    features: Size

    def feature_map(self) -> FeatureMap:
        return FeatureMap(self.features)


class TokenInput(Document):
    """A sequence of tokens: ids of a vocabulary, or one vector of features per token."""

    tokens: Size
    vocabulary: Size | None = None
    features: Size | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.vocabulary is None) == (self.features is None):
            raise rule("should have one of the keys 'vocabulary' and 'features' beside 'tokens'")
        return self

    def feature_map(self) -> TokenMap:
        return TokenMap(self.tokens, self.features or 1)


# Inputs are distinguished by their keys, so that an error concerns the intended kind rather than
# all of them (docs/decisions/0002-validation.md).
def _input_kind(value: Any) -> str:
    if isinstance(value, dict):
        return "tokens" if "tokens" in value else "vector" if "features" in value else "image"
    if isinstance(value, TokenInput):
        return "tokens"
    return "vector" if isinstance(value, VectorInput) else "image"


Input = Annotated[
    Annotated[ImageInput, Tag("image")]
    | Annotated[VectorInput, Tag("vector")]
    | Annotated[TokenInput, Tag("tokens")],
    Discriminator(_input_kind),
]


class Network(Displayed, Document):
    """The layers of a network and their inputs: a chain, or any acyclic graph.

    Raises
    ------
    InputError
        Where layers do not fit one another; ``model_validate`` raises pydantic's error.
    """

    written_schema: ClassVar[str | None] = SCHEMA
    read_schemas: ClassVar[tuple[str, ...]] = (CHAIN_SCHEMA,)

    schema_: Literal["hypar-opt/network/1", "hypar-opt/network/2"] = Field(
        default=CHAIN_SCHEMA, alias="schema"
    )
    name: Name
    source: Printable = ""
    input: Input
    inputs: Annotated[Table[Name, Input], Field(min_length=1)] | None = None
    """Further inputs by name: images, vectors, or features of tokens."""
    stated: Annotated[tuple[Layer, ...], Field(min_length=1, alias="layer")]
    """The layers outside blocks, as in the file; `layers` has all, in topological order."""
    blocks: Annotated[tuple[Block, ...] | None, Field(min_length=1, alias="block")] = None
    element_type: Literal["float16", "bfloat16", "float64"] | None = None
    """The type of the model's weights, the default for a problem's bytes per element; None for
    single precision, or if unknown."""
    not_kept: Annotated[tuple[Printable, ...], Field(min_length=1)] | None = None
    """Parts of the model that this network omits, one short phrase each."""
    remarks: Annotated[tuple[Printable, ...], Field(min_length=1)] | None = None
    """Sentences on how the model was read, where nothing is missing."""

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        if self.schema_ == CHAIN_SCHEMA:
            _check_chain(self)
        self._check_further_inputs()
        # Both properties raise where names or shapes do not fit.
        names = (layer.name for layer in self.layers)
        self._check_weights(dict(zip(names, self._maps, strict=True)))
        return self

    @cached_property
    def _expanded(self) -> Expanded:
        expanded = _with_classes(expand(self.stated, self.blocks or (), self.input_names))
        if isinstance(self.input, TokenInput) and self.input.vocabulary:
            default = {"vocabulary": self.input.vocabulary}
            layers = tuple(
                layer.model_copy(update=default)
                if (reads or getattr(layer, "ids", None))
                and getattr(layer, "vocabulary", 0) is None
                else layer
                for layer, reads in zip(expanded.layers, expanded.sources, strict=True)
            )
            return expanded._replace(layers=layers)
        return expanded

    @property
    def layers(self) -> tuple[Operator, ...]:
        """All layers, blocks expanded, in topological order."""
        return self._expanded.layers

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The positions of each layer's inputs, in their order; `input_names` from -1 downwards."""
        return self._expanded.sources

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the network's inputs; the first one's is ``input``."""
        # Sorted, since networks are equal whatever the order of a table's keys.
        return INPUT, *sorted(self.inputs or ())

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of layers and of the network's inputs, to be indexed by `sources`."""
        return *(layer.name for layer in self.layers), *reversed(self.input_names)

    def input_of(self, source: int) -> ImageInput | VectorInput | TokenInput:
        """Return the network's input that a negative source stands for."""
        return self.input if source == -1 else (self.inputs or {})[self.input_names[~source]]

    def map_of(self, source: int) -> Map:
        """Return the map of a source: a layer's output, or an input of the network."""
        return self.input_of(source).feature_map() if source < 0 else self._maps[source].pooled

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """The blocks, by the positions of their layers."""
        return self._expanded.repeats

    @cached_property
    def weight_users(self) -> Mapping[int, tuple[int, ...]]:
        """The positions of layers that share a weight, by that of its owner, the first of them."""
        position = {layer.name: n for n, layer in enumerate(self.layers)}
        users: dict[int, list[int]] = {}
        for n, layer in enumerate(self.layers):
            if layer.shares_weights_with is not None:
                owner = position[layer.shares_weights_with]
                users.setdefault(owner, [owner]).append(n)
        return FrozenDict((owner, tuple(users[owner])) for owner in sorted(users))

    @property
    def element_bytes(self) -> int:
        """Bytes per element of the model's weights: 4 by default."""
        return _ELEMENT_BYTES.get(self.element_type or "", 4)

    @property
    def is_chain(self) -> bool:
        """Whether each layer reads only the one before it."""
        return all(reads == (position - 1,) for position, reads in enumerate(self.sources))

    def shares_tensors(self, choices: Sequence[str]) -> bool:
        """Return whether any tensor's layout is a choice: it has several readers, or may be whole.

        With the paper's choices none of a chain of convolutions and fully-connected layers does.
        """
        read = Counter(source for reads in self.sources for source in reads if source >= 0)
        several = max(read.values(), default=0) > 1
        return several or any(
            {REPLICATED.word, ADDENDS.word} & {*words} for words in self.words(choices)
        )

    def maps(self) -> Iterator[LayerMaps]:
        """Yield each layer's maps for one image or sequence, in order."""
        yield from self._maps

    @cached_property
    def _maps(self) -> tuple[LayerMaps, ...]:
        """Propagate shapes, which checks that layers fit their inputs."""
        sources = {~number: self.input_of(~number) for number in range(len(self.input_names))}
        written: dict[int, Map] = {source: one.feature_map() for source, one in sources.items()}
        is_vector = {source: isinstance(one, VectorInput) for source, one in sources.items()}
        all_maps = []
        for position, (layer, reads) in enumerate(zip(self.layers, self.sources, strict=True)):
            read_maps = [written[read] for read in reads]
            _check_inputs(layer, reads, self.input)
            _check_images(layer, read_maps, [is_vector[read] for read in reads])
            maps = layer.checked_maps(*read_maps)
            all_maps.append(maps)
            written[position] = maps.pooled
            # Only some kinds turn a flattened map back into an image.
            flat = layer.writes_vectors or all(is_vector[read] for read in reads)
            is_image = maps.pooled.tokens or layer.writes_images
            is_vector[position] = flat and not is_image
        check_routers(self.layers, self.sources)
        return tuple(all_maps)

    def _check_further_inputs(self) -> None:
        """Check that further inputs have a name of their own, and are not ids."""
        for name, source in (self.inputs or {}).items():
            if name == INPUT:
                raise rule("inputs, 'input': is the first input's name; rename it")
            if isinstance(source, TokenInput) and source.vocabulary is not None:
                raise rule(
                    f"inputs, {shown(name)}, vocabulary: an 'embedding' states further ids itself,"
                    " as 'ids'; should be 'features'"
                )

    def _check_weights(self, maps: dict[str, LayerMaps]) -> None:
        """Check that layers have weights of the shape that they share."""
        layers = {layer.name: layer for layer in self.layers}
        _check_parts(self.layers, self.sources)
        for layer in self.layers:
            if layer.shares_weights_with is None:
                continue
            owner = layers.get(layer.shares_weights_with)
            if (
                owner is None
                or owner.axes.weight != layer.axes.weight
                or owner.shares_weights_with is not None
                or (layer.reads_ids and not owner.reads_ids)
            ):
                kinds = "embedding" if layer.reads_ids else "embedding or fc"
                name = shown(layer.shares_weights_with)
                raise rule(
                    f"layer {layer.name!r}, tied: should name an {kinds} that has its own"
                    f" weights, got {name}"
                )
            sizes, needed = owner.sizes(maps[owner.name]), layer.sizes(maps[layer.name])
            # An embedding's rows are the units of the layer that is tied to it: transposed.
            shape = sizes["i"], sizes["o"]
            transposed = owner.reads_ids and not layer.reads_ids
            if (needed["i"], needed["o"]) != (shape[::-1] if transposed else shape):
                pads = {getattr(user, "pad", None) for user in (owner, layer)}
                raise rule(
                    f"layer {layer.name!r}, tied: {owner.name!r} has weights of {sizes['i']} by"
                    f" {sizes['o']}, this layer needs {needed['i']} by {needed['o']}"
                    f"{'; pad both alike' if len(pads) > 1 else ''}"
                )

    def words(self, choices: Sequence[str]) -> tuple[tuple[str | None, ...], ...]:
        """Return each layer's words for a problem's choices; None for a choice that it lacks."""
        return _words(self, tuple(choices))

    def __repr__(self) -> str:
        shape = "a chain" if self.is_chain else "a graph"
        read = described(self.input.feature_map())
        if isinstance(self.input, TokenInput) and self.input.vocabulary:
            read = f"{self.input.tokens} tokens"  # ids, which have no features
        further = "".join(
            f", {name} {described(given.feature_map())}"
            for name, given in (self.inputs or {}).items()
        )
        return f"<Network {self.name}: {shape} of {len(self.layers)} layers, input {read}{further}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each layer: the rows of a data frame.

        Shapes, as ``64x3x3``, and multiply-accumulates are for one image or sequence.
        """
        names = self.source_names
        tensors = [tensors_of(*pair, batch=1) for pair in zip(self.layers, self._maps, strict=True)]
        return [
            {
                "name": layer.name,
                "kind": layer.kind,
                "reads": ", ".join(names[read] for read in reads),
                "input": format_dimensions(layer.input[1:]),
                "weight": format_dimensions(layer.weight),
                "output": format_dimensions(layer.output[1:]),
                "pooled": format_dimensions(layer.pooled[1:]),
                "weights": prod(layer.weight) if layer.weight else 0,
                "feature_map": prod(layer.pooled),
                "macs": layer.macs,
            }
            for layer, reads in zip(tensors, self.sources, strict=True)
        ]

    def description(self) -> dict[str, Any]:
        """Return the network as plain data, with every default written out."""
        # TOML has no null: an optional key that is absent stays absent.
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def digest(self) -> str:
        """Return a hash of the description, independent of how a file formats it."""
        return self._digest

    def __hash__(self) -> int:
        # Equal networks have equal digests, which are cached; pydantic hashes all layers each time.
        return hash(self._digest)

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.description())


# Both a plan and its cost tables ask for them; networks are frozen, so results are cached.
@lru_cache(maxsize=16)
def _words(network: Network, choices: tuple[str, ...]) -> tuple[tuple[str | None, ...], ...]:
    def words(layer: Operator, maps: LayerMaps) -> tuple[str | None, ...]:
        return words_of(tensors_of(layer, maps, 1), choices)

    return tuple(memoised(words, zip(network.layers, network.maps(), strict=True)))


def _with_classes(expanded: Expanded) -> Expanded:
    """Set each loss's classes if it reads a padded layer.

    Raises
    ------
    InputError
        If another kind of layer reads the padding.
    """
    layers = list(expanded.layers)
    for position, layer in enumerate(layers):
        units = getattr(layer, "units", None)
        if units is None or getattr(layer, "pad", None) is None:
            continue
        readers = [n for n, reads in enumerate(expanded.sources) if position in reads]
        if not readers or any(getattr(layers[n], "loss", None) != "softmax" for n in readers):
            raise layer.refuse(
                "pad", "should be left out: only a softmax with its loss leaves padding out"
            )
        for reader in readers:
            if getattr(layers[reader], "classes", None) is None:
                layers[reader] = layers[reader].model_copy(update={"classes": units})
    return expanded._replace(layers=tuple(layers))


def _check_chain(network: Network) -> None:
    """Check that a file of version 1 has nothing that came later."""
    new = [
        network.blocks is not None and "block",
        network.inputs is not None and "inputs",
        isinstance(network.input, TokenInput) and "tokens",
        *(getattr(network, key) and key for key in ("element_type", "not_kept", "remarks")),
    ]
    for layer in network.stated:
        keys = ("inputs", "groups", "dilation", "transposed", "bias", "tied", "pad", "part")
        new += [key for key in keys if getattr(layer, key, None) is not None]
        windows = (layer, getattr(layer, "pool", None))
        new += [len(getattr(window, "padding", ())) > 2 and "padding" for window in windows]
        new += [layer.kind in _NEW_KINDS and f"kind {layer.kind!r}"]
    if any(new):
        raise rule(f"schema: should be {SCHEMA!r}, which has {next(filter(None, new))}")


def _check_parts(layers: Sequence[Operator], sources: Sequence[tuple[int, ...]]) -> None:
    """Check that layers named as parts of one module can share its weights."""
    firsts: dict[str, tuple[Operator, tuple[int, ...]]] = {}
    sized = ("name", "inputs", "units", "filters", "activation", "pool")
    for layer, reads in zip(layers, sources, strict=True):
        if not getattr(layer, "part", None):
            continue
        # Filters of a grouped convolution are ordered by group, not by part.
        if not layer.module or any(getattr(layer, key, None) for key in ("tied", "pad", "groups")):
            raise layer.refuse(
                "part", "should be of a name with a dot, without 'tied', 'pad' and 'groups'"
            )
        first, read = firsts.setdefault(layer.module, (layer, reads))
        if reads != read or layer.model_dump(exclude={*sized}) != first.model_dump(
            exclude={*sized}
        ):
            problem = f"should read what {first.name!r} reads, with the keys of that part"
            raise layer.refuse("part", f"{problem} of {layer.module!r}")


_NEW_KINDS = frozenset(name for name in OPERATORS.built_in_names() if name not in ("conv", "fc"))


def _check_inputs(layer: Operator, reads: tuple[int, ...], network_input: Document) -> None:
    """Check the number of inputs, and that only embeddings read token ids."""
    minimum, maximum = layer.reads
    if not minimum <= len(reads) <= maximum:
        number = f"{minimum}" if minimum == maximum else f"{minimum} or more"
        number = f"{minimum} to {maximum}" if minimum < maximum < 2**31 else number
        layers = "layer" if number == "1" else "layers"
        raise layer.refuse("inputs", f"should be {number} {layers}, got {len(reads)}")
    if len(set(reads)) < len(reads):
        raise layer.refuse("inputs", "should be different layers, got one twice")
    ids = isinstance(network_input, TokenInput) and network_input.vocabulary is not None
    if layer.reads_ids:
        if reads and (reads != (-1,) or not ids):
            raise layer.refuse(
                "inputs", "should be the network's 'input' of token ids, or none for a table"
            )
    elif ids and -1 in reads:
        raise layer.refuse("inputs", "only an 'embedding' reads token ids")


def _check_images(layer: Operator, reads: list[Map], vectors: list[bool]) -> None:
    """Check that layers that need height and width read images."""
    for read in reads:
        if layer.reads_images and not isinstance(read, FeatureMap):
            raise layer.refuse(
                "inputs",
                f"{layer.kind!r} needs channels, height and width, got {described(read)}",
            )
        if isinstance(read, ExpertMap) and not layer.reads_experts:
            raise layer.refuse(
                "inputs", f"{layer.kind!r} takes no dispatched tokens, got {described(read)}"
            )
    if layer.reads_images and any(vectors):
        raise rule(
            f"layer {layer.name!r}, kind: should be 'fc', got {layer.kind!r}, which"
            " needs channels, height and width but reads a vector"
        )


def json_schema() -> dict[str, Any]:
    """Return the format's JSON Schema (2020-12), for editors and other programs.

    A schema cannot express that names are unique and that layers fit one another; reading a
    file checks both.
    """
    schema = Network.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA} | schema
