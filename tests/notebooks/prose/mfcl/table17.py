from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.mfcl.table2 import APART
from tests.notebooks.prose.recorded import ahead, record, rows, verdict


def numbers():
    runs = rows(record("mfcl/table17"), protocol="linear evaluation")
    ours = 100 * runs.pivot_table("accuracy", "channels_per_group", "method")
    apart, group = ours[APART], ours["MFCL(GN)"]
    over_all = ahead(runs, {"method": APART}, {"method": "MFCL(GN)"})
    learned = runs[runs.method != "MFCL(TN)"]
    widest = ahead(learned, *({"method": APART, "channels_per_group": size} for size in (2, 16)))
    few = [{"method": APART, "channels_per_group": 2}, {"method": "MFCL(GN)", "channels_per_group": 4}]
    untrained = 100 * rows(runs, method="MFCL(TN)", channels_per_group=16).untrained.mean()
    judged = verdict("mfcl-table17-group-size", "views normalised together")
    equal = rows(record("mfcl/beyond_normalisation"), protocol="linear evaluation", xi=0.01)
    equal = 100 * equal.groupby("method").accuracy.mean()
    cells = printed_cells("mfcl", "table17")
    printed = cells.pivot(index="channels_per_group", columns="method", values="value")
    twin, lead = printed["MFCL(TN)"], printed["MFCL(TN)"] - printed["MFCL(GN)"]
    doubled = printed["MFCL(GN)"].diff()
    spread = printed_cells("mfcl", "table2")["std"].max()
    return {
        "95 % intervals": 95,
        "71.5 against 68.9 % with 2": (apart[2], group[2]),
        "69.2 against 65.7 with 4": (apart[4], group[4]),
        "67.4 against 66.5 with 16": (apart[16], group[16]),
        "is 2.4 points ahead, from 1.0 behind to 5.7 ahead": (over_all[0], -over_all[1], over_all[2]),
        "ahead by 3.5 points": equal["MFCL(GN), groups of TN"] - equal["MFCL(TN), views apart"],
        "2.5 and 4.1 points above 16": (group[2] - group[16], apart[2] - apart[16]),
        "with 4.3 points to either side": (widest[2] - widest[1]) / 2,
        "ahead by 5.8 points, 1.5 to 10.1": ahead(learned, *few),
        "14.7 to 23.7 %": (ours["MFCL(TN)"].min(), ours["MFCL(TN)"].max()),
        "self (15.1 %)": untrained,
        "42.8 points behind group norm, with an interval of 32.1 to 53.4": (
            -judged.estimate,
            -judged.high,
            -judged.low,
        ),
        "is 0.01 at": record("mfcl/table17").xi.unique().item(),
        "0.1 in the paper": cells.xi.unique().item(),
        "0 to 0.3 points": doubled.max(),
        "loses 0.2 after": -doubled[64],
        "lead of 3.9 to 5.0": (lead.min(), lead.max()),
        "84.5 % with 8 and 16, 83.9 with 64 and 83.1 with 2": (twin[8], twin[64], twin[2]),
        "up to 0.6 points over": spread,
        "With 0.6 points for a run a difference has 0.85": (spread, round(spread, 1) * 2**0.5),
        "there are 1.4": twin[8] - twin[2],
        "64 to 8 0.6": twin[8] - twin[64],
    }
