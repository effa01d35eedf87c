"""The contract that every notebook keeps, rule by rule, and a proof that each rule can be broken.

A rule is a function from a notebook to its complaints. The anatomy holds for the notebook of an artifact, the
hygiene for every notebook, ``index.ipynb`` and ``explore.ipynb`` too. Modules of the course have an anatomy of their
own, in ``test_modules.py``.
"""

import ast
import copy
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc import locate

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fssl_core.course.checking import MIME
from fssl_core.course.exercise import exercises_of, place_of
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.experiments.parameters import stored_with
from fssl_core.experiments.refresh import INSTALLATION, fill_recorded

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(path for path in FOLDER.rglob("*.ipynb") if not {".ipynb_checkpoints", "course"} & {*path.parts})

# The headings of level two, in order; before them stands the title, the only heading of level one.
HEADINGS = [
    "What you will learn",
    "Parameters",
    "Set-up",
    "The idea",
    "Data and partition",
    "The sweep",
    "Result",
    "Beside the paper",
    "Claims",
    "What differs from the paper",
    "Exercises",
]
CELLS = range(12, 26)  # without predictions, each of which divides a text, and what is said of the installation
EXERCISES = range(2, 5)
IMPORT_LINES = 9
PREDICTION_IMPORT = "from fssl_core.course import predict"
PLAIN = ("index.ipynb", "explore.ipynb")  # of no artifact
MEGABYTE = 2**20

FILE_NAME = re.compile(r"(architecture|[a-z]+\d*[a-z]?(_[a-z0-9]+)+)\.ipynb")  # <artifact>_<words>.ipynb
# papermill reads parameters with a one-line pattern: it drops a line with `|` in the type or a second `=`, even one in
# the help.
PARAMETER = re.compile(r"(?P<name>\w+): (?P<type>\w[\w\[\], ]*) = (?P<value>[^=|#]+?)  # [^=\s][^=]*")
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./])/(?:work|home|root|tmp|usr|opt|var|mnt|Users)/\w|\b[A-Z]:\\+(?:Users|Temp|\w+\\)"
)
WARNING = re.compile(r"\b\w*Warning:")
BASE64 = {"image/png", "image/jpeg", "application/pdf"}
PLOTTING = {"matplotlib", "seaborn", "plt", "sns"}

Rule = Callable[[NotebookNode], list[str]]


# Reading a notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def headings(cell: NotebookNode) -> list[tuple[int, str]]:
    """Level and text of the headings of a Markdown cell, without what only looks like one in a code block."""
    if cell.cell_type != "markdown":
        return []
    text = re.sub(r"^```.*?^```", "", cell.source, flags=re.MULTILINE | re.DOTALL)
    return [(len(marks), title.strip()) for marks, title in re.findall(r"^(#+) (.+)$", text, flags=re.MULTILINE)]


def with_section(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Each cell with the heading of level two that it stands under."""
    section = ""
    for cell in notebook.cells:
        section = next((title for level, title in reversed(headings(cell)) if level == 2), section)
        yield section, cell


def exercise_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that students fill in."""
    return [cell for cell in notebook.cells if "exercise" in cell.metadata]


def parameter_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]


def nodes(cell: NotebookNode) -> list[ast.AST]:
    """All syntax nodes of a code cell; of one that is no plain Python, none (a rule of its own complains)."""
    try:
        return list(ast.walk(ast.parse(cell.source)))
    except SyntaxError:
        return []


def output_texts(notebook: NotebookNode) -> Iterator[str]:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            yield output.get("text", "")
            yield from (str(value) for kind, value in output.get("data", {}).items() if kind not in BASE64)


# Anatomy


def has_the_headings(notebook: NotebookNode) -> list[str]:
    found = [heading for cell in notebook.cells for heading in headings(cell)]
    complaints = []
    if not found or found[0][0] != 1 or not headings(notebook.cells[0]):
        complaints.append("the first cell has no title (`# ...`)")
    if sum(level == 1 for level, _ in found) > 1:
        complaints.append("more than one heading of level one")
    sections = [title for level, title in found if level == 2]
    if sections != HEADINGS:
        complaints.append(f"headings of level two are {sections}, expected {HEADINGS}")
    return complaints


