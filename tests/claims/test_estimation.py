"""Estimates and intervals: coverage by simulation, closed cases, and scipy's own tests as oracle."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fssl_core.claims.estimation import Cells, Estimate, NotRun


def runs(means: dict[str, float], seeds: int, rng: np.random.Generator, noise: float = 1.0, shared: float = 3.0):
    of_seed = shared * rng.standard_normal(seeds)
    return pd.DataFrame(
        {"method": name, "seed": seed, "points": mean + of_seed[seed] + noise * rng.standard_normal()}
        for name, mean in means.items()
        for seed in range(seeds)
    )


def difference(frame: pd.DataFrame, one: str = "a", other: str = "b"):
    cells = Cells(frame, "points", ["method"])
    return (cells.mean(method=one) - cells.mean(method=other)).estimate


@pytest.mark.parametrize(("seeds", "methods"), [(2, 6), (3, 4), (6, 2)])
def test_an_interval_covers_the_truth_as_often_as_it_says(seeds, methods):
    rng, hits, trials = np.random.default_rng(seeds * methods), 0, 500
    means = {name: 5.0 * number for number, name in enumerate("abcdef"[:methods])}
    for _ in range(trials):
        low, high = difference(runs(means, seeds, rng)).interval()
        hits += low <= means["a"] - means["b"] <= high
    # Binomial: the share of 500 trials varies by 0.0097.
    assert hits / trials == pytest.approx(0.95, abs=4 * 0.0097)


def several(rng: np.random.Generator, noise: dict[str, float], together: float = 0.0) -> pd.DataFrame:
    """Runs of three methods with three seeds on tasks with unequal noise, of which a part may be the same in all."""
    rows = []
    for method in "abc":
        for seed in range(3):
            own = rng.standard_normal()
            rows += [
                (method, task, seed, size * (together * own + (1 - together**2) ** 0.5 * rng.standard_normal()))
                for task, size in noise.items()
            ]
    return pd.DataFrame(rows, columns=["method", "task", "seed", "points"])


def share_that_covers(columns: dict, together: float, one: dict, other: dict, trials: int = 500) -> float:
    """How often the interval of a difference that is 0 has 0 in it."""
    rng, hits = np.random.default_rng(11), 0
    for _ in range(trials):
        frame = several(rng, {"quiet": 1.0, "noisy": 10.0}, together)
        cells = Cells(frame, "points", ["method", "task"], **columns)
        low, high = (cells.mean(**one) - cells.mean(**other)).estimate.interval()
        hits += low <= 0 <= high
    return hits / trials


@pytest.mark.parametrize("task", ["quiet", "noisy"])
def test_each_stratum_has_its_own_noise(task):
    one, other = ({"method": method, "task": task} for method in "ab")
    assert share_that_covers({"strata": ["task"]}, 0.0, one, other) == pytest.approx(0.95, abs=4 * 0.0097)
    pooled = share_that_covers({}, 0.0, one, other)
    assert pooled < 0.9 if task == "noisy" else pooled > 0.99


def test_a_mean_over_strata_covers_what_it_says_and_one_over_evaluations_of_the_same_runs_no_less():
    one, other = {"method": "a"}, {"method": "b"}
    # Welch and Satterthwaite's degrees of freedom are an approximation, a little too careful here.
    assert 0.93 < share_that_covers({"strata": ["task"]}, 0.0, one, other) < 0.99
    assert 0.93 < share_that_covers({"evaluations": ["task"]}, 1.0, one, other) < 0.99
    assert share_that_covers({"evaluations": ["task"]}, 0.5, one, other) > 0.93


def test_a_contrast_over_strata_is_that_of_welch():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        [
            (name, seed + 10 * (name == "b"), size * rng.standard_normal())
            for name, size in {"a": 1, "b": 5}.items()
            for seed in range(4)
        ],
        columns=["method", "seed", "points"],
    )
    one, other = (frame.loc[frame["method"] == name, "points"] for name in "ab")
    cells = Cells(frame, "points", ["method"], strata=["method"])
    expected = stats.ttest_ind(one, other, equal_var=False)
    found = (cells.mean(method="a") - cells.mean(method="b")).estimate
    assert found.freedom == pytest.approx(expected.df)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval()))


def test_noise_of_others_gives_no_interval_to_a_single_run():
    frame = runs({"a": 1.0, "b": 0.0, "c": 2.0}, 3, np.random.default_rng(5))
    alone = frame[(frame["method"] != "a") | (frame["seed"] == 0)]
    assert np.isnan(difference(alone).interval()).all()
    assert not np.isnan(difference(alone, "b", "c").interval()).any()


def test_an_interval_of_one_accuracy_covers_what_seeds_add():
    rng, hits, trials = np.random.default_rng(7), 0, 500
    for _ in range(trials):
        frame = runs({"a": 40.0}, 4, rng)
        low, high = Cells(frame, "points", ["method"]).mean().estimate.interval()
        hits += low <= 40 <= high
    assert hits / trials == pytest.approx(0.95, abs=4 * 0.0097)


@pytest.mark.parametrize("shared", [0.0, 3.0])
@pytest.mark.parametrize("mean_of", [["a"], list("abcdef")])
def test_an_accuracy_beside_others_covers_what_seeds_add_to_all(mean_of, shared):
    """Five cells more do not tell more of what three seeds add."""
    rng, hits, trials = np.random.default_rng(len(mean_of)), 0, 500
    for _ in range(trials):
        cells = Cells(runs(dict.fromkeys("abcdef", 40.0), 3, rng, shared=shared), "points", ["method"])
        low, high = cells.mean(method=mean_of).estimate.interval()
        hits += low <= 40 <= high
    assert hits / trials >= 0.95 - 4 * 0.0097
    assert shared == 0 or hits / trials <= 0.95 + 3 * 0.0097  # else too careful: seeds' mean square has few degrees


def test_the_variance_of_a_sum_is_that_of_the_expected_mean_squares():
    """The closed form of the balanced case, from the mean squares of the table's margins."""
    frame = runs({"a": 1.0, "b": 0.0, "c": 2.0}, 4, np.random.default_rng(3))
    table = frame.pivot(index="seed", columns="method", values="points").to_numpy()
    centred = table - table.mean(axis=0)
    seeds = 3 * centred.mean(axis=1).var(ddof=1)
    noise = ((centred - centred.mean(axis=1, keepdims=True)) ** 2).sum() / (3 * 2)
    cells = Cells(frame, "points", ["method"])
    found = (2 * cells.mean(method="a") - 0.5 * cells.mean(method="c")).estimate
    parts = np.array([1.5**2 / 3 * seeds, (4.25 - 1.5**2 / 3) * noise]) / 4
    assert found.error == pytest.approx(np.sqrt(parts.sum()))
    assert found.freedom == pytest.approx(parts.sum() ** 2 / (parts**2 / [3, 6]).sum())


