from scipy.integrate import quad
from scipy.stats import norm

from fssl_core.claims.mfcl import MARGIN
from fssl_core.experiments import mfcl_settings
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record, rows

APART = "MFCL(TN), views apart"


def numbers():
    ours = record("mfcl/table16").set_index(["method", "protocol", "K"]).accuracy.sort_index() * 100
    apart, together = ours[APART, "linear evaluation"], ours["MFCL(TN)", "linear evaluation"]
    seeds = 100 * rows(record("mfcl/table2"), method="MFCL(GN)", protocol="linear evaluation", xi=0.01).accuracy
    printed = paper_table("mfcl", "table16")["value"]
    spread = paper_table("mfcl", "table2")["std"].max()
    range_of_4, _ = quad(lambda x: 1 - norm.cdf(x) ** 4 - norm.sf(x) ** 4, -9, 9)  # in standard deviations
    rate = {profile: mfcl_settings(profile, method="MFCL(TN)").phase1.learning_rate for profile in ("laptop", "paper")}
    bound = printed.max() - printed.min()
    return {
        "66.4, 64.8 and 72.9 %": [*apart],
        "56.6, 55.3, 59.5": [*ours[APART, "features"]],
        "the paper's 0.2": bound,
        "a range of 8.5 points at the same": seeds.max() - seeds.min(),
        "13.1, 14.5 and 16.4 %": [*together],
        "0.01 at": rate["laptop"],
        "0.05 in the paper": rate["paper"],
        "up to 0.6 points over three runs, so a range of 0.2": (spread, bound),
        "deviation of 0.3": 0.3,
        "is 2.06": range_of_4,
        "0.6 points. A": 0.3 * range_of_4,
        "A range of 0.2 needs a deviation of 0.1": (bound, bound / range_of_4),
        "bound of 0.2 can": bound,
        "allows 0.5": MARGIN,
    }
