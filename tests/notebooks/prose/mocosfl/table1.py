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
    surely = min(comparisons("mocosfl-table1-beats-fl-byol", profile="workstation"), key=lambda lead: lead.value)
    cells = Cells(runs.assign(percent=100 * runs.linear_probe_accuracy), "percent", ["method", "cut_layer", "clients"])

    def lead(one, other, clients, of_other=None):
        found = (cells.mean(**one, clients=clients) - cells.mean(**other, clients=of_other or clients)).estimate
        return found.value, *found.interval()

    one, three, moco, byol = {"cut_layer": 1}, {"cut_layer": 3}, {"method": "FL-MoCoV2"}, {"method": "FL-BYOL"}
    rivals = 100 * runs.groupby(["method", "clients"]).linear_probe_accuracy.mean()
    often = record("mocosfl/fig4", "workstation").query("syncs_per_epoch == 10")
    often = Cells(often.assign(percent=100 * often.linear_probe_accuracy), "percent", ["cut_layer"])
    often = (often.mean(cut_layer=1) - often.mean(cut_layer=3)).estimate
    return {
        "42.9 % with 5 clients and 44.5 % with 20, MocoSFL-3 37.5 and 41.7 %": [*real[1], *real[3]],
        "encoder has 19.9": 100 * runs[runs.cut_layer.notna()].untrained.mean(),
        "FL-BYOL has 31.0 and 25.9 %, after": rivals["FL-BYOL"].tolist(),
        "by 6.1 points at least (4.2 to 8.0)": (surely.value, *surely.interval()),
        "like FL-BYOL, has 41.5 % after as many passes, 10.5 points more than FL-BYOL (8.4 to 12.5)": (
            rivals["FL-MoCoV2", 5], *lead(moco, byol, 5),
        ),
        "is 1.0 above it, with an interval from 0.9 below to 2.9 above": [*map(abs, lead(one, moco, 5))],
        "MocoSFL-3 4.3 below (2.5 to 6.2)": lead(moco, three, 5),
        "has 35.6 %, again 9.6 above FL-BYOL": (rivals["FL-MoCoV2", 20], lead(moco, byol, 20)[0]),
        "MocoSFL-1 is 8.4 above it (6.6 to 10.3), MocoSFL-3 5.7 (3.8 to 7.6)": (
            *lead(one, moco, 20), *lead(three, moco, 20),
        ),
        "FL-MoCoV2 loses 5.9 points (3.8 to 7.9) and FL-BYOL 5.1 (3.0 to 7.1)": (
            *lead(moco, moco, 5, 20), *lead(byol, byol, 5, 20),
        ),
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
        "4.2 points ahead, with an interval of 2.4 to 6.0": lead(three, three, 20, 5),
        "and with one layer 1.6, 0.8 to 2.3": lead(one, one, 20, 5),
        "65.6 % with 5 clients and 65.5 % with 20": ours[1].tolist(),
        "MocoSFL-3 65.8 and 63.8 %": ours[3].tolist(),
        "FL-BYOL has 35.9 and 25.7 %": baselines["FL-BYOL"].tolist(),
        "untrained encoder 23.4": 100 * averaged.untrained.mean(),
        "by 29.7 points at least (26.7 to 32.7)": (least.value, *least.interval()),
        "has 42.2 and 36.0 %": baselines["FL-MoCoV2"].tolist(),
        "0.28 to 1.08 points": (cuts.min(), cuts.max()),
        "+3.95, +9.55 and +4.74 points": gain[gain > 0].tolist(),
        "FL-BYOL is 4.08 points better": -gain["CIFAR-100", 5],
    }  # fmt: skip