def has_12_to_25_cells(notebook: NotebookNode) -> list[str]:
    count = len(notebook.cells) - 2 * len(exercise_cells(notebook)) - 1
    return [] if count in CELLS else [f"{count} cells, expected {CELLS[0]} to {CELLS[-1]}"]


def says_first_what_to_install(notebook: NotebookNode) -> list[str]:
    """For a notebook on its own."""
    if notebook.cells[1].source == INSTALLATION and "installation" in notebook.cells[1].metadata.get("tags", []):
        return []
    return ["the cell below the title does not say what to install: `fssl refresh` writes it"]


def has_parameters_that_papermill_reads(notebook: NotebookNode) -> list[str]:
    cells = parameter_cells(notebook)
    if len(cells) != 1 or cells[0].cell_type != "code":
        return [f"{len(cells)} cells are tagged `parameters`, expected one code cell"]
    complaints = []
    lines = [line for line in cells[0].source.splitlines() if line.strip()]
    for line in lines:
        match = PARAMETER.fullmatch(line)
        try:
            value = ast.literal_eval(match["value"]) if match else None
        except (SyntaxError, ValueError):
            match = None
        if match is None:
            complaints.append(
                f"parameter line {line!r} is not `name: type = literal  # help` without `|` or second `=`"
            )
        elif match["type"].partition("[")[0] != type(value).__name__:
            complaints.append(f"parameter line {line!r}: the literal is no {match['type']}")
    if not any(line.startswith('profile: str = "smoke"  #') for line in lines):
        complaints.append('no parameter `profile: str = "smoke"`')
    return complaints


def reads_every_parameter(notebook: NotebookNode) -> list[str]:
    """A parameter that is set and never used would be a setting without effect."""
    cells = code_cells(notebook)
    tagged = parameter_cells(notebook)
    if not tagged or tagged[0] not in cells:
        return []  # said by has_parameters_that_papermill_reads
    names = [node.target.id for node in nodes(tagged[0]) if isinstance(node, ast.AnnAssign)]
    names = [name for name in names if name != "profile"]  # Artifact.of_notebook reads it
    later = cells[cells.index(tagged[0]) + 1 :]
    read = {n.id for cell in later for n in nodes(cell) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return [f"parameter {name} is never read" for name in names if name not in read]


def checks_its_parameters_first(notebook: NotebookNode) -> list[str]:
    """Nothing is computed with a parameter that was misspelt or is of the wrong type."""
    cells, tagged = code_cells(notebook), parameter_cells(notebook)
    if not tagged or tagged[0] not in cells:
        return []  # said by has_parameters_that_papermill_reads
    after = cells[cells.index(tagged[0]) + 1 :]
    if after and re.search(r'^artifact = Artifact\.of_notebook\("[a-z0-9_/]+", globals\(\)\)$', after[0].source, re.M):
        return []
    return ["the cell after the parameters does not check them with Artifact.of_notebook"]


def is_stored_with_what_it_declares(notebook: NotebookNode) -> list[str]:
    """The metadata tell what an editor has changed since; `fssl refresh` writes them."""
    try:
        expected = stored_with(notebook.cells)
    except (SyntaxError, ValueError):
        return []  # said by has_parameters_that_papermill_reads
    if {name: value for name, value in notebook.metadata.get("fssl", {}).items() if name != "smoke"} == expected:
        return []
    return ["the metadata do not fit the cells: `fssl refresh` writes them"]


def imports_only_in_the_set_up(notebook: NotebookNode) -> list[str]:
    complaints, lines = [], 0
    for section, cell in with_section(notebook):
        if cell.cell_type != "code":
            continue
        imports = [node for node in nodes(cell) if isinstance(node, ast.Import | ast.ImportFrom)]
        if cell.source == INSTALLATION:
            continue
        if section == "Set-up":
            lines += sum(node.end_lineno - node.lineno + 1 for node in imports)
        elif imports and ("exercise" not in cell.metadata or cell.source.splitlines()[0] != PREDICTION_IMPORT):
            complaints.append(f"an import under {section!r}: imports stand in the set-up")
    if lines > IMPORT_LINES:
        complaints.append(f"{lines} import lines, expected at most {IMPORT_LINES}")
    return complaints


def defines_no_class_and_no_plotting(notebook: NotebookNode) -> list[str]:
    complaints = []
    for node in (node for cell in code_cells(notebook) for node in nodes(cell)):
        if isinstance(node, ast.ClassDef):
            complaints.append(f"class {node.name} belongs into the package")
        names = {alias.name.partition(".")[0] for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)}
        names |= {(getattr(node, "module", None) or "").partition(".")[0], getattr(node, "id", "")}
        complaints += [f"plotting code ({name}) belongs into the package" for name in sorted(names & PLOTTING)]
    return complaints


