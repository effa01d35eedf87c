"""Claims of LW-FedSSL (Tun et al., arXiv:2401.11647): each check restates the ``check`` text in its claims file.

Accuracies are those of fine-tuning, the paper's only protocol, averaged over the data sets on which one model is
fine-tuned. All tables but the second have MoCoV3 alone; with another SSL method a staged training is compared with
end-to-end training by the same one. What training costs is counted at the paper's sizes, whatever was run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise, product

import pandas as pd

from fssl_core.claims.accuracies import in_points
from fssl_core.claims.estimation import Cells, NotRun
from fssl_core.claims.judge import Rule, claim
from fssl_core.claims.rules import (
    Outcome,
    Statement,
    across,
    agreed,
    ahead,
    at_each,
    doubted,
    equivalent,
    every,
    fact,
    ordered,
    share,
    unknown,
    with_each,
    within,
)
from fssl_core.costs.activations import client_memory
from fssl_core.costs.layerwise import DROPOUT_UNITS, GB, METHODS, build_encoder, resources
from fssl_core.federation.schedule import schedule
from fssl_core.papers.names import as_printed
from fssl_core.papers.reference import paper_table, paper_value, printed_cells

FULL, LAYERWISE, PROGRESSIVE = "FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"
STAGED = [LAYERWISE, PROGRESSIVE]
MEDICAL = ["PathMNIST", "BloodMNIST", "OrganAMNIST", "DermaMNIST"]
SSL = ["MoCoV3", "BYOL", "SimCLR"]
WHOLE, CENTRAL = "end-to-end", "centralised"
ALL_THREE = [WHOLE, LAYERWISE, PROGRESSIVE]
ROLES = {f"Fed{name}": WHOLE for name in SSL} | dict.fromkeys(SSL, CENTRAL)
PATCHES = {32: 4, 64: 4, 128: 8, 224: 16}  # by image size
DEPTHS = [1, 2, 3, 4, 6]  # layers per stage, of Table 3
SAME = 0.01  # "the same", "constant", of a memory or a count
FLAT = 1 / 3  # "flat" rises by at most this share: of its least, or of what end-to-end has, where that can be meant
MATCH = 0.4  # points: what Table 4 calls a match
ROUNDING = 1e-5  # of a few steps in single precision


# ------------------------------------------------------------------------------------------------------ what is judged


@dataclass(frozen=True)
class Costs:
    """What a method costs one client.

    Args:
        of: metric, method and settings to a number: ``"flops"`` in GFLOPs, ``"communication"`` and ``"peak_memory"``
            in GB.
        rounding: by metric half a unit of the last printed digit; empty where costs are counted.
    """

    of: Callable[..., float]
    rounding: Mapping[str, float]

    def ratio(self, metric: str, one: str, other: str, **settings: object) -> float:
        return self.of(metric, one, **settings) / self.of(metric, other, **settings)

    def ratio_is(
        self, metric: str, one: str, other: str, printed: float, *, at_most: bool = False, **settings: object
    ) -> Statement:
        """A ratio is the stated one, or at most that, to its second digit and as far as rounded cells tell."""
        ratio, half = self.ratio(metric, one, other, **settings), self.rounding.get(metric, 0.0)
        room = 0.005 + 1e-9
        room += ratio * sum(half / self.of(metric, method, **settings) for method in (one, other))
        name, low = f"{_NAMES[metric]}, {one} / {other}", 0.0 if at_most else printed - room
        return fact(name, ratio, low, printed + room)


_NAMES = {"flops": "GFLOPs", "communication": "traffic", "peak_memory": "memory"}


def _count(
    metric: str,
    method: str,
    ssl_method: str = "MoCoV3",
    *,
    layers_per_stage: int = 1,
    add_on: str = "none",
    image_size: int = 32,
    architecture: str = "ViT-Tiny",
    worst_case: bool = False,
) -> float:
    """By closed forms, at the paper's sizes; memory without what a process holds beside the training."""
    kind, _ = METHODS[method]
    sizes = {"image_size": image_size, "patch_size": PATCHES[image_size]}
    units = len(build_encoder(architecture, **sizes).units)
    stages = None if kind == "end-to-end" else units // layers_per_stage
    if metric == "peak_memory":
        most = DROPOUT_UNITS if add_on == "depth dropout" else None
        steps = schedule(kind, units, rounds=180, stages=stages, most_units=most)
        return max(client_memory(stage, ssl_method=ssl_method, **sizes).total_bytes for stage in steps) / GB
    rounds = 180 if architecture == "ViT-Tiny" else 120
    more = {"stages": stages, "rounds": rounds, "add_on": add_on, "worst_case": worst_case}
    counted = resources(method, ssl_method, architecture=architecture, **sizes, **more)
    return counted.gflops if metric == "flops" else counted.communication_gb


