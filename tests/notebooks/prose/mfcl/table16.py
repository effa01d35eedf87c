from scipy.integrate import quad
from scipy.stats import norm

from fssl_core.claims.mfcl import MARGIN
from fssl_core.experiments import mfcl_settings
from fssl_core.papers.reference import paper_table
from tests.notebooks.prose.recorded import record, rows, verdict

APART = "MFCL(TN), views apart"


def numbers():
    ours = record("mfcl/table16")
    untrained = 100 * rows(ours, method="MFCL(TN)", protocol="linear evaluation").untrained.mean()
    ours = 100 * ours.groupby(["method", "protocol", "K"]).accuracy.mean()
    apart, together = ours[APART, "linear evaluation"], ours["MFCL(TN)", "linear evaluation"]
    judged = verdict("mfcl-table16-batch-size", "views normalised apart")
    printed = paper_table("mfcl", "table16")["value"]
    spread = paper_table("mfcl", "table2")["std"].max()
    range_of_4, _ = quad(lambda x: 1 - norm.cdf(x) ** 4 - norm.sf(x) ** 4, -9, 9)  # in standard deviations
    rate = {profile: mfcl_settings(profile, method="MFCL(TN)").phase1.learning_rate for profile in ("laptop", "paper")}
    bound = printed.max() - printed.min()
    return {
        "95 % intervals": 95,
        "65.4, 64.5 and 70.4 %": [*apart],
        "53.8, 53.9, 60.3": [*ours[APART, "features"]],
        "is 5.9 points ahead of 16, with an interval of 2.2 to 9.6": (-judged.estimate, -judged.high, -judged.low),
        "lie within 0.2": bound,
        "13.0, 15.3 and 18.1 %": [*together],
        "untrained (16.2 %)": untrained,
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
