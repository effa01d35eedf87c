"""Every decimal and percentage in what a notebook says that its paper claims is in the paper's tables, or follows."""

import json
import re
from math import ceil, floor

import pandas as pd
import pytest

from fssl_core.papers.reference import paper_settings, paper_table
from tests.notebooks.test_prose import NO_PROSE, NUMBER, TEXTS, complaints

CLAIMED = re.compile(r"\*\*What it claims\.\*\*.*?(?=\n\n|\Z)", re.DOTALL)
NEW = ["L-DAWA", "L-DAWA_FedAvg", "L-DAWA_Loss", "L-DAWA_FedU"]  # of L-DAWA's tables; the other rules are known ones


def claimed(artifact: str) -> str:
    title = "".join(json.loads(TEXTS[artifact].path.read_text(encoding="utf-8"))["cells"][0]["source"])
    text = " ".join(CLAIMED.findall(title))
    return NO_PROSE.sub(lambda block: " " * len(block[0]), text)


def of(paper: str, table: str, columns: str | list[str], metric: str = "accuracy", **where) -> pd.DataFrame:
    """The printed cells of a metric, a row for each method, under the values of some columns."""
    cells = paper_table(paper, table)
    cells = cells[cells.metric.str.endswith(metric)].astype({"value": float})
    for name, value in where.items():
        cells = cells[cells[name] == value]
    if "normalization" in cells:
        cells = cells.assign(method=cells.method + "(" + cells.normalization.fillna("") + ")")
    return cells.pivot(index="method", columns=columns, values="value")  # a cell printed twice is an error


def gain(cells: pd.DataFrame, ours=NEW) -> pd.Series:
    """The best of ours over the best of the others, in each column."""
    ours = cells.index.isin(ours)
    return cells[ours].max() - cells[~ours].max()


def mocosfl():
    costs = paper_settings("mocosfl")["stated"]["analysis"]["quoted_costs"]
    labels = paper_table("mocosfl", "table4").label_fraction.unique()
    thousand = of("mocosfl", "table2", "clients", dataset="CIFAR-10", partition="non_iid_class")[1000]
    return {
        "fig3": {"computes 13.7 %": costs["mocosfl3_share_of_flops_percent"]},
        "table2": {"passes 84 %": floor(thousand.min())},
        "table4": {"1 % or 10 %": [*100 * labels], "With 1 % and": 100 * min(labels)},
    }


def ldawa():
    seconds = paper_table("ldawa", "table1").query("metric == 'aggregation_time'").set_index("method").value
    silos = gain(of("ldawa", "table2", ["eval_dataset", "ssl_method"], label_fraction=1.0))
    levels = of("ldawa", "table4", ["ssl_method", "alpha"])
    tiny = gain(of("ldawa", "table5", "local_epochs"))
    devices = gain(of("ldawa", "table6", ["ssl_method", "eval_dataset"]))
    transfer = of("ldawa", "table7", "eval_dataset")
    headline = [silos["CIFAR-10"].max(), silos["CIFAR-100"].max()]
    return {
        "headline": {"5.21, 6.19 and 6.25": [*headline, tiny.max()]},
        "table1": {"takes 22.65 seconds": seconds["M-DAWA"]},
        "table2": {
            "5.21 points on CIFAR-10 (with SimCLR)": silos["CIFAR-10", "SimCLR"],
            "6.19 on CIFAR-100 (with Barlow Twins)": silos["CIFAR-100", "Barlow Twins"],
        },
        "table4": {
            "from 0.1, very unlike, to 0.6": [min(levels["SimCLR"]), max(levels["SimCLR"])],
            "by 9.37 points": (levels.loc["L-DAWA"] - levels.loc["FedAvg"])["SimCLR", 0.1],
        },
        "table5": {"6.25, 3.50 and 4.35": [*tiny]},
        "table6": {
            "1.26 points on CIFAR-10 and 0.25": [*devices["SimCLR"]],
            "0.25 and 0.85": [*devices["Barlow Twins"]],
        },
        "table7": {"4.4 and 5.7 points": [*transfer.loc["L-DAWA"] - transfer.loc["FedAvg"]]},
    }


