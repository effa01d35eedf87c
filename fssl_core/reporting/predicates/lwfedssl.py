"""Claims of LW-FedSSL (Tun et al., arXiv:2401.11647) on resources alone as predicates: no result of ours is needed.

Each rule restates the ``check`` text of its claim in ``lwfedssl_claims.yaml`` and is judged at every profile, by the
closed forms of :mod:`fssl_core.costs` at the paper's sizes. Peak memory is the printed one, a measurement on the
authors' device that no formula gives.
"""

import re
from functools import cache, partial
from itertools import pairwise

import pandas as pd

from fssl_core.costs.activations import client_memory
from fssl_core.costs.layerwise import Resources, cost_curves, resources
from fssl_core.costs.parts import build_model, vit
from fssl_core.federation.schedule import Stage, schedule
from fssl_core.reporting.predicate import predicate
from fssl_core.reporting.reference import paper_table, paper_value

FULL, LAYERWISE, PROGRESSIVE = "FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"
ALL_THREE = [FULL, LAYERWISE, PROGRESSIVE]
INPUTS = {64: 4, 128: 8, 224: 16}  # image size: patch size, of Table 11
DEPTHS = [1, 2, 3, 4, 6]  # layers per stage, of Table 3


printed_cell = partial(paper_value, "lwfedssl")


def printed_ratio(table: str, metric: str, method: str, base: str, **where: object) -> float:
    return printed_cell(table, metric, method, **where) / printed_cell(table, metric, base, **where)


@cache
def cost(method: str, ssl_method: str = "MoCoV3", **settings: object) -> Resources:
    return resources(method, ssl_method, **settings)


# --------------------------------------------------------------------------------------- headline, table1: the schedule


@predicate("lwfedssl-headline-memory")
def headline_memory(_: pd.DataFrame) -> tuple[bool, str]:
    ratio = printed_ratio("table2", "peak_memory", FULL, LAYERWISE, ssl_method="MoCoV3")
    return round(ratio, 2) == 3.34, f"printed: {ratio:.3f}"


@predicate("lwfedssl-headline-gflops")
def headline_gflops(_: pd.DataFrame) -> tuple[bool, str]:
    ratio = cost(FULL).macs / cost(LAYERWISE).macs
    cells = printed_ratio("table2", "flops", FULL, LAYERWISE, ssl_method="MoCoV3")
    return round(ratio, 2) == 4.20, f"{ratio:.3f}, of the printed cells {cells:.2f}"


@predicate("lwfedssl-headline-communication")
def headline_communication(_: pd.DataFrame) -> tuple[bool, str]:
    ratio = cost(FULL).communication_bytes / cost(LAYERWISE).communication_bytes
    cells = printed_ratio("table2", "communication", FULL, LAYERWISE, ssl_method="MoCoV3")
    return round(ratio, 2) == 5.07, f"{ratio:.3f}, of the printed cells {cells:.2f}"


@predicate("lwfedssl-headline-prog-savings")
def headline_progressive(_: pd.DataFrame) -> tuple[bool, str]:
    flops = cost(FULL).macs / cost(PROGRESSIVE).macs
    traffic = cost(FULL).communication_bytes / cost(PROGRESSIVE).communication_bytes
    memory = printed_ratio("table2", "peak_memory", PROGRESSIVE, FULL, ssl_method="MoCoV3")
    holds = (round(flops, 2), round(traffic, 2), round(memory, 2)) == (1.84, 1.67, 1.00)
    return holds, f"GFLOPs {flops:.3f}, traffic {traffic:.3f}; printed memory {memory:.3f}"


@predicate("lwfedssl-table1-layer-management")
def layer_management(_: pd.DataFrame) -> tuple[bool, str]:
    """Twelve units, as in the experiments."""
    cells = paper_table("lwfedssl", "table1").set_index(["method", "metric"])["value"]
    same, compared = True, 0
    for method in cells.index.unique("method"):
        stages = schedule(cells[method, "training"], 12, rounds=180)
        number = cells[method, "number_of_stages"]
        same &= len(stages) == (1 if number == "none" else 12)
        for stage in stages:
            ours = _managed(stage)
            same &= all(units == _units(cells[method, name], stage.number, 12) for name, units in ours.items())
            compared += len(ours)
    return same, f"{compared} sets of units compared, S = 12"


def _managed(stage: Stage) -> dict[str, list[int]]:
    return {
        "stage_encoder_layers": list(stage.present),
        "new_layer": list(stage.new),
        "frozen_layers": list(stage.frozen),
        "trainable_layers": list(stage.active),
        "download_layers": list(stage.exchanged_down),
        "upload_layers": list(stage.exchanged_up),
    }


def _units(text: str, number: int, stages: int) -> list[int]:
    """Units of ``"L1..L(s-1)"`` at stage s, where L1 is unit 0."""
    values = {"1": 1, "s": number, "(s-1)": number - 1, "S": stages}
    bounds = [values[name] for name in re.findall(r"L(\(s-1\)|[1sS])", text)]
    return list(range(bounds[0] - 1, bounds[-1])) if bounds else []


# --------------------------------------------------------------------------------------------- fig5: resources by stage


def _curve(column: str) -> pd.DataFrame:
    """ViT-Tiny, by count: rows stage, a column for each method."""
    curves = cost_curves(build_model(vit(), "MoCoV3"))
    return curves.groupby(["stage", "method"])[column].first().unstack("method")


