"""The lines of Markdown that lead from a notebook to those before and after it in the course, and to the index."""

import os
from collections.abc import Mapping

from fssl_core.errors import SettingError
from fssl_core.experiments.notebooks import Notebook, find_notebooks
from fssl_core.experiments.refresh import fill, read_notebook, write_notebook
from fssl_core.reporting.course import CHAPTERS, COURSE, MODULES


def update_navigation() -> list[str]:
    """Write ``navigation`` into every notebook with a question: a new one concerns its neighbours, too.

    Returns:
        the IDs of the notebooks in which it has changed.
    """
    notebooks = {notebook.id: notebook for notebook in find_notebooks()}
    changed = []
    for id, notebook in notebooks.items():
        if id not in COURSE and id not in MODULES:
            continue
        stored = read_notebook(notebook.path)
        ends = stored.cells[0], stored.cells[-1]
        before = [cell.source for cell in ends]
        for cell, text in zip(ends, navigation(id, notebooks), strict=True):
            fill([cell], {"navigation": text})
        if [cell.source for cell in ends] != before:
            write_notebook(notebook.path, stored)
            changed.append(id)
    return changed


def navigation(id: str, notebooks: Mapping[str, Notebook]) -> tuple[str, str]:
    """Where to go from a notebook, for its first cell and for the end of its last one.

    Args:
        id: of a notebook of a paper, or of a module of the course.
        notebooks: by ID; those that are not there are passed over. The index stands in the folder above theirs.

    Returns:
        ``"[← fig4](...) · [index](../index.ipynb) · [fig1 →](...)"``, without an arrow at either end,
        and the same below the title and the question of the next notebook. Links are relative to the notebook.

    Raises:
        SettingError: the notebook has no place in the course.
    """
    questions = MODULES if id in MODULES else COURSE
    order = [other for other in questions if other in notebooks]
    if id not in order:
        raise SettingError("id", id, "a notebook with a question in fssl_core/reporting/course.py")
    index = order.index(id)
    before, after = order[:index][-1:], order[index + 1 :][:1]
    links = [_link(f"← {_name(other, id)}", notebooks[other], notebooks[id]) for other in before]
    links += ["[index](../index.ipynb)"]
    links += [_link(f"{_name(other, id)} →", notebooks[other], notebooks[id]) for other in after]
    line = " · ".join(links)
    ending = "This is the last module." if id in MODULES else "This is the last notebook of the papers."
    for other in after:
        key, title = other.partition("/")[0], notebooks[other].title
        paper = "" if id.startswith(f"{key}/") else f"{CHAPTERS[key].name}, "
        ending = f"**Next:** {_link(paper + title, notebooks[other], notebooks[id])} *{questions[other]}*"
    return line, f"---\n\n{ending}\n\n{line}"


def _name(other: str, id: str) -> str:
    """The ID as notebooks of the same paper write it."""
    return other.removeprefix(f"{id.partition('/')[0]}/")


def _link(text: str, target: Notebook, source: Notebook) -> str:
    return f"[{text}]({os.path.relpath(target.path, source.path.parent).replace(os.sep, '/')})"
