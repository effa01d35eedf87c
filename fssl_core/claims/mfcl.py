"""Claims of MFCL (Motamedi and Kim, TMLR): each check restates the ``check`` text in ``mfcl_claims.yaml``."""

from functools import cache, partial
from itertools import combinations

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from fssl_core.claims.accuracies import table_claims
from fssl_core.claims.estimation import Cells, NotRun
from fssl_core.claims.judge import claim
from fssl_core.claims.rules import (
    Outcome,
    across,
    agreed,
    ahead,
    any_of,
    best,
    equivalent,
    every,
    fact,
    ordered,
    unknown,
    with_each,
    within,
)
from fssl_core.costs.modular import ROUNDS, SETUPS, client_sizes, client_traffic, epoch_macs, memory_bytes
from fssl_core.costs.modular_cells import ALPHA, BETA, GAMMA, resource_table
from fssl_core.models.twin_norm import TwinNorm
from fssl_core.papers.names import printed_name
from fssl_core.papers.reference import paper_table, paper_value
from fssl_core.random import generator

BATCH, GROUP, TWIN = NORMS = ["MFCL(BN)", "MFCL(GN)", "MFCL(TN)"]
OWN_STATISTICS = "MFCL(BN), own statistics"  # running statistics that are not averaged, as in the public code
SUPERVISED = ["FedAvg", "FedProx", "MOON"]
SELF_SUPERVISED = ["FedSimCLR", "Orchestra", "FedEMA", "FedU", "FeatARC"]
RESOURCE_AWARE = ["HeteroFL", "Split-Mix", "FedPAC"]
SEVERE, HOMOGENEOUS = [0.01, 0.1], 200  # xi
FAR = 5  # points: more than a method that adds a term to FedAvg loses to it in any table of the paper
MARGIN = 0.5  # points: about twice the standard deviation of 0.22 that Table 2 prints of MFCL(TN)
CLOSE = 4.6  # points: twice the printed lead of 2.3, which the paper calls close
ROUNDING = 1e-5  # of a few steps in single precision
CELL = ["method", "dataset", "xi", "clients", "architecture", "cut", "K", "channels_per_group"]
CELL += ["missing", "secure_aggregation", "datamix"]

table_claim = table_claims(CELL, "linear evaluation")


# ------------------------------------------------------------------------------------------ exact: what the method does


def _properties(results: pd.DataFrame, regions: dict[str, tuple[float, float]]) -> Outcome:
    """All values of each property lie in its region."""
    rows = results.dropna(subset="property")
    statements = []
    for name, region in regions.items():
        values = rows.loc[rows["property"] == name, "value"]
        if values.empty:
            raise NotRun(f"no {name} recorded")
        statements += [fact(name, value, *region) for value in values.unique()]
    return every(statements)


@claim("mfcl-fig1-schemes")
def one_transfer_no_gradient(results: pd.DataFrame) -> Outcome:
    return _properties(results, {"client gradients in phase 2": (0, 0), "transfers of representations": (1, 1)})


@claim("mfcl-fig2-two-phases")
def two_phases(results: pd.DataFrame) -> Outcome:
    exact = {"views per image": (2, 2), "misplaced views": (0, 0), "change of the client module": (0, 0)}
    return _properties(results, exact | {"difference of representations": (0, ROUNDING)})


@claim("mfcl-fig3-normalization-sets")
def normalisation_sets(results: pd.DataFrame) -> Outcome:
    changes = results.dropna(subset="perturbed").groupby(["norm", "perturbed"])["output_change"].max()
    moved = [("BN", "other sample"), ("TN", "twin view")]
    kept = [("GN", "other sample"), ("TN", "other sample"), ("GN", "twin view")]
    if not {*moved, *kept} <= {*changes.index}:
        raise NotRun("needs BN, GN and TN with another sample and with the twin view perturbed")
    name = "change of {}'s output, {} perturbed".format
    statements = [fact(name(*case), changes[case], low=ROUNDING, strict=True) for case in moved]
    return every([*statements, *(fact(name(*case), changes[case], high=ROUNDING) for case in kept)])


