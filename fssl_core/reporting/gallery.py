"""The README's gallery and its table of claims, made of the recorded results, the notebooks and the papers' claims.

Both are plain HTML: a column of pictures keeps its width there, which it does not in a table of Markdown, and no text
can be taken for markup. Nothing in them depends on the day or the machine.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from fssl_core.claims.judge import all_verdicts
from fssl_core.claims.verdict import AS_PRINTED, OURS, Verdict, counts, in_words, paper_in_words
from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import Notebook, find_notebooks
from fssl_core.files import atomic_write
from fssl_core.papers.records import record_path, recorded_profiles
from fssl_core.papers.reference import PAPERS, WORKS
from fssl_core.paths import PROFILES, project_root, records_root
from fssl_core.reporting.course import COURSE

KEPT = PROFILES[1:]  # smoke is made anew by everyone who wants it and is not kept with the project
PICTURE = 220  # pixels
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("fssl_core.reporting"), autoescape=True, undefined=jinja2.StrictUndefined
)
TEMPLATES.globals |= {"in_words": in_words, "paper_in_words": paper_in_words, "as_printed": AS_PRINTED}


def update_readme() -> bool:
    """Write gallery, claims and their pictures into ``README.md`` and ``figures`` of the project, whole or not at all.

    Returns:
        whether the README has changed.

    Raises:
        FsslError: no README here, or a block is missing in it.
    """
    path = project_root() / "README.md"
    if not path.exists():
        raise FsslError(f"There is no {path}: call this from inside a clone of the project.")
    text = path.read_text(encoding="utf-8")
    verdicts = kept_verdicts()
    new = filled(text, blocks(verdicts))
    _draw(verdicts)
    if new != text:
        with atomic_write(path, "w") as file:
            file.write(new)
    return new != text


def kept_verdicts() -> list[Verdict]:
    """Every claim judged on the most faithful record of :data:`KEPT` that has what it speaks of."""
    return all_verdicts(among=KEPT)


def blocks(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """The two generated blocks of the README by name, ``gallery`` and ``claims``."""
    notebooks = {notebook.id: notebook for notebook in find_notebooks() if notebook.is_artifact}
    return {"gallery": gallery(notebooks, verdicts), "claims": claims_list(verdicts)}


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """The text with each block between ``<!-- name -->`` and ``<!-- /name -->``; all else stays as it is.

    Raises:
        FsslError: the text does not have the two marks of a block exactly once.
    """
    for name, block in blocks.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->\n")
        if not (opening and closing) or opening in after:
            raise FsslError(f"README.md needs <!-- {name} --> and <!-- /{name} --> once each, on lines of their own.")
        text = f"{before}{opening}{block}\n{closing}{after}"
    return text


def gallery(notebooks: Mapping[str, Notebook], verdicts: Sequence[Verdict]) -> str:
    """One closed section for each paper, with a row for each of its notebooks in the order of the course.

    Args:
        notebooks: by ID; one that has no place in the course comes last.
        verdicts: of :func:`kept_verdicts`.
    """
    order = [*(id for id in COURSE if id in notebooks), *(id for id in notebooks if id not in COURSE)]
    rows = {id: summary(notebooks[id], [verdict for verdict in verdicts if verdict.artifact == id]) for id in order}
    papers = [
        {
            "title": paper.title,
            "citation": paper.citation,
            "counts": counts([verdict for verdict in verdicts if verdict.paper == key]),
            "rows": [row for id, row in rows.items() if id.startswith(f"{key}/")],
        }
        for key, paper in WORKS.items()
    ]
    return _rendered("gallery.html", papers=papers, width=PICTURE)


def claims_list(verdicts: Sequence[Verdict]) -> str:
    """A line that counts the verdicts on all claims, and a closed section with every claim for each paper."""
    papers = []
    for key, paper in PAPERS.items():
        paper_verdicts = [verdict for verdict in verdicts if verdict.paper == key]
        first = list(dict.fromkeys(verdict.artifact for verdict in paper_verdicts))
        paper_verdicts.sort(key=lambda verdict: first.index(verdict.artifact))
        papers.append({"title": paper.title, "counts": counts(paper_verdicts), "verdicts": paper_verdicts})
    return _rendered("claims.html", papers=papers, total=counts(verdicts))


def telling(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The verdict that says most of a notebook: a decided one before an open one, a trained one before an exact one."""
    rank = {"contradicted": 0, "reproduced": 0, "inconclusive": 1, "not run": 2}
    return min(verdicts, key=lambda verdict: (rank[verdict.ours], verdict.evidence != "trained"), default=None)


def summary(notebook: Notebook, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What a gallery shows of one notebook.

    Args:
        notebook: of an artifact.
        verdicts: those on its claims.

    Returns:
        ``link`` and ``picture`` from the project's folder (the picture of the most faithful record, or empty),
        ``profile`` of that record, ``title``, ``question``, the most telling ``verdict`` (None without claims),
        ``printed`` and ``ours`` in words, and how many verdicts are what, as ``found``.
    """
    profile = next(iter(recorded_profiles(notebook.id, KEPT)), "")
    picture = profile and record_path(notebook.id, profile).with_suffix(".png").exists()
    verdict = telling(verdicts)
    paper = verdict is not None and verdict.paper_consistent is not None
    numbers = Counter(verdict.ours for verdict in verdicts)
    return {
        "link": notebook.path.relative_to(project_root()).as_posix(),
        "title": notebook.title,
        "question": COURSE.get(notebook.id, ""),
        "profile": profile,
        "picture": f"figures/{notebook.id}.{profile}.png" if picture else "",
        "verdict": verdict,
        "printed": paper_in_words(verdict) if paper else "",
        "ours": (in_words(verdict) if verdict else "see the picture") if profile else "nothing recorded",
        "found": {word: numbers[word] for word in OURS if numbers[word]},
    }


def _draw(verdicts: Sequence[Verdict]) -> None:
    """The pictures of all verdicts, and of each paper's, beside the records."""
    from fssl_core.figures.verdicts import plot_overview, plot_verdicts

    pictures = {"claims.png": plot_overview(verdicts)}
    for key, paper in PAPERS.items():
        paper_verdicts = [verdict for verdict in verdicts if verdict.paper == key]
        pictures[f"{key}/claims.png"] = plot_verdicts(paper_verdicts, paper.title)
    for name, figure in pictures.items():
        with atomic_write(records_root() / name) as file:
            figure.savefig(file, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})


def _rendered(template: str, **values: Any) -> str:
    return TEMPLATES.get_template(template).render(**values).strip()
