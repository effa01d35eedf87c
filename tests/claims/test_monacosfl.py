"""MonAcoSFL's claims on made-up results that reproduce, contradict and do not decide them. It prints no table."""

import re

import numpy as np
import pandas as pd
import pytest

from fssl_core.claims.judge import judge
from fssl_core.claims.verdict import Verdict
from fssl_core.papers.reference import paper_claims

CLAIMS = {claim.id.removeprefix("monacosfl-"): claim for claim in paper_claims("monacosfl")}
RUN = {"dataset": "cifar10", "partition": "classes:2", "sync_every": 40, "clients": 20, "architecture": "resnet18"}
NOISE = 0.002  # of a value, relative


def runs(cells: list[dict], noise: float = NOISE, seeds: int = 3, untrained: float = 0.1) -> pd.DataFrame:
    """``seeds`` runs of each cell, whose numbers are means; models learned unless ``untrained`` is high."""
    rng, rows = np.random.default_rng(0), []
    for cell in cells:
        for seed in range(seeds):
            measured = [name for name in ("linear_probe_accuracy", "mse", "ssim") if name in cell]
            drawn = {name: cell[name] * (1 + noise * rng.standard_normal()) for name in measured}
            rows.append(cell | drawn | {"seed": seed, "untrained": untrained, "chance": 0.1})
    return pd.DataFrame(rows)


def verdict(id: str, results: pd.DataFrame, profile: str = "gpu") -> Verdict:
    (only,) = judge(CLAIMS[id], "monacosfl", results, profile)
    return only


def by_cut(moco: dict[int, float], monaco: dict[int, float] | None = None, **more) -> list[dict]:
    """Accuracies by cut."""
    return [
        RUN
        | {"method": method, "cut_layer": cut, "linear_probe_accuracy": accuracy, "bytes_per_client_epoch": 1e6 / cut}
        | more
        for method, table in (("MocoSFL", moco), ("MonAcoSFL", monaco or {}))
        for cut, accuracy in table.items()
    ]


def sizes(deepest: float) -> list[dict]:
    return [cell for clients in (5, 20, 200) for cell in by_cut({1: 0.7, 9: 0.65, 17: deepest}, clients=clients)]


def reliable(deep: float) -> list[dict]:
    return by_cut({1: 0.7, 7: 0.68, 9: deep, 17: deep})


def slopes(moco: float, monaco: float) -> list[dict]:
    return by_cut(*({cut: 0.7 + slope * cut for cut in (1, 5, 9)} for slope in (moco, monaco)))


def gaps(gap: float, cuts: list[int], architecture: str = "mobilenetv2") -> list[dict]:
    return by_cut(dict.fromkeys(cuts, 0.3), dict.fromkeys(cuts, 0.3 + gap), architecture=architecture)


def attacks(moco: list[float], monaco: list[float], cuts: tuple[int, ...]) -> list[dict]:
    """Attacked models, whose SSIM falls where their error rises."""
    cells = by_cut(dict.fromkeys(cuts, 0.6), dict.fromkeys(cuts, 0.6))
    return [cell | {"mse": mse, "ssim": 0.9 - mse} for cell, mse in zip(cells, [*moco, *monaco], strict=True)]


