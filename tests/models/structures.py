"""Structures that others publish, built in small from their own classes' configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffusers
import timm
import torch
import torchvision
import transformers
from torch import nn

BATCH, TOKENS, WORDS = 4, 16, 96

LLM: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "use_cache": False,
    "attn_implementation": "eager",
}
"""What language models and encoders of text have in common."""

GROUPED: dict[str, Any] = LLM | {"num_key_value_heads": 2}

VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
    "attn_implementation": "eager",
}


class Output(nn.Module):
    """A model as a function of one input, or of several in their order, to its first output."""

    def __init__(self, model: nn.Module, *names: str, output: str | int = 0) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *inputs: Any) -> Any:
        given = dict(zip(self.names, inputs, strict=True))
        made = self.model(**given) if given else self.model(*inputs)
        return made[self.output] if not isinstance(made, torch.Tensor) else made


def published(name: str, head: str = "ForCausalLM", **keys: Any) -> nn.Module:
    """Return transformers' model of a configuration."""
    config = getattr(transformers, f"{name}Config")(**keys)
    return getattr(transformers, f"{name}{head}")(config)


def language_model(name: str, **keys: Any) -> Callable[[], nn.Module]:
    return lambda: Output(published(name, **(GROUPED | keys)), "input_ids")


def encoder(name: str, head: str, words: str = "input_ids", **keys: Any) -> Callable[[], nn.Module]:
    return lambda: Output(published(name, head, **keys), words)


def torchvisions(name: str, **keys: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision.models, name)(num_classes=10, **keys)


def ids() -> tuple[Any, ...]:
    return (torch.randint(WORDS, (BATCH, TOKENS)),)


def image(side: int = 16, channels: int = 3) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(BATCH, channels, side, side),)


def sound(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(BATCH, *shape),)


def noisy(channels: int, side: int, *more: Callable[[], Any]) -> Callable[[], tuple[Any, ...]]:
    """An image with the time step of its noise."""
    return lambda: (
        torch.randn(BATCH, channels, side, side),
        torch.arange(BATCH),
        *(make() for make in more),
    )


def unet(name: str, **keys: Any) -> nn.Module:
    return getattr(diffusers, name)(
        sample_size=16,
        block_out_channels=(16, 32),
        norm_num_groups=4,
        layers_per_block=1,
        **keys,
    )


GPT2: dict[str, Any] = {
    "vocab_size": WORDS,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "use_cache": False,
    "attn_implementation": "eager",
    "bos_token_id": None,
    "eos_token_id": None,
}
T5: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "use_cache": False,
    "decoder_start_token_id": 0,
}
WHISPER: dict[str, Any] = {
    "vocab_size": WORDS,
    "num_mel_bins": 8,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": 16,
    "max_target_positions": 32,
    "use_cache": False,
    "attn_implementation": "eager",
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "decoder_start_token_id": 0,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
CLIP: dict[str, Any] = {
    "text_config": {
        **{key: LLM[key] for key in ("vocab_size", "hidden_size", "intermediate_size")},
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": TOKENS,
    },
    "vision_config": {key: one for key, one in VISION.items() if key != "attn_implementation"},
    "projection_dim": 16,
    "attn_implementation": "eager",
}
SWIN: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
    "attn_implementation": "eager",
}
WAV2VEC2: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "attn_implementation": "eager",
    "apply_spec_augment": False,
}

STRUCTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "Llama": (language_model("Llama"), ids),
    "Phi-3": (language_model("Phi3"), ids),
    "GPT-NeoX": (language_model("GPTNeoX"), ids),
    "ViT": (encoder("ViT", "ForImageClassification", "pixel_values", **VISION), image()),
    "BERT": (encoder("Bert", "ForMaskedLM", **LLM), ids),
    "GPT-2": (lambda: Output(published("GPT2", "LMHeadModel", **GPT2), "input_ids"), ids),
    "CLIP's vision": (
        encoder("CLIPVision", "ModelWithProjection", "pixel_values", projection_dim=16, **VISION),
        image(),
    ),
    "ConvNeXt": (
        encoder(
            "ConvNext",
            "ForImageClassification",
            "pixel_values",
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            num_labels=10,
        ),
        image(32),
    ),
    "torchvision's ConvNeXt": (torchvisions("convnext_tiny"), image(32)),
    "ResNet-50": (torchvisions("resnet50"), image(32)),
    "EfficientNet": (torchvisions("efficientnet_b0"), image(32)),
    "RegNet": (torchvisions("regnet_y_400mf"), image(32)),
    "GoogLeNet": (torchvisions("googlenet", aux_logits=False, init_weights=False), image(64)),
    "Mistral": (language_model("Mistral", sliding_window=4), ids),
    "Gemma 2": (language_model("Gemma2", head_dim=8, sliding_window=4), ids),
    "MobileNet v2": (torchvisions("mobilenet_v2"), image(32)),
    "MobileNet v3": (torchvisions("mobilenet_v3_small"), image(32)),
    "Qwen3": (language_model("Qwen3", head_dim=8), ids),
    "Gemma 3": (
        lambda: Output(
            transformers.Gemma3ForCausalLM(
                transformers.Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=4)
            ),
            "input_ids",
        ),
        ids,
    ),
    "OLMo 2": (language_model("Olmo2"), ids),
    "Falcon": (
        language_model("Falcon", new_decoder_architecture=False, multi_query=True, alibi=False),
        ids,
    ),
    "T5": (
        lambda: Output(
            published("T5", "ForConditionalGeneration", **T5), "input_ids", "decoder_input_ids"
        ),
        lambda: (*ids(), *ids()),
    ),
    "Whisper": (
        lambda: Output(
            published("Whisper", "ForConditionalGeneration", **WHISPER),
            "input_features",
            "decoder_input_ids",
        ),
        lambda: (torch.randn(BATCH, 8, 32), *ids()),
    ),
    "CLIP": (
        lambda: Output(published("CLIP", "Model", **CLIP), "input_ids", "pixel_values"),
        lambda: (*ids(), *image()()),
    ),
    "Swin": (
        encoder("Swin", "ForImageClassification", "pixel_values", num_labels=10, **SWIN),
        image(32),
    ),
    "torchvision's Swin": (
        lambda: torchvision.models.SwinTransformer(
            [4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10
        ),
        image(32),
    ),
    "wav2vec 2": (encoder("Wav2Vec2", "ForCTC", "input_values", **WAV2VEC2), sound(400)),
    "Mamba": (
        lambda: Output(
            published(
                "Mamba",
                vocab_size=WORDS,
                hidden_size=32,
                state_size=4,
                num_hidden_layers=2,
                use_cache=False,
            ),
            "input_ids",
        ),
        ids,
    ),
    "SegFormer": (
        encoder(
            "Segformer",
            "ForSemanticSegmentation",
            "pixel_values",
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 24, 32],
            decoder_hidden_size=16,
            num_attention_heads=[1, 2, 4, 8],
            num_labels=5,
        ),
        image(64),
    ),
    "UNet2D": (
        lambda: Output(
            unet(
                "UNet2DModel",
                down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            ),
            "sample",
            "timestep",
        ),
        noisy(3, 16),
    ),
    "UNet2DCondition": (
        lambda: Output(
            unet(
                "UNet2DConditionModel",
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                cross_attention_dim=24,
                attention_head_dim=4,
            ),
            "sample",
            "timestep",
            "encoder_hidden_states",
        ),
        noisy(4, 16, lambda: torch.randn(BATCH, 7, 24)),
    ),
    "DiT": (
        lambda: Output(
            diffusers.DiTTransformer2DModel(
                num_attention_heads=4,
                attention_head_dim=8,
                in_channels=4,
                num_layers=2,
                sample_size=8,
                patch_size=2,
                num_embeds_ada_norm=10,
                norm_num_groups=4,
            ),
            "hidden_states",
            "timestep",
            "class_labels",
        ),
        noisy(4, 8, lambda: torch.arange(BATCH)),
    ),
    "VAE": (
        lambda: Output(
            diffusers.AutoencoderKL(
                down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
                up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
                block_out_channels=(16, 32),
                norm_num_groups=4,
                sample_size=16,
            ),
            "sample",
        ),
        image(16),
    ),
    "Mixer": (
        lambda: timm.models.mlp_mixer.MlpMixer(
            img_size=16, patch_size=4, num_blocks=2, embed_dim=32, num_classes=10
        ),
        image(),
    ),
    "ShuffleNet": (torchvisions("shufflenet_v2_x0_5"), image(32)),
    "DenseNet": (torchvisions("densenet121"), image(32)),
    "Mixtral": (language_model("Mixtral", num_local_experts=4, num_experts_per_tok=2), ids),
    "Qwen2-MoE": (
        language_model(
            "Qwen2Moe",
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=40,
        ),
        ids,
    ),
    "DeepSeek-V2": (
        language_model(
            "DeepseekV2",
            num_key_value_heads=4,
            n_routed_experts=4,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            first_k_dense_replace=1,
            kv_lora_rank=16,
            q_lora_rank=None,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
            n_group=1,
            topk_group=1,
        ),
        ids,
    ),
}
"""A module and what it is given, by the name of the structure."""
