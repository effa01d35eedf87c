"""Claims of L-DAWA (Ur Rehman et al., ICCV 2023) on its figures as predicates on recorded results.

Each function restates the ``check`` text of its claim in ``ldawa_claims.yaml``. Methods are named as the paper prints
them (``"FedAvg"``, ``"M-DAWA"``, ``"L-DAWA"``), SSL methods ``"SimCLR"`` and ``"Barlow Twins"``; other methods may be
there and are not read. Curves are means over seeds, round by round.
"""

from collections.abc import Sequence

import pandas as pd

from fssl_core.reporting.predicate import in_words, predicate
from fssl_core.reporting.predicates.ldawa import SSL

BOTH = ["FedAvg", "L-DAWA"]

# -------------------------------------------------------------------------------------------------- fig2: trajectories
# A row per run: method, ssl_method, seed, path_ratio (length of the path of the global models in the PCA plane over
# the distance between its ends), late_turning_degrees (mean angle between one step of that path and the next, over the
# last 20 percent of the rounds) and circle_loss_increase (mean loss on a circle of fixed radius around the last model,
# in that plane, less its own).


@predicate("ldawa-fig2-wider-basin")
def wider_basin(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _smaller(results, "SimCLR", "circle_loss_increase", "loss {:+.3g} on the circle")


@predicate("ldawa-fig2-shorter-path-simclr")
def shorter_path(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _smaller(results, "SimCLR", "path_ratio", "path {:.3g} x the distance")


@predicate("ldawa-fig2-less-oscillation-barlow")
def less_oscillation(results: pd.DataFrame) -> tuple[bool, str] | None:
    return _smaller(results, "Barlow Twins", "late_turning_degrees", "turns by {:.3g} degrees")


def _smaller(results: pd.DataFrame, ssl_method: str, column: str, form: str) -> tuple[bool, str] | None:
    """Whether L-DAWA has less of it than FedAvg, means over seeds."""
    rows = results[results["ssl_method"] == ssl_method]
    mean = rows.groupby("method")[column].mean().reindex(BOTH)
    if mean.isna().any():
        return None
    value = "; ".join(f"{method}: {form.format(number)}" for method, number in mean.items())
    return bool(mean["L-DAWA"] < mean["FedAvg"]), value


# -------------------------------------------------------------------------------------------------------- fig3: angles


@predicate("ldawa-fig3-angle-range")
def angle_range(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Columns angle_before_degrees and angle_after_degrees, between a client's vector and the global model's.

    Before and after scaling by the cosine. Needs vectors that pointed away; with room for rounding.
    """
    away = results[results["angle_before_degrees"] > 90]
    if away.empty:
        return None
    before, after = away["angle_before_degrees"].max(), results["angle_after_degrees"].max()
    value = f"at most {after:.1f} degrees after scaling, {before:.1f} before; {len(away)} of {len(results)} turned back"
    return bool(after <= 90 + 1e-4), value


# ------------------------------------------------------------------------------ fig1: the steps of a round, and fig4-6
# fig4, fig5 and fig6 record a row per method, ssl_method, seed and round (from 1) with cosine (mean over clients of the
# whole model's cosine to the previous global model), local_loss (mean over clients) and accuracy (a fraction; missing
# where a round was not evaluated), of which a figure needs its own.
# fig4 has rows of Figure 1 beside them: for one round the server's steps (``step``) with their place in it (``order``)
# and the models that the server holds after the round (``models_kept``).

STEPS = ["local SSL", "upload", "divergence", "averaging"]


@predicate("ldawa-fig1-pipeline")
def pipeline(results: pd.DataFrame) -> tuple[bool, str] | None:
    rows = results.dropna(subset="step").sort_values("order")
    if rows.empty:
        return None
    kept = rows["models_kept"].max()
    return rows["step"].to_list() == STEPS and bool(kept == 1), f"{', '.join(rows['step'])}; {kept:g} model kept"


def _curves(results: pd.DataFrame, column: str, ssl_method: str, methods: Sequence[str]) -> pd.DataFrame | None:
    """Means over seeds: rows the rounds that all ``methods`` have, a column for each; None without any."""
    rows = results[results["ssl_method"] == ssl_method]
    table = rows.pivot_table(column, "round", "method").reindex(columns=methods).dropna()
    return None if table.empty else table


@predicate("ldawa-fig4-lower-divergence")
def lower_divergence(results: pd.DataFrame) -> tuple[bool, str] | None:
    """For every SSL method there is. How steady a run is is a matter of the run: the mean over seeds comes after."""
    parts, holds = [], True
    for ssl_method in SSL:
        runs = results[results["ssl_method"] == ssl_method].pivot_table("cosine", "round", ["method", "seed"])
        if not set(BOTH) <= set(runs.columns.unique(0)) or len(runs := runs[BOTH].dropna()) < 3:
            continue
        level = runs.mean().groupby("method").mean()
        swing = runs.diff().std().groupby("method").mean()
        holds &= bool(level["L-DAWA"] > level["FedAvg"] and swing["L-DAWA"] < swing["FedAvg"])
        numbers = ", ".join(f"{method} {level[method]:.4f} +/- {swing[method]:.1e}" for method in BOTH)
        parts.append(f"{ssl_method}: {numbers}")
    return (holds, f"mean cosine and its swing, {'; '.join(parts)}") if parts else None


@predicate("ldawa-fig5-faster-loss")
def faster_loss(results: pd.DataFrame) -> tuple[bool, str] | None:
    curves = _curves(results, "local_loss", "SimCLR", ["FedAvg", "M-DAWA", "L-DAWA"])
    if curves is None or not set(range(2, 11)) <= set(curves.index):
        return None
    mean = curves.loc[2:10].mean()
    return bool(
        (mean[["M-DAWA", "L-DAWA"]] < mean["FedAvg"]).all()
    ), f"mean local loss in rounds 2 to 10: {in_words(mean, '.3f')}"


@predicate("ldawa-fig6-fewer-rounds")
def fewer_rounds(results: pd.DataFrame) -> tuple[bool, str] | None:
    """The best common accuracy is the best that both methods reach, by SSL method; both SSL methods are needed."""
    parts, holds = [], True
    for ssl_method in SSL:
        if (curves := _curves(results, "accuracy", ssl_method, BOTH)) is None:
            return None
        target = curves.max().min()
        first = (curves >= target).idxmax()
        holds &= bool(first["L-DAWA"] <= first["FedAvg"])
        parts.append(f"{ssl_method} {100 * target:.1f} %: " + ", ".join(f"{m} round {first[m]:g}" for m in BOTH))
    return holds, "; ".join(parts)


@predicate("ldawa-fig6-late-drop-barlow")
def late_drop(results: pd.DataFrame) -> tuple[bool, str] | None:
    """Needs a curve: at least two evaluated rounds."""
    curve = _curves(results, "accuracy", "Barlow Twins", ["FedAvg"])
    if curve is None or len(curve) < 2:
        return None
    points = 100 * curve["FedAvg"]
    drop = points.max() - points.iloc[-1]
    return bool(drop > 0), f"{drop:.2f} points below round {points.idxmax():g} at round {points.index[-1]:g}"
