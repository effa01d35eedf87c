"""The contract that every module of the course keeps, rule by rule, and a proof that each rule can be broken.

What every notebook keeps, and the imports of a set-up, are in ``test_contract.py``; the links in ``test_links.py``.
"""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fssl_core.course.checking import MIME
from fssl_core.course.exercise import Exercise, exercises_of, find_exercise
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.experiments.parameters import stored_with
from fssl_core.experiments.refresh import INSTALLATION
from fssl_core.reporting.course import MODULES
from tests.notebooks.test_contract import (
    FOLDER,
    HYGIENE,
    MEGABYTE,
    METADATA,
    ROOT,
    Rule,
    answered,
    code_cells,
    defines_no_class_and_no_plotting,
    exercise_cells,
    headings,
    imports_only_in_the_set_up,
    is_stored_with_what_it_declares,
    output_texts,
    replaced,
    says_first_what_to_install,
)

NOTEBOOKS = sorted(FOLDER.glob("course/*.ipynb"))
FIRST = ["Goals", "Timetable", "What you should know", "Set-up"]  # headings of level two; then the module's own
LAST = ["What to take home", "Where to go deeper"]
EXERCISES = range(4, 9)
MINUTES = 90
SLIDES = range(6, 41)


def has_the_sections(notebook: NotebookNode) -> list[str]:
    found = [heading for cell in notebook.cells for heading in headings(cell)]
    complaints = [] if found and headings(notebook.cells[0])[:1] == found[:1] and found[0][0] == 1 else ["no title"]
    sections = [title for level, title in found if level == 2]
    if sections[:4] != FIRST or sections[-2:] != LAST:
        complaints.append(f"headings of level two are {sections}, expected {FIRST} first and {LAST} last")
    return complaints


def begins_with_a_result(notebook: NotebookNode) -> list[str]:
    """Top-down: the first code after installation and set-up shows something, and asks for nothing."""
    after = code_cells(notebook)[2:3]
    return (
        [] if after and "exercise" not in after[0].metadata and after[0].outputs else ["does not begin with a result"]
    )


def has_a_timetable_of_90_minutes(notebook: NotebookNode) -> list[str]:
    cells = [cell for cell in notebook.cells if (2, "Timetable") in headings(cell)]
    minutes = [int(number) for cell in cells for number in re.findall(r"^\| (\d+) \|", cell.source, re.MULTILINE)]
    return [] if sum(minutes) == MINUTES else [f"the timetable has {sum(minutes)} minutes, expected {MINUTES}"]


def has_exercises_that_check_themselves(notebook: NotebookNode) -> list[str]:
    """The last statement of a cell that is filled in checks the exercise that its metadata name."""
    complaints, cells = [], exercise_cells(notebook)
    if len(cells) not in EXERCISES:
        complaints.append(f"{len(cells)} exercises, expected {EXERCISES[0]} to {EXERCISES[-1]}")
    for cell in cells:
        id = cell.metadata.exercise
        call = "check" if isinstance(find_exercise(id), Exercise) else "predict"
        last = ast.unparse(ast.parse(cell.source).body[-1])
        if not last.startswith(f"{call}('{id}', "):
            complaints.append(f"exercise {id} does not end with {call}({id!r}, ...)")
        if "..." not in cell.source.partition(call)[0]:
            complaints.append(f"exercise {id} has nothing to fill in")
    calls = [n.func.id for c in code_cells(notebook) for n in ast.walk(ast.parse(c.source)) if _is_check(n)]
    if len(calls) != len(cells):
        complaints.append("a cell checks an answer without saying of which exercise in its metadata")
    return complaints