CUTS = (1, 3, 7, 9, 17)
FLAT = [0.10, 0.10, 0.10, 0.11, 0.2]
TRAINED = {  # claim: cells that reproduce it, cells that contradict it
    "fig1-accuracy-gap-at-optimum": (
        by_cut({1: 0.7, 11: 0.48}, {1: 0.7, 11: 0.62}),
        by_cut({1: 0.7, 11: 0.48}, {1: 0.7, 11: 0.56}),
    ),
    "fig4-depth-hurts-mocosfl": (sizes(0.48), sizes(0.62)),  # 0.2 is a third of what training adds at cut 1
    "fig4-unreliable-beyond-7": (reliable(0.47), reliable(0.62)),
    "fig6-both-decline": (slopes(-0.01, -0.004), slopes(-0.01, -0.008)),
    "fig6-gap-11-13": (gaps(0.32, [11, 13], "resnet18"), gaps(0.28, [11, 13], "resnet18")),
    "fig6-monacosfl-holds": (by_cut({}, {1: 0.7, 9: 0.65, 17: 0.62}), by_cut({}, {1: 0.7, 9: 0.65, 17: 0.48})),
    "abs-state-of-the-art": (
        by_cut({1: 0.6, 11: 0.5}, {1: 0.7, 11: 0.62}),
        by_cut({1: 0.7, 11: 0.5}, {1: 0.7, 11: 0.62}),
    ),
    "fig7-gap-40": (gaps(0.42, [*range(3, 17, 2)]), gaps(0.38, [*range(3, 17, 2)])),
    "fig7-every-depth": (gaps(0.02, [1, 5, 9]), gaps(0.02, [1, 5]) + gaps(-0.02, [9])),
    "fig8a-reconstructions": (attacks(FLAT, FLAT, CUTS), attacks(FLAT, FLAT[::-1], CUTS)),
    "fig8b-deeper-is-more-private": (attacks(FLAT, FLAT, CUTS), attacks(FLAT, [0.10, 0.10, 0.15, 0.16, 0.2], CUTS)),
    "fig8b-9-to-13": (attacks(FLAT, FLAT, CUTS), attacks(FLAT, [0.10, 0.10, 0.15, 0.14, 0.2], CUTS)),
    "fig8b-similar-privacy-1-13": (
        attacks([0.1, 0.2], [0.11, 0.21], (1, 13)),
        attacks([0.1, 0.2], [0.13, 0.26], (1, 13)),
    ),
    "fig8b-reversed-15-17": (
        attacks([0.21, 0.25, 0.25], [0.2, 0.2, 0.2], (1, 15, 17)),
        attacks([0.21, 0.25, 0.2], [0.2, 0.2, 0.25], (1, 15, 17)),
    ),
    "fig8b-poor-features": (
        attacks([0.21, 0.25, 0.25], [0.2, 0.2, 0.2], (1, 15, 17)),
        attacks([0.3, 0.25, 0.25], [0.2, 0.2, 0.2], (1, 15, 17)),
    ),
}


@pytest.mark.parametrize("id", TRAINED)
def test_training_reproduces_or_contradicts_a_claim(id):
    good, bad = (verdict(id, runs(cells)) for cells in TRAINED[id])
    assert (good.ours, bad.ours) == ("reproduced", "contradicted")
    assert good.evidence == bad.evidence == "trained"
    assert good.paper_consistent is None


@pytest.mark.parametrize("id", TRAINED)
def test_noise_one_seed_and_models_that_did_not_learn_decide_nothing(id):
    good, bad = TRAINED[id]
    assert verdict(id, runs(good, noise=0.25, untrained=0.0)).ours == "inconclusive"
    assert verdict(id, runs(good, seeds=1)).ours == "inconclusive"
    for cells in (good, bad):
        found = verdict(id, runs(cells, untrained=0.95))
        assert (found.ours, found.reason.endswith("is not shown to have learned")) == ("inconclusive", True)


def test_mocosfl_may_fail_at_a_deep_cut_but_not_at_cut_1():
    frame = runs(sizes(0.3))
    cut = frame["cut_layer"]
    deep, shallow = (frame.assign(untrained=np.where(at, 0.95, 0.1)) for at in (cut > 1, cut == 1))
    assert verdict("fig4-depth-hurts-mocosfl", deep).ours == "reproduced"
    assert verdict("fig4-depth-hurts-mocosfl", shallow).ours == "inconclusive"


def test_one_federation_in_which_the_gap_is_smaller_contradicts_it():
    few, many = (gaps(gap, [11, 13], "resnet18") for gap in (0.32, 0.28))
    assert verdict("fig6-gap-11-13", runs(few + [cell | {"clients": 200} for cell in many])).ours == "contradicted"


