from fssl_core.papers.reference import printed_cells
from tests.notebooks.prose.recorded import record, rows


def numbers():
    ours = rows(record("mfcl/table17"), protocol="linear evaluation")
    ours = 100 * ours.pivot(index="channels_per_group", columns="method", values="accuracy")
    apart, group = ours["MFCL(TN), views apart"], ours["MFCL(GN)"]
    equal = rows(record("mfcl/beyond_normalisation"), protocol="linear evaluation", xi=0.01)
    equal = 100 * equal.groupby("method").accuracy.mean()
    cells = printed_cells("mfcl", "table17")
    printed = cells.pivot(index="channels_per_group", columns="method", values="value")
    twin, lead = printed["MFCL(TN)"], printed["MFCL(TN)"] - printed["MFCL(GN)"]
    doubled = printed["MFCL(GN)"].diff()
    spread = printed_cells("mfcl", "table2")["std"].max()
    return {
        "69.5 against 68.3 % with 2": (apart[2], group[2]),
        "68.7 against 65.5 with 4": (apart[4], group[4]),
        "65.9 against 62.8 with 16": (apart[16], group[16]),
        "ahead by 3.5 points": equal["MFCL(GN), groups of TN"] - equal["MFCL(TN), views apart"],
        "by 5.5 and 3.6 points from 16 to 2": (group[2] - group[16], apart[2] - apart[16]),
        "ahead by 4.0 points": apart[2] - group[4],
        "13.0 to 21.6 %": (ours["MFCL(TN)"].min(), ours["MFCL(TN)"].max()),
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
