"""``check`` and ``predict``: one line for whatever a student writes, and never an error."""

import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from fssl_core.course import check, predict
from fssl_core.course.checking import DRAWS, MIME, checked, predicted
from fssl_core.course.exercise import Exercise, Prediction, Wrong, compare, exercises_of, find_exercise, modules
from fssl_core.errors import FsslError, SettingError
from fssl_core.paths import project_root

SEEN: list[float] = []


def add(answer, generator):
    numbers = torch.rand(2, generator=generator)
    SEEN.append(numbers[0].item())
    compare(answer(numbers), numbers.sum(), difference=numbers[0] - numbers[1])


ADD = Exercise("sums/add", add, {"difference": "this is the difference", "other": "wrong", "shape": "", "type": ""})


@pytest.fixture
def guess(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "figures" / "sums").mkdir(parents=True)
    pd.DataFrame({"x": [40.0, 44.0]}).to_csv(tmp_path / "figures" / "sums" / "x.laptop.csv")
    monkeypatch.chdir(tmp_path)
    hints = {"too_low": "more", "too_high": "less", "unit": "another unit"}
    return Prediction("sums/guess", lambda record: record.x.mean(), "apples", 2.0, hints, record=("sums/x", "laptop"))


@pytest.mark.parametrize(
    ("answer", "status", "hint"),
    [
        (lambda x: x.sum(), "right", None),
        (lambda x: x.sum().item(), "right", None),
        (lambda x: x[0] - x[1], "not yet", "difference"),
        (lambda x: x * 0 + 7, "not yet", "shape"),
        (lambda x: 7.0, "not yet", "other"),
        (lambda x: float("nan"), "not yet", "type"),
        (lambda x: "seven", "not yet", "type"),
        (lambda x: object(), "not yet", "type"),
        (lambda x: [[1], [2, 3]], "not yet", "type"),
        (lambda: 1, "not yet", "error"),
        (lambda x: 1 / 0, "not yet", "error"),
        (3.0, "not yet", "untested"),
        (lambda x: None, "not yet", "none"),
        (lambda x: ..., "unanswered", None),
        (None, "unanswered", None),
        (..., "unanswered", None),
    ],
)
def test_whatever_the_answer_is_there_is_one_result(answer, status, hint):
    found = checked(ADD, answer)
    assert (found.status, found.hint) == (status, hint)
    assert "\n" not in found.line
    assert found.data() == {
        "exercise": "sums/add",
        "kind": "check",
        "answered": status != "unanswered",
        "passed": status == "right",
        "hint": hint,
    }


def test_a_forgotten_return_and_a_call_in_place_of_a_function_are_named():
    assert "Is a `return` missing?" in checked(ADD, lambda x: None).text
    assert checked(ADD, lambda x: ...).text == checked(ADD, None).text == ""
    assert checked(ADD, torch.tensor(3.0)).text == (
        "The answer is to be a function, and this is of type Tensor: name it, do not call it."
    )


@pytest.mark.parametrize("with_the_rest", [0, -1])
@pytest.mark.parametrize("seed", range(10))
def test_shares_may_be_rounded_in_any_way_that_loses_no_image(with_the_rest, seed):
    def divide(labels, shares):
        parts = [[] for _ in range(shares.shape[1])]
        for label, label_shares in enumerate(shares):
            images = (labels == label).nonzero().flatten()
            counts = (label_shares * len(images)).long()
            counts[with_the_rest] += len(images) - counts.sum()
            for part, piece in zip(parts, images.split(counts.tolist()), strict=True):
                part.append(piece)
        return [torch.cat(part) for part in parts]

    assert checked(find_exercise("averaging/divide"), divide, seed=seed).status == "right"


def test_an_error_is_named_with_the_line_of_the_students_own_code():
    space = {"__name__": "__main__"}
    exec(
        compile("def own(x):\n    y = 2\n    return helper(x)\n\ndef helper(x):\n    return x @ 'a'\n", "cell", "exec"),
        space,
    )
    found = checked(ADD, space["own"])
    assert found.text.startswith("Your code raises TypeError: ")
    assert ", in line 6" in found.text


def test_the_library_is_not_taken_for_the_students_code():
    space = {"__name__": "__main__", "torch": torch}
    exec(compile("def own(x):\n    return torch.nn.functional.linear(x, x[None, :1])\n", "cell", "exec"), space)
    assert ", in line 2" in checked(ADD, space["own"]).text


def test_inputs_are_other_ones_each_time_and_the_same_for_a_seed():
    SEEN.clear()
    for seed in (0, 0, 1):
        checked(ADD, lambda x: x.sum(), seed)
    assert len(SEEN) == 3 * DRAWS
    assert SEEN[:DRAWS] == SEEN[DRAWS : 2 * DRAWS]
    assert len({*SEEN}) == 2 * DRAWS


def test_an_answer_that_changes_its_inputs_is_compared_with_the_right_ones():
    def in_place(x):
        total = x.sum()
        x.zero_()
        return total

    assert checked(ADD, in_place).status == "right"
    assert checked(ADD, lambda x: x.zero_().sum()).status == "not yet"


def test_an_interrupt_goes_through_and_names_the_students_line():
    space = {"__name__": "__main__"}
    exec(compile("def own(x):\n    raise KeyboardInterrupt\n", "cell", "exec"), space)
    with pytest.raises(KeyboardInterrupt, match=r"^Interrupted, in line 2") as stopped:
        checked(ADD, space["own"])
    assert len(stopped.value._render_traceback_()) == 1  # and not the frames of the check, which know the answer