@pytest.mark.parametrize("id", ["fig6-gap-11-13", "fig7-gap-40"])
def test_a_stated_size_is_not_judged_on_a_small_model(id):
    assert verdict(id, runs(TRAINED[id][0]), "laptop").ours == "not run"


@pytest.mark.parametrize(
    ("id", "cells", "needs"),
    [
        ("fig4-unreliable-beyond-7", by_cut({1: 0.7, 9: 0.5}), "cut layer 7"),
        (
            "fig4-unreliable-beyond-7",
            by_cut({1: 0.7, 7: 0.6, 9: 0.5}, architecture="resnet10"),
            "architecture resnet18",
        ),
        ("fig1-accuracy-gap-at-optimum", slopes(-0.02, -0.01), "MocoSFL and MonAcoSFL at cuts 1, 11"),
        ("fig6-both-decline", by_cut({1: 0.7, 9: 0.5}, {1: 0.7, 9: 0.6}), "three cuts"),
        ("fig6-monacosfl-holds", by_cut({}, {1: 0.7, 9: 0.7}), "cut 1 and two deeper ones"),
        ("sec42-grows-with-depth", by_cut({1: 0.7, 9: 0.5}, misalignment=0.1), "MocoSFL and MonAcoSFL"),
        ("fig8b-9-to-13", attacks([0.1, 0.1], [0.2, 0.2], (1, 17)), "cut layer 7"),
        ("fig7-every-depth", gaps(0.1, [1, 9]), "three cuts"),
        ("fig7-every-depth", slopes(-0.02, -0.01), "architecture mobilenetv2"),
    ],
)
def test_what_was_not_run_is_named(id, cells, needs):
    found = verdict(id, runs(cells))
    assert (found.ours, found.reason) == ("not run", f"needs {needs}")


def test_a_size_of_federation_that_was_not_run_leaves_the_claim_open():
    found = verdict("fig4-depth-hurts-mocosfl", runs(sizes(0.48)[:6]))
    assert (found.ours, found.reason) == ("inconclusive", "needs clients 200")
    assert found.low < found.estimate < found.high  # of what was run
    assert verdict("fig4-depth-hurts-mocosfl", runs(sizes(0.62)[:6])).ours == "contradicted"


@pytest.mark.parametrize(
    ("grows", "answer"),
    [(3.0, "reproduced"), (0.5, "inconclusive"), (0.05, "contradicted")],  # of the mean; deep has ten times as many
)
def test_misalignment_grows_in_the_mean_and_in_the_sum_or_in_neither(grows, answer):
    rows = []
    for method, times in (("MocoSFL", 1), ("MonAcoSFL", 2)):
        for cut, parameters in ((1, 1e3), (17, 1e4)):
            (cell,) = by_cut({cut: 0.6}, bytes_per_client_epoch=1e6 / cut + times * parameters)
            rows += [cell | {"method": method, "misalignment": 0.1 * (grows if cut > 1 else 1)}]
    frame = runs(rows)
    noise = 1 + 0.01 * np.random.default_rng(1).standard_normal(len(frame))
    found = verdict("sec42-grows-with-depth", frame.assign(misalignment=frame["misalignment"] * noise))
    assert (found.ours, found.seeds) == (answer, 3)


def test_without_a_synchronisation_or_a_second_cut_no_misalignment_grows():
    never = by_cut({1: 0.7, 9: 0.5}, {1: 0.7, 9: 0.5}, misalignment=0.1)
    once = [cell | {"bytes_per_client_epoch": 1e6 + 1e3 * (cell["method"] == "MonAcoSFL")} for cell in never[::2]]
    reasons = [verdict("sec42-grows-with-depth", runs(cells)).reason for cells in (never, once)]
    assert reasons == ["needs a synchronisation", "needs two cuts"]


