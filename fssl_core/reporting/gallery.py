"""The README's gallery and its table of claims, made of the recorded results, the notebooks and the papers' claims.

Both are plain HTML: a column of pictures keeps its width there, which it does not in a table of Markdown, and no text
can be taken for markup. Nothing in them depends on the day or the machine.
"""

import html
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import Notebook, find_notebooks
from fssl_core.files import atomic_write
from fssl_core.paths import PROFILES, project_root
from fssl_core.reporting.claims import VERDICTS, claims_table
from fssl_core.reporting.course import COURSE
from fssl_core.reporting.reference import PAPERS, paper_claims

KEPT = PROFILES[1:]  # smoke is made anew by everyone who wants it and is not kept with the project
PICTURE = 220  # pixels
_PARTS = re.compile(r"; (?=(?:printed|paper|ours)\b)")  # of a deciding value
_GREEK = re.compile(r"\\([A-Za-z]+)")  # TeX's names of letters are HTML's


def update_readme() -> bool:
    """Write the gallery and the table of claims into ``README.md`` of the project, whole or not at all.

    Returns:
        whether they have changed.

    Raises:
        FsslError: no README here, or a block is missing in it.
    """
    path = project_root() / "README.md"
    if not path.exists():
        raise FsslError(f"There is no {path}: call this from inside a clone of the project.")
    text = path.read_text(encoding="utf-8")
    new = filled(text, blocks())
    if new != text:
        with atomic_write(path, "w") as file:
            file.write(new)
    return new != text


def blocks() -> dict[str, str]:
    """The two generated blocks of the README by name, ``gallery`` and ``claims``."""
    claims = kept_claims()
    notebooks = {notebook.id: notebook for notebook in find_notebooks() if "/" in notebook.id}
    return {"gallery": gallery(notebooks, claims), "claims": claims_list(claims)}


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


def kept_claims() -> pd.DataFrame:
    """Every claim judged on the most faithful record of :data:`KEPT`: ``claims_table`` and the column ``compute``."""
    claims = claims_table(among=KEPT)
    compute = {claim.id: claim.compute for key in PAPERS for claim in paper_claims(key)}
    return claims.assign(compute=claims["id"].map(compute))


def gallery(notebooks: Mapping[str, Notebook], claims: pd.DataFrame) -> str:
    """One closed section for each paper, with a row for each of its notebooks in the order of the course.

    Args:
        notebooks: by ID; one that has no place in the course comes last.
        claims: of :func:`kept_claims`.
    """
    header = f'<th width="{PICTURE + 20}"></th><th>notebook</th><th>paper and ours</th><th>claims</th>'
    order = [*(id for id in COURSE if id in notebooks), *(id for id in notebooks if id not in COURSE)]
    sections = []
    for key, paper in PAPERS.items():
        ids = [id for id in order if id.startswith(f"{key}/")]
        title = f"<b>{_text(paper.title)}</b> ({_text(paper.citation)})"
        count = f"{len(ids)} notebooks, {_claims_of(_of_paper(claims, key))}"
        rows = [_row(notebooks[id], claims[claims["artifact"] == id]) for id in ids]
        sections.append(_section(f"{title}: {count}", header, rows))
    return "\n".join(sections)


def claims_list(claims: pd.DataFrame) -> str:
    """A line that counts the verdicts on all claims, and a closed section with every claim for each paper."""
    header = "<th>artifact</th><th>claim</th><th>verdict</th><th>deciding value</th><th>profile</th>"
    sections = []
    for key, paper in PAPERS.items():
        own = _of_paper(claims, key)
        rows = [
            [
                f"<code>{row.artifact.partition('/')[2]}</code>",
                _text(row.claim),
                _verdict(row.verdict),
                "; ".join(_text(part, 120) for part in _PARTS.split(row.value)),
                row.profile,
            ]
            for row in own.sort_values("artifact", key=lambda ids: ids.factorize()[0], kind="stable").itertuples()
        ]
        sections.append(_section(f"<b>{_text(paper.title)}</b>: {_claims_of(own)}", header, rows))
    return "\n".join([f"{_claims_of(claims)}.", "", *sections])


def comparison(notebook: Notebook, claims: pd.DataFrame, profile: str) -> tuple[str, str]:
    """What a paper states and what we find, as two short texts in HTML; either may be empty.

    Taken from the first claim with a number: one on trained models, else one on a table of the paper, else any. For
    a claim that is judged on printed numbers alone, ours is what the notebook says of its record.

    Args:
        notebook: that shows the claims.
        claims: its rows of :func:`kept_claims`.
        profile: of the record, or empty.
    """
    finding = first_finding(notebook, profile)
    rank = claims["compute"].map({"training": 0, "table_arithmetic": 1}).fillna(2)
    claims = claims.loc[rank.sort_values(kind="stable").index]
    for row in claims[claims["verdict"] != "not run"].itertuples():
        ours, printed = split_value(row.value)
        if re.search(r"\d", row.value):
            stated = _text(row.claim, 160) + (f" <i>{_text(printed, 110)}</i>" if printed else "")
            return stated, _text(ours, 150) or finding or "recomputed from the printed cells"
    if claims.empty:
        return "", finding
    first = claims.iloc[0]
    return _text(first["claim"], 160), finding or f"{first['verdict']}: {_text(first['value'], 150)}"


