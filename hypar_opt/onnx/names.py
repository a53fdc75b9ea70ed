"""Names of layers, derived from the file's names of weights, nodes or tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.table import OPERATORS

# Suffixes of weights' names: conv1_1_w_0, fc.weight, dense/kernel:0, W, onnx::MatMul_123.
_WEIGHTS = re.compile(
    r"[._/](?:weight|kernel|weights|gamma|scale|w|s|embeddings?|qweight|MatMul_B_quant)"
    r"(?:[._](?:\d+|quantized|orig|transposed))?(?::\d+)?$"
)
_BIAS = re.compile(r"[._/](?:bias|beta|b)(?:[._]\d+)?(?::\d+)?$")
# Names that exporters generate by counting: 123, r12, n3, val_110, onnx::Conv_45.
_COUNTED = re.compile(r"onnx::.*|(?:r|n|val|node|tensor|t|op|Op)?_?\d*|.*::\w+_\d+")
# Prefixes and suffixes that exporters add to a module's name.
_DECORATION = re.compile(r"^/+|^node_|/(?:Conv|Gemm|MatMul|Gather|Add|Mul|Concat)(?:_\d+)?$")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_./-]+")
_DOTS = re.compile(r"\.\.+")
# Layers that stand for several nodes or none, so that the known node does not name them.
_NAMELESS = frozenset({"flatten", "global_pool", "shuffle"})


def proposals(layers: Sequence[Layer]) -> list[str]:
    """Return a legal name for each layer, empty where the file has no useful one.

    Names may repeat.
    """
    shared = Counter(layer.weights.name for layer in layers)
    biases = Counter(name for layer in layers for name in _biases(layer))
    tables = {layer.weights.name for layer in layers if layer.operator.reads_ids}
    names = []
    for layer in layers:
        # Exporters write equal tensors once, so that a shared tensor's name fits no layer, except a
        # head that shares an embedding's.
        weight = layer.weights.name
        fits = shared[weight] == 1 or ("tied" in layer.keys and weight in tables)
        fits = fits and weight.startswith(_own_module(layer))
        bias_names = [name for name in _biases(layer) if biases[name] == 1]
        names.append(_name(layer, weight if fits else "", bias_names))
    # Drop a first component that all names share, such as gpu_0/; modules' names have dots.
    while len({name.partition("/")[0] for name in names if name}) == 1 and all(
        "/" in name for name in names if name
    ):
        names = [name.partition("/")[2] for name in names]
    return [_DOTS.sub(".", name.replace("/", ".")) for name in names]


def _biases(layer: Layer) -> list[str]:
    """Return the names of a layer's vectors: its bias, whose matrix may have lost its name."""
    return list(dict.fromkeys(region.name for region in layer.weights.stated))


def _name(layer: Layer, weight: str, biases: Sequence[str]) -> str:
    node = layer.node
    candidates = [_WEIGHTS.sub("", weight)]
    candidates += [_BIAS.sub("", name) for name in biases if _BIAS.search(name)]
    if node is not None and layer.kind not in _NAMELESS:
        candidates.append(_module(layer, node))
        if not layer.is_nameless:
            candidates += [node.name, *node.outputs[:1]]
    return next(filter(None, map(_legal, candidates)), "")


def is_counted(name: str) -> bool:
    """Return whether an exporter generated a tensor's name by counting."""
    return _COUNTED.fullmatch(name) is not None


def _own_module(layer: Layer) -> str:
    """Return the module that a layer's node is in, empty if unknown."""
    *modules, _ = layer.node.scopes if layer.node and layer.node.scopes else [""]
    return modules[-1] if modules else ""


def _module(layer: Layer, node: OnnxNode) -> str:
    """Return the name of the module that a node is in, for layers without weights."""
    module, scope = _own_module(layer), (node.scopes or [""])[-1]
    if layer.weights.regions or not module:
        return module
    scope = re.sub(r"_\d+$", "", scope)
    return "" if layer.is_nameless else f"{module}.{scope}"


def _legal(text: str) -> str:
    text = _DECORATION.sub("", _DECORATION.sub("", text))
    # A node named after its operator, such as MatMul_36, counts as unnamed.
    if is_counted(text) or text.rstrip("0123456789").rstrip("_") in OPERATORS:
        return ""
    name = _without_illegal(text)
    return "" if name == "input" or name.isdecimal() else name


def _without_illegal(text: str) -> str:
    return _ILLEGAL.sub("_", text.replace(":", ".")).strip("._-/")[:80]


def input_name(text: str) -> str:
    """Return a legal name for an input of the file."""
    return _without_illegal(text) or "input"


def unique(names: Sequence[str], layers: Sequence[Layer]) -> list[str]:
    """Return unique names: repeated ones get numbers, empty ones become the layer's kind.

    Parts of one weight have one name, and their numbers in it behind a dot.
    """
    parts: dict[int, list[int]] = {}
    for place, layer in enumerate(layers):
        parts.setdefault(id(layer.node) if "part" in layer.keys else place, []).append(place)
    wanted = [names[first] or layers[first].kind for first, *_ in parts.values()]
    count = Counter([*wanted, "input", "input"])
    # A name that occurs once is kept.
    used = {name for name, times in count.items() if times == 1} | {"input"}
    out = dict[int, str]()
    numbers: Counter[str] = Counter()
    for name, places in zip(wanted, parts.values(), strict=True):
        ends = [""]
        if "part" in layers[places[0]].keys:
            places.sort(key=lambda place: [region.first for region in layers[place].weights.matrix])
            ends = [f".{n}" for n in range(1, len(places) + 1)]
        candidate, is_kept = name, count[name] == 1 and ends == [""]
        while not is_kept and (
            (candidate == name and count[name] > 1) or any(candidate + end in used for end in ends)
        ):
            numbers[name] += 1
            candidate = f"{name}_{numbers[name]}"
        chosen = [candidate + end for end in ends]
        used.update(chosen)
        out |= dict(zip(places, chosen, strict=True))
    return [out[place] for place in range(len(layers))]