def test_a_lead_that_all_cuts_have_is_not_of_the_last_ones():
    same_everywhere = runs(attacks([0.25] * 3, [0.2] * 3, (1, 15, 17)), noise=0.0005)
    assert verdict("fig8b-reversed-15-17", same_everywhere).ours == "reproduced"
    found = verdict("fig8b-poor-features", same_everywhere)
    assert (found.ours, abs(found.estimate) < 0.01) == ("inconclusive", True)


def test_what_is_much_is_a_share_of_what_training_adds():
    """The same points lost are a third of little, and less than a sixth of much."""
    assert verdict("fig4-depth-hurts-mocosfl", runs(sizes(0.62), untrained=0.5)).ours == "reproduced"
    assert verdict("fig4-depth-hurts-mocosfl", runs(sizes(0.62), untrained=0.1)).ours == "contradicted"


@pytest.mark.parametrize(
    ("id", "cells"),
    [
        ("fig4-depth-hurts-mocosfl", sizes(0.55)),
        ("fig4-unreliable-beyond-7", reliable(0.55)),
        ("fig6-monacosfl-holds", by_cut({}, {1: 0.7, 9: 0.65, 17: 0.55})),
    ],
)
def test_between_little_and_much_nothing_is_decided(id, cells):
    """A quarter of what training adds is lost: no number of the paper says whether that is much."""
    assert verdict(id, runs(cells)).ours == "inconclusive"


def test_iid_controls_do_not_count():
    frame = runs([*sizes(0.48), *by_cut({1: 0.7, 17: 0.69}, partition="iid")])
    assert verdict("fig4-depth-hurts-mocosfl", frame).ours == "reproduced"


def test_a_split_that_saves_no_traffic_contradicts():
    frame = runs(TRAINED["abs-state-of-the-art"][0]).assign(bytes_per_client_epoch=1e6)
    found = verdict("abs-state-of-the-art", frame)
    assert (found.ours, found.estimate, found.below) == ("contradicted", 1.0, 0.5)


# ---------------------------------------------------------------------------------------------- fig9: misalignment


def steps(jump: float, apart: float, change: float, early: float = 0.0, noise: float = 0.01) -> pd.DataFrame:
    """30 steps with a sync at every tenth: how far MocoSFL jumps there, how far it is above MonAcoSFL, and so on."""
    rng, rows = np.random.default_rng(0), []
    for seed in range(3):
        for step in range(1, 31):
            synced = step % 10 == 0
            for method, after, factor in (("MocoSFL", apart, jump), ("MonAcoSFL", 1.0, change)):
                value = (after if step >= 10 else 1.0) * (1 + noise * rng.standard_normal() * (step >= 10))
                value *= 1 + early * (method == "MocoSFL" and step < 10)
                rows.append((method, seed, step, synced, value / factor if synced else value, value))
    names = ["method", "seed", "step", "synced", "misalignment_before_sync", "misalignment"]
    return pd.DataFrame(rows, columns=names).assign(setting="paper-like")


FIG9 = {
    "fig9-equal-before-first-sync": (steps(6, 6, 1), steps(6, 6, 1, early=0.1)),
    "fig9-misalignment": (steps(6, 6, 1), steps(4, 6, 1)),
    "fig9-order-of-magnitude": (steps(6, 6, 1), steps(6, 4, 1)),
    "fig9-monacosfl-flat": (steps(6, 6, 1.05), steps(6, 6, 1.2)),
}


@pytest.mark.parametrize("id", FIG9)
def test_misalignment(id):
    good, bad = (verdict(id, frame) for frame in FIG9[id])
    assert (good.ours, bad.ours) == ("reproduced", "contradicted")
    assert good.seeds == 3


