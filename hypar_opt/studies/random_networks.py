"""Random networks, valid by construction: chains, and graphs of most kinds of layers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isqrt
from typing import Any, NamedTuple

from hypar_opt.errors import HyparError, argument
from hypar_opt.integers import divisors
from hypar_opt.workload.network import Network

MAX_NETWORKS = 100_000
"""Upper bound on the random networks of one run: hours of work, and a table in memory."""

COUNT = argument("random")

INPUTS = ("input", "states")
"""The names of the inputs of a random network."""

Described = dict[str, Any]


def random_networks(count: int, seed: int) -> Iterator[Network]:
    """Yield random networks, chains and graphs in turn: the same for the same seed.

    Raises
    ------
    HyparError
        If the count is out of range.
    """
    if not 1 <= count <= MAX_NETWORKS:
        raise HyparError(f"{COUNT} should be from 1 to {MAX_NETWORKS:,}, got {count}")
    # A separate generator, so that nothing else can draw from it and change the networks.
    rng = random.Random(seed)
    for index in range(count):
        name = f"random-{seed}-{index + 1}"
        yield random_graph(rng, name, largest=512) if index % 2 else random_chain(rng, name)


def random_chain(rng: random.Random, name: str) -> Network:
    """Return a chain of at most five convolutions, some pooled, and five fully-connected layers."""
    sides = [rng.randint(1, 64)]
    layers: list[Described] = []
    for position in range(rng.randint(0, 5)):
        # Stride 1 and no padding: the kernel must fit into the rest of the map.
        kernel = rng.choice([k for k in (1, 2, 3, 5) if k <= sides[-1]])
        side = sides[-1] - kernel + 1
        layer: Described = {"kind": "conv", "filters": rng.randint(1, 512)}
        layer |= {"name": f"conv{position + 1}", "kernel": kernel}
        if side >= 2 and rng.random() < 0.5:
            layer["pool"] = {"kind": "max", "size": 2}
            side //= 2
        sides.append(side)
        layers.append(layer)
    input_shape = {"channels": rng.randint(1, 64), "height": sides[0], "width": sides[0]}
    if not layers:
        input_shape = {"features": rng.randint(1, 4096)}
    layers += [
        {"name": f"fc{position + 1}", "kind": "fc", "units": rng.randint(1, 4096)}
        # A network has at least one layer.
        for position in range(rng.randint(0 if layers else 1, 5))
    ]
    return Network.model_validate({"name": name, "input": input_shape, "layer": layers})


class _Form(NamedTuple):
    """The size of a map, and its kind: an ``image``, a ``vector`` or ``tokens``."""

    kind: str
    channels: int
    positions: int = 1
    """The side of an image, or the number of tokens."""

    @property
    def stated(self) -> Described:
        """An input of this form, as in a network file."""
        if self.kind == "image":
            return {"channels": self.channels, "height": self.positions, "width": self.positions}
        tokens = {"tokens": self.positions} if self.kind == "tokens" else {}
        return tokens | {"features": self.channels}


def random_graph(
    rng: random.Random, name: str = "random", *, most: int = 12, largest: int = 9
) -> Network:
    """Return a random graph: images, or tokens, with branches, blocks and shared weights.

    Parameters
    ----------
    most
        The number of layers drawn at random; those that join or end the branches are additional.
    largest
        The largest number of channels of a layer that is drawn, and of a side or a vocabulary.
    """
    draft = _NetworkDraft(rng, largest)
    start = {"image": _image, "tokens": _tokens, "vector": _vector}
    reads = start[rng.choice(["image", "image", "tokens", "tokens", "vector"])](draft)
    inputs = {"states": draft.further()} if rng.random() < 0.25 else {}
    for _ in range(rng.randint(1, most)):
        draft.grow()
    draft.finish()
    described: Described = {"schema": "hypar-opt/network/2", "name": name, "input": reads}
    described |= {"inputs": inputs} if inputs else {}
    described["layer"] = draft.layers
    if draft.blocks:
        described["block"] = draft.blocks
    return Network.model_validate(described)


def _image(draft: _NetworkDraft) -> Described:
    form = _Form("image", draft.channels(), draft.rng.randint(1, min(draft.largest, 16)))
    draft.forms["input"] = form
    return form.stated


def _vector(draft: _NetworkDraft) -> Described:
    draft.forms["input"] = form = _Form("vector", draft.channels())
    return form.stated


def _tokens(draft: _NetworkDraft) -> Described:
    tokens = draft.channels()
    if draft.rng.random() < 0.5:
        draft.forms["input"] = form = _Form("tokens", draft.channels(), tokens)
        return form.stated
    vocabulary = draft.channels()
    form = _Form("tokens", draft.channels(), tokens)
    scaled = {"scale": vocabulary / 4} if vocabulary % 2 else {}
    draft.add("embedding", form, [], features=form.channels, inputs=["input"], **scaled)
    draft.embedding = draft.layers[-1]["name"], vocabulary
    if draft.rng.random() < 0.5:
        words = draft.add(
            "embedding", form, [], features=form.channels, vocabulary=tokens, inputs=[]
        )
        draft.add("add", form, [draft.embedding[0], words])
    return {"tokens": tokens, "vocabulary": vocabulary}


@dataclass
class _NetworkDraft:
    """The layers and blocks drawn so far."""

    rng: random.Random
    largest: int
    layers: list[Described] = field(default_factory=list)
    blocks: list[Described] = field(default_factory=list)
    forms: dict[str, _Form] = field(default_factory=dict)
    """The feature map of each name: the input, a layer or a block."""
    read: set[str] = field(default_factory=set)
    embedding: tuple[str, int] | None = None
    """The name and vocabulary of the embedding to which a head may be tied."""

    def channels(self) -> int:
        """Draw a number of channels: few prime factors, so that some have heads and groups."""
        sizes = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 48, 64, 96, 512)
        return self.rng.choice([*(n for n in sizes if n <= self.largest), self.largest])

    def add(self, kind: str, form: _Form, reads: list[str], **keys: Any) -> str:
        """Add a layer that reads others, and return its name."""
        name = f"{kind}{len(self.layers) + 1}"
        self.layers.append({"name": name, "kind": kind, "inputs": reads, **keys})
        self.forms[name] = form
        self.read |= set(reads)
        return name

    def further(self) -> Described:
        """Draw a further input: of a form that some map has, or tokens or a vector of any size."""
        form = self.rng.choice([*self.forms.values(), _Form("vector", self.channels())])
        if self.rng.random() < 0.3:
            form = _Form("tokens", self.channels(), self.channels())
        self.forms["states"] = form
        if self.rng.random() < 0.4:
            self.forms["states"] = form = _Form("vector", 1)
            features = 2 * max(1, self.channels() // 2)
            self.add("sinusoid", _Form("vector", features), ["states"], features=features)
        return form.stated

    def grow(self) -> None:
        """Add a layer or a block that reads any existing map, recent ones more often."""
        names = list(self.forms)
        source = names[-1] if self.rng.random() < 0.6 else self.rng.choice(names)
        form = self.forms[source]
        steps = [self.fully_connected, self.joined, self.joined, self.norm, self.block, self.part]
        steps += {
            "image": [
                *(self.convolution, self.convolution, self.pooled, self.shuffle, self.view),
                self.pixel_blocks,
            ],
            "tokens": [self.attention, self.attention, self.view, self.gate],
            "vector": [self.image],
        }[form.kind]
        self.rng.choice(steps)(source, form)

    def fully_connected(self, source: str, form: _Form) -> None:
        units, bias = self.channels(), self.rng.random() < 0.5
        form = form._replace(channels=units)
        if form.kind == "image":
            form = _Form("vector", units)
        self.add("fc", form, [source], units=units, bias=bias)

    def convolution(self, source: str, form: _Form) -> None:
        kernel = self.rng.choice([1, 3]) if form.positions > 1 else 1
        groups = self.rng.choice([n for n in (1, 1, 2, 3, form.channels) if not form.channels % n])
        filters = groups * max(1, self.channels() // groups)
        keys: Described = {"filters": filters, "kernel": kernel, "padding": kernel // 2}
        form = _Form("image", filters, form.positions)
        if groups > 1:
            keys["groups"] = groups
        if self.rng.random() < 0.2:
            keys["transposed"] = True
        if form.positions > 1 and self.rng.random() < 0.2:
            keys["pool"] = {"kind": "max", "size": 2}
            form = form._replace(positions=form.positions // 2)
        self.add("conv", form, [source], **keys)

    def pooled(self, source: str, form: _Form) -> None:
        if form.positions < 2:
            return self.convolution(source, form)
        form = form._replace(positions=form.positions // 2)
        self.add("pool", form, [source], pool={"kind": "average", "size": 2})
        return None

    def shuffle(self, source: str, form: _Form) -> None:
        groups = self.rng.choice([n for n in (1, 2, 3) if not form.channels % n])
        self.add("shuffle", form, [source], groups=groups)

    def part(self, source: str, form: _Form) -> None:
        """A range of the channels, half of them or of any size."""
        if form.channels % 2:
            size = self.rng.randint(1, form.channels)
            start = self.rng.randint(0, form.channels - size)
        else:
            size = form.channels // 2
            start = self.rng.choice([0, size])
        self.add("slice", form._replace(channels=size), [source], start=start, size=size)

    def pixel_blocks(self, source: str, form: _Form) -> None:
        """Channels as blocks of pixels, or blocks of pixels as channels."""
        order = self.rng.choice(["chw", "hwc", "whc"])
        channels, side = form.channels, form.positions
        if not channels % 4 and 2 * side <= self.largest:
            form = form._replace(channels=channels // 4, positions=2 * side)
            self.add("pixel_shuffle", form, [source], order=order)
        elif not side % 2:
            form = form._replace(channels=4 * channels, positions=side // 2)
            self.add("pixel_shuffle", form, [source], to="depth", order=order)
        else:
            self.convolution(source, form)

    def image(self, source: str, form: _Form) -> None:
        """Tokens or a vector as a square image, if their number is a square."""
        if form.kind == "vector":
            side = self.rng.choice([n for n in (1, 2, 3) if form.channels % n**2 == 0])
            form = _Form("image", form.channels // side**2, side)
        elif (side := isqrt(form.positions)) ** 2 == form.positions:
            form = _Form("image", form.channels, side)
        else:
            return self.norm(source, form)
        self.add("unflatten", form, [source], height=side, width=side)
        return None

    def view(self, source: str, form: _Form) -> None:
        if form.kind == "image" and self.rng.random() < 0.5:
            tokens = _Form("tokens", form.channels, form.positions**2)
            self.add("flatten", tokens, [source], to="tokens")
        elif form.kind == "tokens" and self.rng.random() < 0.3:
            self.image(source, form)
        else:
            over = self.rng.choice(["average", *["first"] * (form.kind == "tokens")])
            self.add("global_pool", _Form("vector", form.channels), [source], over=over)

    def norm(self, source: str, form: _Form) -> None:
        keys: Described = {"norm": self.rng.choice(["layer", "rms", "batch", "affine"])}
        if form.kind == "tokens" and keys["norm"] in ("layer", "rms") and self.rng.random() < 0.7:
            keys["heads"] = self.rng.choice([n for n in (1, 1, 2, 3) if not form.channels % n])
        if keys["norm"] in ("layer", "rms") and "heads" not in keys and self.rng.random() < 0.6:
            counts = [n for n in (1, 2, 3, form.channels) if not form.channels % n]
            keys["groups"] = self.rng.choice(counts)
        self.add("norm", form, [source], **keys)

    def attention(self, source: str, form: _Form) -> None:
        """Attention of some heads, its queries, keys and values in one projection or in three.

        Of three, heads of queries and keys may have norms.
        """
        heads, kv = self.rng.choice([(1, 1), (2, 1), (2, 2), (4, 2)])
        size = self.rng.choice([1, 2, 3])
        output = form._replace(channels=heads * size)
        widths = [heads * size, kv * size, kv * size]
        if self.rng.random() < 0.5:
            widths = [sum(widths)]
        forms = [form._replace(channels=width) for width in widths]
        reads = [self.add("fc", one, [source], units=one.channels) for one in forms]
        if len(reads) > 1 and self.rng.random() < 0.5:
            for n, count in enumerate((heads, kv)):
                reads[n] = self.add("norm", forms[n], [reads[n]], norm="rms", heads=count)
        keys: Described = {"heads": heads, "kv_heads": kv}
        if self.rng.random() < 0.3:
            keys["softcap"] = self.rng.choice([0.5, 2.0])
        if (seen := self.rng.random()) < 0.5:
            keys["causal"] = True
            keys["window"] = self.rng.randint(1, form.positions)
        elif seen < 0.8:
            keys["windows"] = self.windows(form.positions)
            rows, columns = (2 * size - 1 for size in keys["windows"]["size"])
            if len(reads) > 1 and self.rng.random() < 0.7:
                form = _Form("tokens", heads, rows * columns)
                table: Described = {"features": heads, "vocabulary": form.positions}
                reads.append(self.add("embedding", form, [], **table))
        if len(reads) > 1 and "windows" not in keys and self.rng.random() < 0.3:
            table = {"features": heads, "vocabulary": 1, "inputs": []}
            reads.append(self.add("embedding", _Form("tokens", heads, 1), [], **table))
            keys["sinks"] = True
        self.add("attention", output, reads, **keys)

    def windows(self, pixels: int) -> Described:
        """Return windows of an image that has so many pixels."""
        rows = self.rng.choice(divisors(pixels))
        extents = rows, pixels // rows
        size = [self.rng.choice(divisors(extent)) for extent in extents]
        shift = [self.rng.randrange(extent) for extent in size]
        return {"size": size, "columns": extents[1], "shift": shift}

    def gate(self, source: str, form: _Form) -> None:
        """Tokens multiplied by a gate, a sigmoid computed from these or other tokens."""
        one = form._replace(channels=1)
        operands = [name for name, shape in self.forms.items() if shape._replace(channels=1) == one]
        reads = [self.rng.choice(operands)]
        by = self.add("fc", one, reads, units=1, activation="sigmoid")
        self.add("mul", form, [source, by], gate=True)

    def joined(self, source: str, form: _Form) -> None:
        """A sum, product or concatenation with other maps that fit; else another kind of reader."""
        operands = [name for name, other in self.forms.items() if name != source and other == form]
        beside = [
            name
            for name, other in self.forms.items()
            if name != source and other._replace(channels=1) == form._replace(channels=1)
        ]
        gates = [
            name
            for name, other in self.forms.items()
            if other == _Form("vector", form.channels) and form.positions > 1
        ]
        kind = self.rng.choice(["add", "add", "mul", "concat"])
        if kind == "mul" and gates:
            self.add("mul", form, [source, self.rng.choice(gates)])
        elif kind != "concat" and operands:
            self.add(kind, form, [source, *self._some(operands)])
        elif beside:
            some = self._some(beside)
            channels = form.channels + sum(self.forms[name].channels for name in some)
            self.add("concat", form._replace(channels=channels), [source, *some])
        else:
            self.fully_connected(source, form)

    def block(self, source: str, form: _Form) -> None:
        """Add repeated residual layers, which keep the size of their input."""
        if len(self.layers) + len(self.blocks) > 8 or not self.layers or source in INPUTS:
            return self.norm(source, form)
        middle = self.channels()
        layers: list[Described] = [{"name": "norm", "kind": "norm", "norm": "layer"}]
        if form.kind == "image":
            sizes = {"kind": "conv", "kernel": 1}
            layers += [{"name": "up", "filters": middle, **sizes}]
            layers += [{"name": "down", "filters": form.channels, **sizes}]
        else:
            layers += [{"name": "up", "kind": "fc", "units": middle}]
            layers += [{"name": "down", "kind": "fc", "units": form.channels}]
        layers += [{"name": "sum", "kind": "add", "inputs": ["input", "down"]}]
        name, repeat = f"block{len(self.blocks) + 1}", self.rng.randint(1, 2)
        self.blocks.append({"name": name, "repeat": repeat, "inputs": [source], "layer": layers})
        self.forms[name] = form
        self.read.add(source)
        return None

    def finish(self) -> None:
        """Make sure that every map is read: by a head, another layer or an output."""
        if not self.layers:
            self.norm("input", self.forms["input"])
        if self.embedding is not None and self.rng.random() < 0.5:
            name, vocabulary = self.embedding
            fits = [
                other
                for other, form in self.forms.items()
                if form.kind == "tokens" and form.channels == self.forms[name].channels
            ]
            head = self.forms[name]._replace(channels=vocabulary)
            source = self.rng.choice(fits)
            head = head._replace(positions=self.forms[source].positions)
            self.add("fc", head, [source], units=vocabulary, tied=name)
        ends = [name for name in self.forms if name not in self.read | {"input"}]
        if len(ends) == 1 and self.rng.random() < 0.5:
            return  # the output of the last layer need not be read
        for name in ends:
            keys: Described = {"loss": self.rng.choice(["softmax", "none"])}
            if self.rng.random() < 0.3:
                keys["softcap"] = self.rng.choice([0.5, 2.0])
            self.add("output", self.forms[name], [name], **keys)

    def _some(self, names: list[str]) -> list[str]:
        return self.rng.sample(names, self.rng.randint(1, min(2, len(names))))
