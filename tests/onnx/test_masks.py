"""Which masks of attention are causal, which hide nothing, and which are named as not kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from hypar_opt.models.imported import read_model
from hypar_opt.onnx import mask_values
from tests.onnx.graph_writer import EXPORTED, MASKS, GraphWriter, write_masks

BATCH, TOKENS, WIDTH, HEADS = 2, 5, 16, 4
Writer = Callable[[GraphWriter, str], str]
LOW = np.float32(-1e9)


def read(
    folder: Path, masked: Writer, *inputs: tuple[str, Any], tokens: int = TOKENS, batch: int = BATCH
) -> tuple[bool, list[str]]:
    """Return whether attention with a mask is read as causal, and what is not kept."""
    g = GraphWriter(("x", [batch if batch > 0 else "batch", tokens, WIDTH]), *inputs)
    q, k, v = (
        g.heads(g.linear("x", name, WIDTH, WIDTH), batch, tokens, HEADS, WIDTH // HEADS)
        for name in "qkv"
    )
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = g("Mul", scores, g.value(np.float32((WIDTH // HEADS) ** -0.5)))
    shares = masked(g, scaled)
    if masked not in (_guarded, _chosen_shares):  # they have a softmax
        shares = g("Softmax", shares, axis=-1)
    out = g("MatMul", shares, v)
    content = g.content(folder, g.together(out, batch, tokens, WIDTH))
    (causal,) = causal_in(content)
    # A mask that is named is also among the tensors that no layer has, which test_counts asks.
    phrases = [p for p in content.get("not_kept", []) if not p.startswith("tensors that no layer")]
    return causal, phrases


def causal_in(content: dict[str, Any]) -> list[bool]:
    """Return of each attention whether it is causal, of those of a block once."""
    layers = [*content["layer"], *(x for b in content.get("block", ()) for x in b["layer"])]
    return [layer.get("causal", False) for layer in layers if layer["kind"] == "attention"]


def named(result: tuple[bool, list[str]]) -> str:
    """Return what is said of a mask that is not applied."""
    causal, (said,) = result
    assert not causal
    return said


def range_of(g: GraphWriter, tokens: int = TOKENS) -> str:
    one: str = g("Range", g.value(np.int64(0)), g.value(np.int64(tokens)), g.value(np.int64(1)))
    return one


def compared(g: GraphWriter, op: str = "LessOrEqual") -> str:
    """Keys compared with queries: ``[queries, keys]``, as transformers writes it."""
    steps = range_of(g)
    keys, queries = g("Unsqueeze", steps, g.value([0])), g("Unsqueeze", steps, g.value([1]))
    out: str = g(op, keys, queries)
    return out


def added(g: GraphWriter, scores: str, seen: str, low: Any = LOW) -> str:
    """A mask of truths as one that is added."""
    mask = g("Where", seen, g.value(np.float32(0)), g.value(np.float32(low)))
    return str(g("Add", scores, mask))


def _by_trilu(g: GraphWriter, scores: str) -> str:
    full = g("Expand", g.value(np.float32(-np.inf)), g.value([TOKENS, TOKENS]))
    return str(g("Add", scores, g("Trilu", full, g.value(np.int64(1)), upper=1)))


def _by_tril_of_ones(g: GraphWriter, scores: str) -> str:
    ones = g("Expand", g.value(np.float32(1)), g.value([TOKENS, TOKENS]))
    seen = g("Cast", g("Trilu", ones, upper=0), to=TensorProto.BOOL)
    return str(g("Where", seen, scores, g.value(LOW)))


def _by_gpt2(g: GraphWriter, scores: str) -> str:
    """GPT-2's own: scores times the mask, less 10,000 where that is nothing."""
    seen = g.value(np.tril(np.ones((1, 1, TOKENS, TOKENS), np.float32)))
    hidden = g("Mul", g("Sub", g.value(np.float32(1)), seen), g.value(np.float32(1e4)))
    return str(g("Sub", g("Mul", scores, seen), hidden))