def shows_every_table(notebook: NotebookNode) -> list[str]:
    """`show` makes a table that is seen as the last value of its cell, or in `display`; elsewhere it is lost."""
    complaints = []
    for cell in code_cells(notebook):
        tree = nodes(cell)
        last = tree[0].body[-1:] if tree else []
        lost = [ast.unparse(node) for node in tree if isinstance(node, ast.Expr) and node not in last]
        complaints += [f"{text} is not seen: use display" for text in lost if text.startswith("show(")]
    return complaints


def has_exercises_with_hint_and_solution(notebook: NotebookNode) -> list[str]:
    cells = [cell for section, cell in with_section(notebook) if section == "Exercises"]
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    exercises = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    complaints = []
    if len(exercises) not in EXERCISES:
        complaints.append(f"{len(exercises)} exercises (`### ...`), expected {EXERCISES[0]} to {EXERCISES[-1]}")
    for exercise in exercises:
        hidden = "".join(re.findall(r"<details>(.*?)</details>", exercise, flags=re.DOTALL))
        for part in ("Hint", "Solution"):
            if f"<summary>{part}</summary>" not in hidden:
                title = exercise.partition("\n")[0]
                complaints.append(f"exercise {title!r} has no <details> with <summary>{part}</summary>")
    return complaints


def asks_for_predictions_before_their_hints(notebook: NotebookNode) -> list[str]:
    """A cell to fill in with one guess, which works alone, is stored unanswered, and has a hint below it."""
    complaints = []
    cells = notebook.cells
    for before, cell, after in zip(cells, cells[1:], cells[2:], strict=False):
        if "exercise" not in cell.metadata:
            continue
        id = cell.metadata.exercise
        if id not in exercises_of(place_of(id)):
            complaints.append(f"there is no exercise {id}")
        if not re.fullmatch(rf'{PREDICTION_IMPORT}\n\nguess = \.\.\.  # .+\npredict\("{id}", guess\)', cell.source):
            complaints.append(f"the cell of {id} does not ask for a guess and predict it")
        if [output.get("data", {}).get(MIME, {}).get("answered") for output in cell.outputs] != [False]:
            complaints.append(f"the cell of {id} stores something else than that it is not answered")
        title = headings(before)[-1:]
        hint = before.source.rpartition("### ")[2], after.source
        if not title or title[0][0] != 3 or "<summary>" in hint[0] or not hint[1].startswith("<details><summary>Hint<"):
            complaints.append(f"the cell of {id} does not stand between the question and its hint")
    return complaints


def has_a_checked_output(notebook: NotebookNode) -> list[str]:
    checked = [cell for cell in code_cells(notebook) if "# NBVAL_CHECK_OUTPUT" in cell.source.splitlines()]
    complaints = [] if checked else ["no cell is marked `# NBVAL_CHECK_OUTPUT`"]
    return complaints + ["a cell marked `# NBVAL_CHECK_OUTPUT` shows nothing" for cell in checked if not cell.outputs]