def test_what_is_not_finite_is_named():
    bad = torch.tensor([1.0, math.nan, math.inf])
    with pytest.raises(Wrong, match="nan or inf, in 2 of 3 places"):
        compare(bad, torch.ones(3))


@pytest.mark.parametrize(
    ("given", "status", "hint", "off"),
    [
        (42, "right", None, "exactly"),
        (torch.tensor(43.5), "right", None, "1.5 too high"),
        (np.array(43.5), "right", None, "1.5 too high"),
        (40.0, "right", None, "2 too low"),
        (39.9, "not yet", "too_low", "2.1 too low"),
        (50, "not yet", "too_high", "8 too high"),
        (0.42, "not yet", "unit", "41.6 too low"),
        ("many", "not yet", "type", ""),
        (True, "not yet", "type", ""),
        (float("nan"), "not yet", "type", ""),
        (None, "unanswered", None, ""),
        (..., "unanswered", None, ""),
    ],
)
def test_a_guess_is_set_beside_the_record(guess, given, status, hint, off):
    found = predicted(guess, given)
    assert (found.status, found.hint) == (status, hint)
    assert off in found.text
    assert ("apples" in found.text) == bool(off)
    assert found.data()["kind"] == "prediction"
    assert found.data().get("value") == (float(given) if off else None)
    assert ("close" in found.words) == bool(off)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("30 %", "Expected a number, got the text '30 %': write the number alone, without its unit."),
        ("30", "Expected a number, got the text '30': write the number without quotes."),
        (
            (5, 800),
            "Expected a number, got two: write it without a comma between thousands, and with a point before decimals.",
        ),
        (float("nan"), "Expected a finite number, got nan."),
        (True, "Expected a number, got bool."),
        (torch.ones(3, 2), "The answer has the shape [3, 2]; expected is a single number."),
    ],
)
def test_what_is_no_number_is_named(guess, given, text):
    assert predicted(guess, given).text == text


def test_a_guess_whose_difference_is_not_shown_is_exact(guess):
    assert "exactly" in predicted(guess, 42 * (1 + 1e-5)).text


def test_a_difference_of_nearly_a_thousand_is_written_out(guess):
    assert "has 42 apples: 1,000 too high." in predicted(guess, 42 + 999.7).text


def test_a_record_without_the_number_is_shown_as_it_is(guess):
    (project_root() / "figures" / "sums" / "x.laptop.csv").write_text("x,y\n,1\n")
    assert "has nan apples" in predicted(guess, 42).text


def test_a_missing_record_is_no_wrong_answer(guess):
    (project_root() / "figures" / "sums" / "x.laptop.csv").unlink()
    with pytest.raises(FsslError, match=r"figures/sums/x\.laptop\.csv is missing"):
        predicted(guess, 1)


def test_unknown_names_are_refused_with_those_that_there_are():
    with pytest.raises(SettingError, match=r"'averaging/fedavk'.*averaging/fedavg"):
        check("averaging/fedavk", None)
    with pytest.raises(SettingError, match=r"averaging/\.\.\."):
        check("no_such_module/x", None)
    with pytest.raises(SettingError, match=r"averaging/\.\.\."):
        check([1.0, 2.0], "averaging/fedavg")  # the wrong way round
    with pytest.raises(SettingError, match="this one is for predict"):
        check("averaging/dirichlet_loss", None)
    with pytest.raises(SettingError, match="this exercise is for check"):
        predict("averaging/fedavg", 1)


def test_a_line_outside_of_a_notebook(capsys):
    check("averaging/fedavg", None)
    assert capsys.readouterr().out == "○ averaging/fedavg: not answered yet\n"


def test_in_a_notebook_the_result_is_data_beside_the_line(monkeypatch):
    shown = []
    monkeypatch.setattr("fssl_core.course.checking.in_kernel", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython.display", type(sys)("display"))
    sys.modules["IPython.display"].display = lambda data, raw: shown.append(data)
    check("averaging/fedavg", lambda models, images: models.mean(0) < 1)
    (data,) = shown
    assert data[MIME]["passed"] is False
    assert data["text/plain"].startswith("✘ averaging/fedavg: not yet. ")
    assert "<script" not in data["text/html"]


@pytest.mark.parametrize("module", modules())
def test_every_hint_says_what_is_wrong(module):
    for id, known in exercises_of(module).items():
        assert id.startswith(f"{module}/")
        assert all(text[:1].isupper() for text in known.hints.values()), id


def test_a_hint_may_depend_on_the_answer():
    def test(answer, generator):
        raise Wrong("other", f"{answer} is wrong")

    assert checked(Exercise("sums/x", test, {"other": ""}), 3).text == "3 is wrong."


def test_every_module_has_exercises():
    assert all(exercises_of(module) for module in modules())
    assert find_exercise("averaging/fedavg").id == "averaging/fedavg"


@pytest.mark.parametrize("seed", ["s123", 1.5, -1, None])
def test_a_seed_that_is_no_whole_number_is_named(seed):
    with pytest.raises(SettingError, match=rf"seed={seed!r} cannot be used"):
        check("reading/verdict", None, seed=seed)