def _by_and(g: GraphWriter, scores: str) -> str:
    """Later tokens and, of a given mask, padding: as transformers joins the two."""
    given = g("Cast", "given", to=TensorProto.BOOL)
    padding = g("Unsqueeze", g("Unsqueeze", given, g.value([1])), g.value([1]))
    seen = g("And", g("Unsqueeze", compared(g), g.value([0, 1])), padding)
    return added(g, scores, seen)


def _by_gathered(g: GraphWriter, scores: str) -> str:
    """The given mask is read at places of batch and key: as the new exporter writes it."""
    keys = np.broadcast_to(np.arange(TOKENS), (BATCH, 1, TOKENS, TOKENS))
    images = np.broadcast_to(np.arange(BATCH)[:, None, None, None], keys.shape)
    places = g("Concat", *(g.value(one[..., None].copy()) for one in (images, keys)), axis=-1)
    padding = g("GatherND", g("Cast", "given", to=TensorProto.BOOL), places)
    return added(g, scores, g("And", compared(g), padding), np.finfo(np.float32).min)


def _by_or(g: GraphWriter, scores: str) -> str:
    hidden = g("Or", compared(g, "Greater"), g.value(np.zeros((1, 1, 1, TOKENS), bool)))
    return str(g("Where", hidden, g.value(LOW), scores))


def _guarded(g: GraphWriter, scores: str) -> str:
    """As scaled_dot_product_attention is written: rows of nothing are no numbers."""
    shares = g("Softmax", added(g, scores, compared(g), -np.inf), axis=-1)
    return str(g("Where", g("IsNaN", shares), g.value(np.float32(0)), shares))


CAUSAL: dict[str, Writer] = {
    "ranges": lambda g, scores: added(g, scores, compared(g)),
    "ranges, hidden": lambda g, s: str(g("Where", compared(g, "Greater"), g.value(LOW), s)),
    "not": lambda g, scores: added(g, scores, g("Not", compared(g, "Greater"))),
    "trilu": _by_trilu,
    "tril of ones": _by_tril_of_ones,
    "gpt-2": _by_gpt2,
    "and with padding": _by_and,
    "gathered padding": _by_gathered,
    "or": _by_or,
    "half precision": lambda g, scores: added(g, scores, compared(g), np.float16(-65504)),
    "guarded": _guarded,
    "twice": lambda g, scores: added(g, added(g, scores, compared(g)), compared(g)),
    "of each head": lambda g, scores: str(
        g("Add", scores, g.value(np.triu(np.full((BATCH, HEADS, TOKENS, TOKENS), LOW), 1)))
    ),
}


@pytest.mark.parametrize("way", CAUSAL)
def test_a_mask_of_later_tokens_is_causal_however_it_is_written(tmp_path: Path, way: str) -> None:
    assert read(tmp_path, CAUSAL[way], ("given", [BATCH, TOKENS])) == (True, [])


NOTHING: dict[str, Writer] = {
    "no mask": lambda _, scores: scores,
    "zeros": lambda g, scores: str(g("Add", scores, g.value(np.zeros((TOKENS, TOKENS))))),
    "truths": lambda g, scores: added(g, scores, g.value(np.ones((TOKENS, TOKENS), bool))),
    "one number": lambda g, scores: str(g("Add", scores, g.value(np.full((TOKENS, TOKENS), 3.0)))),
    "padding": lambda g, scores: added(
        g,
        scores,
        g("Unsqueeze", g("Cast", "given", to=TensorProto.BOOL), g.value([1, 2])),
    ),
}


@pytest.mark.parametrize("way", NOTHING)
def test_a_mask_that_hides_nothing_is_none(tmp_path: Path, way: str) -> None:
    assert read(tmp_path, NOTHING[way], ("given", [BATCH, TOKENS])) == (False, [])


def band(before: int, behind: int = 0) -> Any:
    """Return a mask that shows of each token so many before it and behind it, and itself."""
    return np.tri(TOKENS, k=behind, dtype=bool) & ~np.tri(TOKENS, k=-before - 1, dtype=bool)


def _by_distance(g: GraphWriter, scores: str) -> str:
    """As transformers writes it: keys after queries less the window, and not after queries."""
    steps = range_of(g)
    keys, queries = g("Unsqueeze", steps, g.value([0])), g("Unsqueeze", steps, g.value([1]))
    near = g("Greater", keys, g("Sub", queries, g.value(np.int64(3))))
    return added(g, scores, g("And", near, compared(g)))


