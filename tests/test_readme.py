"""What the README and the pages of docs/ show can be run: Python code, commands, and the files that they name."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fssl_core import cli
from fssl_core.benchmark import METHODS
from fssl_core.experiments.notebooks import find_notebooks, parameters_for
from fssl_core.federation.aggregation import RULES
from fssl_core.models import ARCHITECTURES

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [README, *sorted(DOCS.glob("*.md")), ROOT / "examples" / "flower" / "README.md"]
NAMED = re.compile(r"`([\w./-]+\.(?:py|ipynb|md|toml|yaml))`")
OWN = ("FedSimCLR, nearest half", "two objectives")  # of the benchmark
LINKED = re.compile(r"""\]\(([^)#\s]+)\)|(?:href|src)="([^"#]+)\"""")


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The code blocks of a language, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


def commands(program: str) -> list[list[str]]:
    """Arguments of each call of a program in the pages."""
    lines = [line for page in PAGES for _, code in blocks(page, "bash") for line in code.splitlines()]
    calls = [line.partition(" > ")[0] for line in lines if line.startswith(f"{program} ")]  # the shell's part taken off
    return [shlex.split(line, comments=True)[1:] for line in calls]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """Of runs, which blocks share, and of data: noise in 2 classes as ``mine``, and in none as ``unlabelled``."""
    root = tmp_path_factory.mktemp("readme")
    noise = np.random.default_rng(0)
    for split, count in {"mine/train/cat": 80, "mine/train/dog": 80, "mine/test/cat": 10, "mine/test/dog": 10}.items():
        save(noise, root / "data" / split, count)
    save(noise, root / "data" / "unlabelled", 100)
    return root / "runs", root / "data"


def save(noise: np.random.Generator, folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(noise.integers(0, 256, (10, 12, 3), dtype=np.uint8)).save(folder / f"{number}.png")


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=f"{page.name}, line {n}") for page in PAGES for n, code in blocks(page, "python")]
)
def test_python_runs_at_the_smoke_profile(code, folders, monkeypatch, capsys):
    for variable, folder in zip(("FSSL_RUNS", "FSSL_DATA"), folders, strict=True):
        monkeypatch.setenv(variable, str(folder))
    for registry in (ARCHITECTURES, RULES, METHODS):
        for name in ("plain", "squared", "nearest half", *OWN):  # taken out again at the end
            monkeypatch.setitem(registry, name, None)
            del registry[name]
    exec(compile(code.replace('"laptop"', '"smoke"'), "a page", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("arguments", [pytest.param(a, id=" ".join(a)) for a in commands("fssl")])
def test_commands_are_understood(arguments, monkeypatch):
    monkeypatch.chdir(ROOT)
    parsed = cli._parser().parse_args(arguments)
    if arguments[0] == "reproduce":
        values = dict(cli._assignment(text) for text in parsed.set)
        for notebook in find_notebooks(parsed.ids):
            parameters_for(notebook, values)


def test_make_has_the_targets():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {arguments[0] for arguments in commands("make")} <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_links_exist(page):
    text = page.read_text(encoding="utf-8")
    linked = [path for pair in LINKED.findall(text) for path in pair if path and not path.startswith("http")]
    missing = [path for path in linked if not (page.parent / path).exists()]
    missing += [path for path in re.findall(r"notebooks/[\w/]+\.ipynb", text) if not (ROOT / path).exists()]
    for path in NAMED.findall(text):
        places = [ROOT / path, ROOT / "fssl_core" / path] if "/" in path else [*(ROOT / "fssl_core").rglob(path)]
        if not any(place.exists() for place in places):
            missing.append(path)
    assert not missing


def test_every_part_of_the_package_has_its_row():
    text = (DOCS / "package.md").read_text(encoding="utf-8")
    table = text[text.index("| `fssl_core/` | |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    folders = [path.parent.name for path in (ROOT / "fssl_core").glob("*/__init__.py")]
    assert sorted(rows) == sorted(folders)


def test_the_readme_leads_to_every_page_before_the_gallery():
    """A front page: what it is for, a picture and a first result on the first screen, the rest a link away."""
    front = README.read_text(encoding="utf-8").partition("<!-- gallery -->")[0]
    assert front.count("\n") <= 150
    linked = {path for pair in LINKED.findall(front) for path in pair}
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked
    screen = front.splitlines()[:40]
    assert any(line.startswith("![") for line in screen)
    assert any(line.startswith("fssl reproduce ") for line in screen)