def _random_maps() -> torch.Tensor:
    """Of 3 images, the second views brighter than the first: ``[6, 8, 5, 4]``, in double precision."""
    maps = torch.randn(6, 8, 5, 4, generator=generator(0, "twin norm"), dtype=torch.float64)
    return torch.cat([maps[:3], 2 * maps[3:] + 1])


@claim("mfcl-gn-with-one-channel")
def one_channel_per_group(_: pd.DataFrame) -> Outcome:
    maps = _random_maps()
    channels, instance = maps.shape[1], F.instance_norm(maps)
    group, twin = F.group_norm(maps, channels), TwinNorm(channels, channels_per_group=1).double()(maps)
    differences = [(other - instance).abs().max().item() for other in (group, twin)]
    name = "difference of {} from instance norm".format
    return every([fact(name("GN"), differences[0], high=1e-12), fact(name("TN"), differences[1], low=0.1)])


@claim("mfcl-table18-code-vs-equation")
def code_against_equation(_: pd.DataFrame) -> Outcome:
    """A group's moments are over its channels and all positions."""
    views = _random_maps().unflatten(0, (2, -1)).unflatten(2, (2, -1))  # [2, K, G, Lambda, H, W]
    variances, means = torch.var_mean(views, dim=(3, 4, 5), correction=0)  # [2, K, G]
    difference = views.var(dim=(0, 3, 4, 5), correction=0) - variances.mean(0)  # [K, G]
    error = difference - ((means[0] - means[1]) / 2) ** 2
    different = fact("largest difference of the variances", difference.abs().max().item(), low=0.01)
    return every([different, fact("largest error of the stated difference", error.abs().max().item(), high=1e-12)])


@claim("mfcl-table9-10-modules")
def module_sizes(_: pd.DataFrame) -> Outcome:
    printed_sizes = {"ResNet-18": (38_976, 77_853), "ResNet-50": (260_928, 521_565)}
    return every(
        fact(f"parameters{' with decoder' * decoder}, {name}", client_sizes(name, with_decoder=decoder)[0], size, size)
        for name, sizes in printed_sizes.items()
        for decoder, size in zip((False, True), sizes, strict=True)
    )


@claim("mfcl-fig6-balance-cases")
def balance_cases(results: pd.DataFrame) -> Outcome:
    """Case e, heterogeneous and balanced, can be had in two ways. The claim says "always", so each has to hold."""
    ways = results.loc[results["case"] == "e", "name"].unique()
    if not len(ways):
        raise NotRun("needs case e")
    return every(_balance(results[(results["case"] != "e") | (results["name"] == way)]) for way in ways)


def _balance(results: pd.DataFrame) -> Outcome:
    all_clients, fewer = (
        results[missing].groupby("case")["total_variation"].max()
        for missing in (results["missing"] == 0, results["missing"] > 0)
    )
    if not {*"abcde"} <= {*all_clients.index} or not {*"ae"} <= {*fewer.index}:
        raise NotRun("needs the cases a to e, and a and e with clients missing")
    name = "total variation, case"
    balanced = [fact(f"{name} {case}", all_clients[case], high=0.01) for case in "ace"]
    balanced += [fact(f"{name} {case}, clients missing", fewer[case], high=0.01) for case in "ae"]
    return every([*balanced, *(fact(f"{name} {case}", all_clients[case], low=0.01, strict=True) for case in "bd")])


@claim("mfcl-fig7-partitions")
def classes_of_a_client(results: pd.DataFrame) -> Outcome:
    """The paper does not say what stands for a partition's clients: their median and their mean are both asked."""
    classes = results.groupby(["xi", "seed"])["classes"].agg(["median", "mean"]).reset_index()
    regions = {0.01: (1.5, 2.5), 0.1: (3.5, 5.5), HOMOGENEOUS: (9.5, 10)}
    answers = []
    for of in ("median", "mean"):
        cells = Cells(classes, of, ["xi"], unit="classes")
        as_stated = [within(cells, cells.mean(xi=xi), f"{of} client, xi {xi:g}", *regions[xi]) for xi in regions]
        answers.append(every([*as_stated, ordered(cells, "xi")]))
    return agreed(answers)


