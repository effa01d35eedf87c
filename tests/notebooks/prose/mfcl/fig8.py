from math import comb

from tests.notebooks.prose.mfcl.table2 import APART, SEVERE, means, pairs_found
from tests.notebooks.prose.recorded import record


def numbers():
    ours = 100 * record("mfcl/fig8").pivot_table("accuracy", ["xi", "missing"], "method")
    even, uneven = ours.loc[200.0], ours.loc[0.01]
    linear, found = means(), pairs_found()
    lost = [comb(10 - owners, 7 - owners) / comb(10, 7) for owners in (1, 2)]
    return {
        "63.9 %, group norm 68.5": (even["MFCL(BN)"][0], even["MFCL(GN)"][0]),
        "apart 68.8, and": even[APART][0],
        "described 14.8": even["MFCL(TN)"][0],
        "up to 30 % of the clients missing (64.8 and 58.6 %)": (30, uneven[APART][0], uneven[APART][0.3]),
        "from 50 % on (53.0 against 57.9 and 54.5)": (
            50,
            *(uneven[method][0.5] for method in (APART, "MFCL(GN)", "MFCL(BN)")),
        ),
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
