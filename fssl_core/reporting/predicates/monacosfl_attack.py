"""Claims of MonAcoSFL (Przewięźlikowski et al., ECML PKDD 2024), Section 5.3, on the inversion attack, as predicates.

Each function restates the ``check`` text of its claim in ``monacosfl_claims.yaml``. Results have a row for each
attacked model with the columns method, cut_layer, mse, mse_standard_error and ssim (means over the attacked images);
means over seeds come first. A claim about a range of cuts needs both ends of it and is judged on the cuts in between
that were run; one that lists cuts needs all of them.
"""

import pandas as pd

from fssl_core.reporting.predicate import predicate
from fssl_core.reporting.predicates.monacosfl import METHODS


def _by_cut(results: pd.DataFrame, measure: str, *needed: int) -> pd.DataFrame | None:
    """Rows the cuts that both methods have, a column for each method; None without the ``needed`` cuts."""
    table = results.pivot_table(measure, "cut_layer", "method").reindex(columns=METHODS).dropna()
    return table if {*needed} <= {*table.index} else None


@predicate("monacosfl-fig8a-reconstructions")
def reconstructions(results: pd.DataFrame) -> tuple[bool, str] | None:
    ssim = _by_cut(results, "ssim", 1, 17)
    if ssim is None:
        return None
    value = ", ".join(f"{method} {ssim[method][1]:.3f} and {ssim[method][17]:.3f}" for method in METHODS)
    return bool((ssim.loc[1] > ssim.loc[17]).all()), f"SSIM at cuts 1 and 17: {value}"


@predicate("monacosfl-fig8b-deeper-is-more-private")
def deeper_is_more_private(results: pd.DataFrame) -> tuple[bool, str] | None:
    """For both methods. The standard error is that of one attack's mean over images, at the deeper of two cuts."""
    deep = [9, 11, 13, 15, 17]
    mse, error = (_by_cut(results, measure, 1, 7, *deep) for measure in ("mse", "mse_standard_error"))
    if mse is None or error is None:
        return None
    shallow = mse.loc[1:7]
    spread, rise = shallow.max() - shallow.min(), mse.loc[17] - mse.loc[7]
    steps = mse.loc[deep].diff().iloc[1:] + error.loc[deep[1:]]
    value = ", ".join(f"{m} varies by {spread[m]:.2g} in 1 to 7, rises by {rise[m]:.2g} from 7 to 17" for m in METHODS)
    return bool((spread < rise).all() and (steps >= 0).all(axis=None)), value


@predicate("monacosfl-fig8b-similar-privacy-1-13")
def similar_privacy(results: pd.DataFrame) -> tuple[bool, str] | None:
    mse = _by_cut(results, "mse", 1, 13)
    if mse is None:
        return None
    mean = mse.loc[1:13].mean()
    difference = mean["MonAcoSFL"] / mean["MocoSFL"] - 1
    return bool(0 <= difference < 0.2), f"MSE of MonAcoSFL {difference:+.1%}, mean over {len(mse.loc[1:13])} cuts"


@predicate("monacosfl-fig8b-reversed-15-17")
def reversed_at_the_end(results: pd.DataFrame) -> tuple[bool, str] | None:
    mse = _by_cut(results, "mse", 15, 17)
    if mse is None:
        return None
    value = ", ".join(f"{mse['MocoSFL'][cut]:.4f} against {mse['MonAcoSFL'][cut]:.4f} at cut {cut}" for cut in (15, 17))
    return bool((mse["MocoSFL"] > mse["MonAcoSFL"]).loc[[15, 17]].all()), f"MSE of MocoSFL {value}"