def split_value(value: str) -> tuple[str, str]:
    """The deciding value of a claim, taken apart: what is ours, and what the paper prints; either may be empty."""
    parts = _PARTS.split(value)
    printed = [part for part in parts if re.match(r"(printed|paper)\b", part)]
    ours = [re.sub(r"^ours(: |, )", "", part) for part in parts if part not in printed]
    return "; ".join(part for part in ours if part != "not run"), "; ".join(printed)


def first_finding(notebook: Notebook, profile: str) -> str:
    """What the notebook says of its record, up to the first sentence with a number, as HTML; else an empty text."""
    cells = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"]
    for cell in cells if profile else ():
        _, mark, after = "".join(cell["source"]).partition(f"**Recorded at `{profile}`**")
        paragraphs = [paragraph for paragraph in after.split("\n\n")[1:] if not paragraph.startswith(("!", "|", "#"))]
        if mark and cell["cell_type"] == "markdown" and paragraphs:
            sentences = re.split(r"(?<=[.?!])\*{0,2}\s+", paragraphs[0].removeprefix("- "))
            last = next((number for number, text in enumerate(sentences) if re.search(r"\d", text)), 0)
            return _prose(" ".join(sentences[: last + 1]))
    return ""


def verdict_counts(claims: pd.DataFrame, between: str = ", ") -> str:
    """``"2 hold, 1 fails"``; verdicts that do not occur are left out."""
    counts = claims["verdict"].value_counts()
    words = {verdict: verdict.removesuffix("s") for verdict in VERDICTS}  # of several: hold, fail, not run
    return between.join(f"{counts[v]} {v if counts[v] == 1 else words[v]}" for v in VERDICTS if v in counts)


def _row(notebook: Notebook, claims: pd.DataFrame) -> list[str]:
    """The cells of one notebook: picture, title with question, paper and ours, verdicts with profile."""
    profile = next((name for name in reversed(KEPT) if notebook.record_path(name).exists()), "")
    link = notebook.path.relative_to(project_root()).as_posix()
    title = _text(notebook.title)
    picture = ""  # a broken one would be shown where there is none
    if profile and notebook.record_path(profile).with_suffix(".png").exists():
        source = f"figures/{notebook.id}.{profile}.png"
        picture = f'<a href="{link}"><img src="{source}" width="{PICTURE}" alt="{html.escape(notebook.title)}"></a>'
    stated, ours = comparison(notebook, claims, profile)
    found = f"<b>ours</b> {(ours or 'see the picture') if profile else 'nothing recorded'}"
    return [
        picture,
        f'<a href="{link}">{title}</a><br>{_text(COURSE.get(notebook.id, ""))}',
        (f"<b>paper</b> {stated}<br>" if stated else "") + found,
        "<br>".join(filter(None, [verdict_counts(claims, "<br>") or "–", profile and f"<code>{profile}</code>"])),
    ]


def _section(summary: str, header: str, rows: Iterable[Sequence[str]]) -> str:
    """A section that opens on a click, without blank lines, at which Markdown would begin to look for markup."""
    lines = ["<details>", f"<summary>{summary}</summary>", "<table>", f"<tr>{header}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>", "</details>"])


def _of_paper(claims: pd.DataFrame, key: str) -> pd.DataFrame:
    return claims[claims["artifact"].str.startswith(f"{key}/")]


def _claims_of(claims: pd.DataFrame) -> str:
    return f"{len(claims)} claims: {verdict_counts(claims)}"


def _verdict(verdict: str) -> str:
    return f"<b>{verdict}</b>" if verdict == "fails" else verdict


def _text(text: str, width: int | None = None) -> str:
    """A text as HTML, on one line, shortened to a number of characters."""
    short = textwrap.shorten(text, width or len(text) + 1, placeholder=" …", break_on_hyphens=False)
    return html.escape(short, quote=False)


def _prose(text: str) -> str:
    """A sentence of Markdown as HTML: code and Greek letters are kept, emphasis and links are dropped."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text.replace("**", "").replace("$", ""))
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", _text(text))
    return _GREEK.sub(r"&\1;", re.sub(r"(?<!\w)\*|\*(?!\w)", "", text))