def lwfedssl():
    def ratios(table: str, method: str, **where) -> list[float]:
        kinds = ("peak_memory", "flops", "communication")
        return [of("lwfedssl", table, "clients", f"{kind}_ratio", **where).loc[method].item() for kind in kinds]

    def bound(table: str, column: str) -> float:
        """The largest range of a method, rounded up to a digit."""
        cells = of("lwfedssl", table, column)
        return ceil(10 * (cells.max(axis=1) - cells.min(axis=1)).max()) / 10

    mean = of("lwfedssl", "table4", "dataset")["average"]
    memory, work, sent = zip(*(ratios("table4", f"{name}-FedSSL") for name in ("LW", "Prog")), strict=True)
    dropout = of("lwfedssl", "table6", "add_on", dataset="average")
    worst = [
        of("lwfedssl", "table5", "clients", f"communication{kind}").loc["LW-FedSSL"].item() for kind in ("", "_ratio")
    ]
    return {
        "fig10": {"5 and 0.5": paper_table("lwfedssl", "table13").beta.min()},
        "fig5": {"0.30, 0.24 and 0.20": ratios("table2", "LW-FedSSL", ssl_method="MoCoV3")},
        "table4": {
            "0.4 and 0.8 points": [mean["LW-FedSSL"] - mean["FedMoCoV3"], mean["Prog-FedSSL"] - mean["FedMoCoV3"]],
            "0.40 and 0.67 of the computation and 0.31 and 0.38": [*work, *sent],
            "0.87 and 0.99": memory,
        },
        "table5": {"3.35 GB, 0.40": worst},
        "table6": {"by 0.6 points at most": (dropout["depth dropout"] - dropout["none"]).max()},
        "table8": {"25 or 50 %": 50},
        "table10": {"0.27 of the memory, 0.24 of the computation and 0.20": ratios("table10", "LW-FedSSL")},
        "table12": {"less than 1.6": bound("table12", "batch_size")},
        "table13": {"5 and 0.5": 0.5, "more than 1.4": bound("table13", "beta")},
    }


def mfcl():
    vgg, groups = of("mfcl", "table15", "xi"), of("mfcl", "table17", "channels_per_group")
    cuts = of("mfcl", "table1", "cut_layer", architecture="ResNet-18").loc["MFCL(TN)"]
    norms = of("mfcl", "table5", "xi")
    rivals = norms[norms.index.str.startswith("FedSimCLR")].max()
    privacy = of("mfcl", "table6", ["secure_aggregation", "datamix"]).loc["MFCL(TN)"]
    shares = {
        metric: (costs := of("mfcl", "table3", "architecture", metric)).loc["MFCL(TN)"] / costs.loc["FedSimCLR()"]
        for metric in ("alpha_communication", "beta_compute", "gamma_memory")
    }
    batches = of("mfcl", "table16", "batch_size_k").loc["MFCL(TN)"]
    lead = groups.loc["MFCL(TN)"] - groups.loc["MFCL(GN)"]
    fedema = of("mfcl", "table7", "dataset")["CIFAR-10"]
    return {
        "fig7": {"0.1 four": 0.1},
        "table14": {"those at 0.1": 0.1},
        "table15": {"by 17.1 points on uneven clients and 2.2": [*vgg.loc["MFCL(TN)"] - vgg.loc["FedSimCLR()"]]},
        "table16": {"by 0.2 points": batches.max() - batches.min()},
        "table17": {"by 3.9 to 5.0": [lead.min(), lead.max()]},
        "table1": {"47.6 % with seven layers where two have 84.5": cuts[[7, 2]].tolist()},
        "table3": {
            "0.147 of the bits": shares["alpha_communication"]["ResNet-18"],
            "0.014 with ResNet-50": shares["alpha_communication"]["ResNet-50"],
            "about 0.036 of the memory": shares["gamma_memory"].mean(),
            "less than 0.004": shares["beta_compute"].max(),
        },
        "table5": {
            "by 11.8 points and more": norms[0.01]["MFCL(TN)"] - rivals[0.01],
            "by 6.3 and more at 0.1": [norms[0.1]["MFCL(TN)"] - rivals[0.1], 0.1],
        },
        "table6": {"costs 1.7 points": privacy[0, 0] - privacy[0, 1]},
        "table7": {"by 2.3 points": fedema["MFCL(TN)"] - fedema["FedEMA()"]},
    }


PAPERS = {"mocosfl": mocosfl, "monacosfl": dict, "ldawa": ldawa, "lwfedssl": lwfedssl, "mfcl": mfcl}
TITLES = [artifact for artifact in TEXTS if artifact.partition("/")[0] in PAPERS]


@pytest.mark.parametrize("artifact", TITLES)
def test_numbers_of_what_a_paper_claims_are_its_own(artifact):
    paper, _, name = artifact.partition("/")
    wrong = list(complaints(claimed(artifact), PAPERS[paper]().get(name, {}), {}))
    assert not wrong, "\n".join(wrong)


def test_each_entry_is_of_a_notebook_with_numbers():
    for paper, values in PAPERS.items():
        assert all(NUMBER.search(claimed(f"{paper}/{name}")) for name in values())
