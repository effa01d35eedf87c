"""What a rule answers: regions, joined answers, and each comparator against a plain loop over exact numbers."""

from itertools import pairwise, permutations, product

import numpy as np
import pandas as pd
import pytest

from fssl_core.claims.estimation import LEVEL, Cells, Estimate, NotRun
from fssl_core.claims.rules import (
    Joined,
    Statement,
    across,
    agreed,
    ahead,
    any_of,
    best,
    equivalent,
    every,
    fact,
    ordered,
    share,
    unknown,
    with_each,
    within,
)

INF = float("inf")


@pytest.mark.parametrize(
    ("value", "error", "low", "high", "strict", "answer"),
    [
        (2.0, 0.5, 0.0, INF, True, True),
        (-2.0, 0.5, 0.0, INF, True, False),
        (0.5, 0.5, 0.0, INF, True, None),
        (0.0, 0.0, 0.0, INF, True, False),
        (0.0, 0.0, 0.0, INF, False, True),
        (0.0, 0.4, -1.0, 1.0, False, True),  # equal within a margin, as shown
        (0.0, 1.0, -1.0, 1.0, False, None),  # no difference seen, and none excluded
        (5.0, 0.0, 5.0, 5.0, False, True),
        (1.0, float("nan"), 0.0, INF, True, None),
    ],
)
def test_a_statement_holds_where_its_whole_interval_is_inside(value, error, low, high, strict, answer):
    assert Statement("x", Estimate(value, error), low, high, strict=strict).answer() is answer


def test_a_doubt_decides_nothing():
    assert Statement("x", Estimate(9.0, 0.1), 0.0, doubt="a did not learn").answer() is None


@pytest.mark.parametrize(("gain", "alone", "among_eight"), [(0.5, None, None), (1.4, False, None), (2.5, False, False)])
def test_of_many_models_that_seem_to_have_learned_one_has_to_be_surer(gain, alone, among_eight):
    """Points above the untrained model, sure from 1.0 on alone, and as one of eight from 1.8 on."""
    rows = [
        (name, seed, 50 + points + swing, 0.5 + (points + swing) / 100)
        for name, points in {"best": 30.0, **{f"poor {number}": gain for number in range(8)}}.items()
        for seed, swing in enumerate([-1, -0.5, 0, 0.5, 1])
    ]
    frame = pd.DataFrame(rows, columns=["method", "seed", "points", "accuracy"]).assign(untrained=0.5, chance=0.1)
    cells = Cells(frame, "points", ["method"], accuracy="accuracy")
    assert ahead(cells, "poor 0", "best").answer() is alone
    assert ahead(cells, [f"poor {number}" for number in range(8)], "best").answer() is among_eight


YES, NO = fact("yes", 1, low=0), fact("no", -1, low=0)
OPEN = Statement("open", Estimate(0.0, 1.0), 0.0)


@pytest.mark.parametrize("parts", list(product([YES, NO, OPEN], repeat=3)))
@pytest.mark.parametrize("needed", [1, 2, 3])
def test_joined_answers_are_those_of_every_way_the_open_ones_may_turn_out(parts, needed):
    worlds = product(*([True, False] if part is OPEN else [part is YES] for part in parts))
    answers = {sum(world) >= needed for world in worlds}
    assert Joined(parts, needed, failing=4 - needed).answer() is (answers.pop() if len(answers) == 1 else None)


@pytest.mark.parametrize("parts", list(product([YES, NO, OPEN], repeat=3)))
def test_measures_agree_or_nothing_is_decided(parts):
    answers = {part.answer() for part in parts}
    assert agreed(parts).answer() is (answers.pop() if len(answers) == 1 else None)


def test_what_is_unknown_leaves_open_what_does_not_fail():
    assert every([YES, unknown("more")]).answer() is None
    assert every([YES, unknown("more")]).deciding()[0].doubt == "needs more"
    assert every([unknown("more"), OPEN]).deciding()[0] is OPEN
    assert every([unknown("more"), NO]).answer() is False
    assert any_of([unknown("more"), YES]).answer() is True


def test_a_rule_about_each_level_knows_which_were_not_run():
    cells = Cells(pd.DataFrame({"color": ["red", "blue"], "value": [2.0, 3.0]}), "value", ["color"], exact=True)

    def positive(part: Cells) -> Statement:
        return within(part, part.mean(), part.levels("color")[0], low=2.5)

    assert with_each(cells, "color", ["blue"], positive).answer() is True
    assert with_each(cells, "color", ["blue", "green"], positive).answer() is None
    assert with_each(cells, "color", ["red", "green"], positive).answer() is False
    with pytest.raises(NotRun):
        with_each(cells, "color", ["green"], positive)


def test_a_share_is_rounded_up():
    assert share([YES, YES, NO, NO], 0.5).answer() is True
    assert share([YES, YES, NO, NO], 0.51).answer() is False
    assert share([YES, YES, YES, NO], 0.75).answer() is True