# ---------------------------------------------------------------------------------------------- exact: what clients pay

EXCHANGES, TRAINING = "exchanges", "all rounds"
COSTS = {ALPHA: "traffic", BETA: "compute", TRAINING: "compute of all rounds", GAMMA: "memory", EXCHANGES: "exchanges"}
BACKBONES = ("ResNet-18", "ResNet-50")  # of Table 3


def _printed_costs() -> pd.Series:
    """By metric, method and architecture, of Tables 3 and 15."""
    cells = pd.concat([paper_table("mfcl", "table3"), paper_table("mfcl", "table15")])
    costs = cells[~cells["metric"].str.endswith("accuracy")].set_index(["metric", "method", "architecture"])["value"]
    costs = costs.astype(float)
    counts = {
        (EXCHANGES, method, name): costs["fl_rounds", method, name] + (costs["bits_phase2", method, name] > 0)
        for method in ROUNDS
        for name in BACKBONES
    }
    return pd.concat([costs, pd.Series(counts)])


@cache
def _our_costs() -> pd.Series:
    """Traffic by Equations 4 and 5, memory by Equation 6 as it comes nearest to the cells, local epochs' compute."""
    costs = {(GAMMA, "MFCL", name): memory_bytes(client_sizes(name)) for name in SETUPS}
    for name in SETUPS:
        for method in ROUNDS:
            traffic = client_traffic(method, name)
            costs |= {(ALPHA, method, name): traffic.alpha_bits, (EXCHANGES, method, name): traffic.exchanges}
            costs[BETA, method, name] = epoch_macs(method, name)
            costs[TRAINING, method, name] = ROUNDS[method] * epoch_macs(method, name)
    nearest = resource_table(paper_table("mfcl", "table3")).drop_duplicates(["metric", "architecture", "method"])
    memory = nearest[nearest["metric"] == GAMMA].set_index(["metric", "method", "architecture"])["ours"]
    return pd.Series(costs | memory.to_dict(), dtype=float)


cost_claim = partial(claim, ours=lambda _: _our_costs(), printed=_printed_costs)


def _ratio(costs: pd.Series, metric: str, one: str, other: str, name: str, low: float, high: float) -> Outcome:
    value = costs[metric, one, name] / costs[metric, other, name]
    return fact(f"{COSTS[metric]} of {one} / {other}, {name}", value, low, high)


@cost_claim("mfcl-table3-alpha-vs-fedsimclr")
def traffic_against_simclr(costs: pd.Series) -> Outcome:
    regions = {"ResNet-18": (0.1465, 0.1475), "ResNet-50": (0.0135, 0.0145)}
    return every(_ratio(costs, ALPHA, "MFCL", "FedSimCLR", name, *region) for name, region in regions.items())


@cost_claim("mfcl-table3-alpha-below-end-to-end")
def traffic_below_end_to_end(costs: pd.Series) -> Outcome:
    methods = ("FedSimCLR", "FedEMA")
    return every(_ratio(costs, ALPHA, "MFCL", method, name, 0, 1) for method in methods for name in BACKBONES)


@cost_claim("mfcl-table3-alpha-vs-fedema")
def traffic_against_ema(costs: pd.Series) -> Outcome:
    """A half is a lot for "marginally"."""
    methods = ("MFCL", "FedSimCLR")
    return every(_ratio(costs, ALPHA, "FedEMA", method, name, 0.5, 1) for method in methods for name in BACKBONES)


@cost_claim("mfcl-table3-frequency")
def frequency(costs: pd.Series) -> Outcome:
    times = {"FedEMA": (5.5, 6.5), "FedSimCLR": (49.5, 50.5)}
    exchanges = [fact(f"exchanges of MFCL, {name}", costs[EXCHANGES, "MFCL", name], 16, 16) for name in BACKBONES]
    ratios = [_ratio(costs, EXCHANGES, method, "MFCL", name, *times[method]) for method in times for name in BACKBONES]
    return every([*exchanges, *ratios])