WINDOWS: dict[str, tuple[Writer, int]] = {
    "a band": (lambda g, s: added(g, s, g.value(band(2))), 3),
    "itself alone": (lambda g, s: added(g, s, g.value(band(0))), 1),
    "all but the first": (lambda g, s: added(g, s, g.value(band(TOKENS - 2))), TOKENS - 1),
    "by distance": (_by_distance, 3),
    "chosen": (lambda g, s: str(g("Where", g.value(band(1)), s, g.value(LOW))), 2),
    "after another": (lambda g, s: added(g, added(g, s, g.value(band(3))), g.value(band(1))), 2),
    "after the past": (lambda g, s: added(g, added(g, s, compared(g)), g.value(band(1))), 2),
}


@pytest.mark.parametrize("way", WINDOWS)
def test_a_mask_of_all_but_the_last_tokens_is_a_window(tmp_path: Path, way: str) -> None:
    masked, window = WINDOWS[way]
    assert read(tmp_path, masked) == (True, [])
    content, _ = read_model(tmp_path / "model.onnx")
    (layer,) = (layer for layer in content["layer"] if layer["kind"] == "attention")
    assert layer["window"] == window


def _chosen_shares(g: GraphWriter, scores: str) -> str:
    return str(g("Where", compared(g), g("Softmax", scores), g.value(np.float32(0))))


OTHERS: dict[str, tuple[Writer, str]] = {
    "a window of both sides": (lambda g, s: added(g, s, g.value(band(1, 1))), "other tokens"),
    "a window without itself": (
        lambda g, s: added(g, s, g.value(band(2) & ~np.eye(TOKENS, dtype=bool))),
        "other tokens",
    ),
    "the past alone": (lambda g, s: added(g, s, compared(g, "Less")), "other tokens"),
    "a bias": (
        lambda g, s: str(g("Add", s, g.value(np.arange(25.0).reshape(5, 5)))),
        "a bias of attention's scores, 5x5",
    ),
    "weights": (lambda g, s: str(g("Add", s, g.weight("bias", TOKENS, TOKENS))), "weights.bin"),
    "an input": (lambda g, s: str(g("Add", s, "square")), "an input of the model"),
    "an input times itself": (
        lambda g, s: str(g("Add", s, g("MatMul", "square", "square"))),
        "an input of the model",
    ),
    "a choice": (
        lambda g, s: str(g("Where", compared(g), s, g.value(np.float32(0)))),
        "other numbers",
    ),
    "shares": (_chosen_shares, "Where 0 of attention's probabilities"),
    "a product": (
        lambda g, s: str(g("Mul", s, g.value(np.tri(TOKENS, dtype=np.float32)))),
        "multiplication",
    ),
}


@pytest.mark.parametrize("way", OTHERS)
def test_what_is_no_mask_of_later_tokens_is_named(tmp_path: Path, way: str) -> None:
    masked, said = OTHERS[way]
    assert said in named(read(tmp_path, masked, ("square", [BATCH, 1, TOKENS, TOKENS])))


@pytest.mark.parametrize("number", range(16))
def test_of_all_masks_of_two_tokens_two_are_causal(tmp_path: Path, number: int) -> None:
    seen = np.array([number >> bit & 1 for bit in range(4)], bool).reshape(2, 2)
    for write in (
        lambda g, s: added(g, s, g.value(seen)),
        lambda g, s: str(g("Where", g.value(~seen), g.value(LOW), s)),
    ):
        causal, not_kept = read(tmp_path, write, tokens=2)
        # All of the past, or itself alone.
        assert causal == any((seen == own).all() for own in (np.tri(2), np.eye(2)))
        assert bool(not_kept) == (not causal and not seen.all())