COUNTED = Costs(_count, {})


def _printed_costs(table: str) -> Costs:
    def value(metric: str, method: str, worst_case: bool = False, **settings: object) -> float:
        return paper_value("lwfedssl", table, metric, method, **settings)

    return Costs(value, {"flops": 0.5, "communication": 0.005, "peak_memory": 0.005})


def cost_claim(id: str, table: str) -> Callable[[Rule], Rule]:
    """A claim on costs alone: counted by us, printed in a table."""
    return claim(id, ours=lambda results: COUNTED, printed=partial(_printed_costs, table))


@dataclass(frozen=True)
class Runs:
    """What a rule on accuracies reads.

    Args:
        rows: of our runs, or of printed cells.
        to_cells: makes cells of some of them, by method, data set and the claim's columns.
        costs: counted, or printed beside them.
        size: whether stated sizes count: on the paper's data. Elsewhere a claim's direction is judged.
    """

    rows: pd.DataFrame
    to_cells: Callable[[pd.DataFrame], Cells]
    costs: Costs
    size: bool

    def mean(self, **levels: list) -> Cells:
        """Of the rows at these levels, averaged over the data sets on which a model is fine-tuned."""
        kept = self.rows[self.rows[[*levels]].isin(levels).all(axis=1)] if levels else self.rows
        return self.to_cells(kept).averaged("eval_dataset")

    def on(self, dataset: str) -> Cells:
        """Fine-tuned on one data set, whose variance is its own."""
        kept = self.rows[self.rows["eval_dataset"] == dataset]
        if kept.empty:
            raise NotRun(f"needs {dataset}")
        return self.to_cells(kept)


def trained(id: str, *tables: str, by: Sequence[str] = (), failing: Iterable[str] = ()) -> Callable[[Rule], Rule]:
    """A claim on fine-tuned accuracies. Rows without a level of a column ``by`` are not what it is about."""
    columns = ["method", "eval_dataset", *by]

    def prepared(rows: pd.DataFrame) -> pd.DataFrame:
        if "participation" in by:
            drawn = rows["participating"].map("{:g} clients".format).where(rows["participating"].notna())
            dropped = rows["dropout_probability"].map("dropout {:g}".format)
            rows = rows.assign(participation=drawn.fillna(dropped.where(rows["dropout_probability"].notna())))
        rows = rows.dropna(subset=[name for name in by if name != "layers_per_stage"])  # end-to-end has no stages
        return rows.replace({"method": ROLES})

    def printed() -> Runs:
        rows = prepared(pd.concat([printed_cells("lwfedssl", table) for table in tables], ignore_index=True))
        return Runs(rows, partial(Cells, value="value", by=columns, exact=True), _printed_costs(tables[0]), True)

    def ours(results: pd.DataFrame) -> dict[str, Runs]:
        rows = prepared(as_printed(results[results["protocol"] == "fine-tuning"]))
        if "same_run_as" in rows:  # all layers in one stage: this is end-to-end training, counted once
            rows = rows[rows["same_run_as"].isna()]
        label = rows["protocol"] if "ssl_method" in by else rows["protocol"] + ", " + rows["ssl_method"]
        size = set(rows["dataset"].dropna()) == {"COCO"}
        return {
            name: Runs(part, partial(in_points, by=columns, label=name, failing=failing), COUNTED, size)
            for name, part in rows.groupby(label, sort=False)
        }

    return claim(id, ours=ours, printed=printed)


def _complete(cells: Cells, methods: Sequence[str] = ALL_THREE, levels: str = "") -> Cells:
    """The cells of these methods; needs all of them, and two levels of a column."""
    for method in methods:
        cells.where(method=method)
    if levels and len(cells.levels(levels)) < 2:
        raise NotRun(f"needs two levels of {levels.replace('_', ' ')}")
    return cells.where(method=list(methods))


def _in_order(cells: Cells, *each: str) -> Outcome:
    """Progressive above layer-wise above end-to-end."""
    return every([ahead(cells, PROGRESSIVE, LAYERWISE, each=each), ahead(cells, LAYERWISE, WHOLE, each=each)])


