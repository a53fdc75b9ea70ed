"""Today's networks have the parameters, multiply-accumulates and maps that were published."""

from __future__ import annotations

import pytest

import hypar_opt as ho
from hypar_opt.workload.description import describe

PARAMETERS = {
    # torchvision 0.15, `num_params` of the weights; biases and batch norms' scales and shifts
    # are parameters, running statistics are not.
    "resnet-18": 11_689_512,
    "resnet-50": 25_557_032,
    "resnet-152": 60_192_808,
    "mobilenet-v2": 3_504_872,
    "mobilenet-v3-large": 5_483_032,
    # 27,161,264 there, with the auxiliary classifier's 3,326,696; see below.
    "inception-v3": 23_834_568,
    "densenet-121": 7_978_856,
    "vit-b16": 86_567_656,
    # Hugging Face transformers 4.40, `model.num_parameters()` of bert-base-uncased (its pooler is
    # included), gpt2, gpt2-medium, gpt2-xl (heads share the embedding), Llama-2-7b and -70b.
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-70b": 68_976_648_192,
    # The same, of Meta-Llama-3-8B, gpt-j-6b, Mixtral-8x7B-v0.1 and deepseek-moe-16b-base.
    "llama-3-8b": 8_030_261_248,
    "gpt-j-6b": 6_050_882_784,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-moe-16b": 16_375_728_128,
}

GIGAMACS = {
    # torchvision 0.15, `_ops` of the weights: multiply-adds of convolutions and matrix products,
    # in 10^9. Attention's two products are among them, and norms, sums and pools are not, as here.
    "resnet-18": 1.814,
    "resnet-50": 4.089,
    "resnet-152": 11.514,
    "mobilenet-v2": 0.301,
    "mobilenet-v3-large": 0.217,
    "inception-v3": 5.713,
    "densenet-121": 2.834,
    "vit-b16": 17.564,
}

# (tokens, layers, width, keys' and values' width, products of an MLP, its width, others' weights)
TRANSFORMERS = {
    "bert-base": (512, 12, 768, 768, 2, 3072, 0),
    "gpt2": (1024, 12, 768, 768, 2, 3072, 50257 * 768),
    "gpt2-medium": (1024, 24, 1024, 1024, 2, 4096, 50257 * 1024),
    "gpt2-xl": (1024, 48, 1600, 1600, 2, 6400, 50257 * 1600),
    "llama-7b": (4096, 32, 4096, 4096, 3, 11008, 32000 * 4096),
    "llama-70b": (4096, 80, 8192, 1024, 3, 28672, 32000 * 8192),
    "llama-3-8b": (8192, 32, 4096, 1024, 3, 14336, 128256 * 4096),
    "gpt-j-6b": (2048, 28, 4096, 4096, 2, 16384, 50400 * 4096),
}


def total(name: str) -> dict[str, int]:
    counts: dict[str, int] = describe(ho.load(name), 1)["total"]
    return counts


def outputs(name: str) -> dict[str, tuple[int, ...]]:
    network = ho.load(name)
    return {
        layer.name: tuple(maps.pooled)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
    }


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_published(name: str) -> None:
    assert total(name)["parameters"] == PARAMETERS[name]


@pytest.mark.parametrize("name", GIGAMACS)
def test_multiply_accumulates_are_those_published_to_every_digit_printed(name: str) -> None:
    assert round(total(name)["macs"] / 1e9, 3) == GIGAMACS[name]


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformers_multiply_accumulates_follow_from_its_table(name: str) -> None:
    """No count of these at their whole context is published; the formula of Kaplan et al. is.

    Each weight of a matrix product is used once a token. Attention multiplies each query with each
    key and each weight with each value, a width each; we count both products whole, where a causal
    mask would let a kernel skip half of them, as torchvision does for ViT.

    Source: Kaplan et al., "Scaling laws for neural language models", 2020, Table 1.
    """
    tokens, layers, width, keys, products, hidden, others = TRANSFORMERS[name]
    weights = layers * (2 * width * width + 2 * width * keys + products * width * hidden) + others
    attention = layers * 2 * tokens * tokens * width
    pooler = width * width if name == "bert-base" else 0  # of one token
    assert total(name)["macs"] == tokens * weights + attention + pooler


def test_inceptions_auxiliary_classifier_is_what_torchvision_counts_in_addition() -> None:
    first, second, fc = 768 * 128 + 2 * 128, 128 * 768 * 5 * 5 + 2 * 768, 768 * 1000 + 1000
    assert total("inception-v3")["parameters"] + first + second + fc == 27_161_264


def test_t5_has_the_published_parameters_but_its_tables_of_relative_positions() -> None:
    """222,903,552 in Hugging Face's t5-base: 32 distances and 12 heads, in encoder and decoder."""
    assert total("t5-base")["parameters"] + 2 * 32 * 12 == 222_903_552


def test_the_decoder_of_t5_reads_the_encoders_tokens_and_its_own() -> None:
    maps = outputs("t5-base")
    assert maps["encoded"] == maps["decoder.11.cross_key"] == (512, 768)
    assert maps["decoder.11.cross_query"] == maps["decoder.11.cross_attention"] == (114, 768)
    macs = total("t5-base")["macs"]
    # Each token of the encoder passes its weights, and those of keys and values in the decoder;
    # attention is twice over pairs of tokens.
    encoder = 12 * (4 * 768**2 + 2 * 768 * 3072) + 12 * 2 * 768**2
    decoder = 12 * (6 * 768**2 + 2 * 768 * 3072) + 32128 * 768
    pairs = 12 * 2 * 768 * (512 * 512 + 114 * 114 + 114 * 512)
    assert macs == 512 * encoder + 114 * decoder + pairs