@pytest.mark.parametrize("seeds", [3, 6])
def test_two_methods_are_compared_as_by_the_paired_t_test(seeds):
    frame = runs({"a": 1.0, "b": 0.0}, seeds, np.random.default_rng(0))
    table = frame.pivot(index="seed", columns="method", values="points")
    expected = stats.ttest_rel(table["a"], table["b"]).confidence_interval()
    assert difference(frame).interval() == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("seeds", [4, 5])
def test_from_five_seeds_on_the_noise_of_other_cells_has_no_say(seeds):
    rng = np.random.default_rng(8)
    frame = pd.concat([runs({"a": 1.0, "b": 0.0}, seeds, rng), runs({"c": 0.0}, seeds, rng, noise=30.0)])
    table = frame.pivot(index="seed", columns="method", values="points")
    alone = stats.ttest_rel(table["a"], table["b"]).confidence_interval()
    low, high = difference(frame).interval()
    assert ((low, high) == pytest.approx((alone.low, alone.high))) is (seeds == 5)
    assert (high - low > 3 * (alone.high - alone.low)) == (seeds == 4)


def test_methods_without_a_common_seed_are_compared_as_by_the_t_test_of_two_samples():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"method": list("aaabbb"), "seed": range(6), "points": rng.standard_normal(6)})
    one, other = (frame.loc[frame["method"] == name, "points"] for name in "ab")
    expected = stats.ttest_ind(one, other).confidence_interval()
    assert difference(frame).interval() == pytest.approx((expected.low, expected.high))


def test_a_missing_run_leaves_the_others_paired():
    """Least squares of the two-way model, written out."""
    frame = runs({"a": 1.0, "b": 0.0, "c": 2.0}, 3, np.random.default_rng(2)).drop(index=4)
    dummies = pd.get_dummies(frame[["method", "seed"]].astype(str), drop_first=True).assign(one=1.0).astype(float)
    fit, rest, rank, _ = np.linalg.lstsq(dummies.to_numpy(), frame["points"].to_numpy())
    found = difference(frame, "b", "a")
    assert found.value == pytest.approx(fit[list(dummies).index("method_b")])
    covariance = rest[0] / (len(frame) - rank) * np.linalg.inv(dummies.T @ dummies)
    assert found.error == pytest.approx(np.sqrt(covariance[0, 0]))
    assert found.freedom == len(frame) - rank == 3


