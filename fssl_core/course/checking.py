"""``check`` and ``predict``: what a student sees below an exercise, and what a report reads there.

A wrong, unfinished or broken answer never raises: it gets one line. Beside the line stands the result as data of the
type :data:`MIME`, so that nobody has to read the line.
"""

import copy
import html
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fssl_core import settings
from fssl_core.course.exercise import Exercise, Prediction, Wrong, as_number, find_exercise, unanswered
from fssl_core.errors import Interrupted, SettingError
from fssl_core.notices import in_kernel, printable
from fssl_core.papers.records import recorded_results
from fssl_core.random import generator

MIME = "application/vnd.fssl.check+json"
DRAWS = 3  # times that an answer is tested, on other inputs each time
SIGNS = {"right": ("✔", "#2e7d32"), "not yet": ("✘", "#b26a00"), "unanswered": ("○", "#757575")}  # sign and colour
WORDS = {"unanswered": "not answered yet"}  # where it is not the status
WORDS_OF_PREDICTIONS = WORDS | {"right": "close", "not yet": "not close"}


@dataclass(frozen=True)
class Result:
    """What became of an answer.

    Attributes:
        exercise: its ID.
        kind: ``"check"`` or ``"prediction"``.
        status: ``"right"``, ``"not yet"`` or ``"unanswered"``.
        hint: name of the hint that was given, or None.
        text: what a student is told, or nothing.
        value: the number that was predicted, or None.
    """

    exercise: str
    kind: str
    status: str
    hint: str | None = None
    text: str = ""
    value: float | None = None

    @property
    def words(self) -> str:
        words = WORDS if self.value is None else WORDS_OF_PREDICTIONS  # what is no number is not far off
        return words.get(self.status, self.status)

    @property
    def line(self) -> str:
        return f"{SIGNS[self.status][0]} {self.exercise}: {self.words}" + (f". {self.text}" if self.text else "")

    def data(self) -> dict[str, Any]:
        """What a report reads."""
        passed = self.status == "right"
        answered = self.status != "unanswered" and (self.kind == "check" or self.value is not None)  # with a number
        found = {"exercise": self.exercise, "kind": self.kind, "answered": answered, "passed": passed}
        return found | {"hint": self.hint} | ({} if self.value is None else {"value": self.value})


def check(exercise: str, answer: Any, seed: int = 0) -> None:
    """Test an answer on fresh inputs, and show in one line whether it is right, with a hint where it is not.

    Args:
        exercise: its ID, ``module/name``.
        answer: a function or a value, as the exercise asks for.
        seed: of the inputs, a whole number; with another one they are others.

    Raises:
        SettingError: there is no such exercise, or the seed is something else.
    """
    known = find_exercise(exercise)
    settings.checked("seed", seed, settings.Whole)
    if isinstance(known, Prediction):
        raise SettingError("exercise", exercise, "an exercise for check; this one is for predict")
    _show(checked(known, answer, seed))


def predict(exercise: str, value: Any) -> None:
    """Set a guess beside the recorded number, and show in one line how far off it is.

    Args:
        exercise: its ID, ``module/name``.
        value: the guess, a number in the unit that the exercise names.

    Raises:
        SettingError: there is no such prediction.
        FsslError: the record that it is about is missing.
    """
    known = find_exercise(exercise)
    if isinstance(known, Exercise):
        raise SettingError("exercise", exercise, "a prediction; this exercise is for check")
    _show(predicted(known, value))


def checked(known: Exercise, answer: Any, seed: int = 0) -> Result:
    """What :func:`check` shows."""
    try:
        if unanswered(answer):
            raise _Unanswered
        for draw in range(DRAWS):
            known.test(_watched(answer) if callable(answer) else answer, generator(seed, known.id, draw))
    except _Unanswered:
        return Result(known.id, "check", "unanswered")
    except Wrong as wrong:
        return Result(known.id, "check", "not yet", wrong.hint, _sentence(wrong.text or known.hints[wrong.hint]))
    except _StudentsError as raised:
        return Result(known.id, "check", "not yet", "error", str(raised))
    except Exception as error:  # an answer so odd that the test fails on it
        text = _sentence(f"the answer could not be tested: {type(error).__name__}: {printable(error)}")
        if not callable(answer) and "not callable" in str(error):
            text = (
                f"The answer is to be a function, and this is of type {type(answer).__name__}: name it, do not call it."
            )
        return Result(known.id, "check", "not yet", "untested", text)
    return Result(known.id, "check", "right")


