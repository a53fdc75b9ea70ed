"""Python is the shell: every command is a function, with the same names and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.commands import SUMMARIES, _imported
from hypar_opt.hardware.arrays import find_array
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import PlanningArguments, ProblemArguments
from hypar_opt.plan.training import Training
from hypar_opt.search.solver_settings import PlanArguments, SolveArguments, SourceArguments
from hypar_opt.studies.simulation import SimulateArguments
from tests.cli.shell import Shell
from tests.onnx.graph_writer import EXPORTED

FUNCTIONS: dict[str, Callable[..., Any]] = {
    command: getattr(ho, f"{command}_" if iskeyword(command) else command) for command in SUMMARIES
}
RENAMED = {
    "source": "plan",
    "solver_option": "parameters",
    "solver_log": "log",
    "export_model": "export",
    "warm_start": "start",
    "output_file": "output",
    "table": "output",
    "import dim": "dims",
    "run dim": "dims",
    "show source": "source",
    # Of lists, in the plural; options of steps are those of all plans.
    "report page_file": "output",
    "compare array": "arrays",
    "compare batch": "batches",
    "compare collective": "run",
    "compare overlap": "run",
}

OF_A_SHELL = {
    *("as_json", "picture", "csv_file", "plan_file", "result_file", "trace", "target", "page_file"),
    *("certificate", "regret", "best", "simulate"),  # functions of their own
    "explain",  # a sentence of a shell's view of a plan
    *(
        "calibrate output_file",
        *("configure output_file", "configure to"),  # of its result: `plan` and `to`
        "model model_file",  # `write_model`: a model in Python is a live one
        "relative",
        "batches",
        "folder",
        "formats",
        "every_row",
        # What is shown of a thing, and as what; solving again is a call of `solve`.
        *(
            f"show {name}"
            for name in ("batch", "unfolded", "roofline", "layouts", "schema", "toml")
        ),
        *("show rerun", "show plan_options"),
        "context",
    ),
}
KEYWORDS: dict[str, Any] = {
    "Unpack[ProblemArguments]": ProblemArguments.__annotations__,
    "Unpack[SimulateArguments]": SimulateArguments.__annotations__,
    "Unpack[SolveArguments]": SolveArguments.__annotations__,
    "Unpack[PlanArguments]": PlanArguments.__annotations__,
    "Unpack[SourceArguments]": SourceArguments.__annotations__,
}


@pytest.mark.parametrize("command", FUNCTIONS)
def test_a_command_and_its_function_have_the_same_names_and_defaults(command: str) -> None:
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    accepted: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.kind == parameter.VAR_KEYWORD:
            accepted |= dict.fromkeys(KEYWORDS[parameter.annotation])
        else:
            accepted[name] = parameter.default
    for option in _imported(command)["params"]:
        name = RENAMED.get(f"{command} {option.name}", RENAMED.get(option.name, option.name))
        of_batches = command == "sweep" and name in ProblemArguments.__annotations__
        in_full = f"{command} {option.name}"
        is_renamed = option.name in OF_A_SHELL and in_full in RENAMED
        if of_batches or ({option.name, in_full} & OF_A_SHELL and not is_renamed):
            continue
        assert name in accepted, f"{command} --{option.name}"
        stated = accepted[name]
        if stated is not None and stated is not inspect.Parameter.empty and option.default:
            stated = ",".join(map(str, stated)) if isinstance(stated, tuple) else stated
            assert str(getattr(option.default, "value", option.default)) == str(stated)


@pytest.mark.parametrize("command", SUMMARIES)
def test_what_states_a_problem_does_so_in_every_command(command: str) -> None:
    """Also other values of a network's and an array's keys, and Megatron-LM's degrees."""
    own = {option.name for option in _imported(command)["params"]}
    if "element_bytes" in own:
        of_steps = {*Training.model_fields, "placement", "constraints", "training"}
        lists = {"share", "degrees"} if command == "compare" else set()
        assert own >= PlanningArguments.__annotations__.keys() - of_steps - lists


def test_a_page_is_that_of_the_shell(tmp_path: Path, shell: Shell) -> None:
    pytest.importorskip("altair")
    plan = ho.solve("lenet-c", array="hmc-htree-2")
    plan.save(tmp_path / "plan.json")
    text = ho.report(plan, tmp_path / "python.html")
    shell.output("report", tmp_path / "plan.json", "-o", tmp_path / "shell.html")
    ours, theirs = ((tmp_path / name).read_text() for name in ("python.html", "shell.html"))
    assert ours == text
    by_command = [line for line in theirs.splitlines() if "hypar-opt report" in line]
    missing = set(theirs.splitlines()) - set(ours.splitlines()) - set(by_command)
    assert len(missing) <= 1


