"""What ``notebooks/index.ipynb`` shows of the course and the records, as Markdown: no kernel is needed to read it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from fssl_core.claims.verdict import Verdict, counts
from fssl_core.errors import FsslError
from fssl_core.experiments.display import duration
from fssl_core.experiments.notebooks import Notebook, find_notebooks
from fssl_core.experiments.refresh import fill, read_notebook, write_notebook
from fssl_core.papers.reference import WORKS
from fssl_core.paths import project_root
from fssl_core.reporting.course import CHAPTERS, COURSE, MODULES
from fssl_core.reporting.gallery import claims_list, kept_verdicts

TIMED = ("smoke", "laptop")  # profiles whose times are shown
NOTHING = "–"


def update_index() -> None:
    """Write what is generated of ``notebooks/index.ipynb``; the rest is its author's.

    Raises:
        FsslError: as :func:`index_blocks` does; or there is no index, or it lacks the place of a part.
    """
    notebooks = {notebook.id: notebook for notebook in find_notebooks()}
    if "index" not in notebooks:
        raise FsslError("There is no notebooks/index.ipynb to write the course into.")
    path = notebooks["index"].path
    stored = read_notebook(path)
    blocks = index_blocks({id: notebook for id, notebook in notebooks.items() if "/" in id}, kept_verdicts())
    for name, places in fill(stored.cells, blocks).items():
        if places != 1:
            raise FsslError(f"{path.name} needs <!-- {name} --> and <!-- /{name} --> in a Markdown cell, once.")
    write_notebook(path, stored)


def index_blocks(notebooks: Mapping[str, Notebook], verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The generated parts of the index by name: ``course``, ``overview``, one for each paper by its key, ``claims``.

    Args:
        notebooks: by ID, all of the project's but those beside the index.
        verdicts: of :func:`~fssl_core.reporting.gallery.kept_verdicts`.

    Raises:
        FsslError: a notebook has no question, or belongs to no paper.
    """
    for id in notebooks:
        if id not in MODULES and (id not in COURSE or id.partition("/")[0] not in CHAPTERS):
            raise FsslError(f"{id} has no question: give it one in fssl_core/reporting/course.py.")
    chapters = {key: _chapter(key, notebooks, verdicts) for key in CHAPTERS}
    return {"course": _course(notebooks), "overview": _overview(notebooks), **chapters, "claims": claims_list(verdicts)}


def _course(notebooks: Mapping[str, Notebook]) -> str:
    """A row for each module of the course that is there."""
    rows = [[_link(notebooks[id]), question] for id, question in MODULES.items() if id in notebooks]
    return _table(["module", "question"], rows)


def _overview(notebooks: Mapping[str, Notebook]) -> str:
    """A row for each paper: its idea, the essential path, and how long that takes."""
    rows = []
    for chapter in CHAPTERS.values():
        path = [notebooks[id] for id in chapter.essential if id in notebooks]
        links = " → ".join(_link(notebook, notebook.id.partition("/")[2]) for notebook in path)
        times = [_time(path, profile) for profile in TIMED]
        rows.append([f"**{chapter.name}**", chapter.idea, links, *times])
    records = [record for notebook in notebooks.values() if (record := notebook.record("laptop"))]
    devices = ", ".join(sorted({device for record in records for device in record["devices"]}))
    note = "Times are those of the computation in the records"
    note += f", at `laptop` on {devices}. " if devices else ". "
    note += "Notebooks share what they train, so after the first one a path is often shorter."
    return _table(["paper", "the idea", "essential path", *TIMED], rows) + f"\n\n{note}"


def _chapter(key: str, notebooks: Mapping[str, Notebook], verdicts: Sequence[Verdict]) -> str:
    """One paper: what to know before, which notebooks to read first, and all of them in a section that opens."""
    chapter, paper = CHAPTERS[key], WORKS[key]
    numbers = dict(zip(COURSE, itertools.count(1), strict=False))
    listed = [notebooks[id] for id in COURSE if id in notebooks and id.startswith(f"{key}/")]
    rows = []
    for notebook in listed:
        own_verdicts = [verdict for verdict in verdicts if verdict.artifact == notebook.id]
        verdict_counts = counts(own_verdicts) if own_verdicts else NOTHING
        times = [_time([notebook], profile) for profile in TIMED]
        star = "★&nbsp;" if notebook.id in chapter.essential else ""
        rows.append([f"{star}{numbers[notebook.id]}", _link(notebook), COURSE[notebook.id], *times, verdict_counts])
    venue = "" if paper.venue in paper.citation else f", {paper.venue}"
    first = [
        f"{number}. {_link(notebooks[id])} *{COURSE[id]}*"
        for number, id in enumerate((id for id in chapter.essential if id in notebooks), start=1)
    ]
    return "\n\n".join(
        [
            f"## {chapter.name}",
            f"{paper.citation}, *{paper.title}*{venue}.",
            f"**What to know before.** {chapter.needs}",
            "**Read first** (★ in the list of all):",
            "\n".join(first),
            f"<details><summary>All {len(listed)} notebooks, in the order of the course, with times and verdicts"
            "</summary>",
            _table(["", "notebook", "question", *TIMED, "claims"], rows),
            "</details>",
        ]
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = ([cell.replace("|", "\\|") for cell in row] for row in (header, ["---"] * len(header), *rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _link(notebook: Notebook, text: str = "") -> str:
    target = notebook.path.relative_to(project_root() / "notebooks").as_posix()
    return f"[{text or notebook.title}]({target})"


def _time(notebooks: Iterable[Notebook], profile: str) -> str:
    """Together; nothing where one is not recorded."""
    records = [notebook.record(profile) for notebook in notebooks]
    return NOTHING if None in records else duration(max(1, sum(record["seconds"] for record in records)))
