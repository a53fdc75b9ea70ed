"""What is installed, and that what is checked is what is installed."""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.commands import ended
from tests.slow import slow_after

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "hypar_opt"


def shipped() -> set[str]:
    """Every module, data file and marker of the source tree."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".pyi", ".toml", ".j2", ".css", ".js", ".txt"}
        or path.name == "py.typed"
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist, which is built from the tree."""
    folder = tmp_path_factory.mktemp("dist")
    ended(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_built_from_the_sdist_has_every_module_and_every_network(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == shipped()
    for module in ("cli/app", "sharding/layouts", "workload/operators/conv"):
        assert f"hypar_opt/{module}.py" in names


def test_the_wheel_requires_what_the_package_imports(wheel: Path) -> None:
    (metadata,) = [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("METADATA")]
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    required = {
        own.replace("-", "_") for own in re.findall(r"^Requires-Dist: ([\w-]+)", text, re.M)
    }
    imported: set[str] = set()
    for text in (path.read_text() for path in PACKAGE.rglob("*.py")):
        # What lines of docstrings begin with is none: those that may import others are parsed.
        first = {*re.findall(r"^\s*(?:from|import) (\w+)", text, re.M)}
        if first <= {"hypar_opt", *sys.stdlib_module_names}:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    outside = imported - sys.stdlib_module_names - {"hypar_opt", "pydantic_core"}
    # Of all packages one has another name than its module.
    assert outside <= required | {"vl_convert"}
    assert "vl_convert_python" in required


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    env = tmp_path / "env"
    venv.create(env, with_pip=False)
    python = env / "bin" / "python"
    ended(
        sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check",
        "install", "--no-deps", "--no-index", wheel,
    )  # fmt: skip
    # The dependencies are this environment's, behind the installed package; the editable
    # install of this tree is not among them, for a folder on the path reads no .pth file.
    site = Path(sysconfig.get_paths(vars={"base": str(env), "platbase": str(env)})["purelib"])
    assert (site / "hypar_opt").is_dir()
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    solved = ended(env / "bin" / "hypar-opt", "solve", "vgg-a", cwd=tmp_path)
    assert "1.408 GB" in solved.stdout
    where = ended(python, "-c", "import hypar_opt; print(hypar_opt.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(env)
    everything = ended(
        python,
        "-c",
        "import pkgutil, importlib, hypar_opt\n"
        "for m in pkgutil.walk_packages(hypar_opt.__path__, 'hypar_opt.'):\n"
        "    m.name.endswith('__main__') or importlib.import_module(m.name); print(m.name)",
        cwd=tmp_path,
    )
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in shipped()
        if name.endswith(".py")
    }
    assert set(everything.stdout.split()) == modules - {"hypar_opt"}


def test_a_room_is_there_before_anything_has_imported_it() -> None:
    program = "import hypar_opt as ho; print(len(ho.models.PAPER_NETWORKS), hasattr(ho, 'nope'))"
    assert ended(sys.executable, "-c", program).stdout.split() == ["10", "False"]


@pytest.mark.parametrize("name", ["solvers", "cli", "models"])
def test_the_root_links_to_the_packages_folders(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert os.readlink(link) == f"hypar_opt/{name}"  # noqa: PTH115 - the text of the link
    assert link.resolve() == PACKAGE / name


@pytest.mark.parametrize("name", ["solvers", "cli", "models"])
def test_importing_through_a_root_link_is_banned(name: str, tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(f"import {name}\n\nprint({name})\n")
    ruff = Path(sys.executable).with_name("ruff")
    done = ended(
        *(ruff, "check", "--no-cache", "--config", ROOT / "pyproject.toml", file), status=1
    )
    assert f"import hypar_opt.{name}: the link at the root is not installed" in done.stdout


@pytest.mark.parametrize(
    "module", slow_after(1, ["workload.network", "search", "workload.tensors"])
)
def test_an_import_against_the_floors_breaks_the_contract(module: str, tmp_path: Path) -> None:
    """A solver sees a cost table: not what uses it, and not what it was made from."""
    copy = tmp_path / "hypar_opt"
    ended("cp", "-r", PACKAGE, copy)
    ended("cp", ROOT / "pyproject.toml", tmp_path)
    fixed = copy / "solvers" / "baselines.py"
    fixed.write_text(fixed.read_text() + f"\nimport hypar_opt.{module}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ended(linter, "--no-cache", status=1, cwd=tmp_path, env=env)
    assert f"hypar_opt.solvers is not allowed to import hypar_opt.{module}" in done.stdout


def test_the_public_names_are_there() -> None:
    import hypar_opt as ho

    for name in ho.__all__:
        assert getattr(ho, name) is not None
    # A star import would hide the list of Python.
    assert dir(ho) == sorted([*ho.__all__, "list"])
    with pytest.raises(AttributeError, match="no attribute 'solver'"):
        _ = ho.solver  # type: ignore[attr-defined]