def test_runs_that_agree_differ_by_nothing_and_not_by_a_rounding_error():
    frame = pd.DataFrame([(name, seed, 0.1 + seed / 7) for name in "abc" for seed in range(3)])
    found = difference(frame.set_axis(["method", "seed", "points"], axis=1))
    assert (found.value, found.error) == (0.0, 0.0)


@pytest.mark.parametrize("cells", [2, 5, 13])
def test_seeds_that_agree_add_nothing_and_not_less_by_a_rounding_error(cells):
    """What seeds add is a difference of two sums of squares, both of rounding errors here."""
    rows = [(f"m{cell}", seed, 40.0) for cell in range(cells) for seed in range(3)]
    asked = Cells(pd.DataFrame(rows, columns=["method", "seed", "points"]), "points", ["method"])
    errors = [asked.mean(method=f"m{cell}").estimate.error for cell in range(cells)]
    np.testing.assert_allclose(errors, 0, atol=1e-12)


def test_of_a_measure_in_steps_an_error_is_at_least_that_of_rounding():
    frame = pd.DataFrame({"method": ["a"] * 3 + ["b"] * 3, "seed": [0, 1, 2] * 2, "rounds": [4.0] * 3 + [6.0] * 3})
    found = {}
    for step in (0.0, 1.0):
        cells = Cells(frame, "rounds", ["method"], step=step)
        found[step] = (cells.mean(method="a") - cells.mean(method="b")).estimate
    assert found[0.0].interval() == pytest.approx((-2.0, -2.0))
    assert found[1.0].error == pytest.approx(np.sqrt(2 / 3 / 12))  # of a uniform distribution as wide as a step
    noisy = runs({"a": 1.0}, 6, np.random.default_rng(0))
    errors = [Cells(noisy, "points", ["method"], step=step).mean().estimate.error for step in (0.0, 0.1, 100.0)]
    assert errors[0] == errors[1]  # what the seeds vary by is more
    assert errors[2] == pytest.approx(100 / np.sqrt(6 * 12))


@pytest.mark.parametrize("seeds", [3, 5])
def test_a_difference_is_of_what_both_sides_ran(seeds):
    """Runs of one side at easier settings are no advance of its method."""
    rng = np.random.default_rng(5)
    alike = pd.concat([runs({"a": 1.0, "b": 0.0}, seeds, rng).assign(alpha=alpha) for alpha in (0.1, 0.5)])
    easier = runs({"b": 30.0}, seeds, rng).assign(alpha=np.nan)
    found, expected = (
        Cells(frame, "points", ["method", "alpha"]).difference({"method": "a"}, {"method": "b"}).estimate
        for frame in (pd.concat([alike, easier]), alike)
    )
    assert found.value == pytest.approx(expected.value)
    assert Cells(pd.concat([alike, easier]), "points", ["method", "alpha"]).mean(method="b").estimate.value > 5
    with_both = pd.concat([alike, easier, runs({"a": 31.0}, seeds, rng).assign(alpha=np.nan)])
    third = Cells(with_both, "points", ["method", "alpha"]).difference({"method": "a"}, {"method": "b"}).estimate
    assert third.value == pytest.approx(
        with_both.groupby(["method", "alpha"], dropna=False)["points"].mean().groupby("method").mean().diff().iloc[1]
        * -1
    )


def test_sides_without_a_setting_in_common_have_no_difference():
    frame = pd.DataFrame(
        [("a", 0.1, 1), ("a", 0.5, 2), ("b", 0.1, 2), ("b", 0.5, 1)], columns=["method", "alpha", "epochs"]
    ).assign(points=1.0)
    cells = Cells(frame, "points", ["method", "alpha", "epochs"], exact=True)
    with pytest.raises(NotRun, match="needs method a and method b at the same alpha, epochs"):
        cells.difference({"method": "a"}, {"method": "b"})


def test_the_highest_level_above_zero_is_that_of_the_interval_that_begins_there():
    for seed in range(5):
        found = difference(runs({"a": 1.0, "b": 0.0}, 4, np.random.default_rng(seed)))
        level = found.level_above_zero()
        assert (level == 0) is (found.value <= 0)
        if level:
            assert found.interval(level)[0] == pytest.approx(0, abs=1e-9)
    # With one degree of freedom Student's t is Cauchy's distribution, of which half lies between -1 and 1.
    assert Estimate(1.0, 1.0, 1).level_above_zero() == pytest.approx(0.5)
    assert [Estimate(value).level_above_zero() for value in (-1.0, 0.0, 1.0)] == [0, 0, 1]