def _is_check(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("check", "predict")


def stores_unanswered_exercises(notebook: NotebookNode) -> list[str]:
    complaints = []
    for cell in exercise_cells(notebook):
        results = [output.data[MIME] for output in cell.outputs if MIME in output.get("data", {})]
        if [result["answered"] for result in results] != [False]:
            complaints.append(f"the stored result of {cell.metadata.exercise} is {results}, expected one not answered")
    return complaints


def makes_slides(notebook: NotebookNode) -> list[str]:
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in notebook.cells]
    complaints = ["a cell does not say what it is on a slide"] if None in kinds else []
    count = sum(kind in ("slide", "subslide") for kind in kinds)
    if count not in SLIDES:
        complaints.append(f"{count} slides, expected {SLIDES[0]} to {SLIDES[-1]}")
    hidden = [c for c, kind in zip(notebook.cells, kinds, strict=True) if kind == "skip" and "exercise" in c.metadata]
    return complaints + [f"exercise {cell.metadata.exercise} is on no slide" for cell in hidden]


def links_to_a_notebook_of_a_paper(notebook: NotebookNode) -> list[str]:
    (deeper,) = [cell.source for cell in notebook.cells if (2, LAST[-1]) in headings(cell)] or [""]
    return [] if re.search(r"\]\(\.\./[a-z]+/\w+\.ipynb\)", deeper) else ["leads to no notebook of a paper"]


ANATOMY: list[Rule] = [
    has_the_sections,
    begins_with_a_result,
    has_a_timetable_of_90_minutes,
    has_exercises_that_check_themselves,
    stores_unanswered_exercises,
    makes_slides,
    links_to_a_notebook_of_a_paper,
]
SHARED: list[Rule] = [  # with the notebooks of the papers
    imports_only_in_the_set_up,
    defines_no_class_and_no_plotting,
    is_stored_with_what_it_declares,
    says_first_what_to_install,
    *HYGIENE,
]


