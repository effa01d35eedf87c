"""The pages of the book that are made: of the records, the notebooks and the package. Everything here is text."""

import importlib
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2
import nbformat
from nbformat.v4 import new_markdown_cell, new_output

from fssl_core.claims.verdict import AS_PRINTED, Verdict, counts, in_words, paper_in_words
from fssl_core.course.handout import without_notes
from fssl_core.experiments.notebooks import Notebook, find_notebooks
from fssl_core.experiments.refresh import fill, read_notebook
from fssl_core.papers.reference import PAPERS, WORKS
from fssl_core.reporting.course import CHAPTERS, COURSE
from fssl_core.reporting.gallery import filled, kept_verdicts, summary

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))
TRAINED = ("The sweep", "Result", "Beside the paper", "Claims")  # sections whose outputs say nothing at smoke
SMOKE = "the notebook's own output, at `smoke`"


def pages(ids: Sequence[str], package: str) -> dict[str, str]:
    """Path and text of every page that is made; arguments as for ``build.write_source``."""
    notebooks = {notebook.id: notebook for notebook in find_notebooks()}
    full = {notebook.id for notebook in find_notebooks(ids)}
    verdicts = kept_verdicts()
    order = [id for id in COURSE if id in notebooks]
    order += [id for id in notebooks if id.partition("/")[0] in WORKS and id not in order]
    values = {
        "package": package,
        "papers": WORKS,
        "claimed": [*PAPERS],
        "paper_pages": [f"papers/{key}.md" for key in WORKS],
        "chapters": CHAPTERS,
        "questions": COURSE,
        "verdicts": verdicts,
        "rows": {id: summary(notebooks[id], own(verdicts, id)) for id in order},
        "evidence": {id: sorted({verdict.evidence for verdict in own(verdicts, id)}) for id in order},
        "documents": [*DOCUMENTS, "examples/flower/README.md"],
        "course": [f"notebooks/{id}.ipynb" for id in notebooks if id.startswith("course/")],
        "explore": "explore" in notebooks,
        "path": {id: notebook.path.relative_to(ROOT).as_posix() for id, notebook in notebooks.items()},
    }
    links = {
        "gallery": "The [gallery](gallery.md) has each with its picture.",
        "claims": f"{counts(verdicts)}. The [table of all claims](claims.md) can be sorted and searched.",
    }
    readme = filled((ROOT / "README.md").read_text(encoding="utf-8"), links)
    readme = readme.replace("](fssl_core/claims)", "](api/fssl_core.claims.md)")  # the book has no source files
    result = {
        "index.md": f"{readme}\n{rendered('contents.md', **values)}",
        "gallery.md": rendered("gallery.md", **values),
        "claims.md": rendered("claims.md", **values),
        **{f"papers/{key}.md": rendered("paper.md", key=key, **values) for key in WORKS},
        **api(package),
    }
    for id, notebook in notebooks.items():
        content = read_notebook(notebook.path)
        prepare(content, notebook, own(verdicts, id), links["claims"].replace("claims.md", "../claims.md"))
        if id not in full:
            del content.cells[1:]
        result[values["path"][id]] = nbformat.v4.writes(content)
    return result


def own(verdicts: Sequence[Verdict], id: str) -> list[Verdict]:
    """The verdicts on the claims of a notebook."""
    return [verdict for verdict in verdicts if verdict.artifact == id]


def prepare(content: nbformat.NotebookNode, notebook: Notebook, verdicts: Sequence[Verdict], claims: str) -> None:
    """Make a page of a notebook: the book leads from page to page, and the result is the most faithful record.

    What is for the lecturer alone is left out. The outputs of ``smoke``, which decide nothing, are folded where they
    would be taken for results, and each of its pictures says what it is.
    """
    content.cells = without_notes(content.cells)
    fill(content.cells, {"navigation": "", "claims": claims})
    if notebook.id.partition("/")[0] not in WORKS:
        return
    section = ""
    if verdicts:
        text = f"On the record at `{verdicts[0].profile}`:\n\n{rendered('verdicts.md', verdicts=verdicts)}"
        (place,) = [n for n, cell in enumerate(content.cells, start=1) if re.search("^## Claims$", cell.source, re.M)]
        content.cells.insert(place, new_markdown_cell(text))
    for cell in content.cells:
        if cell.cell_type == "markdown":
            section = next(iter(re.findall(r"^## (.+)$", cell.source, re.MULTILINE)[-1:]), section)
        elif cell.cell_type == "code" and cell.outputs:
            pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
            for output in pictures:
                caption = new_output("display_data", data={"text/markdown": f"*Above: {SMOKE}.*"})
                cell.outputs.insert(cell.outputs.index(output) + 1, caption)
            if section in TRAINED:
                cell.metadata.setdefault("tags", []).append("hide-output")
                cell.metadata["mystnb"] = {"code_prompt_show": "Show " + SMOKE.replace("`", "")}
    row = summary(notebook, verdicts)
    record = notebook.record(row["profile"]) if row["profile"] else None
    lead = rendered("record.md", id=notebook.id, row=row, record=record)
    content.cells.insert(1, new_markdown_cell(lead))


def api(package: str) -> dict[str, str]:
    """A page for each module, and one for each package that leads to its modules."""
    top = importlib.import_module(package)
    names = [package, *(found.name for found in pkgutil.walk_packages(top.__path__, f"{package}."))]
    names = [name for name in names if not name.endswith("__main__")]
    result = {}
    for name in names:
        module = importlib.import_module(name)
        parts = {part: getattr(module, part) for part in getattr(module, "__all__", ())}
        exported = {part: f"{found.__module__}.{part}" for part, found in parts.items() if hasattr(found, "__module__")}
        within = [other for other in names if other.rpartition(".")[0] == name]
        is_package = hasattr(module, "__path__")
        text = rendered("module.md", name=name, exported=exported, within=within, is_package=is_package)
        result[f"api/{name}.md"] = text
    return result


def escaped(text: object) -> str:
    """A text as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>$|~#^])", r"\\\1", str(text)).replace("\n", " ")


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["escaped"] = escaped
TEMPLATES.globals |= {
    "in_words": in_words,
    "paper_in_words": paper_in_words,
    "as_printed": AS_PRINTED,
    "counts": counts,
}


def rendered(template: str, **values: object) -> str:
    """A template filled in."""
    return TEMPLATES.get_template(template).render(**values)
