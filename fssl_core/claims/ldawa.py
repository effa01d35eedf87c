"""Claims of L-DAWA (Ur Rehman et al., ICCV 2023): each check restates the ``check`` text in ``ldawa_claims.yaml``."""

from collections.abc import Sequence

import pandas as pd

from fssl_core.claims.accuracies import table_claims
from fssl_core.claims.estimation import Cells, NotRun, Quantity
from fssl_core.claims.judge import claim
from fssl_core.claims.rules import (
    Outcome,
    across,
    agreed,
    ahead,
    any_of,
    best,
    doubted,
    every,
    fact,
    share,
    unknown,
    with_each,
    within,
)
from fssl_core.papers.reference import paper_table

BASELINES = ["FedAvg", "Loss", "FedU", "EUC"]
VARIANTS = ["L-DAWA", "L-DAWA_FedAvg", "L-DAWA_Loss", "L-DAWA_FedU"]
COMBINED = {"FedAvg": "L-DAWA_FedAvg", "Loss": "L-DAWA_Loss", "FedU": "L-DAWA_FedU"}
SSL = ["SimCLR", "Barlow Twins"]
COLUMN = ["dataset", "ssl_method", "label_fraction"]  # of Table 2
CELL = ["method", "ssl_method", "dataset", "eval_dataset", "partition", "alpha", "local_epochs", "label_fraction"]

table_claim = table_claims(CELL)


def _lead(cells: Cells, ahead: Sequence[str], behind: Sequence[str]) -> Quantity:
    """The best of some methods over the best of others, where all are."""
    for method in (*ahead, *behind):
        cells.where(method=method)
    top, base = (
        max((cells.mean(method=method) for method in methods), key=lambda mean: mean.estimate.value)
        for methods in (ahead, behind)
    )
    return top - base


def _leads(
    cells: Cells, by: Sequence[str], printed_gains: dict, ahead: Sequence[str], behind: Sequence[str], digits: int = 2
) -> Outcome:
    """``printed_gains``: by the levels of the columns ``by``."""
    statements = []
    for levels, gain in printed_gains.items():
        part = cells.where(**dict(zip(by, levels, strict=True)))
        name = f"lead, {', '.join(map(str, levels))}"
        statements.append(_is(part, _lead(part, ahead, behind), name, gain, digits))
    return every(statements)


def _is(cells: Cells, lead: Quantity, name: str, gain: float, digits: int = 2) -> Outcome:
    """A lead is the number that the paper states: of its own cells to the last digit, of runs up to half of it."""
    room = 0.5 * 10**-digits + 1e-9 if lead.estimate.error == 0 else gain / 2
    return within(cells, lead, name, gain - room, gain + room)


# --------------------------------------------------------------------------------------------------- table1: ablation


@table_claim("ldawa-table1-both-beat-fedavg", "table1")
def both_beat_fedavg(cells: Cells) -> Outcome:
    return ahead(cells, ["M-DAWA", "L-DAWA"], "FedAvg", each=["local_epochs", "dataset"])


@table_claim("ldawa-table1-ldawa-best-e1-e10", "table1")
def best_by_local_epochs(cells: Cells) -> Outcome:
    winners = {1: "L-DAWA", 5: "M-DAWA", 10: "L-DAWA"}
    methods = ["FedAvg", "M-DAWA", "L-DAWA"]
    return every(
        ahead(cells.where(local_epochs=epochs), winner, [name for name in methods if name != winner], each=CELL[1:])
        for epochs, winner in winners.items()
    )


def _printed_times() -> Cells:
    cells = paper_table("ldawa", "table1")
    return Cells(cells[cells["metric"] == "aggregation_time"], "value", ["method"], unit="s", exact=True)


def _our_times(results: pd.DataFrame) -> Cells:
    """Each is a median of several trials, whose spread is not recorded."""
    return Cells(results, "aggregation_seconds", ["method"], unit="s", exact=True)


@claim("ldawa-table1-time-ratios", ours=_our_times, printed=_printed_times, smoke=False)
def time_ratios(cells: Cells) -> Outcome:
    seconds = {method: cells.mean(method=method).estimate.value for method in ("M-DAWA", "L-DAWA", "FedAvg")}
    return every(
        fact(f"time of M-DAWA / {method}", seconds["M-DAWA"] / seconds[method], ratio - 1, ratio + 1, "times")
        for method, ratio in (("L-DAWA", 60), ("FedAvg", 78))
    )


# ------------------------------------------------------------------------------------------------ table2: cross-silo


