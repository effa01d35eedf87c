"""The index: what it generates of the course and the records, and that the project's own is up to date."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.papers.reference import WORKS
from fssl_core.reporting import index_page
from fssl_core.reporting.course import CHAPTERS, COURSE
from fssl_core.reporting.gallery import kept_verdicts
from fssl_core.reporting.index_page import index_blocks, update_index

ROOT = Path(__file__).parents[2]


def without_smoke(text: str) -> list[list[str]]:
    """The cells of each line but the times of smoke, whose records git does not keep."""
    lines, column = [], None
    for line in text.splitlines():
        cells = re.split(r" (?<!\\)\| ", line)
        if "smoke" in cells:
            column = cells.index("smoke")
        elif column is not None and len(cells) > column:
            cells[column] = "…"
        lines.append(cells)
    return lines


# --------------------------------------------------------------------------------------------- the project's index


@pytest.fixture(scope="module")
def index():
    return nbformat.read(ROOT / "notebooks" / "index.ipynb", as_version=4)


@pytest.fixture(scope="module")
def generated():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.delenv("FSSL_FIGURES", raising=False)
        notebooks = {notebook.id: notebook for notebook in find_notebooks() if "/" in notebook.id}
        return index_blocks(notebooks, kept_verdicts())


def test_the_index_shows_the_course_and_what_is_recorded(index, generated):
    assert list(generated) == ["course", "overview", *WORKS, "claims"]
    text = "\n\n".join(cell.source for cell in index.cells)
    for name, block in generated.items():
        _, opening, rest = text.partition(f"<!-- {name} -->\n\n")
        stored, closing, _ = rest.partition(f"\n\n<!-- /{name} -->")
        assert opening, name
        assert closing, name
        assert without_smoke(stored) == without_smoke(block), f"{name} is behind: run `fssl refresh index`"


@pytest.mark.parametrize(("name", "start"), [("overview", "| **MonAcoSFL** |"), ("monacosfl", "| ★&nbsp;12 |")])
def test_only_the_time_of_smoke_may_differ(generated, name, start):
    block = generated[name]
    (line,) = (line for line in block.splitlines() if line.startswith(start))
    cells = line.split(" | ")
    for number in range(len(cells)):
        changed = block.replace(line, " | ".join([*cells[:number], "other", *cells[number + 1 :]]))
        assert (without_smoke(changed) == without_smoke(block)) == (number == 3)


def test_the_index_begins_with_text_and_a_heading_for_each_paper(index):
    assert index.cells[0].source.startswith("# ")
    assert all(cell.cell_type == "markdown" for cell in index.cells)  # read without a kernel, in every frontend
    headings = re.findall(r"^## (.+)$", "\n".join(cell.source for cell in index.cells), re.MULTILINE)
    names = [chapter.name for chapter in CHAPTERS.values()]
    assert headings == ["A course in ten modules", "Begin here", *names, "The claims", "Three ways to run a notebook"]


def test_every_notebook_has_a_row_and_the_first_ones_a_star(generated):
    for key, chapter in CHAPTERS.items():
        rows = [line for line in generated[key].splitlines() if re.match(r"\| (★&nbsp;)?\d+ \|", line)]
        assert len(rows) == sum(id.startswith(f"{key}/") for id in COURSE)
        assert sum("★" in row for row in rows) == len(chapter.essential)
        assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)  # six columns


# --------------------------------------------------------------------------------------------- writing the index


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with two notebooks, one of them recorded, of the only paper."""
    chapter = CHAPTERS["monacosfl"]
    monkeypatch.setattr(index_page, "CHAPTERS", {"monacosfl": chapter})
    monkeypatch.setattr(index_page, "kept_verdicts", list)
    monkeypatch.setattr(index_page, "claims_list", lambda claims: "no claims")
    monkeypatch.delenv("FSSL_FIGURES", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "notebooks" / "monacosfl"
    folder.mkdir(parents=True)
    (folder.parent / "course").mkdir()
    for name, title, metadata in (
        ("fig6_cuts", "Figure 6: a | b", {"fssl": {"smoke": {"seconds": 0.2, "devices": ["a CPU"]}}}),
        ("fig9_apart", "Figure 9: apart", {}),
        ("../course/03_averaging", "3. Averaging", {}),
    ):
        cells = [new_markdown_cell(f"# {title}")]
        nbformat.write(new_notebook(cells=cells, metadata=metadata), folder / f"{name}.ipynb")
    marks = [f"<!-- {name} -->\nold\n<!-- /{name} -->" for name in ("course", "overview", "monacosfl", "claims")]
    cells = [new_markdown_cell(f"# Mine\n\n{marks[1]}\n\nMine.\n\n{marks[0]}"), *map(new_markdown_cell, marks[2:])]
    write_index(tmp_path, cells)
    record(tmp_path, "fig6.laptop", 717.4)
    return tmp_path


def write_index(project, cells):
    nbformat.write(new_notebook(cells=cells), project / "notebooks" / "index.ipynb")


def record(project, name, seconds):
    path = project / "figures" / "monacosfl" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seconds": seconds, "devices": ["a CPU"]}))


def texts(project):
    return [cell.source for cell in nbformat.read(project / "notebooks" / "index.ipynb", as_version=4).cells]


def test_what_is_generated_follows_the_records_and_the_rest_stays(project):
    update_index()
    overview, chapter, claims = texts(project)
    assert overview.startswith("# Mine\n\n<!-- overview -->\n\n| paper |")
    overview, _, course = overview.partition("\n\n<!-- /overview -->\n\nMine.\n\n")
    assert "[3. Averaging](course/03_averaging.ipynb) | One model from many clients" in course
    assert course.count("](course/") == 1  # no module that is not there
    assert "[fig6](monacosfl/fig6_cuts.ipynb) | 1 s | 12 min |" in overview  # those of the path that are there
    assert "at `laptop` on a CPU." in overview
    assert "1. [Figure 6: a | b](monacosfl/fig6_cuts.ipynb) *What does one line of code change?*" in chapter
    assert (
        "[Figure 6: a \\| b](monacosfl/fig6_cuts.ipynb) | What does one line of code change? | 1 s | 12 min | – |"
        in (chapter)
    )
    assert "| 16 | [Figure 9: apart](monacosfl/fig9_apart.ipynb) |" in chapter
    assert chapter.count("| – | – | – |") == 1  # nothing recorded of Figure 9
    assert claims == "<!-- claims -->\n\nno claims\n\n<!-- /claims -->"

    before = (project / "notebooks" / "index.ipynb").read_bytes()
    update_index()
    assert (project / "notebooks" / "index.ipynb").read_bytes() == before


def test_an_index_without_a_place_for_a_part_is_left_as_it_is(project):
    for cells in (
        [new_markdown_cell("# Mine")],
        [new_markdown_cell(text) for text in [*texts(project), *texts(project)[1:]]],  # a part twice
        [new_code_cell(text) for text in texts(project)],
    ):
        write_index(project, cells)
        before = (project / "notebooks" / "index.ipynb").read_bytes()
        with pytest.raises(FsslError, match=r"index.ipynb needs <!-- \w+ --> and <!-- /\w+ --> in a"):
            update_index()
        assert (project / "notebooks" / "index.ipynb").read_bytes() == before
    (project / "notebooks" / "index.ipynb").unlink()
    with pytest.raises(FsslError, match=r"no notebooks/index\.ipynb"):
        update_index()


@pytest.mark.parametrize("path", ["monacosfl/fig77_new.ipynb", "ldawa/fig3_geometry.ipynb"])
def test_a_notebook_without_a_question_is_named(project, path):
    target = project / "notebooks" / path
    target.parent.mkdir(exist_ok=True)
    nbformat.write(new_notebook(cells=[new_markdown_cell("# New")]), target)
    with pytest.raises(FsslError, match=r"has no question: give it one in fssl_core/reporting/course.py"):
        update_index()
