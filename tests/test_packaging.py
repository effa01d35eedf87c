"""The files around the package agree with each other: pyproject.toml is the one list of dependencies."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def test_lock_pins_a_fitting_version_of_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert all(pinned.values()), "only exact versions, no paths or addresses"
    own = canonicalize_name(project["name"])  # an extra that includes another one
    for requirement in (needed for needed in map(Requirement, wanted) if canonicalize_name(needed.name) != own):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"requirements.lock has no {requirement.name}: run `make lock`"
        assert requirement.specifier.contains(version), (
            f"{requirement} and {version} in requirements.lock: run `make lock`"
        )


def test_conda_environment_installs_the_project_with_its_extras():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *_, pip = environment["dependencies"]
    assert pip == {"pip": ["-e .[notebooks,test]"]}


def test_citation_names_the_five_papers_of_the_reference_values():
    claims = (ROOT / "fssl_core" / "reference").glob("*_claims.yaml")
    papers = {path.name.removesuffix("_claims.yaml") for path in claims}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {reference["abbreviation"] for reference in citation["references"]} == papers
    assert len(papers) == 5
    assert all(reference["authors"] and reference["title"] for reference in citation["references"])
