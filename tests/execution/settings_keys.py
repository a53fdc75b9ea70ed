"""The keys of frameworks that settings may have, with their legal values, from their sources.

A value is of a type, or one of some; a key that is missing here is none of the framework's.
"""

from __future__ import annotations

from typing import Any

Keys = dict[str, type | tuple[Any, ...]]

TORCHTITAN: Keys = {
    "training.local_batch_size": int,
    "training.global_batch_size": int,
    "training.seq_len": int,
    "training.mixed_precision_param": ("bfloat16", "float32"),
    "training.disable_cuda_graphs": bool,
    "parallelism.data_parallel_replicate_degree": int,
    "parallelism.data_parallel_shard_degree": int,
    "parallelism.fsdp_reshard_after_forward": ("default", "always", "never"),
    "parallelism.tensor_parallel_degree": int,
    "parallelism.enable_sequence_parallel": bool,
    "parallelism.context_parallel_degree": int,
    "parallelism.expert_parallel_degree": int,
    "parallelism.pipeline_parallel_degree": int,
    "activation_checkpoint": ("FullAC.Config()", None),
}
"""Source: pytorch/torchtitan v0.3.0 torchtitan/config/configs.py, TrainingConfig and
ParallelismConfig; torchtitan/distributed/activation_checkpoint.py, ActivationCheckpointingConfig;
torchtitan/trainer.py, Trainer.Config."""

_DATA_PARALLELISM = {
    "no_shard": ("no_shard", "optim"),
    "inner": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
}

MEGATRON: Keys = {
    "tensor-model-parallel-size": int,
    "pipeline-model-parallel-size": int,
    "context-parallel-size": int,
    "cp-comm-type": ("p2p", "all_gather", "a2a", "a2a+p2p"),
    "expert-model-parallel-size": int,
    "expert-tensor-parallel-size": int,
    "sequence-parallel": (True,),
    "micro-batch-size": int,
    "global-batch-size": int,
    "seq-length": int,
    "bf16": (True,),
    "recompute-granularity": ("full", "selective"),
    "recompute-method": ("uniform", "block"),
    "recompute-num-layers": int,
    "use-distributed-optimizer": (True,),
    "num-distributed-optimizer-instances": int,
    "overlap-grad-reduce": (True,),
    "overlap-param-gather": (True,),
    "use-megatron-fsdp": (True,),
    "data-parallel-sharding-strategy": _DATA_PARALLELISM["inner"],
    "outer-dp-sharding-strategy": _DATA_PARALLELISM["no_shard"],
    "no-gradient-accumulation-fusion": (True,),
    "ckpt-format": ("torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"),
}
"""Source: NVIDIA/Megatron-LM megatron/training/arguments.py@000c4ac2, _add_distributed_args,
_add_training_args, _add_moe_args, _add_mixed_precision_args and _add_checkpointing_args; the words
of cp_comm_type: megatron/core/transformer/transformer_config.py, core_v0.16.1;
--outer-dp-sharding-strategy: docs/user-guide/features/megatron_fsdp.md@11ceb1d2."""

NEMO: Keys = {
    "model.tensor_model_parallel_size": int,
    "model.context_parallel_size": int,
    "model.pipeline_model_parallel_size": int,
    "model.sequence_parallel": bool,
    "model.cp_comm_type": MEGATRON["cp-comm-type"],
    "model.expert_model_parallel_size": int,
    "model.expert_tensor_parallel_size": int,
    "model.recompute_granularity": ("full", "selective", None),
    "model.recompute_method": ("uniform", "block", None),
    "model.recompute_num_layers": (*range(1, 1000), None),
    "model.seq_length": int,
    "model.gradient_accumulation_fusion": bool,
    "dataset.seq_length": int,
    "train.micro_batch_size": int,
    "train.global_batch_size": int,
    "ddp.use_distributed_optimizer": bool,
    "ddp.num_distributed_optimizer_instances": int,
    "ddp.overlap_grad_reduce": bool,
    "ddp.overlap_param_gather": bool,
    "ddp.use_megatron_fsdp": bool,
    "ddp.data_parallel_sharding_strategy": _DATA_PARALLELISM["inner"],
    "ddp.outer_dp_sharding_strategy": _DATA_PARALLELISM["no_shard"],
    "optimizer.use_distributed_optimizer": bool,
    "checkpoint.ckpt_format": ("torch_dist", "zarr", "fsdp_dtensor"),
    "mixed_precision": (
        "bf16_mixed",
        "MixedPrecisionConfig(fp32=True, params_dtype=torch.float32, pipeline_dtype=torch.float32)",
    ),
}
"""Source: NVIDIA-NeMo/Megatron-Bridge v0.3.1 src/megatron/bridge/training/config.py,
ConfigContainer and its parts, and mixed_precision.py; NVIDIA/Megatron-LM core_v0.16.1
megatron/core/model_parallel_config.py, transformer/transformer_config.py and
distributed/distributed_data_parallel_config.py."""