def test_a_verification_is_that_of_the_shell(tmp_path: Path, shell: Shell) -> None:
    plan, path = ho.solve("lenet-c", levels=2), tmp_path / "plan.json"
    proof = tmp_path / "proof.json"
    plan.save(path)
    proof.write_text(ho.certify(plan).to_json())
    said = shell.document("verify", path, "--certificate", proof)["rows"]
    assert ho.verify(path, certificate=proof).rows() == said
    (own,) = ho.verify(plan, certificate=ho.certify(plan)).rows()
    assert own == said[0] | {"plan": "Lenet-c"}
    assert "optimal" not in ho.verify(plan).rows()[0]
    asked: Any = {"levels": 2, "fix": ["fc1=data"], "search": "joint"}
    compared = ho.verify("lenet-c", solvers=["dp", "cut", "data"], **asked)
    compared.check()
    typed = ("--levels", "2", "--fix", "fc1=data", "--search", "joint", "--solvers", "dp,cut,data")
    rows = shell.document("verify", "lenet-c", *typed)["rows"]
    assert [row | {"seconds": 0} for row in compared.rows()] == [
        row | {"seconds": 0} for row in rows
    ]
    wrong = plan.model_copy(update={"cost": plan.cost.model_copy(update={"total": 1})})
    for call, why in (
        (lambda: ho.verify(wrong), "Lenet-c: "),
        (lambda: ho.verify(plan, certificate=ho.certify(ho.solve("sfc"))), "certificate"),
        (lambda: ho.verify(plan, batch=4), "batch is fixed by the plan; leave it out"),
        (lambda: ho.verify("sfc", certificate=proof), "certificate goes with a plan file"),
        (lambda: ho.verify(random=0), "random should be from 1 to 100,000, got 0"),
        (lambda: ho.verify(), "verify takes a NETWORK, a PLAN, or random"),
        (
            lambda: ho.verify("sfc", solvers=["brute"], levels=9, search="joint").check(),
            "all solvers refuse",
        ),
    ):
        with pytest.raises(ho.HyparError, match=why):
            call()


def test_what_is_shown_is_that_of_the_shell(tmp_path: Path, shell: Shell) -> None:
    path, model = tmp_path / "plan.json", EXPORTED / "gpt2.onnx"
    ho.solve("lenet-c", levels=2).save(path)
    shell("import", model, "--loss", "squared-error", "-o", tmp_path / "model.toml")
    assert ho.import_(model, loss="squared-error") == ho.show(tmp_path / "model.toml")
    speed = {"topology.link.bandwidth": "1 TB/s"}
    array: Any = ho.show("hmc-torus-4", settings=speed)
    typed = "topology.link.bandwidth=1 TB/s"
    assert array.name == shell.document("show", "hmc-torus-4", "--set", typed)["name"]
    executed: Any = ho.show(path, reading="executed")
    said = shell.document("show", path, "--reading", "executed")
    assert executed.cost.total == said["cost"]["total"]
    assert ho.show("gpt2", tokens=128) == find_network("gpt2", 128)
    for call, why in (
        (lambda: ho.show(path, tokens=8), r"tokens takes a network, and '.*' is a plan file"),
        (lambda: ho.show("h100-8", tokens=8), "tokens takes a network, and 'h100-8' is an array"),
        (lambda: ho.show("sfc", reading="text"), "reading takes a plan file, and 'sfc' is a n"),
        (lambda: ho.show("sfcc"), "unknown network or array 'sfcc': did you mean sfc"),
        (
            lambda: ho.read_network(tmp_path / "model.toml", dims={"n": 1}),
            "goes with an ONNX model",
        ),
        (lambda: ho.list("solver"), "unknown list 'solver': did you mean solvers?"),
        (lambda: ho.doctor(["numpi"]), "unknown part 'numpi': did you mean numpy?"),
    ):
        with pytest.raises(ho.HyparError, match=why):
            call()
    assert ho.list("solvers") == shell.document("list", "solvers")["rows"]
    assert ho.doctor(["numpy", "dp"]).document() == shell.document("doctor", "numpy", "dp")


def test_degrees_are_those_of_the_shell() -> None:
    pinned: Any = {"batch": 64, "array": "h100-8", "degrees": "tp=2,dp=4"}
    plan = ho.solve("gpt2", **pinned)
    assert plan.constraints.fix
    assert ho.memory("gpt2", **pinned).rows() == ho.memory(plan).rows()
    with pytest.raises(
        ho.HyparError, match="degrees: dp x cp x tp should be the 8 accelerators, got 'tp=3,dp=3'"
    ):
        ho.solve("gpt2", **pinned | {"degrees": "tp=3,dp=3"})
    with pytest.raises(ho.HyparError, match="degrees should be text such as tp=8,dp=4, got 8"):
        ho.solve("gpt2", **pinned | {"degrees": 8})
    with pytest.raises(ho.HyparError, match="degrees is fixed by the plan; leave it out"):
        ho.memory(plan, degrees="tp=2,dp=4")