def _largest_leads(cells: Cells) -> Outcome:
    """Of the two SSL methods the larger lead on a data set is the one stated."""
    whole = cells.where(label_fraction=1.0)
    statements = []
    for dataset, gain in {"CIFAR-10": 5.21, "CIFAR-100": 6.19}.items():
        parts = [whole.where(dataset=dataset, ssl_method=name) for name in SSL]
        leads = [_lead(part, VARIANTS, BASELINES) for part in parts]
        lead = max(leads, key=lambda quantity: quantity.estimate.value)
        statements.append(_is(whole, lead, f"largest lead, {dataset}", gain))
    return every(statements)


table_claim("ldawa-table2-headline-100", "table2", scale=True)(_largest_leads)


@table_claim("ldawa-table2-headline-semi", "table2", scale=True)
def headline_few_labels(cells: Cells) -> Outcome:
    gains = {("CIFAR-10", 0.01): 2.32, ("CIFAR-10", 0.1): 3.38, ("CIFAR-100", 0.01): 0.52, ("CIFAR-100", 0.1): 2.62}
    return _leads(cells.where(ssl_method="SimCLR"), ["dataset", "label_fraction"], gains, VARIANTS, BASELINES)


@table_claim("ldawa-table2-all-settings", "table2")
def all_settings(cells: Cells) -> Outcome:
    return best(cells, "L-DAWA", BASELINES, each=COLUMN)


@table_claim("ldawa-table2-variants-all-settings", "table2")
def best_variant_in_all_settings(cells: Cells) -> Outcome:
    return best(cells, VARIANTS, BASELINES, each=COLUMN)


@table_claim("ldawa-table2-ssl-agnostic", "table2")
def ssl_agnostic(cells: Cells) -> Outcome:
    """Both sides of a lead are the best of four, so that what choosing adds to them is about the same."""
    means = {}
    for name in SSL:
        leads = [_lead(part, VARIANTS, BASELINES) for _, part in cells.where(ssl_method=name).each(*COLUMN)]
        means[name] = sum(leads[1:], leads[0]) * (1 / len(leads))
    one, other = means.values()
    return every(
        [
            *(within(cells, mean, f"mean lead, {name}", low=0.0, strict=True) for name, mean in means.items()),
            within(cells, one - 0.3 * other, "lead of SimCLR − 0.3 Barlow Twins", low=0.0),
            within(cells, one - 3 * other, "lead of SimCLR − 3 Barlow Twins", high=0.0),
        ]
    )


@table_claim("ldawa-table2-variant-ranking", "table2")
def variant_ranking(cells: Cells) -> Outcome:
    winners = {1.0: ["L-DAWA_Loss", "L-DAWA_FedU"], 0.01: ["L-DAWA_FedAvg"]}
    return every(
        best(cells.where(label_fraction=fraction), names, [name for name in VARIANTS if name not in names], each=COLUMN)
        for fraction, names in winners.items()
    )


def _above_own_base(cells: Cells, *each: str) -> Outcome:
    return every(ahead(cells, variant, base, each=each) for base, variant in COMBINED.items())


@table_claim("ldawa-table2-variants-beat-own-base", "table2")
def variants_beat_own_base(cells: Cells) -> Outcome:
    return _above_own_base(cells, *COLUMN)


# --------------------------------------------------------------- table3: fairness, table4: heterogeneity


@table_claim("ldawa-table3-ldawa-wins", "table3")
def wins_on_both_partitions(cells: Cells) -> Outcome:
    return ahead(cells, "L-DAWA", "FedAvg", each=["ssl_method", "partition", "local_epochs"])


@table_claim("ldawa-table3-fedavg-worse-single-class", "table3")
def fedavg_worse_on_one_class(cells: Cells) -> Outcome:
    def worse(part: Cells) -> Outcome:
        each = ["ssl_method", "local_epochs"]
        return ahead(part, "dirichlet:0.1", "one-class", each=each, column="partition")

    return with_each(cells.where(method="FedAvg"), "ssl_method", SSL, worse)


@table_claim("ldawa-table3-ldawa-same-at-e5", "table3")
def same_at_five_epochs(cells: Cells) -> Outcome:
    def same(part: Cells) -> Outcome:
        return across(part, "partition", "one-class", "dirichlet:0.1", low=-2, high=2, each=["ssl_method"])

    return with_each(cells.where(method="L-DAWA", local_epochs=5), "ssl_method", SSL, same)