@pytest.mark.parametrize(
    ("id", "frame"),
    [
        ("fig9-misalignment", steps(6, 6, 1)),
        ("fig9-order-of-magnitude", steps(6, 5.1, 1, noise=0.3)),
        ("fig9-monacosfl-flat", steps(6, 6, 1.05)),
    ],
)
def test_misalignment_of_runs_that_differ_much_decides_nothing(id, frame):
    unlike = frame["misalignment"] * frame["synced"].map({True: 1.0, False: 0.0}) * (frame["seed"] == 1)
    frame = frame.assign(misalignment_before_sync=frame["misalignment_before_sync"] + 2 * unlike)
    assert verdict(id, frame).ours == "inconclusive"


# ------------------------------------------------------------------------------------------------------ exact evidence


def traffic(cheapest: dict[str, int], rising: str = "", falling: str = "") -> pd.DataFrame:
    rows = []
    for name, best in cheapest.items():
        for index, cut in enumerate(range(1, 18, 2), 1):
            place = cut if name == "resnet18" else index
            activations = 100.0 - index + 5 * (name == rising and index == 4)
            syncs = 10.0 + index - 5 * (name == falling and index == 4)
            rows.append((name, cut, index, activations * 2**20, syncs * 2**20, 500.0 + abs(place - best)))
    names = ["architecture", "cut_layer", "code_index", "activation_bytes", "sync_bytes", "total_bytes"]
    setting = {"strides": "cifar", "image_size": 224, "images": 250, "syncs": 10}
    counted = pd.DataFrame(rows, columns=names).assign(**setting)
    return pd.concat([counted.assign(rule=rule) for rule in ("one-way", "two-way")], ignore_index=True)


def toy(moco: float, monaco: float, gap: float = 1e-15, window: int = 200) -> pd.DataFrame:
    rows = [(name, 1.0, ratio, gap) for name, ratio in (("MocoSFL", moco), ("MonAcoSFL", monaco)) for _ in range(2)]
    return pd.DataFrame(rows, columns=["method", "distance_before", "distance_after", "ema_gap"]).assign(window=window)


def similarities(last: float, noise: float = 0.01, third: float = 0.6) -> pd.DataFrame:
    """To another photograph 0.2 at every layer."""
    rng = np.random.default_rng(0)
    means = dict(zip((1, 5, 9, 13, 17), (0.8, 0.7, third, 0.45, last), strict=True))
    rows = [
        (photograph, seed, layer, mean + noise * rng.standard_normal())
        for photograph in ("china", "flower")
        for seed in range(10)
        for layer, mean in means.items()
    ]
    frame = pd.DataFrame(rows, columns=["photograph", "seed", "layer", "similarity"])
    return frame.assign(norm="group", similarity_other=0.2)


USUAL = {"resnet18": 11, "mobilenetv2": 7}
EXACT = {
    "fig1-optimal-cut": (traffic(USUAL), traffic({"resnet18": 15})),
    "fig3-resnet18-optimum": (traffic(USUAL), traffic({"resnet18": 15})),
    "fig3-activations-shrink": (traffic(USUAL), traffic(USUAL, rising="mobilenetv2")),
    "fig3-sync-grows": (traffic(USUAL), traffic(USUAL, falling="resnet18")),
    "fig5-sync-misaligns": (toy(1.5, 0.9), toy(1.5, 1.1)),
    "sec42-ema-commutes-with-average": (toy(1.5, 0.9), toy(1.5, 0.9, gap=1e-3)),
    "fig2-early-layers-look-like-input": (similarities(0.4), similarities(0.55)),  # 0.5 is half of what layer 1 has
}


def test_what_holds_in_the_window_of_the_sketch_alone_is_left_open():
    both = pd.concat([toy(1.5, 0.9), toy(0.8, 0.9, window=25)])
    found = verdict("fig5-sync-misaligns", both, "laptop")
    assert (found.ours, found.reason.partition(":")[0]) == ("inconclusive", "what can be meant disagrees")