def _in_order_medical(runs: Runs, cells: Cells, each: str) -> Outcome:
    """The order of medical images: of photographs the paper's own Table 2 has layer-wise below end-to-end."""
    medical = set(runs.rows["eval_dataset"].str.lower()) <= {name.lower() for name in [*MEDICAL, "PneumoniaMNIST"]}
    return _in_order(cells, each) if medical else unknown("an order on medical images")


def _of_hundred_clients(runs: Runs, outcome: Outcome) -> Outcome:
    """Of a hundred clients, each with few images, layer-wise training is ahead; of ten the paper has it behind."""
    fewest = runs.rows["clients"].min()
    return doubted(outcome, f"it is about 100 clients, not {fewest:g}") if fewest < 100 else outcome


def _steady(cells: Cells, column: str, margin: float) -> Outcome:
    """No two levels differ by more than a margin, in points, for any method."""
    pairs = list(combinations(cells.levels(column), 2))
    return every(equivalent(cells, one, other, margin, each=["method"], column=column) for one, other in pairs)


# ---------------------------------------------------------------------- table1: what is trained and sent, step by step


def _largest(results: pd.DataFrame, name: str) -> float:
    values = results.loc[results["property"] == name, "value"]
    if values.empty:
        raise NotRun(f"needs {name}")
    return values.max()


@claim("lwfedssl-fig1-fl-round")
def weighted_average(results: pd.DataFrame) -> Outcome:
    return fact("largest difference of a weight", _largest(results, "weighted average"), high=ROUNDING)


@claim("lwfedssl-fig2-mocov3")
def target_branch(results: pd.DataFrame) -> Outcome:
    none = ["target predictor parameters", "target parameters with gradient"]
    momentum = fact("largest difference of a target weight", _largest(results, "momentum update"), high=ROUNDING)
    return every([*(fact(name, _largest(results, name), 0, 0) for name in none), momentum])


def _changes(results: pd.DataFrame, method: str) -> tuple[list[float], list[float]]:
    """Largest change of each unit of earlier stages and of each new one, all stages together."""
    table = results[results["method"] == method].pivot_table("largest_change", "stage", "unit", aggfunc="max")
    if table.empty or len(table.columns) % len(table):
        raise NotRun(f"needs all stages of {method}")
    each, earlier, new = len(table.columns) // len(table), [], []
    for number, (_, row) in enumerate(table.iterrows()):
        values = row.dropna().tolist()
        if len(values) != (number + 1) * each:
            raise NotRun(f"needs all stages of {method}")
        earlier += values[:-each]
        new += values[-each:]
    return earlier, new


@claim("lwfedssl-fig3-layerwise")
def only_the_newest_changes(results: pd.DataFrame) -> Outcome:
    earlier, new = _changes(results, LAYERWISE)
    moved = fact("smallest change of a new block", min(new), low=0, strict=True)
    return every([fact("largest change of a frozen block", max(earlier), 0, 0), moved])


@claim("lwfedssl-fig9-progressive")
def all_present_change(results: pd.DataFrame) -> Outcome:
    earlier, new = _changes(results, PROGRESSIVE)
    return fact("smallest change of a block", min(earlier + new), low=0, strict=True)


@claim("lwfedssl-fig4-three-schemes")
def trained_blocks(results: pd.DataFrame) -> Outcome:
    table = results.pivot_table("trained_units", "stage", "method").reindex(columns=["FedSSL", *STAGED])
    counts = [table[method].dropna().tolist() for method in table]
    total = len(counts[1])
    if not all(counts) or len(counts[2]) != total:
        raise NotRun("needs all stages of the three schemes")
    expected = [[total] * len(counts[0]), [1] * total, [*range(1, total + 1)]]
    off = sum(a != b for pair in zip(counts, expected, strict=True) for a, b in zip(*pair, strict=True))
    return fact("stages with another number of trained blocks", off, 0, 0)


@claim("lwfedssl-table1-layer-management", ours=lambda results: paper_table("lwfedssl", "table1"))
def layer_management(table: pd.DataFrame) -> Outcome:
    cells = table.set_index(["method", "metric"])["value"]
    off = 0
    for method in cells.index.unique("method"):
        stages = schedule(cells[method, "training"], 12, rounds=180)
        off += len(stages) != (1 if cells[method, "number_of_stages"] == "none" else 12)
        off += sum(
            getattr(stage, units) != _UNITS[cells[method, name]](stage.number, 12)
            for stage in stages
            for name, units in _MANAGED.items()
        )
    return fact("sets of blocks that differ from Table 1", off, 0, 0)