@cost_claim("mfcl-table3-memory-compute")
def memory_and_compute(costs: pd.Series) -> Outcome:
    """The paper does not say whether its compute is of an epoch or of all rounds, so both are asked."""
    memory, *compute = (
        every(
            _ratio(costs, metric, "MFCL", method, name, 0, 0.1)
            for method in ("FedSimCLR", "FedEMA")
            for name in BACKBONES
        )
        for metric in (GAMMA, BETA, TRAINING)
        if metric in costs
    )
    return every([memory, agreed(compute)])


@cost_claim("mfcl-table15-vgg")
def vgg(costs: pd.Series) -> Outcome:
    vgg, resnet = (costs.xs(name, level=2) for name in ("VGG-16-BN", "ResNet-18"))
    ratios = vgg / resnet

    def each(method: str, *bounds: float, strict: bool = False) -> list[Outcome]:
        return [
            fact(f"{COSTS[metric]} of {method}, VGG-16-BN / ResNet-18", ratios[metric, method], *bounds, strict=strict)
            for metric in (ALPHA, BETA, GAMMA)
        ]

    traffic = fact("traffic of FedSimCLR, VGG-16-BN", vgg[ALPHA, "FedSimCLR"], 2.05e13, 2.15e13, "bits")
    return every([*each("MFCL", 1, 1), *each("FedSimCLR", 1, strict=True), traffic])


@claim("mfcl-alpha-linear-in-data")
def linear_in_data(_: pd.DataFrame) -> Outcome:
    def bits(name: str, factor: int) -> float:
        return client_traffic("MFCL", name, images=factor * SETUPS[name].images).bits_phase2

    return every(fact(f"traffic of twice the images, {name}", bits(name, 2) / bits(name, 1), 2, 2) for name in SETUPS)


# ---------------------------------------------------------------------------------- table1: cut layer, table2: accuracy


@table_claim("mfcl-table1-cut-layer", "table1")
def cut_layer(cells: Cells) -> Outcome:
    """The stated cuts are those of the stated networks; another is asked for some cut ahead of both ends."""
    printed_cuts = {"ResNet-18": 2, "ResNet-50": 4}
    statements = []
    for name, part in cells.where(method=TWIN).each("architecture"):
        *earlier, last = cuts = part.levels("cut")
        if len(cuts) < 3:
            continue
        if peak := printed_cuts.get(name):
            falls = ordered(part, "cut", [cut for cut in reversed(cuts) if cut >= peak])
            others = [cut for cut in cuts if cut != peak]
            far = ahead(part, [peak], [7], by=5, column="cut")
            statements += [ahead(part, [peak], others, column="cut"), falls, far]
        else:
            statements.append(any_of(ahead(part, [cut], [cuts[0], last], column="cut") for cut in earlier[1:]))
    if not statements:
        raise NotRun("needs three cuts of one architecture")
    return every(statements)


@table_claim("mfcl-headline-84", "table2", scale=True)
def headline(cells: Cells) -> Outcome:
    part = cells.where(method=TWIN, dataset="CIFAR-10", xi=0.01, clients=10)
    return within(part, part.mean(), f"{TWIN}, xi 0.01", low=84.1 - 0.22)


def _best_of_all(cells: Cells, xi: float) -> Outcome:
    """Of supervised and of self-supervised methods there must be one each."""
    rivals = ([*SUPERVISED, "FSL"], SELF_SUPERVISED, [GROUP, BATCH])
    return every(best(cells.where(xi=xi), TWIN, methods, each=["dataset"]) for methods in rivals)


table_claim("mfcl-table2-best-at-001", "table2")(partial(_best_of_all, xi=0.01))
table_claim("mfcl-table2-best-at-01", "table2")(partial(_best_of_all, xi=0.1))


