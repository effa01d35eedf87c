import json
import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fssl_core.claims import judge
from fssl_core.claims.verdict import Verdict
from fssl_core.errors import FsslError
from fssl_core.experiments.notebooks import find_notebooks
from fssl_core.papers.reference import PAPERS, WORKS, paper_claims
from fssl_core.reporting import gallery
from fssl_core.reporting.course import COURSE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def committed():
    """The blocks that the project's own records give."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield gallery.blocks(gallery.kept_verdicts())


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.pictures, self.count = [], [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.count[tag] = self.count.get(tag, 0) + 1
        self.links += [values["href"]] if tag == "a" else []
        self.pictures += [values["src"]] if tag == "img" else []
        self.open += [] if tag in ("br", "img") else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# -------------------------------------------------------------------------------------------- the project's README


def test_the_readme_shows_what_is_recorded(committed):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert gallery.filled(text, committed) == text, "README.md is behind the recorded results: run `fssl gallery`"


def test_every_notebook_has_a_row_and_every_link_and_picture_is_there(committed, monkeypatch):
    monkeypatch.chdir(ROOT)
    ids = [notebook.id for notebook in find_notebooks() if notebook.is_artifact]
    tags = Tags(committed["gallery"])
    assert tags.open == []
    assert tags.count["details"] == len(WORKS)
    assert tags.count["tr"] == len(ids) + len(WORKS)  # a header for each paper
    assert [path for path in {*tags.links, *tags.pictures} if not (ROOT / path).is_file()] == []
    assert not any(".smoke." in path for path in tags.pictures)  # git ignores these


def test_every_claim_has_a_row(committed):
    tags = Tags(committed["claims"])
    assert tags.open == []
    assert tags.count["tr"] == len(gallery.kept_verdicts()) + len(PAPERS)
    assert len({verdict.id for verdict in gallery.kept_verdicts()}) == sum(len(paper_claims(key)) for key in PAPERS)


def test_the_blocks_hold_no_blank_line_that_would_end_the_html(committed):
    assert "\n\n" not in committed["gallery"]
    assert committed["claims"].count("\n\n") == 1  # after the line that counts


def test_every_notebook_has_a_place_in_the_course(monkeypatch):
    monkeypatch.chdir(ROOT)
    ids = {notebook.id for notebook in find_notebooks() if notebook.is_artifact}
    assert ids == set(COURSE), "give each notebook its question in fssl_core/reporting/course.py"


# ------------------------------------------------------------------------------------------------ writing a README


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one notebook, which has no record yet, of the only paper."""
    for module in (gallery, judge):
        monkeypatch.setattr(module, "PAPERS", {"monacosfl": PAPERS["monacosfl"]})
    monkeypatch.setattr(gallery, "WORKS", {"monacosfl": PAPERS["monacosfl"]})
    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "notebooks" / "monacosfl" / "fig2_activations.ipynb"
    path.parent.mkdir(parents=True)
    finding = "**Recorded at `laptop`** (one seed):\n\n![x](y.png)\n\n**Less than hoped.** It *falls* by 5 points"
    finding += " of `SSIM` at $\\alpha = 1$, see [there](z.ipynb). More follows."
    cells = [new_markdown_cell("# Figure 2: a < b"), new_markdown_cell(finding), new_code_cell("1")]
    nbformat.write(new_notebook(cells=cells), path)
    text = "Before.\n<!-- gallery -->\nold\n<!-- /gallery -->\nBetween.\n<!-- claims -->\n<!-- /claims -->\nAfter.\n"
    (tmp_path / "README.md").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(project, profile, similarity):
    folder = project / "figures" / "monacosfl"
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"layer": [1, 5, 9, 13, 17], "similarity": similarity, "norm": "group", "photograph": "china"})
    table["similarity_other"] = 0.1
    table = pd.concat([table.assign(seed=seed) for seed in range(2)])
    table.to_csv(folder / f"fig2.{profile}.csv", index=False)
    (folder / f"fig2.{profile}.json").write_text(json.dumps({"profile": profile}))
    (folder / f"fig2.{profile}.png").touch()