_UNITS: Mapping[str, Callable[[int, int], range]] = {  # as Table 1 writes them, at stage s of S; L1 is unit 0
    "none": lambda s, S: range(0),
    "L1..LS": lambda s, S: range(S),
    "L1..Ls": lambda s, S: range(s),
    "L1..L(s-1)": lambda s, S: range(s - 1),
    "Ls": lambda s, S: range(s - 1, s),
}


_MANAGED = {  # metric of Table 1: the like of a stage
    "stage_encoder_layers": "present",
    "new_layer": "new",
    "frozen_layers": "frozen",
    "trainable_layers": "active",
    "download_layers": "exchanged_down",
    "upload_layers": "exchanged_up",
}


# ------------------------------------------------------------------------------- figures 5 and 8: resources by stage


def _by_stage(column: str, name: str) -> Rule:
    """End-to-end constant, progressive rising to it, and layer-wise flat."""

    def rule(results: pd.DataFrame) -> Outcome:
        full = results.loc[results["method"] == FULL, column].dropna()
        table = results.pivot_table(column, "stage", "method").reindex(columns=STAGED).dropna()
        if full.empty or len(table) < 2:
            raise NotRun("needs the stages of the three schemes")
        layerwise, progressive = table[LAYERWISE], table[PROGRESSIVE]
        reached, step = progressive.iloc[-1] / full.max(), progressive.diff().min()
        parts = [
            fact(f"{name}, end-to-end: most / least", full.max() / full.min(), high=1 + SAME),
            fact(f"{name}, {PROGRESSIVE}: smallest step", step, low=0, strict=name != "memory"),
            fact(f"{name}, {PROGRESSIVE} at last / end-to-end", reached, 1 - SAME, 1 + SAME),
        ]
        if name == "traffic":
            later = layerwise.iloc[1:]
            return every(
                [*parts, fact(f"{name}, {LAYERWISE}: most / least from stage 2", later.max() / later.min(), 1, 1)]
            )
        return every([*parts, _flat(name, layerwise, full.max(), "end-to-end")])

    return rule


def _flat(name: str, layerwise: pd.Series, whole: float, of: str) -> Outcome:
    """Beside its own least, and beside what end-to-end has, as a reader of the figure sees it."""
    rise = layerwise.max() - layerwise.min()
    own = fact(f"{name}, {LAYERWISE}: most / least", layerwise.max() / layerwise.min(), high=1 + FLAT)
    return agreed([own, fact(f"{name}, rise of {LAYERWISE} / {of}", rise / whole, high=FLAT)])


claim("lwfedssl-fig5a-memory")(_by_stage("memory_bytes", "memory"))
claim("lwfedssl-fig5b-flops")(_by_stage("epoch_macs", "GFLOPs"))
claim("lwfedssl-fig5c-communication")(_by_stage("round_bytes", "traffic"))


@claim("lwfedssl-fig8-memory-vs-batch")
def memory_by_batch(results: pd.DataFrame) -> Outcome:
    peaks = results.groupby(["batch_size", "method"])["memory_bytes"].max().unstack("method")
    table = peaks.reindex(columns=[FULL, *STAGED]).dropna()
    if len(table) < 2:
        raise NotRun("needs two batch sizes")
    rise = table.iloc[-1] - table.iloc[0]
    gap = (table[PROGRESSIVE] / table[FULL] - 1).abs().max()
    most = (table[LAYERWISE] / table[[FULL, PROGRESSIVE]].min(axis=1)).max()
    return every(
        [
            _flat("memory", table[LAYERWISE], rise[FULL], "end-to-end's rise"),
            fact(f"largest gap, {PROGRESSIVE} to end-to-end, share", gap, high=SAME),
            fact(f"largest ratio, {LAYERWISE} to the lower of the others", most, high=1, strict=True),
        ]
    )


# ----------------------------------------------------------------------------------- figures 6, 7 and 10: models, data


@claim("lwfedssl-fig6-divergence")
def lower_divergence(results: pd.DataFrame) -> Outcome:
    """One number a run: the mean over its rounds."""
    cells = Cells(results.replace({"method": ROLES}), "distance", ["method"], unit="L2", accuracy="accuracy")
    return ahead(_complete(cells), WHOLE, STAGED)