def test_u_net_has_23_convolutions_and_keras_parameters() -> None:
    """31,031,685 of zhixuhao/unet, which ends in 3 x 3 to 2 channels, then 1 x 1 to one."""
    convolutions = [layer for layer in ho.load("unet").layers if layer.kind == "conv"]
    assert len(convolutions) == 23
    last, more = 64 * 2 + 2, (9 * 64 * 2 + 2) + (2 * 1 + 1)
    assert total("unet")["parameters"] - last + more == 31_031_685


def test_what_u_net_joins_has_one_size() -> None:
    maps = outputs("unet")
    for number, width in zip("1234", (64, 128, 256, 512), strict=True):
        side = 512 * 64 // width
        assert maps[f"down{number}.conv2"] == maps[f"up{number}.half"] == (width, side, side)
        assert maps[f"up{number}.concat"] == (2 * width, side, side)


@pytest.mark.parametrize(
    ("name", "depth"),
    [("resnet-18", 18), ("resnet-50", 50), ("resnet-152", 152), ("densenet-121", 121)],
)
def test_a_name_counts_the_weighted_layers_without_projections(name: str, depth: int) -> None:
    weighted = [
        layer
        for layer in ho.load(name).layers
        if layer.kind in ("conv", "fc") and not layer.name.endswith("shortcut")
    ]
    assert len(weighted) == depth


@pytest.mark.parametrize("name", ["resnet-18", "resnet-50", "resnet-152"])
def test_stages_of_a_resnet_halve_the_map_as_its_table_says(name: str) -> None:
    maps = outputs(name)
    width = 64 if name == "resnet-18" else 256
    assert maps["conv1"] == (64, 112, 112)
    for stage, side in zip(range(2, 6), (56, 28, 14, 7), strict=True):
        adds = [out for at, out in maps.items() if at.startswith(f"stage{stage}.") and "add" in at]
        assert set(adds) == {(width << stage - 2, side, side)}


def test_bottlenecks_of_mobilenet_have_the_maps_of_its_table() -> None:
    rows = [(16, 112), (24, 56), (32, 28), (64, 14), (96, 14), (160, 7), (320, 7)]
    maps = outputs("mobilenet-v2")
    for number, (channels, side) in enumerate(rows, start=1):
        ends = {
            out
            for name, out in maps.items()
            if name.startswith(f"bottleneck{number}.") and name.endswith(("project_norm", "add"))
        }
        assert ends == {(channels, side, side)}


def test_a_dense_layer_adds_its_growth_rate_to_what_it_reads() -> None:
    maps = outputs("densenet-121")
    ends = [(256, 56), (512, 28), (1024, 14), (1024, 7)]
    for block, count, (channels, side) in zip("1234", (6, 12, 24, 16), ends, strict=True):
        widths = [maps[f"dense{block}.{n}.concat"][0] for n in range(count)]
        assert widths == [channels - 32 * n for n in reversed(range(count))]
        assert maps[f"dense{block}.{count - 1}.concat"][1:] == (side, side)


@pytest.mark.parametrize(
    ("name", "block", "length", "count"),
    [
        ("bert-base", "encoder", 11, 12),
        ("gpt2", "decoder", 9, 12),
        ("gpt2-xl", "decoder", 9, 48),
        ("llama-70b", "decoder", 13, 80),
        ("gpt-j-6b", "decoder", 9, 28),
        ("mixtral-8x7b", "decoder", 16, 32),
    ],
)
def test_a_transformer_is_one_block_repeated(
    name: str, block: str, length: int, count: int
) -> None:
    network = ho.load(name)
    (repeat,) = network.repeats
    assert (repeat.name, repeat.length, repeat.count) == (block, length, count)
    maps = list(network.maps())[repeat.first : repeat.first + length * count]
    assert maps == maps[:length] * count  # every repetition reads and writes the same shapes


@pytest.mark.parametrize(
    ("name", "published"),
    [
        (
            "inception-v3",
            {
                "conv3_norm": (64, 147, 147),
                "pool2": (192, 35, 35),
                "mixed5.rest.1.concat": (288, 35, 35),
                "mixed6.last.concat": (768, 17, 17),
                "mixed7.rest.1.concat": (2048, 8, 8),
            },
        ),
        # 196 patches, and a class token that alone is read at the end.
        ("vit-b16", {"patches": (196, 768), "encoder.11.add2": (197, 768), "first": (768, 1, 1)}),
        # Query heads in groups read an eighth of the keys and values.
        (
            "llama-70b",
            {
                "decoder.0.query": (4096, 8192),
                "decoder.0.key": (4096, 1024),
                "decoder.0.value": (4096, 1024),
                "decoder.0.attention": (4096, 8192),
            },
        ),
    ],
)
def test_maps_are_those_of_the_papers_table(
    name: str, published: dict[str, tuple[int, ...]]
) -> None:
    assert outputs(name).items() >= published.items()