DEEPSPEED: Keys = {
    "_comment": list,  # of no framework: DeepSpeed leaves keys that it does not know alone
    "train_batch_size": int,
    "train_micro_batch_size_per_gpu": int,
    "gradient_accumulation_steps": int,
    "bf16.enabled": bool,
    "zero_optimization.stage": (0, 1, 2, 3),
    "zero_optimization.overlap_comm": bool,
    "zero_optimization.zero_hpz_partition_size": int,
    "tensor_parallel.autotp_size": int,
    "expert_parallel.enabled": bool,
    "expert_parallel.autoep_size": int,
    "sequence_parallel_size": int,
    "data_parallel_size": int,
}
"""Source: deepspeedai/DeepSpeed v0.19.8 deepspeed/runtime/constants.py, runtime/config.py,
runtime/precision_config.py (DeepSpeedBF16Config), runtime/zero/config.py (DeepSpeedZeroConfig),
runtime/tensor_parallel/config.py (TPTrainingConfig), module_inject/auto_ep_config.py
(parse_autoep_config), deepspeed/__init__.py (initialize)."""

_AXES = ("data", "fsdp", "context", "tensor", "tensor_sequence", "expert")
MAXTEXT: Keys = {
    "base_config": ("base.yml",),
    "per_device_batch_size": float,
    "gradient_accumulation_steps": int,
    "max_target_length": int,
    "dtype": ("bfloat16", "float32"),
    "remat_policy": ("full", "minimal", "minimal_with_context"),
    "shard_optimizer_over_data": bool,
    "context_parallel_strategy": ("all_gather", "ring"),
    "expert_shard_attention_option": ("fsdp", "context"),
    **{f"{where}_{axis}_parallelism": int for where in ("ici", "dcn") for axis in _AXES},
}
"""Source: AI-Hypercomputer/maxtext src/maxtext/configs/base.yml@e6b06efc;
src/maxtext/configs/types.py@a2a238f3 (base_config, DType)."""

ACCELERATE: Keys = {
    "compute_environment": ("LOCAL_MACHINE",),
    "distributed_type": ("NO", "MULTI_GPU", "FSDP"),
    "num_machines": int,
    "num_processes": int,
    "mixed_precision": ("no", "bf16"),
    "fsdp_config.fsdp_version": (2,),
    "fsdp_config.fsdp_auto_wrap_policy": (
        *("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    ),
    "fsdp_config.fsdp_reshard_after_forward": bool,
    "fsdp_config.fsdp_activation_checkpointing": bool,
    "parallelism_config.parallelism_config_dp_replicate_size": int,
    "parallelism_config.parallelism_config_dp_shard_size": int,
    "parallelism_config.parallelism_config_tp_size": int,
    "parallelism_config.parallelism_config_cp_size": int,
    "parallelism_config.parallelism_config_cp_comm_strategy": ("allgather", "alltoall"),
}
"""Source: huggingface/accelerate v1.15.0 src/accelerate/commands/config/config_args.py
(ClusterConfig), commands/config/cluster.py and commands/launch.py (fsdp_config and
parallelism_config), utils/constants.py (FSDP_AUTO_WRAP_POLICY), utils/dataclasses.py
(DistributedType)."""

KEYS = {
    "torchtitan": TORCHTITAN,
    "megatron": MEGATRON,
    "nemo": NEMO,
    "deepspeed": DEEPSPEED,
    "maxtext": MAXTEXT,
    "accelerate": ACCELERATE,
}