@predicate("lwfedssl-fig5b-flops")
def flops_by_stage(_: pd.DataFrame) -> tuple[bool, str]:
    """At the paper's sizes. Layer-wise the step from stage 1 to 2 also has the patch projection frozen."""
    table, block = _curve("epoch_macs"), vit().units[0].macs
    layerwise, progressive = table[LAYERWISE], table[PROGRESSIVE]
    holds = (progressive.diff().dropna() > 0).all() and progressive.iloc[-1] == table[FULL].iloc[0]
    holds = holds and (layerwise.diff().iloc[2:] == block).all()
    spans = [
        f"{name} {values.iloc[0] / 1e9:.2f} to {values.iloc[-1] / 1e9:.2f}"
        for name, values in table[ALL_THREE[1:]].items()
    ]
    return bool(holds), f"GFLOPs of an epoch: {', '.join(spans)}, {FULL} {table[FULL].iloc[0] / 1e9:.2f}"


@predicate("lwfedssl-fig5c-communication")
def traffic_by_stage(_: pd.DataFrame) -> tuple[bool, str]:
    """At the paper's sizes."""
    table = _curve("round_bytes")
    layerwise, progressive = table[LAYERWISE], table[PROGRESSIVE]
    holds = layerwise.iloc[1:].nunique() == 1 and (progressive.diff().dropna() > 0).all()
    holds = holds and progressive.iloc[-1] == table[FULL].iloc[0]
    first, second, last = (table.iloc[stage] / 2**20 for stage in (0, 1, -1))
    value = f"{LAYERWISE} {first[LAYERWISE]:.2f}, then {second[LAYERWISE]:.2f}, "
    value += f"{PROGRESSIVE} {first[PROGRESSIVE]:.2f} to {last[PROGRESSIVE]:.2f}, {FULL} {first[FULL]:.2f}"
    return bool(holds), f"MiB of a round: {value}"


# ------------------------------------------------------------------------------------------------ tables 2, 3, 5 and 10


@predicate("lwfedssl-table2-fedca-heaviest")
def fedca_heaviest(_: pd.DataFrame) -> tuple[bool, str]:
    """The dictionary is a hypothesis that fits, see :mod:`fssl_core.costs.layerwise`."""
    costs = {method: cost(method, "SimCLR") for method in ("FedCA", "FedSimCLR", LAYERWISE, PROGRESSIVE)}
    fedca, base = costs["FedCA"], costs["FedSimCLR"]
    traffic, flops = fedca.communication_bytes / base.communication_bytes, fedca.macs / base.macs
    memory = printed_ratio("table2", "peak_memory", "FedCA", "FedSimCLR")
    most = all(
        fedca.communication_bytes > other.communication_bytes and fedca.macs > other.macs
        for method, other in costs.items()
        if method != "FedCA"
    )
    holds = most and (round(traffic, 2), round(flops, 2), round(memory, 2)) == (3.82, 1.11, 1.14)
    return holds, f"traffic {traffic:.3f}, GFLOPs {flops:.3f}; printed memory {memory:.3f}"


@cache
def resources_rise_with_depth() -> bool:
    """Of Table 3, by count: GFLOPs and traffic for both, memory for LW-FedSSL; that of Prog-FedSSL is constant."""

    def rises(values: list[int]) -> bool:
        return all(low < high for low, high in pairwise(values))

    holds = True
    for method, kind in ((LAYERWISE, "layer-wise"), (PROGRESSIVE, "progressive")):
        costs = [cost(method, stages=12 // k) for k in DEPTHS]
        peaks = [
            max(client_memory(stage).total_bytes for stage in schedule(kind, 12, rounds=180, stages=12 // k))
            for k in DEPTHS
        ]
        holds &= rises([one.macs for one in costs]) and rises([one.communication_bytes for one in costs])
        holds &= rises(peaks) if method == LAYERWISE else len(set(peaks)) == 1
    return holds


@predicate("lwfedssl-table5-worst-case")
def worst_case(_: pd.DataFrame) -> tuple[bool, str]:
    usual, progressive, full = (cost(m).communication_bytes for m in (LAYERWISE, PROGRESSIVE, FULL))
    worst = cost(LAYERWISE, worst_case=True)
    holds = 2 * worst.communication_bytes == usual + progressive and usual < worst.communication_bytes < progressive
    ratio = worst.communication_bytes / full
    return holds and round(ratio, 2) == 0.40, f"{worst.communication_gb:.2f} GB, {ratio:.3f} of end-to-end"


@predicate("lwfedssl-table10-medical-resources")
def medical_resources(_: pd.DataFrame) -> tuple[bool, str]:
    costs = {method: cost(method, image_size=64) for method in ALL_THREE}
    same = all(
        round(ours.gflops) == printed_cell("table10", "flops", method)
        and round(ours.communication_gb, 2) == printed_cell("table10", "communication", method)
        for method, ours in costs.items()
    )
    memory = printed_ratio("table10", "peak_memory", LAYERWISE, FULL)
    flops, traffic = input_ratios(64)
    holds = same and (round(memory, 2), round(flops, 2), round(traffic, 2)) == (0.27, 0.24, 0.20)
    return holds, f"GFLOPs {flops:.3f}, traffic {traffic:.3f}; printed memory {memory:.3f}"


def input_ratios(image_size: int) -> tuple[float, float]:
    """GFLOPs and traffic of LW-FedSSL over those of end-to-end training, for an input of Table 11."""
    settings = {"image_size": image_size, "patch_size": INPUTS[image_size]}
    layerwise, full = cost(LAYERWISE, **settings), cost(FULL, **settings)
    return layerwise.macs / full.macs, layerwise.communication_bytes / full.communication_bytes