@table_claim("ldawa-table3-more-fair", "table3")
def fairer_on_both_partitions(cells: Cells) -> Outcome:
    """Fair is what depends little on the partition, in whichever direction."""
    statements, lacking = [], set(SSL)
    for where, column in cells.each("ssl_method", "local_epochs"):
        try:
            usual, new = (
                column.where(method=name).difference({"partition": "dirichlet:0.1"}, {"partition": "one-class"})
                for name in ("FedAvg", "L-DAWA")
            )
        except NotRun:  # one of the two, or on one partition
            continue
        lacking -= set(column.levels("ssl_method"))
        gaps = {f"gap of FedAvg − of L-DAWA, {where}": usual - new, f"their sum, {where}": usual + new}
        sides = ({"low": 0.0}, {"high": 0.0})  # |FedAvg's| is larger where both are above zero, or both below
        statements.append(
            any_of(
                every(within(column, gap, name, **side, strict=True) for name, gap in gaps.items()) for side in sides
            )
        )
    if not statements:
        raise NotRun("needs FedAvg and L-DAWA on both partitions")
    return every(
        [*statements, *(unknown(f"FedAvg and L-DAWA on both partitions with {name}") for name in sorted(lacking))]
    )


@table_claim("ldawa-table4-ldawa-wins-all-alphas", "table4")
def wins_at_all_alphas(cells: Cells) -> Outcome:
    wins = with_each(
        cells, "ssl_method", SSL, lambda part: ahead(part, "L-DAWA", "FedAvg", each=["ssl_method", "alpha"])
    )
    if "CIFAR-10" not in cells.levels("dataset"):
        return wins
    part = cells.where(dataset="CIFAR-10")
    return every([wins, _leads(part, ["ssl_method", "alpha"], {("SimCLR", 0.1): 9.37}, ["L-DAWA"], ["FedAvg"])])


@table_claim("ldawa-table4-weak-trend", "table4")
def weak_trend(cells: Cells) -> Outcome:
    def trend(part: Cells) -> Outcome:
        rises = across(part, "alpha", 0.1, 0.6, low=0.0, each=["ssl_method", "method"])
        stands_out = ahead(part, [0.2], [0.1, 0.4, 0.6], each=["ssl_method", "method"], column="alpha")
        return every([rises, stands_out])

    return with_each(cells, "ssl_method", SSL, trend)


# ------------------------------------------------------- table5: Tiny ImageNet, table6: cross-device, table7: transfer

_TINY = {(1,): 6.25, (5,): 3.50, (10,): 4.35}  # by local epochs


@table_claim("ldawa-table5-tiny-imagenet-gains", "table5", scale=True)
def tiny_imagenet_gains(cells: Cells) -> Outcome:
    return _leads_on_tiny(cells, _TINY)


def _leads_on_tiny(cells: Cells, printed_gains: dict) -> Outcome:
    part = cells.where(dataset="Tiny ImageNet", ssl_method="SimCLR")
    return _leads(part, ["local_epochs"], printed_gains, ["L-DAWA"], ["FedAvg", "Loss", "FedU"])


@table_claim("ldawa-table6-cross-device-gains", "table6", scale=True)
def cross_device_gains(cells: Cells) -> Outcome:
    printed_gains = {("SimCLR", "CIFAR-10"): 1.26, ("SimCLR", "CIFAR-100"): 0.25}
    printed_gains |= {("Barlow Twins", "CIFAR-10"): 0.25, ("Barlow Twins", "CIFAR-100"): 0.85}
    return _leads(cells, ["ssl_method", "dataset"], printed_gains, VARIANTS, ["FedAvg", "Loss", "FedU"])


@table_claim("ldawa-table6-variants-best", "table6")
def combinations_best(cells: Cells) -> Outcome:
    """Most are three of the four columns."""
    combined = ["L-DAWA_FedAvg", "L-DAWA_Loss"]
    others = ["FedAvg", "Loss", "FedU", "L-DAWA", "L-DAWA_FedU"]
    columns = [best(part, combined, others, each=COLUMN[:2]) for _, part in cells.each(*COLUMN[:2])]
    return share(columns, 0.75)


@table_claim("ldawa-table6-variants-beat-own-base", "table6")
def combinations_beat_own_base(cells: Cells) -> Outcome:
    return _above_own_base(cells, *COLUMN[:2])


@table_claim("ldawa-table7-transfer-gains", "table7", scale=True)
def transfer_gains(cells: Cells) -> Outcome:
    """With one digit, as the claim has them."""
    printed_gains = {("CIFAR-10",): 4.4, ("CIFAR-100",): 5.7}
    rivals = ["FedAvg", "Loss", "FedU"]  # "compared to other aggregation strategies"
    return _leads(cells.where(dataset="Tiny ImageNet"), ["eval_dataset"], printed_gains, ["L-DAWA"], rivals, digits=1)


