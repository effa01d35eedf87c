import re
from importlib import resources

import pandas as pd
import pytest

from fssl_core.errors import DataError, SettingError
from fssl_core.papers import reference
from fssl_core.papers.reference import COMPUTE, PAPERS, paper_claims, paper_settings, paper_table

# the artifacts that have a notebook (those beyond the papers, but for one, have no claims of theirs)
ARTIFACTS = {
    "mocosfl": {"fig1", "fig3", "fig4", "hardness", "table1", "table2", "table3", "table4"},
    "monacosfl": {f"fig{number}" for number in range(1, 10)},
    "ldawa": {f"table{n}" for n in range(1, 8)} | {f"fig{n}" for n in range(2, 7)} | {"headline"},
    "lwfedssl": {f"table{n}" for n in range(1, 14)} | {"fig5", "fig6", "fig7", "fig8", "fig10"},
    "mfcl": {f"table{n}" for n in (*range(1, 9), *range(14, 18))}
    | {"fig3", "fig4", "fig6", "fig7", "fig8", "fig9", "architecture", "beyond_normalisation"},
}
FILES = sorted(file.name for file in resources.files("fssl_core.papers").joinpath("data").iterdir())


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_follows_the_one_schema(key):
    for claim in paper_claims(key):  # a field too many or too few is a TypeError
        assert re.fullmatch(rf"{key}-[a-z0-9-]+", claim.id)
        assert claim.artifact in ARTIFACTS[key], claim.id
        assert claim.compute in COMPUTE, claim.id
        assert claim.claim, claim.id
        assert claim.check, claim.id
        assert isinstance(claim.settings, dict), claim.id
        assert isinstance(claim.source_check, str), claim.id


def test_ids_of_claims_are_unique_over_all_papers():
    ids = [claim.id for key in PAPERS for claim in paper_claims(key)]
    assert len(ids) == len(set(ids)) == 165


@pytest.mark.parametrize("key", PAPERS)
def test_settings_name_their_paper(key):
    assert paper_settings(key)["paper"]["key"] == key


@pytest.mark.parametrize("file", [name for name in FILES if name.endswith(".csv")])
def test_every_table_has_values_with_metric_and_unit(file):
    key, table = file.removesuffix(".csv").split("_")
    cells = paper_table(key, table)
    assert len(cells)
    assert cells[["value", "metric", "unit"]].notna().all(axis=None)
    assert set(cells["table"].astype(str)) == {table.removeprefix("table")}


def test_a_printed_cell_comes_back():
    cells = paper_table("mocosfl", "table1")
    assert isinstance(cells, pd.DataFrame)
    cell = cells.query("method == 'FL-BYOL' and dataset == 'CIFAR-10' and clients == 5")
    assert cell["value"].tolist() == [83.34]


def test_an_unknown_paper_names_the_known_ones():
    with pytest.raises(SettingError, match=r"paper='moco' cannot be used: expected one of mocosfl, monacosfl"):
        paper_claims("moco")


def test_an_unknown_table_names_the_known_ones():
    with pytest.raises(SettingError, match=r"table='table9' cannot .* one of table1, table2, table3, table4\."):
        paper_table("mocosfl", "table9")
    with pytest.raises(SettingError, match=r"table='table1' cannot be used: expected none: it prints no table"):
        paper_table("monacosfl", "table1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: [", r"ldawa_claims\.yaml is no YAML: "),
        ("claims:\n- {id: ldawa-x, artifact: fig4, claim: A, settings: {}, compute: toy}", r"ldawa-x: .*'check'"),
        (
            "claims:\n- {id: ldawa-x, artifact: fig4, claim: A, check: B, settings: {}, compute: trainin}",
            r"ldawa-x: compute has to be one of analytic, .*, not 'trainin'\.",
        ),
    ],
)
def test_a_claims_file_that_cannot_be_used_is_named(text, message, tmp_path, monkeypatch):
    (tmp_path / "ldawa_claims.yaml").write_text(text)
    monkeypatch.setattr(reference, "_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=message):
        paper_claims("ldawa")
