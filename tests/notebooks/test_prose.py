"""Every number in a notebook's prose about its recorded results is computed anew from what it is about.

``prose/<paper>/<artifact>.py`` has ``numbers()``: pieces of the notebook's text, each with the values of the numbers in
it, in order, computed from the record, the paper's tables, the verdicts or a formula. A number that no piece covers
fails, and so does one that its value does not round to: a record made anew names the sentences to read again.
``NOT_RECORDED``, where a file has it, are pieces whose numbers come from runs that nobody records, with the reason.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.util import module_from_spec, spec_from_file_location
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

from fssl_core.experiments.notebooks import Notebook, find_notebooks

Values = float | Sequence[float]
PROSE = Path(__file__).parent / "prose"
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+(?!\w|\.\d)|(?= ?%))")  # a decimal or a percentage
NO_PROSE = re.compile(  # generated blocks, code, equations, targets of links, pictures, sections of papers
    r"<!-- (recorded|navigation) -->.*?<!-- /\1 -->|```.*?```|`[^`\n]*`|(\${1,2})[^$]+\2|(?<=\])\([^)\n]*\)"
    r"|!\[[^\]\n]*\]|Sections? \d[\d.]*",
    re.DOTALL,
)
TEXTS = {notebook.id: notebook for notebook in find_notebooks() if "/" in notebook.id}  # of papers, and the course


def prose(notebook: Notebook) -> str:
    """The Markdown that speaks of recorded results, but for the title's cell; a blank for what is no prose."""
    cells = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"][1:]
    cells = [cell for cell in cells if "exercise" not in cell["metadata"]]  # guesses stand between an exercise's lines
    texts = [
        "\n\n".join("".join(cell["source"]) for cell in neighbours)
        for markdown, neighbours in groupby(cells, key=lambda cell: cell["cell_type"] == "markdown")
        if markdown
    ]
    text = "\n\n".join(text for text in texts if "laptop" in text or "workstation" in text)
    return NO_PROSE.sub(lambda block: " " * len(block[0]), text)


def complaints(
    text: str, numbers: Mapping[str, float | Sequence[float]], not_recorded: Mapping[str, str]
) -> Iterator[str]:
    """What is wrong with the numbers of a text."""
    covered: set[int] = set()
    stated = list(NUMBER.finditer(text))
    for piece in [*numbers, *not_recorded]:
        spans = [(one.start(), one.end()) for one in re.finditer(re.escape(piece), text)]
        if not spans:
            yield f"{piece!r} is not in the text"
        for start, end in spans:
            inside = [number for number in stated if start <= number.start() and number.end() <= end]
            covered |= {number.start() for number in inside}
            if not inside:
                yield f"{piece!r} has no decimal and no percentage"
            if piece in numbers:
                yield from differences(piece, [number[0] for number in inside], numbers[piece])
    for number in stated:
        if number.start() not in covered:
            yield f"no value for {number[0]} in {text[max(0, number.start() - 60) : number.end() + 30]!r}"


def differences(piece: str, stated: Sequence[str], values: Values) -> Iterator[str]:
    """Numbers of a piece that their values do not round to."""
    values = list(values) if isinstance(values, Sequence) else [values]
    if len(values) != len(stated):
        yield f"{piece!r} has {len(stated)} numbers and {len(values)} values"
        return
    for number, value in zip(stated, values, strict=True):
        step = 10.0 ** Decimal(number.replace(",", "")).as_tuple().exponent
        if not abs(float(number.replace(",", "")) - value) <= step * 0.5 + 1e-9:
            yield f"{number} in {piece!r} is {value:.6g}"


def of(artifact: str) -> ModuleType:
    spec = spec_from_file_location(f"prose_{artifact.replace('/', '_')}", PROSE / f"{artifact}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("artifact", TEXTS)
def test_every_number_is_computed_anew(artifact):
    file = PROSE / f"{artifact}.py"
    module = of(artifact) if file.exists() else None
    numbers = module.numbers() if module else {}
    wrong = list(complaints(prose(TEXTS[artifact]), numbers, getattr(module, "NOT_RECORDED", {})))
    assert not wrong, f"{file} has {len(wrong)} complaints:\n" + "\n".join(wrong)


def test_each_file_is_of_an_artifact():
    assert {path.relative_to(PROSE).with_suffix("").as_posix() for path in PROSE.glob("*/*.py")} <= {*TEXTS}


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ({"0.43 and 5 %": (0.434, 4.6), "2.0 times": 2.04}, ""),
        ({"0.43 and 5 %": (0.434, 4.6)}, "no value for 2.0"),
        ({"0.43 and 5 %": (0.436, 4.6), "2.0 times": 2}, "0.43 in"),
        ({"0.43 and 5 %": 0.434, "2.0 times": 2}, "2 numbers and 1 values"),
        ({"0.43 and 5 %": (0.434, float("nan")), "2.0 times": 2}, "5 in"),
        ({"0.43 and 5 %": (0.434, 4.6), "2.0 times": 2, "gone 1.0": 1}, "not in the text"),
        ({"0.43 and 5 %": (0.434, 4.6), "2.0 times": 2, "in 3": 3}, "has no decimal"),
    ],
)
def test_a_wrong_number_is_named(numbers, complaint):
    text = "At `laptop` it is 0.43 and 5 % in 3 rounds, 2.0 times $x^{0.7}$.".replace("$x^{0.7}$", " ")
    found = list(complaints(text, numbers, {}))
    assert complaint in found[0] if complaint else not found