def test_of_nothing_nothing_is_said():
    with pytest.raises(NotRun, match="nothing to compare"):
        every([])


@pytest.mark.parametrize(("join", "boundary"), [(every, False), (any_of, True)])
def test_many_statements_are_answered_wrongly_no_more_often_than_one(join, boundary):
    """All differences are just above zero, so each holds; or just below, so none does."""
    rng, wrong, trials = np.random.default_rng(0), 0, 2000
    for estimates in rng.standard_normal((trials, 8)):
        parts = [Statement("x", Estimate(value, 1.0), 0.0, strict=True) for value in estimates]
        wrong += join(parts).answer() is boundary
    assert wrong / trials <= 0.025 + 3 * 0.0035  # one side of an interval of 95 percent


def test_what_decides_is_the_weakest_of_those_that_must_hold():
    strong, weak = (Statement(name, Estimate(value, 1.0), 0.0) for name, value in (("strong", 9), ("weak", 3)))
    assert every([strong, weak]).deciding()[0] is weak
    assert any_of([strong, weak]).deciding()[0] is strong
    assert every([strong, NO, weak]).deciding()[0] is NO
    assert every([any_of([strong, weak]), OPEN]).deciding()[0] is OPEN


def test_what_is_unknown_hides_no_weaker_statement_beside_it():
    weak, middle, strong = (Statement("x", Estimate(value, 1.0), 0.0) for value in (-1.0, 1.0, 1.5))
    for parts in permutations([weak, unknown("more"), strong]):
        assert every([every(parts), middle]).deciding()[0] is weak
    assert every([agreed([weak, unknown("another measure")]), middle]).deciding()[0] is middle


def test_what_decides_is_the_first_of_those_that_are_equally_weak():
    """Machines sum in different orders, so the last bits of equal numbers differ."""
    one, other = (Statement(name, Estimate(value, 0.1), 0.0) for name, value in (("one", 0.3), ("other", 0.1 + 0.2)))
    assert one.slack() != other.slack()
    for parts in ([one, other], [other, one]):
        assert every(parts).deciding()[0] is any_of(parts).deciding()[0] is parts[0]


def test_an_interval_is_shown_at_the_level_at_which_it_decides():
    """One of several that must all hold fails at the level for all of them, alone at the usual one."""
    fails = Statement("fails", Estimate(-4.0, 1.0), 0.0)
    assert fails.deciding() == (fails, LEVEL)
    assert every([YES, YES, YES, fails]).deciding() == (fails, pytest.approx(1 - (1 - LEVEL) / 4))
    assert every([YES, Statement("holds", Estimate(4.0, 1.0), 0.0)]).deciding()[1] == LEVEL
    nested = every([YES, any_of([fails, NO])])
    assert nested.answer() is False
    assert nested.deciding()[1] == pytest.approx(1 - (1 - LEVEL) / 2)


def test_what_is_sure_alone_and_not_for_the_whole_is_shown_at_the_level_that_the_whole_needs():
    alone = Statement("alone", Estimate(-2.1, 1.0), 0.0)
    assert alone.answer() is False
    assert every([alone, unknown("more"), unknown("and more")]).answer() is False  # these cannot fail by chance
    for undecided in (every([alone, OPEN]), every([alone, YES, unknown("more")])):
        assert undecided.answer() is None
        shown, level = undecided.deciding()
        assert (shown, level) == (alone, pytest.approx(1 - (1 - LEVEL) / 2))
        assert shown.answer(level) is None


METHODS, SETS, LEVELS = ["a", "b", "c"], ["x", "y"], [1, 2, 4]


@pytest.fixture(params=range(25))
def table(request):
    """Exact cells with ties, by method, set and level, some of them missing."""
    rng = np.random.default_rng(request.param)
    rows = [
        {"method": method, "set": name, "level": level, "points": float(rng.integers(-1, 4))}
        for method, name, level in product(METHODS, SETS, LEVELS)
    ]
    return pd.DataFrame(rows).sample(frac=1 - 0.02 * request.param, random_state=request.param)


def looked_up(table):
    cells = table.set_index(["method", "set", "level"])["points"].to_dict()
    return lambda method, name, level: cells.get((method, name, level))


def outcome(call):
    try:
        return call().answer()
    except NotRun:
        return None


def all_of(differences, holds):
    return all(holds(difference) for difference in differences) if differences else None