def predicted(known: Prediction, value: Any) -> Result:
    """What :func:`predict` shows."""
    if unanswered(value):
        return Result(known.id, "prediction", "unanswered")
    try:
        guess = as_number(value)
    except Wrong as wrong:
        return Result(known.id, "prediction", "not yet", wrong.hint, _sentence(wrong.text))
    right = right_value(known)
    off = 0.0 if _shown(guess) == _shown(right) else guess - right  # no difference is told that cannot be seen
    text = " ".join(filter(None, [f"You said {_shown(guess)}; {_source(known)} {_shown(right)}", known.unit])) + ": "
    text += f"{_shown(abs(off), 3)} {'too high' if off > 0 else 'too low'}." if off else "exactly."
    if abs(off) <= known.within:
        return Result(known.id, "prediction", "right", text=text, value=guess)
    near = min(known.within, abs(right) / 3)  # or every guess about a small number would be one in another unit
    other_unit = any(abs(scaled - right) <= near for scaled in (100 * guess, guess / 100))
    hint = "unit" if other_unit else "too_high" if off > 0 else "too_low"
    return Result(known.id, "prediction", "not yet", hint, f"{text} {_sentence(known.hints[hint])}", guess)


def right_value(known: Prediction) -> float:
    """The number that a prediction is about; FsslError where its record is missing."""
    from fssl_core.papers.reference import paper_table

    if known.table:
        return float(known.value(paper_table(*known.table)))
    if not known.record:
        return float(known.value())
    return float(known.value(recorded_results(*known.record)))


def _source(known: Prediction) -> str:
    if known.record:
        return f"the record {'.'.join(known.record)} has"
    return f"the paper's {'/'.join(known.table)} has" if known.table else "it is"


def _shown(number: float, digits: int = 4) -> str:
    return f"{number:,.0f}" if abs(number) >= 10**digits - 0.5 else f"{number:.{digits}g}"


class _Unanswered(Exception):
    """A function that was not filled in."""


class _StudentsError(Exception):
    """A function that raised something, with what its student is told."""


def _watched(function: Callable) -> Callable:
    """A student's function: given copies, so that it cannot change what its result is compared with."""

    def watched(*arguments: Any, **named: Any) -> Any:
        try:
            given = function(*copy.deepcopy(arguments), **copy.deepcopy(named))
        except KeyboardInterrupt as stopped:  # by the student, who waits for a loop that does not end
            raise Interrupted(_error_text(stopped, function, "Interrupted")) from None
        except Exception as error:
            raise _StudentsError(_error_text(error, function)) from error
        if given is None:  # the cell of an exercise returns `...` before anybody has filled it in
            raise Wrong(
                "none",
                "your function returned None. Is a `return` missing? The `.grad` of a tensor without a gradient is "
                "None, too.",
            )
        if unanswered(given):
            raise _Unanswered
        return given

    return watched


def _error_text(error: BaseException, function: Callable, what: str = "") -> str:
    """Kind and message of an error, and the last line of the student's own code that led to it."""
    text = what or f"Your code raises {type(error).__name__}: {printable(error)}"
    space = getattr(function, "__globals__", None)
    own = [(frame, number) for frame, number in traceback.walk_tb(error.__traceback__) if frame.f_globals is space]
    if not own:
        return _sentence(text)
    frame, number = own[-1]
    code = linecache.getline(frame.f_code.co_filename, number).strip()
    return f"{text}, in line {number}" + (f": {code}" if code else ".")


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _show(result: Result) -> None:
    if not in_kernel():
        print(result.line)
        return
    from IPython.display import display

    sign, colour = SIGNS[result.status]
    shown = f"<b>{sign} {result.words}</b> <code>{html.escape(result.exercise)}</code> {html.escape(result.text)}"
    style = f"border-left: 4px solid {colour}; padding: 2px 8px; margin: 4px 0"
    data = {"text/plain": result.line, "text/html": f'<div style="{style}">{shown}</div>', MIME: result.data()}
    display(data, raw=True)