def row(project):
    (line,) = (line for line in (project / "README.md").read_text().splitlines() if "Figure 2: a &lt; b" in line)
    return line


def test_the_readme_follows_the_records_and_keeps_the_rest(project):
    assert gallery.update_readme()
    assert not gallery.update_readme()
    assert "nothing recorded" in row(project)
    lines = (project / "README.md").read_text().splitlines()
    assert [line for line in lines if line in ("Before.", "Between.", "After.", "old")] == [
        "Before.",
        "Between.",
        "After.",
    ]

    record(project, "smoke", [0.9, 0.7, 0.6, 0.4, 0.3])
    assert not gallery.update_readme()  # not kept with the project

    record(project, "laptop", [0.9, 0.7, 0.6, 0.4, 0.3])
    assert gallery.update_readme()
    assert '<img src="figures/monacosfl/fig2.laptop.png" width="220" alt="Figure 2: a &lt; b">' in row(project)
    assert row(project).endswith("<td>1 reproduced<br><code>laptop</code></td></tr>")

    record(project, "gpu", [0.9, 0.4, 0.6, 0.4, 0.3])
    assert gallery.update_readme()
    assert "fig2.gpu.png" in row(project)
    assert row(project).endswith("<td>1 contradicted<br><code>gpu</code></td></tr>")
    assert len(list(project.glob("*README*"))) == 1


def test_a_record_without_a_picture_shows_none(project):
    record(project, "laptop", [0.9, 0.7, 0.6, 0.4, 0.3])
    (project / "figures" / "monacosfl" / "fig2.laptop.png").unlink()
    gallery.update_readme()
    assert "<img" not in (project / "README.md").read_text()


@pytest.mark.parametrize(
    "text", ["", "<!-- gallery -->\n<!-- /gallery -->\n", "<!-- claims -->\n<!-- /claims -->\n<!-- gallery -->\n"]
)
def test_a_readme_without_the_marks_is_left_as_it_is(project, text):
    (project / "README.md").write_text(text)
    with pytest.raises(FsslError, match=r"needs <!-- (gallery|claims) --> and"):
        gallery.update_readme()
    assert (project / "README.md").read_text() == text


def test_marks_twice_are_refused():
    block = "<!-- a -->\n<!-- /a -->\n"
    with pytest.raises(FsslError, match="once each"):
        gallery.filled(block + block, {"a": "new"})
    assert gallery.filled(block, {"a": r"\1 \g<0>"}) == "<!-- a -->\n\\1 \\g<0>\n<!-- /a -->\n"


def test_without_a_readme_the_message_says_where_it_was_looked_for(project):
    (project / "README.md").unlink()
    with pytest.raises(FsslError, match=re.escape(str(project / "README.md"))):
        gallery.update_readme()


# -------------------------------------------------------------------------------------------------- paper and ours


def verdict(ours, evidence, **more):
    return Verdict(
        "monacosfl-x", "monacosfl/fig2", "a < b", "b - a > 0", more.pop("consistent", None), ours, evidence, **more
    )


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ([("reproduced", "exact"), ("contradicted", "trained")], 1),
        ([("reproduced", "exact"), ("inconclusive", "trained")], 0),
        ([("not run", "trained"), ("inconclusive", "trained")], 1),
        ([("reproduced", "trained"), ("contradicted", "trained")], 0),
    ],
)
def test_a_decided_claim_is_told_before_an_open_one_and_trained_evidence_before_exact(kinds, told):
    verdicts = [verdict(*kind) for kind in kinds]
    assert gallery.telling(verdicts) is verdicts[told]


def test_without_claims_there_is_nothing_to_tell():
    assert gallery.telling([]) is None


def test_texts_of_claims_are_no_markup(project):
    told = verdict("reproduced", "trained", consistent=True, quantity="<b>", estimate=1.0, low=0.5, high=1.5)
    block = gallery.claims_list([told])
    assert "a &lt; b" in block
    assert "&lt;b&gt;: 1 [0.5, 1.5]" in block
    assert "<td>consistent</td><td><b>reproduced</b></td>" in block
