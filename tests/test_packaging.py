"""The files around the package agree with each other: pyproject.toml is the one list of dependencies."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pinned() -> dict[str, str]:
    """Versions in requirements.lock by package."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_lock_pins_a_fitting_version_of_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    versions = pinned()
    assert all(versions.values()), "only exact versions, no paths or addresses"
    own = canonicalize_name(project["name"])  # an extra that includes another one
    for requirement in (needed for needed in map(Requirement, wanted) if canonicalize_name(needed.name) != own):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"requirements.lock has no {requirement.name}: run `make lock`"
        assert requirement.specifier.contains(version), (
            f"{requirement} and {version} in requirements.lock: run `make lock`"
        )


def test_conda_environment_installs_the_tested_versions_of_the_project_with_its_extras():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *_, pip = environment["dependencies"]
    assert pip == {"pip": ["-c requirements.lock", "-e .[notebooks,test]"]}


# ---------------------------------------------------------------- with and without CUDA

CUDA = re.compile("(nvidia|cuda)-.*|triton")


@pytest.fixture
def clone(tmp_path):
    """What `make` needs to say what it would do, on a fresh clone."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def would_do(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    if not shutil.which("make"):
        pytest.skip("needs make")
    passed_on = ("MAKEFLAGS", "MAKEOVERRIDES", "TORCH", "TORCH_INDEX")  # by the `make test` that runs this
    environment = {name: value for name, value in os.environ.items() if name not in passed_on}
    return subprocess.run(["make", "-n", *arguments], cwd=folder, capture_output=True, text=True, env=environment)


def test_make_installs_pypis_pytorch_with_the_tested_versions(clone):
    installs = [line for line in would_do(clone, "install").stdout.splitlines() if "pip install" in line]
    assert len(installs) == 1
    assert installs[0].endswith("-c requirements.lock -e '.[notebooks,test]'")
    assert would_do(clone, "install", "TORCH=cuda").stdout == would_do(clone, "install").stdout


def test_make_without_cuda_takes_the_tested_pytorch_from_its_cpu_index_first(clone):
    first, then = [
        line for line in would_do(clone, "install", "TORCH=cpu").stdout.splitlines() if "pip install" in line
    ]
    index = "--index-url https://download.pytorch.org/whl/cpu torch torchvision ||"
    assert f"-c requirements.lock --no-deps {index}" in first
    assert then.endswith("-c requirements.lock -e '.[notebooks,test]'")
    mirror = would_do(clone, "install", "TORCH=cpu", "TORCH_INDEX=https://mirror/cpu").stdout
    assert "--no-deps --index-url https://mirror/cpu torch torchvision" in mirror


def test_make_says_when_it_cannot_install_without_cuda(clone):
    wrong = would_do(clone, "install", "TORCH=gpu")
    assert wrong.returncode != 0
    assert "TORCH=gpu cannot be used: cpu (without CUDA) or cuda" in wrong.stderr
    (clone / ".venv" / "lib" / "python3.11" / "site-packages" / "nvidia").mkdir(parents=True)
    assert would_do(clone, "install").returncode == 0
    there = would_do(clone, "install", "TORCH=cpu")
    assert there.returncode != 0
    assert ".venv has CUDA installed: delete it" in there.stderr


def test_only_pytorch_asks_for_the_pinned_cuda_packages():
    """So that with a PyTorch that asks for none, none is installed."""
    versions = pinned()
    assert not [name for name, version in versions.items() if "+" in version], "run `make lock` with PyPI's PyTorch"
    assert any(map(CUDA.fullmatch, versions))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    reached, waiting = set(), [*project["dependencies"], *(line for extra in extras for line in extra)]
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        marked = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
        )
        if name in reached or not marked or name == project["name"]:
            continue
        reached.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # of an extra that was not asked for
            continue
        waiting += [line for line in needed if name != "torch" or not CUDA.fullmatch(Requirement(line).name)]
    assert {"torch", "torchvision", "jupyterlab", "flwr", "lightly"} <= reached
    assert not [name for name in reached if CUDA.fullmatch(name)]


def test_citation_names_the_five_papers_of_the_reference_values():
    claims = (ROOT / "fssl_core" / "papers" / "data").glob("*_claims.yaml")
    papers = {path.name.removesuffix("_claims.yaml") for path in claims}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {reference["abbreviation"] for reference in citation["references"]} == papers
    assert len(papers) == 5
    assert all(reference["authors"] and reference["title"] for reference in citation["references"])