@table_claim("mfcl-table2-norm-order", "table2", failing=[BATCH, OWN_STATISTICS])
def norm_order(cells: Cells) -> Outcome:
    """Fewer images make no model collapse less, so that a part of CIFAR-10's can tell.

    The paper does not say whose running statistics batch norm has in what is sent. Of our runs both readings have to
    collapse, or neither.
    """
    statements = [with_each(cells, "xi", SEVERE, lambda part: ordered(part, "method", NORMS, each=["dataset", "xi"]))]
    names = [printed_name("cifar10", official) for official in (True, False)]
    for dataset in (name for name in names if name in cells.levels("dataset")):
        part = cells.where(dataset=dataset, xi=0.01)
        collapse = []
        for method in (BATCH, OWN_STATISTICS) if cells.label else (BATCH,):  # printed cells have no protocol and one BN
            name = f"{method}, {dataset}, xi 0.01"
            ran = method in part.levels("method")
            collapse.append(within(part, part.mean(method=method), name, high=20) if ran else unknown(name))
        statements.append(agreed(collapse))
    return every(statements)


@table_claim("mfcl-table2-bn-recovers", "table2")
def batch_norm_recovers(cells: Cells) -> Outcome:
    return ahead(cells.where(xi=HOMOGENEOUS), BATCH, [GROUP, TWIN], each=["dataset"])


def _without(cells: Cells, *datasets: str) -> Cells:
    return cells.where(dataset=[name for name in cells.levels("dataset") if name not in datasets])


@table_claim("mfcl-table2-supervised-wins-homogeneous", "table2")
def supervised_wins(cells: Cells) -> Outcome:
    """One that is far behind FedAvg, to which it adds a term, is not the method of the paper's table."""
    statements = []
    for _, part in cells.where(xi=HOMOGENEOUS).each("dataset"):
        base, *others = SUPERVISED
        side_by_side = [method for method in others if {base, method} <= {*part.levels("method")}]
        astray = [method for method in side_by_side if ahead(part, base, method, by=FAR).answer()]
        compared = [method for method in SUPERVISED if method not in astray]
        statements += ahead(part, compared, [TWIN, *SELF_SUPERVISED], each=["dataset"]).leaves()
        statements += [unknown(f"a {method} that learns as {base} does") for method in astray]
    return every(statements)


@table_claim("mfcl-table2-stability", "table2")
def stability(cells: Cells) -> Outcome:
    steady = _without(cells, "Tiny ImageNet").where(method=TWIN)
    less = []
    for where, part in cells.each("dataset"):
        methods = [TWIN, *(name for name in SUPERVISED if name in part.levels("method"))]
        twin_loss, *lost = (
            part.where(method=method).difference({"xi": HOMOGENEOUS}, {"xi": 0.01}) for method in methods
        )
        less += [
            within(part, loss - twin_loss, f"loss of {method} − of {TWIN}, {where}", low=0.0, strict=True)
            for method, loss in zip(methods[1:], lost, strict=True)
        ]
    return every([across(steady, "xi", 0.01, HOMOGENEOUS, low=-4, high=4, each=["dataset"]), every(less)])


@table_claim("mfcl-concl-gn-works", "table2")
def group_norm_works(cells: Cells) -> Outcome:
    return ahead(cells.where(xi=0.01), GROUP, "FedSimCLR", each=["dataset"])


@table_claim("mfcl-table14-monotone", "table14")
def monotone(cells: Cells) -> Outcome:
    levels = [0.1, 0.5, HOMOGENEOUS]
    for xi in levels:
        cells.where(method=TWIN, xi=xi)  # between two levels nothing is shown of the third
    return ordered(cells.where(method=NORMS), "xi", levels, each=["method", "dataset"], slack=MARGIN)


# ------------------------------------------------------------------------------- tables 4 to 7, 16 and 17: comparisons


@table_claim("mfcl-table4-tradeoff", "table4", scale=True)
def tradeoff(cells: Cells) -> Outcome:
    """The rivals' memory is what the table quotes."""
    accuracies = [ahead(cells.where(xi=0.01), TWIN, rival, by=20) for rival in RESOURCE_AWARE]
    accuracies += [ahead(cells.where(xi=HOMOGENEOUS), rival, TWIN) for rival in RESOURCE_AWARE[:2]]
    mfcl_memory = memory_bytes(client_sizes("ResNet-18"))
    memory = {name: paper_value("mfcl", "table4", GAMMA, name) for name in RESOURCE_AWARE}
    more = [fact(f"memory of {name} − MFCL", size - mfcl_memory, low=0, unit="bytes") for name, size in memory.items()]
    return every([*accuracies, *more])