# The modules keep the contract


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_module_keeps_the_contract(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    complaints = [complaint for rule in ANATOMY + SHARED for complaint in rule(notebook)]
    if path.stat().st_size > MEGABYTE:
        complaints.append(f"{path.stat().st_size / MEGABYTE:.1f} MiB, expected at most 1")
    ids = [cell.metadata.exercise for cell in exercise_cells(notebook)]
    own = exercises_of(path.stem.partition("_")[2])
    if sorted(ids) != sorted(own):
        complaints.append(f"the notebook has the exercises {ids}, the package {list(own)}")
    assert not complaints, "\n".join(complaints)


def test_every_module_has_a_question_and_they_are_numbered(monkeypatch):
    monkeypatch.chdir(ROOT)
    ids = [notebook.id for notebook in find_notebooks(["course"])]
    assert ids == list(MODULES), "a module and its question in fssl_core/reporting/course.py go together"
    assert [Path(id).name[:2] for id in MODULES] == [f"{number:02}" for number in range(1, len(MODULES) + 1)]
    titles = [notebook.title for notebook in find_notebooks(["course"])]
    assert [title.partition(".")[0] for title in titles] == [str(int(Path(id).name[:2])) for id in ids]


# Each rule can be broken


def good_module() -> NotebookNode:
    """A small module that keeps every rule."""
    table = "## Timetable\n| minutes | what |\n|---|---|\n| 40 | One |\n| 50 | Two |"
    cells = [new_markdown_cell(text) for text in ("# 3. Title", "## Goals", table, "## What you should know")]
    cells.insert(1, new_code_cell(INSTALLATION, metadata={"tags": ["installation"]}))
    cells += [new_markdown_cell("## Set-up"), new_code_cell("from fssl_core.course import check")]
    shown = [nbformat.v4.new_output("display_data", data={"text/plain": "2"})]
    cells += [new_markdown_cell("## A first result"), new_code_cell("1 + 1", outputs=shown)]
    for id in list(exercises_of("averaging"))[:4]:
        name = id.partition("/")[2]
        cell = new_code_cell(f'def {name}(x):\n    return ...\n\n\ncheck("{id}", {name})', metadata={"exercise": id})
        cell.outputs = [nbformat.v4.new_output("display_data", data={MIME: {"exercise": id, "answered": False}})]
        cells += [new_markdown_cell(f"### {name}"), cell]
    cells += [
        new_markdown_cell("## What to take home"),
        new_markdown_cell("## Where to go deeper\n[x](../ldawa/y.ipynb)"),
    ]
    for cell in cells:
        cell.metadata["slideshow"] = {"slide_type": "slide"}
    notebook = new_notebook(cells=cells, metadata=METADATA)
    for count, cell in enumerate(code_cells(notebook), start=1):
        cell.execution_count = count
    notebook.metadata["fssl"] = stored_with(cells)
    return notebook


def without_slides(notebook: NotebookNode) -> None:
    del notebook.cells[3].metadata["slideshow"]


def on_no_slide(notebook: NotebookNode) -> None:
    exercise_cells(notebook)[0].metadata["slideshow"] = {"slide_type": "skip"}


def one_slide(notebook: NotebookNode) -> None:
    for cell in notebook.cells[1:]:
        cell.metadata["slideshow"] = {"slide_type": "-"}


def without_an_exercise(notebook: NotebookNode) -> None:
    notebook.cells.remove(exercise_cells(notebook)[0])


def without_its_name(notebook: NotebookNode) -> None:
    del exercise_cells(notebook)[0].metadata["exercise"]


BREAKS = [
    (has_the_sections, replaced("# 3. Title", "Title"), "no title"),
    (has_the_sections, replaced("## Goals", "## Aims"), "headings of level two"),
    (has_the_sections, replaced("## Where to go deeper", "## The end"), "headings of level two"),
    (begins_with_a_result, lambda notebook: notebook.cells.pop(8), "does not begin with a result"),
    (begins_with_a_result, lambda notebook: notebook.cells[8].update(outputs=[]), "does not begin with a result"),
    (has_a_timetable_of_90_minutes, replaced("| 40 |", "| 45 |"), "95 minutes"),
    (has_exercises_that_check_themselves, without_an_exercise, "3 exercises, expected 4 to 8"),
    (has_exercises_that_check_themselves, without_its_name, "without saying of which exercise"),
    (has_exercises_that_check_themselves, replaced('"averaging/fedavg"', '"averaging/drift"'), "does not end with"),
    (has_exercises_that_check_themselves, replaced("def fedavg(x):\n    return ...", "fedavg = 1"), "to fill in"),
    (stores_unanswered_exercises, answered, "expected one not answered"),
    (makes_slides, without_slides, "does not say what it is on a slide"),
    (makes_slides, on_no_slide, "averaging/fedavg is on no slide"),
    (makes_slides, one_slide, "1 slides, expected 6 to 40"),
    (links_to_a_notebook_of_a_paper, replaced("[x](../ldawa/y.ipynb)", "[x](01_y.ipynb)"), "leads to no notebook"),
]


@pytest.mark.parametrize("rule", ANATOMY + SHARED, ids=lambda rule: rule.__name__)
def test_a_good_module_keeps_the_rule_and_something_breaks_it(rule):
    assert rule(good_module()) == []
    assert rule in SHARED or rule in [broken for broken, _, _ in BREAKS]


@pytest.mark.parametrize(
    ("rule", "change", "message"), BREAKS, ids=[f"{n}-{rule.__name__}" for n, (rule, _, _) in enumerate(BREAKS)]
)
def test_a_rule_complains_about_a_broken_module(rule, change, message):
    notebook = good_module()
    change(notebook)
    complaints = rule(notebook)
    assert any(message in complaint for complaint in complaints), complaints


def test_no_stored_output_has_an_answer():
    """Hints and recorded numbers are for whoever has answered."""
    texts = [text for path in NOTEBOOKS for text in output_texts(nbformat.read(path, as_version=4))]
    assert not [text for text in texts if "not yet" in str(text) or "You said" in str(text)]
