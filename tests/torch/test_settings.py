"""The classes and parsers of frameworks take the settings that lack nothing, without accelerators.

Megatron-LM's arguments and MaxText are in no package; Megatron-Bridge's fields are Megatron Core's.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

from tests.execution.test_settings import Case, cases

pytestmark = pytest.mark.filterwarnings("ignore")

Check = Callable[[str, Case], None]


def torchtitan(_: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    from torchtitan.config.configs import ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import FullAC
    from torchtitan.distributed.parallel_dims import ParallelDims

    # Its trainer imports what trains.
    trainer = SimpleNamespace(Trainer=SimpleNamespace(Config=object))
    monkeypatch.setitem(sys.modules, "torchtitan.trainer", trainer)

    def check(text: str, case: Case) -> None:
        config = SimpleNamespace(training=TrainingConfig(), parallelism=ParallelismConfig())
        execute(text, config)  # fields in slots: an unknown one is an AttributeError
        config.parallelism.__post_init__()
        ParallelDims.from_config(config.parallelism, case.run.devices)
        again = config.activation_checkpoint
        assert again is None or isinstance(again, FullAC.Config)

    return check


def nemo(_: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer import TransformerConfig

    bridge = {
        "config": SimpleNamespace(ConfigContainer=object),
        "mixed_precision": SimpleNamespace(MixedPrecisionConfig=SimpleNamespace),
    }
    for name in ("megatron.bridge", "megatron.bridge.training"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, module in bridge.items():
        monkeypatch.setitem(sys.modules, f"megatron.bridge.training.{name}", module)

    def check(text: str, case: Case) -> None:
        parts = ("model", "ddp", "optimizer", "dataset", "train", "checkpoint")
        config = SimpleNamespace(**{name: SimpleNamespace() for name in parts})
        execute(text, config)
        model = vars(config.model)
        del model["seq_length"]  # of Megatron-Bridge's own
        sizes = {"num_layers": case.run.layers, "hidden_size": 6144, "num_attention_heads": 192}
        experts = {"num_moe_experts": case.run.experts, "add_bias_linear": False}
        TransformerConfig(**sizes, **model, **(experts if case.run.experts > 1 else {}))
        DistributedDataParallelConfig(**vars(config.ddp))
        OptimizerConfig(**vars(config.optimizer))

    return check


def execute(text: str, config: Any) -> None:
    names: dict[str, Any] = {}
    exec(text, names)
    names["configured"](config)


def deepspeed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    from deepspeed.module_inject.auto_ep_config import validate_autoep_config
    from deepspeed.runtime import config as runtime

    def check(text: str, case: Case) -> None:
        devices = case.run.devices
        monkeypatch.setattr(runtime.dist, "get_rank", lambda *_, **__: 0)
        monkeypatch.setattr(runtime.dist, "get_world_size", lambda *_, **__: devices)
        (folder / "settings.json").write_text(text)
        config = runtime.DeepSpeedConfig(str(folder / "settings.json"))
        tp, stage = config.tensor_parallel_config.autotp_size, config.zero_optimization_stage
        validate_autoep_config(config.expert_parallel_config, devices, 1, tp, 1, zero_stage=stage)
        assert config.train_batch_size // max(tp, 1) == case.run.batch

    return check


def accelerate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    version = importlib.metadata.version
    # Its launcher asks for the version of transformers, which need not be there.
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "5" if name == "transformers" else version(name)
    )
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import DistributedType

    arguments = vars(launch_command_parser().parse_args(["train.py"]))

    def check(text: str, _: Case) -> None:
        (folder / "settings.yaml").write_text(text)
        config = load_config_from_file(str(folder / "settings.yaml"))  # refuses unknown keys
        assert {*config.fsdp_config, *config.parallelism_config} <= arguments.keys()
        sizes = {
            name.removeprefix("parallelism_config_"): size
            for name, size in config.parallelism_config.items()
            if name.endswith("_size")
        }
        if sizes:
            running = SimpleNamespace(
                multi_device=config.distributed_type != DistributedType.NO,
                num_processes=config.num_processes,
                is_fsdp2=config.distributed_type == DistributedType.FSDP,
                is_main_process=True,
                distributed_type=config.distributed_type,
            )
            ParallelismConfig(**sizes)._validate_accelerator(running)

    return check


@pytest.fixture(params=[torchtitan, nemo, deepspeed, accelerate], ids=lambda own: own.__name__)
def checked(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Check]:
    return request.param.__name__, request.param(tmp_path, monkeypatch)


def test_a_framework_takes_all_settings_that_lack_nothing(checked: tuple[str, Check]) -> None:
    name, check = checked
    taken = [check(case.text, case) for case in cases(name) if not case.lacks]
    assert len(taken) >= 10


WRONG = {
    "torchtitan": ("tensor_parallel_degree = ", "tensor_parallel_degree = 7"),
    "nemo": ("cfg.model.context_parallel_size", "cfg.model.context_parallelism"),
    "deepspeed": ('"stage": ', '"stage": 4'),
    "accelerate": ("num_processes: ", "num_procs: "),
}


def test_a_framework_refuses_what_is_not_its_own(checked: tuple[str, Check]) -> None:
    """So that the test above can fail."""
    name, check = checked
    case = next(case for case in cases(name) if not case.lacks)
    check(case.text, case)
    with pytest.raises(Exception, match=r"."):
        check(case.text.replace(*WRONG[name]), case)