@table_claim("ldawa-table7-variants-boost", "table7")
def variants_transfer_better(cells: Cells) -> Outcome:
    """On other data than those of the pre-training, which are no transfer."""
    other = [
        part
        for _, part in cells.each("dataset", "eval_dataset")
        if part.levels("dataset") != part.levels("eval_dataset")
    ]
    return every(_above_own_base(part, "dataset", "eval_dataset") for part in other)


# ------------------------------------------------------------------------------------------------------------ headline


@table_claim("ldawa-abs-headline", "table2", "table5", scale=True)
def headline(cells: Cells) -> Outcome:
    largest = dict([max(_TINY.items(), key=lambda level_and_gain: level_and_gain[1])])
    silos = _largest_leads(cells.where(dataset=["CIFAR-10", "CIFAR-100"]))
    return every([silos, _leads_on_tiny(cells, largest)])


@claim("ldawa-sec32-no-metadata")
def no_metadata(results: pd.DataFrame) -> Outcome:
    return _largest_change(results, "metadata", 0.0)


@claim("ldawa-eq-identical-clients")
def identical_clients(results: pd.DataFrame) -> Outcome:
    """With room for the rounding of a cosine in single precision."""
    return _largest_change(results, "identical clients", 1e-5)


def _largest_change(results: pd.DataFrame, name: str, most: float) -> Outcome:
    rows = results[(results["property"] == name) & (results["method"] == "L-DAWA")]
    if rows.empty:
        raise NotRun("needs L-DAWA")
    return fact("largest change of a parameter", rows["largest_change"].max(), high=most)


# -------------------------------------------------------------------------- figures: one number a run, then as above


def _runs(results: pd.DataFrame, value: str, unit: str, **more: float) -> Cells:
    """Runs of a figure, whose accuracy, by a linear probe or of the neighbours, says whether their models learned."""
    accuracy = "accuracy" if "accuracy" in results else "knn_accuracy"
    by = ["method", "ssl_method"]
    return Cells(results, value, by, unit=unit, accuracy=accuracy, strata=["ssl_method"], **more)


def _less(results: pd.DataFrame, ssl_method: str, value: str, unit: str) -> Outcome:
    """L-DAWA has less of it than FedAvg."""
    return ahead(_runs(results, value, unit).where(ssl_method=ssl_method), "FedAvg", "L-DAWA")


@claim("ldawa-fig2-wider-basin")
def wider_basin(results: pd.DataFrame) -> Outcome:
    rises = _runs(results, "circle_loss_increase", "loss")
    return with_each(rises, "ssl_method", SSL, lambda cells: ahead(cells, "FedAvg", "L-DAWA"))


@claim("ldawa-fig2-shorter-path-simclr")
def shorter_path(results: pd.DataFrame) -> Outcome:
    """In the plane that the paper draws, and between all parameters: a plane leaves most of a path out.

    A path bends more as a run goes on. One that is shorter and ends at a higher loss may be a part of the other.
    """
    of_path = {"path_ratio": "path / distance in the plane", "full_path_ratio": "path / distance"}
    shorter = agreed(_less(results, "SimCLR", value, unit) for value, unit in of_path.items())
    lower = _less(results, "SimCLR", "final_loss", "loss")
    if shorter.answer() is not None and shorter.answer() != (lower.slack() > 0):
        return doubted(shorter, "the shorter path ends at a higher loss, so that it may only be less of the way")
    return shorter


@claim("ldawa-fig2-less-oscillation-barlow")
def less_oscillation(results: pd.DataFrame) -> Outcome:
    return _less(results, "Barlow Twins", "late_turning_degrees", "degrees")


@claim("ldawa-fig3-angle-range")
def angle_range(results: pd.DataFrame) -> Outcome:
    """Needs vectors that pointed away; with room for rounding."""
    if not (results["angle_before_degrees"] > 90).any():
        raise NotRun("needs vectors that point away")
    return fact("largest angle after scaling", results["angle_after_degrees"].max(), high=90 + 1e-4, unit="degrees")


STEPS = ["local SSL", "upload", "divergence", "averaging"]