@cost_claim("mfcl-table4-more-traffic")
def more_traffic(costs: pd.Series) -> Outcome:
    """The rivals' traffic is what the table quotes."""
    ours = costs[ALPHA, "MFCL", "ResNet-18"]
    rivals = {name: paper_value("mfcl", "table4", ALPHA, name) for name in RESOURCE_AWARE}
    return every(fact(f"traffic of MFCL / {name}", ours / bits, low=1, strict=True) for name, bits in rivals.items())


@table_claim("mfcl-table5-tn-in-fedsimclr", "table5")
def twin_norm_in_simclr(cells: Cells) -> Outcome:
    batch, *_, twin = variants = [f"FedSimCLR({norm})" for norm in ("BN", "GN", "TN")]
    pairs = [(twin, batch), (TWIN, variants)]
    return every(ahead(cells.where(xi=xi), *pair, each=["dataset", "xi"]) for xi in SEVERE for pair in pairs)


@table_claim("mfcl-table6-privacy-cost", "table6", scale=True)
def privacy_cost(cells: Cells) -> Outcome:
    part = cells.where(method=TWIN, dataset="CIFAR-10")
    printed_costs = {"SA": (1, 0, 0.0), "DM": (0, 1, 1.7), "SA and DM": (1, 1, 1.7)}
    statements = []
    for name, (aggregated, mixed, points) in printed_costs.items():
        with_it = {"secure_aggregation": aggregated, "datamix": mixed}
        lost = part.difference({"secure_aggregation": 0, "datamix": 0}, with_it)
        statements.append(within(part, lost, f"lost by {name}", points - MARGIN, points + MARGIN))
    return every(statements)


@table_claim("mfcl-table7-fedema-setting", "table7")
def fedema_setting(cells: Cells) -> Outcome:
    level = "CIFAR-100"
    statements = []
    if {*cells.levels("dataset")} != {level}:
        statements.append(ahead(_without(cells, level), TWIN, "FedEMA", each=["dataset"], upto=CLOSE))
    if level in cells.levels("dataset"):
        statements.append(equivalent(cells.where(dataset=level), TWIN, "FedEMA", 1, each=["dataset"]))
    return every(statements)


@table_claim("mfcl-table15-accuracy", "table15")
def vgg_accuracy(cells: Cells) -> Outcome:
    return ahead(cells.where(architecture="VGG-16-BN"), TWIN, "FedSimCLR", each=["dataset", "xi"])


@table_claim("mfcl-table16-batch-size", "table16")
def batch_size(cells: Cells) -> Outcome:
    return every(
        across(part, "K", larger, smaller, low=-MARGIN)
        for _, part in cells.where(method=TWIN).each("dataset")
        for smaller, larger in combinations(part.levels("K"), 2)
    )


@table_claim("mfcl-table17-group-size", "table17")
def group_size(cells: Cells) -> Outcome:
    column = "channels_per_group"
    sizes = cells.levels(column)
    pooled = [
        within(cells, twin - group, f"{TWIN} with {size:g} − {GROUP} with {2 * size:g} channels", low=0.0, strict=True)
        for size in sizes
        if 2 * size in sizes
        for twin in [cells.mean(method=TWIN, channels_per_group=size)]
        for group in [cells.mean(method=GROUP, channels_per_group=2 * size)]
    ]
    peaks, others = ([size for size in sizes if (size in (8, 16)) is named] for named in (True, False))
    if not pooled or not peaks or not others:
        raise NotRun("needs a number of channels per group with its double, 8 or 16, and another")
    of_twin = cells.where(method=TWIN)
    peak = any_of(ahead(of_twin, [size], others, each=["dataset"], column=column) for size in peaks)
    return every([ahead(cells, TWIN, GROUP, each=["dataset", column]), *pooled, peak])


