"""Every exercise of the course: its right answer passes, and wrong ones get the hint that belongs to them."""

import nbformat
import pytest

from fssl_core.course.checking import checked, predicted
from fssl_core.course.exercise import Exercise, exercises_of, find_exercise
from fssl_core.course.marks import report
from tests.course.solutions import FOLDER, MODULES, check_line, exercise_cells, read, value

ANSWERS = [(imports, answer) for module in MODULES for imports, answers in [read(module)] for answer in answers]
WRONG = 3  # answers at least to each exercise


@pytest.mark.parametrize(
    ("imports", "answer"), ANSWERS, ids=[f"{answer.exercise}-{answer.hint or 'right'}" for _, answer in ANSWERS]
)
def test_an_answer_gets_what_belongs_to_it(imports, answer):
    known = find_exercise(answer.exercise)
    tested = (checked if isinstance(known, Exercise) else predicted)(known, value(imports, answer))
    assert (tested.status, tested.hint) == (("not yet", answer.hint) if answer.hint else ("right", None)), tested.line


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_every_exercise_has_one_right_answer_and_three_wrong_ones(module):
    _, answers = read(module)
    name = module.stem.partition("_")[2]
    for exercise in exercises_of(name):
        hints = [answer.hint for answer in answers if answer.exercise == exercise]
        assert hints.count("") == 1, exercise
        assert len({*hints} - {""}) >= WRONG, exercise
    assert {answer.exercise for answer in answers} == set(exercises_of(name))


def test_answers_and_notebooks_go_together():
    assert {path.stem for path in (FOLDER / "solutions").glob("*.py")} == {path.stem for path in MODULES}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # told of by the libraries that start kernels
@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_notebook_with_all_right_answers_passes_all_its_checks(warm_environment, module, tmp_path):
    """Filled in as a student does, executed and read as a lecturer does."""
    imports, answers = read(module)
    notebook = nbformat.read(module, as_version=4)
    cells = exercise_cells(notebook)
    for answer in (answer for answer in answers if not answer.hint):
        cells[answer.exercise].source = f"{imports}\n{answer.code}\n{check_line(cells[answer.exercise])}"
    nbformat.write(notebook, tmp_path / module.name)
    (row,) = report(tmp_path, execute=True)
    assert (row["problem"], row["open"]) == ("", "")
    assert row["passed"] == row["answered"] == row["exercises"] >= 1
    assert row["predicted"] == row["close"] == row["predictions"]