@claim("ldawa-fig1-pipeline")
def pipeline(results: pd.DataFrame) -> Outcome:
    rows = results.dropna(subset="step").sort_values("order")
    if rows.empty:
        raise NotRun("needs the steps of a round")
    in_order = sum(one == other for one, other in zip(rows["step"], STEPS, strict=False))
    return every(
        [
            fact("steps in the stated order", in_order, len(STEPS), len(STEPS)),
            fact("steps in all", len(rows), len(STEPS), len(STEPS)),
            fact("models kept", rows["models_kept"].max(), 1, 1),
        ]
    )


@claim("ldawa-fig4-lower-divergence")
def lower_divergence(results: pd.DataFrame) -> Outcome:
    """For every SSL method there is. How steady a run is is a matter of the run: one number each.

    It is that of the second half of the rounds. The climb of the first ones is no swing, and a method that begins with
    rounds of FedAvg shares it.
    """
    rows, of_run = results.dropna(subset="cosine").sort_values("round"), ["method", "ssl_method", "seed"]
    runs = rows.groupby(of_run, sort=False)
    later = rows[rows["round"] > rows["round"].max() / 2].groupby(of_run)["cosine"]
    swing = later.agg(lambda cosine: cosine.diff().std())
    per_run = runs[_known(results)].last().assign(level=runs["cosine"].mean(), swing=swing).reset_index()
    each = ["ssl_method"]
    return every(
        [
            ahead(_runs(per_run, "level", "mean cosine"), "L-DAWA", "FedAvg", each=each),
            ahead(_runs(per_run, "swing", "swing of the cosine"), "FedAvg", "L-DAWA", each=each),
        ]
    )


@claim("ldawa-fig5-faster-loss")
def faster_loss(results: pd.DataFrame) -> Outcome:
    rows = results[(results["ssl_method"] == "SimCLR") & results["round"].between(2, 10)]
    if rows["round"].nunique() < 9:
        raise NotRun("needs rounds 2 to 10")
    runs = rows.sort_values("round").groupby(["method", "seed"], sort=False)
    per_run = runs.agg({"local_loss": "mean"} | dict.fromkeys(_known(rows), "last")).reset_index()
    return ahead(_runs(per_run, "local_loss", "loss"), "FedAvg", ["M-DAWA", "L-DAWA"])


@claim("ldawa-fig6-fewer-rounds")
def fewer_rounds(results: pd.DataFrame) -> Outcome:
    """The first round of a run with the best accuracy that the runs of both methods reach on average."""
    parts = []
    for name in SSL:
        rows = results[(results["ssl_method"] == name) & results["method"].isin(["FedAvg", "L-DAWA"])]
        curves = rows.dropna(subset="accuracy").pivot_table("accuracy", "round", ["method", "seed"])
        if curves.empty or curves.columns.unique("method").size < 2:
            raise NotRun(f"needs curves of both methods with {name}")
        target = curves.T.groupby("method").mean().T.max().min() - 1e-9  # of a mean, which rounds
        reached = curves.apply(lambda curve, goal=target: curve.index[curve >= goal].min())
        last = rows.sort_values("round").groupby(["method", "seed"])[_known(rows)].last()
        per_run = last.assign(first=reached.fillna(curves.index.max() + 1)).reset_index()
        cells = _runs(per_run, "first", "rounds", step=float(curves.index.diff().min()))
        parts.append(across(cells, "method", "L-DAWA", "FedAvg", low=0.0))
    return every(parts)


@claim("ldawa-fig6-late-drop-barlow")
def late_drop(results: pd.DataFrame) -> Outcome:
    """A run's highest accuracy would always be above its last: the earlier round is chosen on the other seeds' mean."""
    rows = results[(results["ssl_method"] == "Barlow Twins") & (results["method"] == "FedAvg")]
    curves = rows.dropna(subset="accuracy").pivot_table("accuracy", "round", "seed")
    if len(curves) < 2:
        raise NotRun("needs a curve of FedAvg with Barlow Twins")
    drops, earlier = {}, curves.iloc[:-1]
    for seed in curves:
        others = earlier.drop(columns=seed).mean(axis=1) if curves.shape[1] > 1 else earlier[seed]
        drops[seed] = 100 * (curves.loc[others.idxmax(), seed] - curves[seed].iloc[-1])
    last = rows.sort_values("round").groupby("seed")[_known(rows)].last()
    per_run = last.assign(drop=pd.Series(drops)).reset_index().assign(method="FedAvg")
    cells = _runs(per_run, "drop", "points")  # below 0 where the accuracy rises to the end
    return within(cells, cells.mean(), "highest earlier less last accuracy", low=0.0, strict=True)


def _known(rows: pd.DataFrame) -> list[str]:
    return [name for name in ("accuracy", "knn_accuracy", "untrained", "chance") if name in rows]