@claim("lwfedssl-fig7-medmnist-samples")
def medical_samples(results: pd.DataFrame) -> Outcome:
    shown = results.groupby(results["dataset"].str.lower())["samples"].sum()
    lacking = [name for name in MEDICAL if name.lower() not in shown]
    if lacking:
        raise NotRun(f"needs {', '.join(lacking)}")
    return every(fact(f"images of {name}", shown[name.lower()], low=1) for name in MEDICAL)


@claim("lwfedssl-fig10-partitions")
def more_uneven(results: pd.DataFrame) -> Outcome:
    """One number a partition: the mean over its clients."""
    cells = Cells(results, "total_variation", ["beta"], unit="total variation")
    for beta in (50, 5, 0.5):
        cells.where(beta=beta)
    return ordered(cells, "beta", [50, 5, 0.5])


# -------------------------------------------------------------------------------------------------- costs of the tables


def _headline(metric: str, printed: float) -> Rule:
    return lambda costs: costs.ratio_is(metric, FULL, LAYERWISE, printed, ssl_method="MoCoV3")


claim("lwfedssl-headline-memory", ours=None, printed=lambda: _printed_costs("table2"))(_headline("peak_memory", 3.34))
cost_claim("lwfedssl-headline-gflops", "table2")(_headline("flops", 4.20))
cost_claim("lwfedssl-headline-communication", "table2")(_headline("communication", 5.07))


@cost_claim("lwfedssl-abs-up-to", "table2")
def up_to(costs: Costs) -> Outcome:
    return every(
        costs.ratio_is(metric, f"Fed{name}", LAYERWISE, printed, ssl_method=name, at_most=True)
        for metric, printed in (("flops", 4.20), ("communication", 5.07))
        for name in SSL
    )


@cost_claim("lwfedssl-headline-prog-savings", "table2")
def headline_progressive(costs: Costs) -> Outcome:
    memory = costs.ratio("peak_memory", FULL, PROGRESSIVE, ssl_method="MoCoV3")
    return every(
        [
            costs.ratio_is("flops", FULL, PROGRESSIVE, 1.84, ssl_method="MoCoV3"),
            costs.ratio_is("communication", FULL, PROGRESSIVE, 1.67, ssl_method="MoCoV3"),
            fact(f"memory, {FULL} / {PROGRESSIVE}", memory, 1 - SAME, 1 + SAME),
        ]
    )


@cost_claim("lwfedssl-table2-fedca-heaviest", "table2")
def fedca_heaviest(costs: Costs) -> Outcome:
    printed_ratios = {"communication": 3.82, "flops": 1.11} | ({"peak_memory": 1.14} if costs.rounding else {})
    parts = []
    for metric, ratio in printed_ratios.items():
        parts.append(costs.ratio_is(metric, "FedCA", "FedSimCLR", ratio, ssl_method="SimCLR"))
        least = min(costs.ratio(metric, "FedCA", method, ssl_method="SimCLR") for method in ["FedSimCLR", *STAGED])
        parts.append(fact(f"{_NAMES[metric]}, FedCA / the next", least, low=1, strict=True))
    return every(parts)


@cost_claim("lwfedssl-table5-worst-case", "table5")
def worst_case(costs: Costs) -> Outcome:
    return costs.ratio_is("communication", LAYERWISE, FULL, 0.40, worst_case=True)


@cost_claim("lwfedssl-table10-medical-resources", "table10")
def medical_resources(costs: Costs) -> Outcome:
    printed_ratios = {"flops": 0.24, "communication": 0.20} | ({"peak_memory": 0.27} if costs.rounding else {})
    return every(
        costs.ratio_is(metric, LAYERWISE, FULL, ratio, image_size=64) for metric, ratio in printed_ratios.items()
    )


# --------------------------------------------------------------------------------------- table2: three SSL methods


@trained("lwfedssl-table2-lw-comparable", "table2", by=["ssl_method"])
def layerwise_comparable(runs: Runs) -> Outcome:
    return with_each(
        runs.mean(), "ssl_method", SSL, lambda cells: equivalent(cells, LAYERWISE, WHOLE, 3, each=["ssl_method"])
    )