# Hygiene


def is_valid(notebook: NotebookNode) -> list[str]:
    """The notebook format itself, with cell ids that are there and unique."""
    ids = [cell.get("id") for cell in notebook.cells]
    complaints = [f"cell id {name} is used twice" for name in sorted({i for i in ids if i and ids.count(i) > 1})]
    if None in ids or (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        complaints.append("cells without ids: the notebook format is older than 4.5")
    elif not complaints:
        try:
            nbformat.validate(notebook)
        except nbformat.ValidationError as error:
            complaints.append(f"not a valid notebook: {error.message}")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        complaints.append("the kernel is not `python3`, which every installation has")
    if notebook.metadata.get("language_info", {}).get("name") != "python":
        complaints.append("no `language_info`, without which papermill does not know the language")
    return complaints


def is_plain_python(notebook: NotebookNode) -> list[str]:
    complaints = []
    for cell in code_cells(notebook):
        try:
            ast.parse(cell.source)
        except SyntaxError:
            complaints.append(f"not plain Python: {cell.source[:60]!r}")
    return complaints


def uses_names_that_are_there(notebook: NotebookNode) -> list[str]:
    """Of the package's modules, also in lines that a run at ``smoke`` never reaches."""
    found = [node for cell in code_cells(notebook) for node in nodes(cell)]
    modules = {}
    for node in found:
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "fssl_core":
            imported = {alias.asname or alias.name: locate(f"{node.module}.{alias.name}") for alias in node.names}
            modules |= {name: what for name, what in imported.items() if inspect.ismodule(what)}
    stored = {node.id for node in found if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    used = {
        (node.value.id, node.attr)
        for node in found
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in stored
    }
    return [
        f"{name}.{attribute} is not there"
        for name, attribute in sorted(used)
        if name in modules and not hasattr(modules[name], attribute)
    ]


def has_the_source_that_it_prints_checked(notebook: NotebookNode) -> list[str]:
    """Or readers would see a function as it was when the notebook was last run."""
    printing = [cell for cell in code_cells(notebook) if "inspect.getsource(" in cell.source]
    unchecked = [cell for cell in printing if "nbval-check-output" not in cell.metadata.get("tags", [])]
    return [f"the tag nbval-check-output is missing: {cell.source[:60]!r}" for cell in unchecked]


def was_run_once_from_top_to_bottom(notebook: NotebookNode) -> list[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        return [f"execution counts are {counts}: run `fssl refresh`"]
    return []


def is_run_as_a_whole_by_nbval(notebook: NotebookNode) -> list[str]:
    markers = [f"NBVAL_{word}" for word in ("SKIP", "RAISES_EXCEPTION")]
    tags = ["nbval-skip", "nbval-raises-exception", "raises-exception"]
    complaints = [
        f"{marker} hides a cell" for cell in code_cells(notebook) for marker in markers if marker in cell.source
    ]
    found = [tag for cell in code_cells(notebook) for tag in cell.metadata.get("tags", []) if tag in tags]
    return complaints + [f"the tag {tag} hides a cell" for tag in found]


def stores_no_error_and_no_warning(notebook: NotebookNode) -> list[str]:
    complaints = []
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        if output.output_type == "error":
            complaints.append(f"an output is an error: {output.ename}")
        if output.get("name") == "stderr":
            complaints.append(f"an output went to stderr: {output.text[:60]!r}")
    found = [match[0] for text in output_texts(notebook) for match in WARNING.finditer(text)]
    return complaints + [f"an output holds a warning: {warning}" for warning in found]


def holds_no_absolute_path(notebook: NotebookNode) -> list[str]:
    texts = [*(cell.source for cell in notebook.cells), *output_texts(notebook)]
    return [f"absolute path: {match[0]!r}" for text in texts for match in ABSOLUTE_PATH.finditer(text)]


def stores_no_widget(notebook: NotebookNode) -> list[str]:
    complaints = ["widget state in the metadata"] if "widgets" in notebook.metadata else []
    kinds = {kind for cell in code_cells(notebook) for output in cell.outputs for kind in output.get("data", {})}
    return complaints + [f"an output is a widget: {kind}" for kind in sorted(kinds) if "widget" in kind]


ANATOMY: list[Rule] = [
    has_the_headings,
    has_12_to_25_cells,
    says_first_what_to_install,
    has_parameters_that_papermill_reads,
    reads_every_parameter,
    checks_its_parameters_first,
    is_stored_with_what_it_declares,
    imports_only_in_the_set_up,
    defines_no_class_and_no_plotting,
    shows_every_table,
    has_exercises_with_hint_and_solution,
    asks_for_predictions_before_their_hints,
    has_a_checked_output,
]
HYGIENE: list[Rule] = [
    is_valid,
    is_plain_python,
    uses_names_that_are_there,
    has_the_source_that_it_prints_checked,
    was_run_once_from_top_to_bottom,
    is_run_as_a_whole_by_nbval,
    stores_no_error_and_no_warning,
    holds_no_absolute_path,
    stores_no_widget,
]


def complaints_about_file(path: Path) -> list[str]:
    complaints = []
    if path.stat().st_size > MEGABYTE:
        complaints.append(f"{path.stat().st_size / MEGABYTE:.1f} MiB, expected at most 1")
    if path.name not in PLAIN and not FILE_NAME.fullmatch(path.name):
        complaints.append(f"file name {path.name} is not <artifact>_<words>.ipynb")
    return complaints


# The notebooks keep the contract


def test_there_are_notebooks():
    assert FOLDER / "index.ipynb" in NOTEBOOKS
    assert len(NOTEBOOKS) > 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_notebook_keeps_the_contract(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    rules = HYGIENE if path.name in PLAIN else ANATOMY + HYGIENE
    complaints = complaints_about_file(path) + [complaint for rule in rules for complaint in rule(notebook)]
    if path.name not in PLAIN:
        (known,) = (known for known in find_notebooks() if known.path == path)
        id = known.id
        if not any(f'Artifact.of_notebook("{id}", ' in cell.source for cell in notebook.cells):
            complaints.append(f"the artifact is not {id}, as the file name says")
        told = copy.deepcopy(notebook)
        fill_recorded(told, known)
        if told != notebook:
            complaints.append("the table below the title is not that of the records: `fssl refresh` writes it")
        asked = [cell.metadata.exercise for cell in exercise_cells(notebook)]
        if sorted(asked) != sorted(exercises_of(id)):
            complaints.append(
                f"the notebook asks for the predictions {asked}, the package has {list(exercises_of(id))}"
            )
    assert not complaints, "\n".join(complaints)


# Each rule can be broken


METADATA = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}


def good_notebook() -> NotebookNode:
    """A small notebook that keeps every rule."""
    text = {heading: [new_markdown_cell(f"## {heading}\nText.")] for heading in HEADINGS}
    text["Parameters"].append(
        new_code_cell(
            'profile: str = "smoke"  # how large: see the README\n'
            "cuts: list[int] = [1, 3]  # cut layers, as the paper numbers them",
            metadata={"tags": ["parameters"]},
        )
    )
    imports = "import pandas as pd\nfrom fssl_core import (\n    random,\n    settings,\n)"
    text["Set-up"].append(new_code_cell(f'{imports}\n\nartifact = Artifact.of_notebook("a/fig1", globals())'))
    shown = [new_output("execute_result", data={"text/plain": "2", "image/png": "/tmp/abc"}, execution_count=4)]
    text["The idea"].append(new_code_cell("# NBVAL_CHECK_OUTPUT\nlen([profile, cuts])", outputs=shown))
    text["Result"][0].source += "\n```\n# not a heading\n```\nSee https://example.org/home/page and notebooks/tmp/x."
    hidden = "<details><summary>Hint</summary>h</details><details><summary>Solution</summary>s</details>"
    id = "monacosfl/fig6/loss"
    unanswered = [new_output("display_data", data={MIME: {"exercise": id, "answered": False}})]
    source = f'{PREDICTION_IMPORT}\n\nguess = ...  # nats\npredict("{id}", guess)'
    text["Exercises"] = [
        new_markdown_cell(f"## Exercises\n### 1. Try\n{hidden}\n### 2. Try\nHow much?"),
        new_code_cell(source, metadata={"exercise": id}, outputs=unanswered),
        new_markdown_cell(hidden),
    ]
    install = new_code_cell(INSTALLATION, metadata={"tags": ["installation"]})
    cells = [new_markdown_cell("# Title\nText."), install, *(cell for heading in HEADINGS for cell in text[heading])]
    notebook = new_notebook(cells=cells, metadata=METADATA)
    for count, cell in enumerate(code_cells(notebook), start=1):
        cell.execution_count = count
    notebook.metadata["fssl"] = stored_with(cells)
    return notebook


def replaced(old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        (cell,) = (cell for cell in notebook.cells if old in cell.source)
        cell.source = cell.source.replace(old, new, 1)

    return change


def with_output(output: NotebookNode) -> Callable[[NotebookNode], None]:
    return lambda notebook: code_cells(notebook)[2].outputs.append(output)


def with_metadata(**values: object) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.metadata.update(values)


def with_tags(cell: int, *tags: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: code_cells(notebook)[cell].metadata.update(tags=list(tags))


def shortened(notebook: NotebookNode) -> None:
    del notebook.cells[11:]


def lengthened(notebook: NotebookNode) -> None:
    notebook.cells += [new_markdown_cell("More.") for _ in range(20)]


def untitled(notebook: NotebookNode) -> None:
    notebook.cells[0].source = "Text."


def twice_the_same_id(notebook: NotebookNode) -> None:
    notebook.cells[1].id = notebook.cells[0].id = "abc"


def without_ids(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        del cell["id"]
    notebook.nbformat_minor = 4


def answered(notebook: NotebookNode) -> None:
    exercise_cells(notebook)[0].outputs[0].data[MIME]["answered"] = True


def without_its_hint(notebook: NotebookNode) -> None:
    notebook.cells[-1].source = "Well. " + notebook.cells[-1].source


def of_no_exercise(notebook: NotebookNode) -> None:
    exercise_cells(notebook)[0].metadata.exercise = "monacosfl/fig6/no_such"


def not_run(notebook: NotebookNode) -> None:
    code_cells(notebook)[2].execution_count = None


def run_in_another_order(notebook: NotebookNode) -> None:
    code_cells(notebook)[0].execution_count, code_cells(notebook)[1].execution_count = 2, 1


def without_outputs(notebook: NotebookNode) -> None:
    code_cells(notebook)[3].outputs = []


BREAKS: list[tuple[Rule, Callable[[NotebookNode], None], str]] = [
    (has_the_headings, untitled, "no title"),
    (has_the_headings, replaced("## Claims", "# Claims"), "more than one heading of level one"),
    (has_the_headings, replaced("## Claims", "### Claims"), "headings of level two"),
    (has_the_headings, replaced("## Claims", "## Another\n## Claims"), "headings of level two"),
    (has_12_to_25_cells, shortened, "10 cells, expected 12 to 25"),
    (has_12_to_25_cells, lengthened, "35 cells, expected 12 to 25"),
    (says_first_what_to_install, replaced("ADDRESS", "address"), "does not say what to install"),
    (has_parameters_that_papermill_reads, with_tags(1), "0 cells are tagged"),
    (has_parameters_that_papermill_reads, with_tags(2, "parameters"), "2 cells are tagged"),
    (has_parameters_that_papermill_reads, replaced('"smoke"', '"laptop"'), "no parameter `profile"),
    *(
        (has_parameters_that_papermill_reads, replaced("cuts: list[int] = [1, 3]", line), message)
        for line, message in [
            ("cuts = [1, 3]", "is not `name: type = literal"),
            ("cuts: list[int] | None = [1, 3]", "is not `name: type = literal"),
            ("cuts: list[int] = list(range(3))", "is not `name: type = literal"),
            ('cuts: str = "a=b"', "is not `name: type = literal"),
            ("cuts: list[int] = [\n    1, 3]", "is not `name: type = literal"),
            ("cuts: int = [1, 3]", "the literal is no int"),
            ("cuts: float = 1", "the literal is no float"),
            ("cuts: list[int] = [1, 3]  # with a=b", "is not `name: type = literal"),
        ]
    ),
    (
        has_parameters_that_papermill_reads,
        replaced("  # cut layers, as the paper numbers them", ""),
        "is not `name: type",
    ),
    (reads_every_parameter, replaced("len([profile, cuts])", "cuts = len(profile)"), "parameter cuts is never read"),
    (checks_its_parameters_first, replaced("globals()", "{}"), "does not check them"),
    (checks_its_parameters_first, replaced("\n\nartifact =", "\n\nother ="), "does not check them"),
    (is_stored_with_what_it_declares, replaced("[1, 3]", "[1]"), "do not fit the cells"),
    (is_stored_with_what_it_declares, replaced("import pandas", "import numpy, pandas"), "do not fit the cells"),
    (imports_only_in_the_set_up, replaced("import pandas", "import os\n" * 5 + "import pandas"), "10 import lines"),
    (imports_only_in_the_set_up, replaced("len([", "import os\nlen(["), "an import under 'The idea'"),
    (defines_no_class_and_no_plotting, replaced("len([", "class Model: ...\nlen(["), "class Model belongs"),
    (defines_no_class_and_no_plotting, replaced("len([", "plt.plot(profile)\nlen(["), r"plotting code \(plt\)"),
    *(
        (defines_no_class_and_no_plotting, replaced("import pandas", f"{line}\nimport pandas"), "plotting code")
        for line in ("import matplotlib.pyplot as p", "from matplotlib import pyplot", "import seaborn")
    ),
    (shows_every_table, replaced("len([", "show(profile)\nlen(["), r"show\(profile\) is not seen"),
    (shows_every_table, replaced("len([", "if profile:\n    show(cuts)\nlen(["), r"show\(cuts\) is not seen"),
    (has_exercises_with_hint_and_solution, replaced("### 2", "2"), r"1 exercises \(`### ...`\), expected 2 to 4"),
    (has_exercises_with_hint_and_solution, replaced("### 2", "### 2\n### 2\n### 2\n### 2"), "5 exercises"),
    (
        has_exercises_with_hint_and_solution,
        replaced("1. Try\n<details><summary>Hint</summary>h</details>", "1. Try\n"),
        r"exercise '1. Try' has no <details> with <summary>Hint",
    ),
    (has_exercises_with_hint_and_solution, replaced("1. Try\n<details>", "1. Try\n"), "<summary>Hint</summary>"),
    (asks_for_predictions_before_their_hints, replaced("guess = ...", "guess = 3"), "does not ask for a guess"),
    (asks_for_predictions_before_their_hints, replaced('predict("monacosfl/fig6/loss"', "print(1"), "does not ask for"),
    (asks_for_predictions_before_their_hints, answered, "something else than that it is not answered"),
    (asks_for_predictions_before_their_hints, replaced("How much?", "<summary>"), "between the question and its hint"),
    (asks_for_predictions_before_their_hints, without_its_hint, "between the question and its hint"),
    (asks_for_predictions_before_their_hints, of_no_exercise, "there is no exercise monacosfl/fig6/no_such"),
    (imports_only_in_the_set_up, replaced("import predict", "import predict, check"), "an import under 'Exercises'"),
    (has_a_checked_output, replaced("# NBVAL_CHECK_OUTPUT\n", ""), "no cell is marked"),
    (has_a_checked_output, without_outputs, "shows nothing"),
    (is_valid, twice_the_same_id, "cell id abc is used twice"),
    (is_valid, without_ids, "cells without ids"),
    (is_valid, with_output(NotebookNode(output_type="display")), "not a valid notebook"),
    (is_valid, with_metadata(kernelspec={"name": "my-kernel", "display_name": "Mine"}), "kernel is not `python3`"),
    (is_valid, with_metadata(language_info={}), "no `language_info`"),
    (is_plain_python, replaced("import pandas", "%time import pandas"), "not plain Python"),
    (uses_names_that_are_there, replaced("len([", "settings.NO_SUCH\nlen(["), "settings.NO_SUCH is not there"),
    (
        has_the_source_that_it_prints_checked,
        replaced("len([", "inspect.getsource(len)\nlen(["),
        "tag nbval-check-output",
    ),
    (was_run_once_from_top_to_bottom, not_run, r"execution counts are \[1, 2, None, 4, 5\]"),
    (was_run_once_from_top_to_bottom, run_in_another_order, r"execution counts are \[2, 1, 3, 4, 5\]"),
    (is_run_as_a_whole_by_nbval, replaced("NBVAL_CHECK_OUTPUT", "NBVAL_SKIP"), "NBVAL_SKIP hides a cell"),
    (is_run_as_a_whole_by_nbval, with_tags(2, "raises-exception"), "tag raises-exception hides a cell"),
    (
        stores_no_error_and_no_warning,
        with_output(new_output("error", ename="KeyError", evalue="", traceback=[])),
        "an output is an error: KeyError",
    ),
    (stores_no_error_and_no_warning, with_output(new_output("stream", name="stderr", text="oh")), "stderr: 'oh'"),
    (
        stores_no_error_and_no_warning,
        with_output(new_output("stream", name="stdout", text="x.py:3: UserWarning: careful")),
        "holds a warning: UserWarning:",
    ),
    *(
        (holds_no_absolute_path, with_output(new_output("display_data", data={kind: text})), "absolute path")
        for kind, text in [
            ("text/plain", "PosixPath('/home/anna/figures')"),
            ("text/html", '<a href="/home/me/run">'),
            ("text/plain", r"C:\Users\me\run"),
            ("image/svg+xml", "<path>/tmp/x</path>"),
        ]
    ),
    (holds_no_absolute_path, replaced("import pandas", "# see /home/anna/notes\nimport pandas"), "absolute path"),
    (stores_no_widget, with_metadata(widgets={}), "widget state in the metadata"),
    (
        stores_no_widget,
        with_output(new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}})),
        "an output is a widget",
    ),
]


@pytest.mark.parametrize("rule", ANATOMY + HYGIENE, ids=lambda rule: rule.__name__)
def test_good_notebook_keeps_the_rule_and_something_breaks_it(rule):
    assert rule(good_notebook()) == []
    assert rule in [broken for broken, _, _ in BREAKS]


@pytest.mark.parametrize(
    ("rule", "change", "message"), BREAKS, ids=[f"{n}-{rule.__name__}" for n, (rule, _, _) in enumerate(BREAKS)]
)
def test_rule_complains_about_a_broken_notebook(rule, change, message):
    notebook = good_notebook()
    change(notebook)
    complaints = rule(notebook)
    assert any(re.search(message, complaint) for complaint in complaints), complaints


def test_file_that_is_too_large_or_misnamed_is_complained_about(tmp_path):
    for name, size, complaints in [
        ("fig9_misalignment.ipynb", MEGABYTE, []),
        ("table12b_two_words.ipynb", 1, []),
        ("index.ipynb", 1, []),
        ("fig9.ipynb", 1, ["file name fig9.ipynb is not <artifact>_<words>.ipynb"]),
        ("fig9-Misalignment.ipynb", 1, ["file name fig9-Misalignment.ipynb is not <artifact>_<words>.ipynb"]),
        ("fig9_large.ipynb", 2 * MEGABYTE, ["2.0 MiB, expected at most 1"]),
    ]:
        path = tmp_path / name
        path.write_bytes(b" " * size)
        assert complaints_about_file(path) == complaints
