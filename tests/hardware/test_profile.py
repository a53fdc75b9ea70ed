"""Measured seconds: their file, what it may lack, and what a step makes of them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import InputError
from hypar_opt.hardware.profile import read_profile

TIMES = 'forward = "8 ms"\nbackward = "16 ms"\ngradient = "24 ms"\n'
LAYERS = ("conv1", "conv2", "fc1", "fc2")
LENET = "batch = 256\n" + "".join(f'[[layer]]\nname = "{name}"\n{TIMES}' for name in LAYERS)


def written(folder: Path, text: str) -> Path:
    file = folder / "profile.toml"
    file.write_text(text)
    return file


def test_seconds_are_exact_whatever_their_unit(tmp_path: Path) -> None:
    text = LENET.replace('"8 ms"', '"8000 us"', 1).replace('"16 ms"', '"0.016 s"', 1)
    profile = read_profile(written(tmp_path, text))
    assert profile == read_profile(written(tmp_path, 'schema = "hypar-opt/profile/1"\n' + LENET))
    found = profile.seconds(LAYERS, 256, ["forward", "backward", "gradient"])
    assert found == {
        "forward": [Fraction(8, 1000)] * 4,
        "backward": [Fraction(16, 1000)] * 4,
        "gradient": [Fraction(24, 1000)] * 4,
    }


def test_an_accelerator_of_n_takes_an_nth_of_what_was_measured(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, LENET))
    for levels in (1, 4):
        plan = ho.solve("lenet-c", array=f"hmc-htree-{2**levels}")
        step = ho.simulate(plan, profile=profile)
        computed = ho.simulate(plan)
        assert step.compute == pytest.approx(4 * 0.048 / 2**levels)
        assert step.communication == pytest.approx(computed.communication)
        assert step.energy == computed.energy
        phases = {phase: compute for phase, (compute, _) in step.phases.items()}
        assert phases == pytest.approx(
            {
                "forward": 0.032 / 2**levels,
                "backward": 0.064 / 2**levels,
                "gradient": 0.096 / 2**levels,
            }
        )


def test_the_order_of_layers_is_the_networks(tmp_path: Path) -> None:
    head, *layers = LENET.split("[[layer]]\n")
    layers[0] = layers[0].replace("8 ms", "1 ms", 1)
    turned = head + "".join(f"[[layer]]\n{layer}" for layer in reversed(layers))
    found = read_profile(written(tmp_path, turned)).seconds(LAYERS, 256, ["forward"])
    assert [float(each) for each in found["forward"]] == [0.001, 0.008, 0.008, 0.008]


def test_inference_needs_the_forward_pass_alone(tmp_path: Path) -> None:
    text = LENET.replace('backward = "16 ms"\ngradient = "24 ms"\n', "")
    profile = read_profile(written(tmp_path, text))
    forward = ho.solve("lenet-c", array="hmc-htree-4", inference=True)
    assert ho.simulate(forward, profile=profile).compute == pytest.approx(0.008)
    with pytest.raises(ho.HyparError) as raised:
        ho.simulate(ho.solve("lenet-c", array="hmc-htree-4"), profile=profile)
    assert str(raised.value) == "profile: layer 'conv1' has no backward"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"batch": 128}, "profile: measured with batch 256, the plan's is 128"),
        ({"network": "sconv"}, "profile: has no layer 'conv3'; the network's are conv1, conv2,"),
    ],
)
def test_a_profile_of_something_else_is_refused(
    asked: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    profile = read_profile(written(tmp_path, LENET))
    network = str(asked.get("network", "lenet-c"))
    plan = ho.solve(network, array="hmc-htree-4", batch=asked.get("batch", 256))
    with pytest.raises(ho.HyparError) as raised:
        ho.simulate(plan, profile=profile)
    assert str(raised.value).startswith(complaint)


def test_a_layer_that_the_network_lacks_is_refused(tmp_path: Path) -> None:
    profile = read_profile(written(tmp_path, LENET + f'[[layer]]\nname = "fc3"\n{TIMES}'))
    with pytest.raises(ho.HyparError, match="profile: layer 'fc3' is unknown; the network's ar"):
        ho.simulate(ho.solve("lenet-c", array="hmc-htree-4"), profile=profile)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "missing key 'batch'"),
        ("batch = 256", "missing key 'layer'"),
        ("batch = 0\n" + LENET.partition("\n")[2], "batch: should be greater than or equal to 1"),
        ("batch = 256\nlayer = []", "layer: should have at least one entry"),
        (LENET + '[[layer]]\nforward = "8 ms"', "layer[4]: missing key 'name'"),
        (LENET + '[[layer]]\nname = "fc3"', "layer 'fc3': missing key 'forward'"),
        (LENET.replace("8 ms", "8 parsecs", 1), "layer 'conv1', forward: should be a time, as in"),
        (LENET.replace('"8 ms"', "8", 1), "layer 'conv1', forward: should be a time, as in"),
        (LENET.replace("8 ms", "-8 ms", 1), "layer 'conv1', forward: should be a time, as in"),
        (
            LENET.replace("forward", "foreward", 1),
            "layer 'conv1': unknown key 'foreward': did you mean forward",
        ),
        ('schema = "hypar-opt/profile/2"\n' + LENET, "schema: 'hypar-opt/profile/2' is newer th"),
        ("batch = ", "should be TOML"),
        (
            LENET + f'[[layer]]\nname = "fc1"\n{TIMES}',
            "layer 'fc1', name: should be unique, appears",
        ),
    ],
)
def test_a_file_that_is_no_profile_is_refused_in_a_line(
    text: str, complaint: str, tmp_path: Path
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        read_profile(file)
    assert str(raised.value).startswith(f"{file}: {complaint}")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: No such file"):
        read_profile("none.toml")
