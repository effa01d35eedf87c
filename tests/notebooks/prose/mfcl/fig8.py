from math import comb

from tests.notebooks.prose.mfcl.table2 import APART, SEVERE, means, pairs_found
from tests.notebooks.prose.recorded import comparisons, record, verdict


def numbers():
    ours = 100 * record("mfcl/fig8").pivot_table("accuracy", ["xi", "missing"], "method")
    even, uneven = ours.loc[200.0], ours.loc[0.01]
    learned = ["MFCL(BN)", "MFCL(GN)", APART]
    lost_even, lost_uneven = (part.loc[0, learned] - part.loc[0.7, learned] for part in (even, uneven))
    leads = verdict("mfcl-fig8a-client-loss-homogeneous", "views normalised apart")
    linear, found = means(), pairs_found()
    lost = [comb(10 - owners, 7 - owners) / comb(10, 7) for owners in (1, 2)]
    ahead = comparisons("mfcl-fig8b-client-loss-heterogeneous", "views normalised apart")[::2]  # of batch norm
    sure = [share for share, lead in zip(uneven.index, ahead, strict=True) if lead.interval()[0] > 0]
    return {
        "65.4 %, twin norm with the views apart 65.8, group norm 68.4": [*even.loc[0, ["MFCL(BN)", APART, "MFCL(GN)"]]],
        "described 14.1": even["MFCL(TN)"][0],
        "from 4.2 behind to 3.4 ahead": [abs(bound) for bound in (leads.low, leads.high)],
        "64.5 % with nobody missing and 55.1": [*uneven[APART][[0, 0.5]]],
        "group norm 66.5 and 58.9": [*uneven["MFCL(GN)"][[0, 0.5]]],
        "of batch norm with 30 % missing only": [100 * share for share in sure],
        "lose 19.1 to 23.8 points": (lost_even.min(), lost_even.max()),
        "21.6 to 23.7 on uneven": (lost_uneven.min(), lost_uneven.max()),
        "Without 70 %": 100 * ours.index.get_level_values("missing").max(),
        "finds 92.2 % of the pairs": found["MFCL(TN)"],
        "reaches 15.3 %": linear[0.01]["MFCL(TN)"],
        "finds 62.7 %": found[APART],
        "reaches 64.5": linear[0.01][APART],
        "14.1 and 65.8 %": (linear[200]["MFCL(TN)"], linear[200][APART]),
        "0.1 in the caption": SEVERE[1],
        "0.70, 0.47 and 0": lost,
        "an expected 5.3 of": 10 * (1 - lost[1]),
        "With δ = 0.7": ours.index.get_level_values("missing").max(),
    }