def test_a_batch_that_is_left_open_is_no_part_of_a_mask(tmp_path: Path) -> None:
    """Of one image 1,200 x 1,200 places are compared, whatever the batch may be."""
    tokens = 1200

    def masked(g: GraphWriter, scores: str) -> str:
        steps = range_of(g, tokens)
        seen = g(
            "LessOrEqual", g("Unsqueeze", steps, g.value([0])), g("Unsqueeze", steps, g.value([1]))
        )
        padding = g("Unsqueeze", g("Cast", "given", to=TensorProto.BOOL), g.value([1, 2]))
        images = g("Shape", "x", start=0, end=1)
        shape = g("Concat", images, g.value([1, tokens, tokens]), axis=0)
        return added(g, scores, g("And", g("Expand", seen, shape), padding))

    inputs = ("given", ["batch", tokens])
    assert read(tmp_path, masked, inputs, tokens=tokens, batch=-1) == (True, [])


# Small mask files beside a model.


def in_file(g: GraphWriter, location: str, *, offset: int = 0) -> str:
    tensor = TensorProto(name="mask", data_type=TensorProto.FLOAT, dims=[1, 1, TOKENS, TOKENS])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    g.initialisers.append(tensor)
    return "mask"


def triangle() -> bytes:
    return np.triu(np.full((TOKENS, TOKENS), -np.inf, "<f4"), 1).tobytes()


def read_file(folder: Path, location: str, offset: int = 0) -> tuple[bool, list[str]]:
    return read(
        folder, lambda g, scores: str(g("Add", scores, in_file(g, location, offset=offset)))
    )


def test_a_mask_in_a_file_beside_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks/mask.bin").write_bytes(b"1234" + triangle() + b"5")
    assert read_file(tmp_path, "masks/mask.bin", 4) == (True, [])
    # The same file one number on is another mask.
    causal, phrases = read_file(tmp_path, "masks/mask.bin", 0)
    assert not causal
    assert any("it hides other tokens" in phrase for phrase in phrases)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("missing.bin", "not a file in the model's folder"),
        ("../outside.bin", "not a file in the model's folder"),
        ("link.bin", "not a file in the model's folder"),
        ("pipe", "not a file in the model's folder"),
        (".", "not a file in the model's folder"),
        ("", "it has no values"),
        ("null\0byte", "cannot be read"),
        ("short.bin", "too short"),
    ],
)
def test_no_other_file_is_read_and_the_mask_is_named(
    tmp_path: Path, location: str, said: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "outside.bin").write_bytes(triangle())
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "short.bin").write_bytes(triangle()[:-1])
    os.mkfifo(folder / "pipe")  # to open it would wait for ever
    not_kept = named(read_file(folder, location))
    assert said in not_kept
    assert "no mask is applied" in not_kept


@pytest.mark.parametrize("offset", [-4, 1, 10**30])
def test_a_place_that_a_file_does_not_have_is_not_read(tmp_path: Path, offset: int) -> None:
    (tmp_path / "mask.bin").write_bytes(triangle())
    assert "too short" in named(read_file(tmp_path, "mask.bin", offset))


def test_masks_together_are_read_up_to_a_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mask.bin").write_bytes(triangle())
    monkeypatch.setattr(mask_values, "MAX_READ_BYTES", len(triangle()) - 1)
    assert not read_file(tmp_path, "mask.bin")[0]


def test_a_mask_of_many_blocks_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many bytes as one mask has: the second block finds what the first has found."""
    (tmp_path / "mask.bin").write_bytes(triangle())
    monkeypatch.setattr(mask_values, "MAX_READ_BYTES", len(triangle()))
    g = GraphWriter(("x", [BATCH, TOKENS, WIDTH]))
    x, mask = "x", in_file(g, "mask.bin")
    for block in range(2):
        q, k, v = (
            g.heads(g.linear(x, f"{block}.{name}", WIDTH, WIDTH), BATCH, TOKENS, HEADS, 4)
            for name in "qkv"
        )
        x = g.together(g.core(q, k, v, mask), BATCH, TOKENS, WIDTH)
    assert all(causal_in(g.content(tmp_path, x)))


@pytest.mark.parametrize("name", MASKS)
def test_exported_language_models_are_causal_where_their_masks_are_there(
    tmp_path: Path, name: str
) -> None:
    """What torch 2.13 wrote of transformers 5.23: each block's mask is in the file of weights."""
    shutil.copy(EXPORTED / f"{name}.onnx", tmp_path)

    def attention() -> tuple[list[bool], list[str]]:
        content, _ = read_model(tmp_path / f"{name}.onnx")
        said = [phrase for phrase in content.get("not_kept", ()) if "attention's mask" in phrase]
        return causal_in(content), said

    (causal,), (said,) = attention()
    assert not causal
    assert f"'{MASKS[name][0]}'" in said
    stated = read_model(tmp_path / f"{name}.onnx", causal=True)[0]
    assert any("taken to hide later tokens, as stated" in said for said in stated["remarks"])
    assert not any("mask" in said for said in stated.get("not_kept", ()))
    write_masks(tmp_path, name)
    assert attention() == ([True], [])
    found = read_model(tmp_path / f"{name}.onnx")[0]
    assert (stated["layer"], stated["block"]) == (found["layer"], found["block"])