@pytest.mark.parametrize("id", EXACT)
def test_counts_toys_and_untrained_models(id):
    good, bad = (verdict(id, frame, "laptop") for frame in EXACT[id])
    assert (good.ours, bad.ours) == ("reproduced", "contradicted")
    assert good.evidence == bad.evidence == "exact"


def test_untrained_models_that_differ_much_decide_nothing():
    assert verdict("fig2-early-layers-look-like-input", similarities(0.4, noise=0.3), "laptop").ours == "inconclusive"


def test_a_layer_that_looks_more_like_the_image_than_an_earlier_one_contradicts():
    assert verdict("fig2-early-layers-look-like-input", similarities(0.4, third=0.8), "laptop").ours == "contradicted"


def test_what_any_photograph_has_is_no_likeness():
    """The similarity itself is level; the other photograph's rises with depth."""
    frame = similarities(0.8).assign(similarity=0.8)
    chance = frame["layer"].map(dict(zip((1, 5, 9, 13, 17), (0.1, 0.2, 0.3, 0.5, 0.7), strict=True)))
    frame["similarity_other"] = chance + 0.01 * frame["seed"]
    assert verdict("fig2-early-layers-look-like-input", frame, "laptop").ours == "reproduced"


@pytest.mark.parametrize("id", ["fig1-optimal-cut", "fig3-resnet18-optimum"])
def test_an_optimum_by_one_count_of_a_sync_alone_is_open(id):
    other = traffic({"resnet18": 15})
    mixed = pd.concat([traffic(USUAL).query("rule == 'two-way'"), other.query("rule == 'one-way'")])
    found = verdict(id, mixed, "laptop")
    assert (found.ours, found.estimate) == ("inconclusive", 15)
    assert re.fullmatch(r"what can be meant disagrees: .*two-way \(.* MiB\) is 11", found.reason)


def test_an_optimum_by_one_numbering_alone_is_open():
    """The cut with index 7 has label 13, the one with label 7 index 4."""
    index, label, neither = (traffic({"mobilenetv2": best}) for best in (7, 4, 6))
    assert [verdict("fig3-mobilenetv2-optimum", cuts, "laptop").ours for cuts in (index, label, neither)] == [
        "inconclusive",
        "inconclusive",
        "contradicted",
    ]


def test_an_optimum_needs_all_cuts():
    found = verdict("fig1-optimal-cut", traffic(USUAL).query("cut_layer != 15"), "laptop")
    assert (found.ours, found.reason) == ("not run", "needs the nine cuts of resnet18")


def test_the_stated_images_between_syncs():
    assert verdict("sec51-images-between-syncs", pd.DataFrame({"seed": [0]}), "laptop").ours == "reproduced"


def test_every_claim_is_tested_here():
    apart = {"fig3-mobilenetv2-optimum", "sec51-images-between-syncs", "sec42-grows-with-depth"}
    assert set(CLAIMS) == {*TRAINED, *FIG9, *EXACT, *apart}


def test_pairs_that_a_sync_brings_closer_are_no_contradiction():
    assert verdict("fig9-monacosfl-flat", steps(6, 6, 0.5)).ours == "reproduced"


def test_a_rise_at_the_first_sync_alone_is_open():
    """In the mean over three syncs it is within 1.1, and by itself it is not."""
    up, level = steps(6, 6, 1.2), steps(6, 6, 1)
    found = verdict("fig9-monacosfl-flat", pd.concat([up[up.step <= 10], level[level.step > 10]]))
    assert found.ours == "inconclusive"
    assert found.reason.startswith("what can be meant disagrees: rise of MonAcoSFL at ")


def test_changes_up_and_down_do_not_cancel():
    up, down = steps(6, 6, 1.5), steps(6, 6, 1 / 1.5)
    both = pd.concat([up[up.step <= 10], down[(down.step > 10) & (down.step <= 20)]])
    assert verdict("fig9-monacosfl-flat", both).ours == "contradicted"
