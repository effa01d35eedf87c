"""Each predicate of Figure 8 with results for which it holds, for which it fails, and that decide nothing."""

import pandas as pd
import pytest

import fssl_core.reporting.predicates  # noqa: F401  (registers them)
from fssl_core.reporting.claims import check_claims, judge
from fssl_core.reporting.predicate import PREDICATES
from fssl_core.reporting.reference import paper_claims

CLAIMS = {claim.id.removeprefix("monacosfl-"): claim for claim in paper_claims("monacosfl") if claim.artifact == "fig8"}
CUTS = range(1, 18, 2)


def attacks(mocosfl, monacosfl, cuts=CUTS, ssim_falls=True, error=0.0004):
    """MSE in thousandths by cut and method, two seeds around it; SSIM falls or rises from cut to cut."""
    return pd.DataFrame(
        [
            {
                "method": method, "cut_layer": cut, "seed": seed, "mse": value / 1000 + spread,
                "mse_standard_error": error, "ssim": 0.9 - 0.04 * place if ssim_falls else 0.2 + 0.04 * place,
            }
            for method, values in (("MocoSFL", mocosfl), ("MonAcoSFL", monacosfl))
            for place, (cut, value) in enumerate(zip(cuts, values, strict=True))
            for seed, spread in ((0, -0.0005), (1, 0.0005))
        ]
    )  # fmt: skip


#      1   3   5   7   9  11  13  15  17
PAPER = attacks(
    [10, 10, 11, 11, 13, 15, 18, 30, 40],
    [10, 11, 12, 12, 14, 16, 20, 25, 30],
)


def verdict(claim, results, profile="gpu"):
    return judge(CLAIMS[claim], results, profile).verdict


def test_every_claim_of_the_attack_has_a_predicate():
    assert {claim.id for claim in CLAIMS.values()} <= set(PREDICATES)
    assert len(CLAIMS) == 4


def test_all_claims_hold_on_errors_as_the_paper_describes_them():
    table = check_claims("monacosfl/fig8", PAPER, "gpu").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    values = table["value"].rename(lambda name: name.removeprefix("monacosfl-"))
    assert values["fig8a-reconstructions"] == (
        "SSIM at cuts 1 and 17: MocoSFL 0.900 and 0.580, MonAcoSFL 0.900 and 0.580"
    )
    assert values["fig8b-deeper-is-more-private"] == (
        "MocoSFL varies by 0.001 in 1 to 7, rises by 0.029 from 7 to 17, "
        "MonAcoSFL varies by 0.002 in 1 to 7, rises by 0.018 from 7 to 17"
    )
    assert values["fig8b-similar-privacy-1-13"] == "MSE of MonAcoSFL +8.0%, mean over 7 cuts"  # 95 / 88
    assert values["fig8b-reversed-15-17"] == (
        "MSE of MocoSFL 0.0300 against 0.0250 at cut 15, 0.0400 against 0.0300 at cut 17"
    )


def test_reconstructions_have_to_become_less_recognisable_with_both_methods():
    rising = attacks([10] * 9, [10] * 9, ssim_falls=False)
    one_of_two = pd.concat([PAPER[PAPER["method"] == "MocoSFL"], rising[rising["method"] == "MonAcoSFL"]])
    assert verdict("fig8a-reconstructions", rising) == "fails"
    assert verdict("fig8a-reconstructions", one_of_two) == "fails"


DEEPER = "fig8b-deeper-is-more-private"


def test_deeper_cuts_are_more_private_by_more_than_shallow_ones_differ():
    flat = [10, 10, 11, 11, 13, 15, 18, 30, 40]
    assert verdict(DEEPER, attacks(flat, [2, 40, 11, 11, 13, 15, 18, 30, 40])) == "fails"  # 38 against 29
    assert verdict(DEEPER, attacks(flat, [12, 12, 12, 12, 12, 12, 12, 12, 12])) == "fails"  # 0 against 0


@pytest.mark.parametrize(("fall", "expected"), [(0.3, "holds"), (0.5, "fails")])
def test_deeper_cuts_may_fall_back_by_one_standard_error(fall, expected):
    rising = [10, 10, 11, 11, 13, 15, 18, 30, 40]
    falling_back = [10, 10, 11, 11, 13, 15, 15 - fall, 30, 40]
    assert verdict(DEEPER, attacks(rising, falling_back)) == expected  # the standard error is 0.4


def test_similar_privacy_is_at_most_a_fifth_and_not_less_for_monacosfl():
    claim, moco = "fig8b-similar-privacy-1-13", [10] * 9
    assert verdict(claim, attacks(moco, [11.9] * 9)) == "holds"
    assert verdict(claim, attacks(moco, [12.1] * 9)) == "fails"
    assert verdict(claim, attacks(moco, [9.9] * 9)) == "fails"
    assert verdict(claim, attacks(moco, [11] * 7 + [90, 90])) == "holds"  # deeper cuts do not count


def test_the_last_two_cuts_are_reversed_only_if_both_are():
    claim = "fig8b-reversed-15-17"
    assert verdict(claim, attacks([10] * 9, [10] * 7 + [9, 11])) == "fails"
    assert verdict(claim, attacks([10] * 9, [10] * 9)) == "fails"


@pytest.mark.parametrize(
    ("cuts", "judged"),
    [
        ([1, 5, 9], []),  # of a ResNet-10: 9 is its whole backbone, and no cut 13 to 17
        ([1, 7, 11, 13, 17], ["fig8a-reconstructions", "fig8b-similar-privacy-1-13"]),
        ([1, 3, 5, 7, 9, 11, 13], ["fig8b-similar-privacy-1-13"]),
        ([15, 17], ["fig8b-reversed-15-17"]),
    ],
)
def test_claims_need_their_cuts_with_both_methods(cuts, judged):
    some = PAPER[PAPER["cut_layer"].isin(cuts)]
    assert [claim for claim in CLAIMS if verdict(claim, some) != "not run"] == judged
    alone = some[some["method"] == "MonAcoSFL"]
    assert {verdict(claim, alone) for claim in CLAIMS} == {"not run"}


def test_no_claim_of_the_attack_is_judged_at_smoke():
    assert set(check_claims("monacosfl/fig8", PAPER, "smoke")["verdict"]) == {"not run"}