def test_a_mask_that_is_known_is_not_another_because_that_is_stated(tmp_path: Path) -> None:
    g = GraphWriter(("x", [BATCH, TOKENS, WIDTH]))
    q, k, v = (
        g.heads(g.linear("x", name, WIDTH, WIDTH), BATCH, TOKENS, HEADS, 4) for name in "qkv"
    )
    own = np.where(band(1, 1), 0, LOW).astype(np.float32)
    mixed = g.together(g.core(q, k, v, g.value(own), size=4), BATCH, TOKENS, WIDTH)
    g.content(tmp_path, mixed)
    content, _ = read_model(tmp_path / "model.onnx", causal=True)
    assert causal_in(content) == [False]
    assert "it hides other tokens than the later ones" in content["not_kept"][0]


@pytest.mark.parametrize("most", ["MAX_BYTES_AT_ONCE", "MAX_COMPUTED_BYTES", "MAX_MASK_ELEMENTS"])
def test_what_masks_take_is_bounded_before_it_is_taken(
    tmp_path: Path, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_values, most, 4 * TOKENS)
    assert named(read(tmp_path, CAUSAL["ranges"]))


def test_a_mask_that_is_made_of_ever_more_nodes_is_named(tmp_path: Path) -> None:
    def endless(g: GraphWriter, scores: str) -> str:
        seen = compared(g)
        for _ in range(mask_values.MAX_NODES + 1):
            seen = g("Not", seen)
        return added(g, scores, seen)

    assert "more than 1000 nodes" in named(read(tmp_path, endless))


@pytest.mark.parametrize("mask", [np.tri(TOKENS, dtype=bool), band(2), band(1, 1)])
def test_the_attention_operator_reads_its_mask_input(tmp_path: Path, mask: Any) -> None:
    g = GraphWriter(("x", [BATCH, TOKENS, WIDTH]))
    q, k, v = (g.linear("x", name, WIDTH, WIDTH) for name in "qkv")
    out = g("Attention", q, k, v, g.value(mask), q_num_heads=HEADS, kv_num_heads=HEADS)
    content = g.content(tmp_path, out)
    assert causal_in(content) == [not mask[0, 1]]
    assert bool(content.get("not_kept")) == mask[0, 1]


@pytest.mark.parametrize("causal", [False, True])
def test_a_bias_of_each_head_in_another_file_is_named_whatever_is_stated(
    tmp_path: Path, causal: bool
) -> None:
    """Masks of unknown values may be stated to hide later tokens; this is learned."""
    g = GraphWriter(("x", [BATCH, TOKENS, WIDTH]))
    q, k, v = (
        g.heads(g.linear("x", name, WIDTH, WIDTH), BATCH, TOKENS, HEADS, 4) for name in "qkv"
    )
    mixed = g.core(q, k, v, g.weight("bias", HEADS, TOKENS, TOKENS), size=4)
    g.content(tmp_path, g.together(mixed, BATCH, TOKENS, WIDTH))
    content, _ = read_model(tmp_path / "model.onnx", causal=causal)
    said = "; ".join(content["not_kept"])
    assert f"a bias of attention's scores, {HEADS}x{TOKENS}x{TOKENS}" in said
    assert f"'bias' ({HEADS * TOKENS**2})" in said