@trained("lwfedssl-table2-prog-better", "table2", by=["ssl_method"])
def progressive_better(runs: Runs) -> Outcome:
    """In most cases: on more than half of the data sets with the three SSL methods."""

    def better(part: Cells) -> Outcome:
        return ahead(part, PROGRESSIVE, WHOLE, each=["ssl_method", "eval_dataset"])

    datasets = runs.rows["eval_dataset"].unique()
    return share([win for name in datasets for win in at_each(runs.on(name), "ssl_method", SSL, better)], 0.51)


@trained("lwfedssl-table2-pretraining-helps", "table2", by=["ssl_method"], failing=["Scratch"])
def pretraining_helps(runs: Runs) -> Outcome:
    cells = runs.mean()
    scratch, low = cells.mean(method="Scratch"), 20.0 if runs.size else 0.0

    def helps(encoders: Cells) -> Outcome:
        leads = {name: part.mean() - scratch for name, part in encoders.each("method")}
        (ssl_method,) = encoders.levels("ssl_method")
        return every(
            within(cells, lead, f"{name} − Scratch, {ssl_method}", low, strict=low == 0) for name, lead in leads.items()
        )

    return with_each(cells, "ssl_method", SSL, helps)


@trained("lwfedssl-table2-centralized-upper", "table2", by=["ssl_method"])
def centralised_upper(runs: Runs) -> Outcome:
    def upper(cells: Cells) -> Outcome:
        _complete(cells, [CENTRAL, *ALL_THREE])
        rivals = [method for method in cells.levels("method") if method != CENTRAL]
        parts = [ahead(cells, CENTRAL, rivals, each=["ssl_method"])]
        if runs.size:
            parts.append(across(cells, "method", CENTRAL, PROGRESSIVE, low=-1.1, each=["ssl_method"]))
        return every(parts)

    return with_each(runs.mean(), "ssl_method", SSL, upper)


# ------------------------------------------------------------------- table3: depth of a stage, table4: ResNet, add-ons


@trained("lwfedssl-table3-depth-tradeoff", "table3", by=["layers_per_stage"])
def depth_tradeoff(runs: Runs) -> Outcome:
    parts = [ordered(_complete(runs.mean(), STAGED), "layers_per_stage", each=["method"])]
    for metric, method in product(_NAMES, STAGED):
        values = [runs.costs.of(metric, method, layers_per_stage=depth) for depth in DEPTHS]
        name = f"{_NAMES[metric]}, {method}"
        if (metric, method) == ("peak_memory", PROGRESSIVE):
            parts.append(fact(f"{name}: most / least", max(values) / min(values), high=1 + SAME))
        else:
            step = min(b / a for a, b in pairwise(values))
            parts.append(fact(f"{name}: smallest step, ratio", step, low=1, strict=True))
    return every(parts)


@trained("lwfedssl-table3-crossing", "table3", by=["layers_per_stage"])
def crossing(runs: Runs) -> Outcome:
    cells = runs.mean()
    depths = cells.where(method=LAYERWISE).levels("layers_per_stage")
    if 1 not in depths or len(depths) < 2:
        raise NotRun("needs one layer per stage, and more")
    parts = []
    for depth in depths:
        gain = cells.mean(method=LAYERWISE, layers_per_stage=depth) - cells.mean(method=WHOLE)
        region = {"high": 0.0, "strict": True} if depth == 1 else {"low": -MATCH}
        parts.append(within(cells, gain, f"{LAYERWISE}, {depth:g} layers per stage − {WHOLE}", **region))
    return every(parts)


@trained("lwfedssl-table4-resnet", "table4", by=["architecture"])
def resnet(runs: Runs) -> Outcome:
    cells = runs.mean().where(architecture="ResNet-18")
    parts: list[Outcome] = []
    for method in STAGED:
        parts.append(across(cells, "method", WHOLE, method, low=-MATCH))
        for metric in ("flops", "communication"):
            ratio = runs.costs.ratio(metric, method, FULL, architecture="ResNet-18")
            parts.append(fact(f"{_NAMES[metric]}, {method} / {FULL}", ratio, high=1, strict=True))
    return every(parts)


def _with_add_on(costs: Costs, metric: str, method: str, add_on: str) -> tuple[str, float]:
    """A cost with an add-on, as a multiple of that without: name and value."""
    ratio = costs.of(metric, method, add_on=add_on) / costs.of(metric, method, add_on="none")
    return f"{_NAMES[metric]} of {method}, {add_on} / none", ratio