def test_ahead(table):
    value, cells = looked_up(table), Cells(table, "points", ["method", "set", "level"], exact=True)
    found = [
        value(one, *place) - value("a", *place)
        for place in product(SETS, LEVELS)
        for one in "bc"
        if None not in (value(one, *place), value("a", *place))
    ]
    each = ["set", "level"]
    assert outcome(lambda: ahead(cells, ["b", "c"], "a", each=each)) is all_of(found, lambda d: d > 0)
    assert outcome(lambda: ahead(cells, ["b", "c"], "a", each=each, by=1)) is all_of(found, lambda d: d >= 1)
    limited = outcome(lambda: ahead(cells, ["b", "c"], "a", each=each, by=-1, upto=2))
    assert limited is all_of(found, lambda d: -1 <= d <= 2)


def test_best(table):
    value, cells = looked_up(table), Cells(table, "points", ["method", "set", "level"], exact=True)
    parts = []
    for place in product(SETS, LEVELS):
        ours = [value(name, *place) for name in "ab" if value(name, *place) is not None]
        rival = value("c", *place)
        if ours and rival is not None:
            parts.append(max(ours) > rival or (None if len(ours) < 2 else False))  # the other one might be ahead
    expected = False if False in parts else all(parts) or None if parts else None
    assert outcome(lambda: best(cells, ["a", "b"], ["c"], each=["set", "level"])) is expected
    # "d" was not run: nobody knows of it, and one that is ahead already decides.
    with_absent = None if expected is True else expected
    assert outcome(lambda: best(cells, ["a", "b"], ["c", "d"], each=["set", "level"])) is with_absent


def test_a_method_that_was_not_run_leaves_open_whether_all_are_beaten():
    cells = Cells(pd.DataFrame({"method": ["a", "b"], "points": [2.0, 1.0]}), "points", ["method"], exact=True)
    assert ahead(cells, "a", "b").answer() is True
    for open_one in (ahead(cells, "a", ["b", "d"]), ahead(cells, ["a", "d"], "b")):
        assert open_one.answer() is None
        assert open_one.deciding()[0].doubt == "needs d"
    assert ahead(cells, "b", ["a", "d"]).answer() is False


def test_sides_that_were_run_at_other_settings_are_not_compared():
    frame = pd.DataFrame({"method": ["a", "b"], "alpha": [0.1, 10.0], "points": [2.0, 1.0]})
    both = pd.concat([frame, frame.assign(alpha=1.0, points=[1.0, 3.0])])
    apart, shared = (Cells(rows, "points", ["method", "alpha"], exact=True) for rows in (frame, both))
    assert ahead(shared, "b", "a").answer() is True  # at 1.0, which both have
    assert ahead(apart, "a", "b").answer() is True  # a column in which they have nothing in common is theirs
    places = [("a", 0.1, 1), ("a", 0.5, 2), ("b", 0.1, 2), ("b", 0.5, 1)]
    crossed = pd.DataFrame(places, columns=["method", "alpha", "epochs"]).assign(points=1.0)
    with pytest.raises(NotRun, match="needs a and b side by side"):
        ahead(Cells(crossed, "points", ["method", "alpha", "epochs"], exact=True), "a", "b")


def test_ordered(table):
    value, cells = looked_up(table), Cells(table, "points", ["method", "set", "level"], exact=True)
    steps = []
    for method, name in product(METHODS, SETS):
        curve = [value(method, name, level) for level in LEVELS if value(method, name, level) is not None]
        steps += [after - before for before, after in pairwise(curve)]
    each = ["method", "set"]
    assert outcome(lambda: ordered(cells, "level", each=each)) is all_of(steps, lambda step: step > 0)
    assert outcome(lambda: ordered(cells, "level", each=each, slack=1)) is all_of(steps, lambda step: step >= -1)
    falling = outcome(lambda: ordered(cells, "level", LEVELS[::-1], each=each))
    assert falling is all_of(steps, lambda step: step < 0)


def test_equivalent_and_across(table):
    value, cells = looked_up(table), Cells(table, "points", ["method", "set", "level"], exact=True)
    places = list(product(SETS, LEVELS))
    pairs = [(value("a", *place), value("b", *place)) for place in places]
    differences = [one - other for one, other in pairs if None not in (one, other)]
    found = outcome(lambda: equivalent(cells, "a", "b", 1.0, each=["set", "level"]))
    assert found is all_of(differences, lambda difference: abs(difference) <= 1)
    changes = [
        value(method, name, 4) - value(method, name, 1)
        for method, name in product(METHODS, SETS)
        if None not in (value(method, name, 4), value(method, name, 1))
    ]
    found = outcome(lambda: across(cells, "level", 1, 4, low=-1, high=2, each=["method", "set"]))
    assert found is all_of(changes, lambda change: -1 <= change <= 2)


def test_quantities_have_names():
    table = pd.DataFrame({"method": ["a", "b"], "cut": [3, 3], "points": [3.0, 1.0]})
    cells = Cells(table, "points", ["method", "cut"], exact=True, label="linear probe")
    statement = ahead(cells, "a", "b", each=["cut"])
    assert (statement.name, statement.label) == ("a − b, cut 3", "linear probe")
