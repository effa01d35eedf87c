from fssl_core.claims.estimation import Cells
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import comparisons, record


def numbers():
    laptop = record("mocosfl/table1")
    ours = 100 * laptop.groupby(["cut_layer", "clients"]).linear_probe_accuracy.mean()
    averaged = laptop[laptop.cut_layer.isna()]
    baselines = 100 * averaged.groupby(["method", "clients"]).linear_probe_accuracy.mean()
    least = min(comparisons("mocosfl-table1-beats-fl-byol", profile="laptop"), key=lambda lead: lead.value)
    paper = paper_table("mocosfl", "table1").pivot(index=["dataset", "clients"], columns="method", values="value")
    cuts = paper["MocoSFL-1"] - paper["MocoSFL-3"]
    gain = paper["MocoSFL-3"] - paper["FL-BYOL"]
    runs = record("mocosfl/table1", "workstation")
    by_cell = runs.groupby(["cut_layer", "clients"])
    real, named = 100 * by_cell.linear_probe_accuracy.mean(), by_cell.identifiability.mean()
    few, many = comparisons("mocosfl-table1-cut1-above-cut3", profile="workstation")
    cells = Cells(runs.assign(percent=100 * runs.linear_probe_accuracy), "percent", ["cut_layer", "clients"])
    more = {
        cut: (cells.mean(cut_layer=cut, clients=20) - cells.mean(cut_layer=cut, clients=5)).estimate for cut in (1, 3)
    }
    low, high = more[1].interval()
    often = record("mocosfl/fig4", "workstation").query("syncs_per_epoch == 10")
    often = Cells(often.assign(percent=100 * often.linear_probe_accuracy), "percent", ["cut_layer"])
    often = (often.mean(cut_layer=1) - often.mean(cut_layer=3)).estimate
    return {
        "42.9 % with 5 clients and 44.5 % with 20, MocoSFL-3 37.5 and 41.7 %": [*real[1], *real[3]],
        "encoder has 19.9": 100 * runs.untrained.mean(),
        "5.3 points ahead with 5 clients, with an interval of 1.7 to 8.9": (few.value, *few.interval()),
        "and 2.7 with 20, 1.2 to 4.2": (many.value, *many.interval()),
        "In the paper it is 0.3 to 1.1": (cuts.min(), cuts.max()),
        "it is 1.1 here, too (0.1 to 2.2": (often.value, *often.interval()),
        "identifiability of 1.00; 0.42 is": (
            named[3, 5],
            by_cell.identifiability_common.mean()[3, 5],
        ),
        "with 20 clients of 57 %": 100 * named[3, 20],
        "with one layer of 75 % and of 19 %": [*(100 * named[1])],
        "4.2 points ahead, with an interval of 2.4 to 6.0": (more[3].value, *more[3].interval()),
        "and with one layer 1.6, 0.8 to 2.3": (more[1].value, low, high),
        "65.6 % with 5 clients and 65.5 % with 20": ours[1].tolist(),
        "MocoSFL-3 65.8 and 63.8 %": ours[3].tolist(),
        "FL-BYOL has 35.9 and 25.7 %": baselines["FL-BYOL"].tolist(),
        "untrained encoder 23.4": 100 * averaged.untrained.mean(),
        "by 29.7 points at least (26.7 to 32.7)": (least.value, *least.interval()),
        "has 42.2 and 36.0 %": baselines["FL-MoCoV2"].tolist(),
        "0.28 to 1.08 points": (cuts.min(), cuts.max()),
        "+3.95, +9.55 and +4.74 points": gain[gain > 0].tolist(),
        "FL-BYOL is 4.08 points better": -gain["CIFAR-100", 5],
    }