@trained("lwfedssl-table6-depth-dropout", "table6", by=["add_on"])
def depth_dropout(runs: Runs) -> Outcome:
    cells = runs.mean(add_on=["none", "depth dropout"], method=STAGED)
    same = equivalent(_complete(cells, STAGED), "depth dropout", "none", 0.6, each=["method"], column="add_on")
    lower = [("flops", LAYERWISE), *((metric, PROGRESSIVE) for metric in _NAMES)]
    ratios = [_with_add_on(runs.costs, *pair, "depth dropout") for pair in lower]
    return every([same, *(fact(*ratio, high=1, strict=True) for ratio in ratios)])


@trained("lwfedssl-table6-alignment", "table6", by=["add_on"])
def alignment(runs: Runs) -> Outcome:
    proximal, representation = "proximal alignment", "representation alignment"
    cells = runs.mean(add_on=["none", proximal, representation], method=STAGED)
    layerwise, progressive = (cells.where(method=method) for method in STAGED)
    parts = [
        across(cells, "add_on", "none", proximal, high=MATCH, each=["method"]),
        across(layerwise, "add_on", "none", representation, high=MATCH, each=["method"]),
        across(progressive, "add_on", "none", representation, low=0.0, each=["method"]),
    ]
    for method, ratio in ((LAYERWISE, 2.29), (PROGRESSIVE, 1.56)):
        parts += [fact(*_with_add_on(runs.costs, name, method, proximal), 1, 1) for name in ("flops", "communication")]
        parts.append(fact(*_with_add_on(runs.costs, "flops", method, representation), ratio - 0.02, ratio + 0.02))
    return every(parts)


# -------------------------------------------------------------------------------- tables 7 and 8: partial participation


@trained("lwfedssl-table7-partial-participation", "table7", by=["participating"])
def partial_participation(runs: Runs) -> Outcome:
    cells = _complete(runs.mean(), levels="participating")
    both_ahead = ahead(cells, STAGED, WHOLE, each=["participating"], by=10.0 if runs.size else 0.0)
    return _of_hundred_clients(runs, both_ahead)


@trained("lwfedssl-table8-client-dropout", "table8", by=["dropout_probability"])
def client_dropout(runs: Runs) -> Outcome:
    cells = _complete(runs.mean(), levels="dropout_probability")
    return _of_hundred_clients(runs, _in_order(cells, "dropout_probability"))


@trained("lwfedssl-table7-8-robust", "table7", "table8", by=["participation"])
def robust_to_participation(runs: Runs) -> Outcome:
    cells = _complete(runs.mean())
    if len(cells.levels("participation")) < 4:
        raise NotRun("needs two numbers of participants and two probabilities of dropout")
    return _steady(cells, "participation", 1.0)


# --------------------------------------------------------------------------------------- tables 9 to 13: medical images


@trained("lwfedssl-table9-medical", "table9")
def medical(runs: Runs) -> Outcome:
    parts, others = [], [WHOLE, LAYERWISE]
    for name in MEDICAL:
        cells = runs.on(name)
        sides = (others, [PROGRESSIVE]) if name == "DermaMNIST" else ([PROGRESSIVE], others)
        parts += [ahead(cells, *each, each=["eval_dataset"]) for each in ((LAYERWISE, WHOLE), sides)]
    return every(parts)


@trained("lwfedssl-table11-input-size", "table11", by=["image_size"])
def input_size(runs: Runs) -> Outcome:
    parts = [ahead(_complete(runs.mean(), levels="image_size"), PROGRESSIVE, [LAYERWISE, WHOLE], each=["image_size"])]
    for metric in ("flops", "communication"):
        ratios = [runs.costs.ratio(metric, LAYERWISE, FULL, image_size=size) for size in (64, 128, 224)]
        parts.append(fact(f"{_NAMES[metric]} ratio, range over sizes", max(ratios) - min(ratios), high=0.01))
    return every(parts)


@trained("lwfedssl-table12-batch-size", "table12", by=["batch_size"])
def batch_size(runs: Runs) -> Outcome:
    cells = _complete(runs.mean())
    return every([_in_order_medical(runs, cells, "batch_size"), _steady(cells, "batch_size", 1.6)])


@trained("lwfedssl-table13-heterogeneity", "table13", by=["beta"])
def heterogeneity(runs: Runs) -> Outcome:
    cells = _complete(runs.mean())
    return every([_in_order_medical(runs, cells, "beta"), _steady(cells, "beta", 1.4)])