# -------------------------------------------------------------------------------------------- figures of trained models


@claim("mfcl-fig4-saliency")
def rare_class_is_seen(results: pd.DataFrame) -> Outcome:
    learned = {"accuracy": "own_classifier_accuracy", "failing": [BATCH]}
    cells = Cells(results, "rare_half_share", ["method", "client"], unit="of the gradient", **learned)
    return ahead(cells, TWIN, BATCH, each=["client"])


@claim("mfcl-sec33-twins-more-alike")
def twins_more_alike(results: pd.DataFrame) -> Outcome:
    """Of what phase 1 trained, before an accuracy can be asked for."""
    if "cosine_of_twins" not in results:
        raise NotRun("needs what clients send")
    rows = results.dropna(subset="cosine_of_twins")
    rows = rows.assign(lead=rows["cosine_of_twins"] - rows["cosine_of_others"])
    measures = {"cosine_of_twins": "cosine of twins", "lead": "cosine of twins − of others"}
    cells = [Cells(rows, value, ["sent_by", "xi"], unit="", label=label) for value, label in measures.items()]
    return agreed(
        every(ahead(part, TWIN, control, each=["xi"], column="sent_by") for part in cells)
        for control in (f"{TWIN}, views apart", GROUP)
    )


@table_claim("mfcl-fig8a-client-loss-homogeneous")
def loss_of_clients_homogeneous(cells: Cells) -> Outcome:
    part = cells.where(xi=HOMOGENEOUS)
    most = part.levels("missing")[-1]
    if most == 0:
        raise NotRun("needs clients missing")
    first, last = (part.where(missing=share).difference({"method": BATCH}, {"method": TWIN}) for share in (0, most))
    shrinks = within(part, first - last, f"lead of {BATCH} − its lead with {most:.0%} missing", low=0.0, strict=True)
    return every([ahead(part.where(missing=0), BATCH, TWIN, each=["dataset"]), shrinks])


@table_claim("mfcl-fig8b-client-loss-heterogeneous")
def loss_of_clients_heterogeneous(cells: Cells) -> Outcome:
    return ahead(cells.where(xi=SEVERE), TWIN, [BATCH, GROUP], each=["dataset", "xi", "missing"])


@table_claim("mfcl-fig8-tn-like-gn")
def twin_like_group(cells: Cells) -> Outcome:
    most = cells.levels("missing")[-1]
    if most == 0:
        raise NotRun("needs clients missing")
    changes = []
    for where, part in cells.each("dataset", "xi"):
        group, twin = (part.where(method=name).difference({"missing": 0}, {"missing": most}) for name in (GROUP, TWIN))
        name = f"lost by {GROUP} − lost by {TWIN} with {most:.0%} missing, {where}"
        changes.append(within(part, group - twin, name, -FAR, FAR))
    return every(changes)


@claim("mfcl-fig9-tsne")
def clusters(results: pd.DataFrame) -> Outcome:
    quality, classes = (
        Cells(results, value, ["method"], unit=unit, accuracy="accuracy")
        for value, unit in (("cluster_quality", "silhouette"), ("separated_classes", "classes"))
    )
    more = [ordered(classes, "method", [BATCH, GROUP]), ordered(classes, "method", [GROUP, TWIN], slack=0)]
    return every([ordered(quality, "method", NORMS), *more])


@claim("mfcl-table8-attacks")
def attacks(results: pd.DataFrame) -> Outcome:
    """What is compared are attacks, so that no model need have learned; by their ratio, as they vary by it."""
    rows = results.dropna(subset="case")
    errors = np.log2(rows["mse"])
    rows = rows.assign(error=errors, beyond=errors - np.log2(rows["grey_mse"]))
    errors, beyond = (Cells(rows, value, ["case"], unit="doublings") for value in ("error", "beyond"))
    rises = [ordered(errors, "case", cases) for cases in (["C1D0", "C1D1"], ["C1D0", "C0D0"], ["C0D0", "C0D1"])]
    return every([*rises, within(beyond, beyond.mean(case="C0D1"), "C0D1 − a grey image", low=0.0)])