def test_a_network_is_as_good_as_its_plan(tmp_path: Path) -> None:
    asked: Any = {"levels": 1, "batch": 8}
    plan = ho.solve("lenet-c", **asked)
    plan.save(tmp_path / "plan.json")
    for source, more in ((plan, {}), (tmp_path / "plan.json", {}), ("lenet-c", asked)):
        arguments: Any = more
        assert ho.best_plans(source, 5, **arguments).rows() == ho.best_plans(plan, 5).rows()
        assert ho.regrets(source, **arguments).rows() == ho.regrets(plan).rows()
        assert ho.explore(source, "H1", **arguments).rows() == ho.explore(plan, "H1").rows()
        assert ho.export(source, "json", **arguments) == ho.export(plan, "json")
        assert ho.run(source, **arguments).document() == ho.run(plan).document()


def test_a_network_is_simulated_on_the_papers_array_as_in_the_shell() -> None:
    plan = ho.solve("sfc", array="hmc-htree-16")
    assert ho.simulate("sfc").document() == ho.simulate(plan).document()
    assert ho.simulate("sfc", levels=2).array == "hmc-htree-4"
    assert ho.memory("sfc", optimizer="adam").rows() == ho.memory(plan, optimizer="adam").rows()
    by_time = ho.simulate("lenet-c", "h100-8", micro_batches=2, overlap="gradient", batch=64)
    assert by_time.plan.training.micro_batches == 2
    assert by_time.overlap == "gradient"
    settings = {"link.bandwidth": "50 GB/s"}
    slower = ho.simulate("lenet-c", "h100-8", settings=settings)
    assert slower.array == "h100-8 (topology.link.bandwidth = 50 GB/s)"
    same_plan = ho.solve("lenet-c", array="h100-8")
    assert ho.simulate(same_plan, settings=settings).array == slower.array


def test_entries_of_constraints_and_options_are_arguments_too() -> None:
    asked: Any = {"fix": ["conv1=model"], "memory": "1GB", "gap": 0.5, "time_limit": 60}
    plan = ho.solve("lenet-c", solver="cpsat", levels=1, **asked)
    assert plan["conv1"] == {"H1": "model"}
    assert (plan.constraints.memory, plan.solver.options.gap) == (10**9, 0.5)
    trained = ho.solve("lenet-c", array="h100-8", micro_batches=4)
    assert trained.training.micro_batches == 4


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ho.solve("lenet-c", memry=1), "unknown argument 'memry': did you mean memory?"),  # type: ignore[call-arg]
        (lambda: ho.solve("lenet-c", solvr=1), "unknown argument 'solvr': did you mean solver?"),  # type: ignore[call-arg]
        (lambda: ho.best_plans("lenet-c", 5, levls=2), "did you mean levels?"),  # type: ignore[call-arg]
        (lambda: ho.pareto("lenet-c", point=2), "unknown argument 'point': did you mean points?"),  # type: ignore[call-arg]
        (lambda: ho.simulate("lenet-c", overlp=2), "did you mean overlap?"),  # type: ignore[call-arg]
        (lambda: ho.explore("lenet-c", "H1", tiem_limit=2), "did you mean time_limit?"),  # type: ignore[call-arg]
        (
            lambda: ho.solve("lenet-c", memory="1GB", constraints={"memory": "2GB"}),
            "memory is stated twice: leave it out of constraints",
        ),
        (
            lambda: ho.solve("lenet-c", gap=0.1, options={"seed": 1}),
            "gap is one of options: state all there, or none",
        ),
        (lambda: ho.simulate(ho.solve("sfc"), batch=4), "batch is fixed by the plan; leave it out"),
        (lambda: ho.regrets(ho.solve("sfc")).figure(), "there is no figure of a Regrets"),
        (lambda: ho.simulate("sfc").figure(), "simulate it with trace=True"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ho.HyparError) as error:
        call()
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_names_are_at_hand() -> None:
    assert "h100-8x8" in ho.arrays
    assert "vgg-a" in ho.networks
    assert [find_array(name).name for name in ho.arrays] == list(ho.arrays)


def test_a_result_draws_itself(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    shown: list[Any] = [
        *(plan, ho.simulate(plan, trace=True), ho.load("lenet-c"), find_array("hmc-torus-4")),
        *(ho.memory(plan), ho.explore(plan, "H1,H2"), ho.compare("sfc", "hmc-htree-2")),
        *(ho.solve_all_batches("lenet-c", levels=1), ho.pareto("lenet-c", levels=1, points=2)),
    ]
    for result in shown:
        assert result.figure().to_dict()["config"]["background"] == "white"
    plan.figure(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_bytes().startswith(b"<svg")