def test_a_sum_of_cells_that_share_some_seeds_is_as_unsure_as_if_seeds_added_everything():
    """Two cells of two runs, of which one seed is common: noise and what seeds add cannot be told apart."""
    frame = pd.DataFrame({"method": list("aabb"), "seed": [0, 1, 1, 2], "points": [1.0, 2.0, 4.0, 7.0]})
    cells = Cells(frame, "points", ["method"])
    found = (cells.mean(method="a") + cells.mean(method="b")).estimate
    within = (2 * 0.5**2 + 2 * 1.5**2) / 2
    assert found.value == 7.0
    assert found.error == pytest.approx(np.sqrt((0.5**2 + 1**2 + 0.5**2) * within))  # by seed, the sum of its weights


def test_one_seed_has_no_interval():
    assert np.isnan(difference(runs({"a": 1.0, "b": 0.0}, 1, np.random.default_rng(3))).interval()).all()


def test_what_is_exact_is_its_own_interval():
    frame = pd.DataFrame({"method": ["a", "b"], "points": [3.0, 1.0]})
    cells = Cells(frame, "points", ["method"], exact=True)
    assert (cells.mean(method="a") - 2 * cells.mean(method="b")).estimate.interval() == (1.0, 1.0)


def test_means_over_data_sets_are_taken_run_by_run():
    rng = np.random.default_rng(4)
    frame = pd.concat([runs({"a": 1.0, "b": 0.0}, 4, rng).assign(data=name) for name in ("x", "y")])
    cells = Cells(frame, "points", ["method", "data"]).averaged("data")
    found = (cells.mean(method="a") - cells.mean(method="b")).estimate
    by_run = frame.groupby(["method", "seed"])["points"].mean().unstack("method")
    expected = stats.ttest_rel(by_run["a"], by_run["b"]).confidence_interval()
    assert found.interval() == pytest.approx((expected.low, expected.high))


def test_a_mean_over_data_sets_is_of_those_that_all_have():
    frame = pd.DataFrame({"method": list("aab"), "data": list("xyx"), "points": [1.0, 9.0, 3.0]})
    cells = Cells(frame, "points", ["method", "data"], exact=True).averaged("data")
    assert cells.mean(method="a").estimate.value == 1.0


def test_a_run_that_lacks_a_data_set_is_left_out_of_its_mean():
    """Both methods have the same values; one run of the second lacks its easy data set."""
    rows = [(m, d, s, 50.0 * (d == "easy") + s) for m in "ab" for d in ("easy", "hard") for s in range(3)]
    frame = pd.DataFrame(rows, columns=["method", "data", "seed", "points"])
    lacking = frame.drop(frame.query("method == 'b' and data == 'easy' and seed == 2").index)
    cells = Cells(lacking, "points", ["method", "data"]).averaged("data")
    assert (cells.mean(method="a") - cells.mean(method="b")).estimate.value == pytest.approx(0, abs=1e-9)
    with pytest.raises(NotRun, match="no run with every data"):
        Cells(frame[(frame.data == "easy") == (frame.seed == 0)], "points", ["method", "data"]).averaged("data")


def learned(above: float, seeds: int = 3, **columns):
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {"method": "a", "seed": seed, "accuracy": 0.5 + above + 0.01 * rng.standard_normal(), **columns}
        for seed in range(seeds)
    )


@pytest.mark.parametrize(
    ("frame", "doubt"),
    [
        (learned(0.2, untrained=0.5, chance=0.1), ""),
        (learned(0.2, untrained=0.1, chance=0.5), ""),
        (learned(0.0, untrained=0.5, chance=0.1), "a is not shown to have learned"),
        (learned(0.0, untrained=0.1, chance=0.5), "a is not shown to have learned"),
        (learned(0.2, untrained=0.5, chance=0.1, seeds=1), "one seed does not show whether the models learned"),
        (learned(0.2), "no untrained model is recorded beside these"),
        (learned(0.2, untrained=0.5), "no untrained model is recorded beside these"),
    ],
)
def test_a_model_that_did_not_beat_its_untrained_self_decides_nothing(frame, doubt):
    assert Cells(frame, "accuracy", ["method"], accuracy="accuracy").mean().doubt == doubt


def test_a_method_of_which_the_claim_says_that_it_fails_need_not_have_learned():
    frame = learned(0.0, untrained=0.5, chance=0.1)
    assert Cells(frame, "accuracy", ["method"], accuracy="accuracy", failing=["a"]).mean().doubt == ""


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda cells: cells.mean(method="c"), "needs method c"),
        (lambda cells: cells.where(cut=[1, 3]), "no cut is recorded"),
        (lambda cells: Cells(cells.index, "points", ["method"]), "no points is recorded"),
    ],
)
def test_what_was_not_run_is_named(ask, message):
    cells = Cells(runs({"a": 0, "b": 1}, 2, np.random.default_rng(6)), "points", ["method"])
    with pytest.raises(NotRun, match=message):
        ask(cells)
