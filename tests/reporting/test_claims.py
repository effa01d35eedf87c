import pandas as pd
import pytest

import fssl_core.reporting.predicates  # noqa: F401
from fssl_core.errors import DataError, SettingError
from fssl_core.reporting.claims import check_claims, claims_table, judge
from fssl_core.reporting.predicate import PREDICATES, predicate
from fssl_core.reporting.reference import PAPERS, paper_claims

CLAIMS = {claim.id: claim for key in PAPERS for claim in paper_claims(key)}


def verdict(claim_id, results, profile="laptop"):
    return judge(CLAIMS[claim_id], results, profile).verdict


def test_every_predicate_belongs_to_a_claim_and_eight_artifacts_are_complete():
    assert set(PREDICATES) <= set(CLAIMS)
    done = {"fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"}
    missing = {c.id for c in paper_claims("monacosfl") if c.artifact in done} - set(PREDICATES)
    assert not missing


def test_a_claim_takes_one_predicate():
    with pytest.raises(ValueError, match="'monacosfl-fig3-sync-grows' has two predicates"):
        predicate("monacosfl-fig3-sync-grows")(lambda results: None)


# ------------------------------------------------------------------------------------------------- predicates


def test_fig2():
    layers = [1, 5, 9, 13, 17]
    falling = pd.DataFrame({"layer": layers, "similarity": [0.9, 0.7, 0.74, 0.4, 0.3]})
    rising = pd.DataFrame({"layer": layers, "similarity": [0.9, 0.4, 0.6, 0.4, 0.3]})  # by more than 0.05
    claim = "monacosfl-fig2-early-layers-look-like-input"
    assert verdict(claim, falling, "smoke") == "holds"
    assert verdict(claim, rising, "smoke") == "fails"
    assert verdict(claim, falling[falling["layer"] != 9], "smoke") == "not run"


def traffic(architecture, activations, sync):
    """Bars of one architecture; ``sync`` is the one-way part, in MiB as the activations."""
    return pd.DataFrame(
        {
            "architecture": architecture, "strides": "cifar", "rule": rule, "cut_layer": 2 * code - 1,
            "code_index": code, "image_size": 224, "images": 250, "syncs": 10, "activation_bytes": a * 2**20,
            "sync_bytes": ways * s * 2**20, "total_bytes": (a + ways * s) * 2**20,
        }
        for rule, ways in (("one-way", 1), ("two-way", 2))
        for code, (a, s) in enumerate(zip(activations, sync, strict=True), start=1)
    )  # fmt: skip


RESNET = traffic(
    "resnet18",
    [1531.2, 1531.2, 1531.2, 765.6, 765.6, 382.8, 382.8, 191.4, 191.4],
    [0.4, 3.2, 6.0, 14.8, 26.1, 61.1, 106.2, 246.3, 426.4],
)
MOBILENET = traffic(
    "mobilenetv2",
    [3062.5, 1531.2, 2296.9, 765.6, 382.8, 574.2, 239.3, 478.5, 1914.1],
    [0.01, 0.1, 0.7, 2.2, 9.2, 21.0, 51.4, 71.4, 87.2],
)


def test_fig3_on_the_numbers_of_the_authors_calculator():
    table = check_claims("monacosfl/fig3", pd.concat([RESNET, MOBILENET]), "smoke").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table.loc["monacosfl-fig3-resnet18-optimum", "value"] == "11 (505.0 MiB) two-way; 15 (437.7 MiB) one-way"
    assert table.loc["monacosfl-fig3-mobilenetv2-optimum", "value"] == "code index 7 = label 13 (342.1 MiB)"


def test_fig3_fails_where_the_numbers_say_so():
    cheap_first = RESNET.assign(total_bytes=RESNET["cut_layer"])
    flat = pd.concat([RESNET, MOBILENET]).assign(sync_bytes=1)
    growing = RESNET.assign(activation_bytes=RESNET["cut_layer"])
    assert verdict("monacosfl-fig3-resnet18-optimum", cheap_first) == "fails"
    assert verdict("monacosfl-fig3-mobilenetv2-optimum", MOBILENET.assign(total_bytes=-MOBILENET.cut_layer)) == "fails"
    assert verdict("monacosfl-fig3-sync-grows", flat) == "fails"
    assert verdict("monacosfl-fig3-activations-shrink", growing) == "fails"


def test_fig3_without_the_papers_setting_is_not_run():
    small = pd.concat([RESNET, MOBILENET]).assign(image_size=32)
    assert set(check_claims("monacosfl/fig3", small, "smoke")["verdict"]) == {"not run"}


def test_fig5():
    toy = pd.DataFrame(
        {
            "method": ["MocoSFL", "MocoSFL", "MonAcoSFL", "MonAcoSFL"],
            "distance_before": [1.0, 2.0, 1.0, 2.0],
            "distance_after": [3.0, 4.0, 0.5, 2.0],
            "ema_gap": [1e-9, 1e-8, 1e-9, 1e-9],
        }
    )
    table = check_claims("monacosfl/fig5", toy, "smoke").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table.loc["monacosfl-fig5-sync-misaligns", "value"] == (
        "distance after / before: MocoSFL 2.00 to 3.00, MonAcoSFL 0.50 to 1.00"
    )
    worse = toy.assign(distance_after=[3.0, 4.0, 0.5, 2.1], ema_gap=1e-3)
    assert set(check_claims("monacosfl/fig5", worse, "smoke")["verdict"]) == {"fails"}
    assert verdict("monacosfl-fig5-sync-misaligns", toy[toy["method"] == "MocoSFL"]) == "not run"
    assert verdict("monacosfl-sec42-ema-commutes-with-average", toy.assign(ema_gap=float("nan"))) == "not run"


def accuracies(mocosfl, monacosfl, **columns):
    """Runs at cuts 1, 3, ...; one accuracy in points per cut and method, two seeds around it."""
    rows = [
        {"method": method, "cut_layer": 2 * index + 1, "seed": seed, "linear_probe_accuracy": value / 100 + spread}
        for method, values in (("MocoSFL", mocosfl), ("MonAcoSFL", monacosfl))
        for index, value in enumerate(values)
        for seed, spread in ((0, -0.01), (1, 0.01))
    ]
    settings = {"dataset": "cifar10", "clients": 5, "sync_every": 50, "partition": "classes:2"} | columns
    return pd.DataFrame(rows).assign(**settings, bytes_per_client_epoch=lambda frame: 1000 / frame["cut_layer"])


DEEP = accuracies([80, 75, 70, 65, 60, 45, 40], [80, 80, 79, 79, 78, 78, 77])
TRAINED = [
    "monacosfl-fig6-both-decline",
    "monacosfl-fig6-gap-11-13",
    "monacosfl-fig6-monacosfl-holds",
    "monacosfl-abs-state-of-the-art",
]


def test_fig6_holds():
    table = check_claims("monacosfl/fig6", DEEP, "gpu").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert set(table["profile"]) == {"gpu"}
    assert table.loc["monacosfl-fig6-gap-11-13", "value"] == "gap +37.0 points"
    assert table.loc["monacosfl-abs-state-of-the-art", "value"] == "gap +33.0 points at 0.09 of the traffic of cut 1"


def test_fig6_fails_when_one_setting_does():
    level = accuracies([80, 79, 78, 77, 76, 75, 74], [80, 79, 78, 77, 76, 75, 74], clients=20)
    both = pd.concat([DEEP, level])
    assert [verdict(claim, both) for claim in TRAINED] == ["fails"] * 4


def test_fig6_with_shallow_cuts_decides_only_the_slopes():
    shallow = DEEP[DEEP["cut_layer"] <= 9]
    assert [verdict(claim, shallow) for claim in TRAINED] == ["holds", "not run", "not run", "not run"]
    assert verdict("monacosfl-fig6-both-decline", shallow[shallow["cut_layer"] <= 3]) == "not run"  # two cuts


def test_fig6_leaves_out_iid_controls():
    control = accuracies([80] * 7, [70] * 7, partition="iid")
    assert [verdict(claim, pd.concat([DEEP, control])) for claim in TRAINED] == ["holds"] * 4
    assert [verdict(claim, control) for claim in TRAINED] == ["not run"] * 4


def test_training_claims_are_never_judged_at_smoke_but_arithmetic_is():
    table = check_claims("monacosfl/fig6", DEEP, "smoke").set_index("id")["verdict"]
    assert table.pop("monacosfl-sec51-images-between-syncs") == "holds"
    assert set(table) == {"not run"}


def test_fig1_on_traffic_and_accuracies():
    both = pd.concat([RESNET, DEEP])
    table = check_claims("monacosfl/fig1", both, "gpu").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table["value"].to_dict() == {
        "monacosfl-fig1-optimal-cut": "11 on the client, 7 on the server (505.0 MiB)",
        "monacosfl-fig1-accuracy-gap-at-optimum": "gap +33.0 points at cut 11; lost from cut 1: MocoSFL 35.0, "
        "MonAcoSFL 2.0",
    }
    swapped = DEEP.replace({"MocoSFL": "MonAcoSFL", "MonAcoSFL": "MocoSFL"})
    worse = pd.concat([RESNET.assign(total_bytes=RESNET["cut_layer"]), swapped])
    assert set(check_claims("monacosfl/fig1", worse, "gpu")["verdict"]) == {"fails"}
    assert check_claims("monacosfl/fig1", both, "smoke")["verdict"].tolist() == ["holds", "not run"]
    shallow = both[both["cut_layer"] <= 9]
    assert set(check_claims("monacosfl/fig1", shallow, "laptop")["verdict"]) == {"not run"}


def test_fig1_needs_both_halves_of_the_second_claim():
    claim = "monacosfl-fig1-accuracy-gap-at-optimum"
    assert verdict(claim, accuracies([80] * 5 + [60], [90] * 5 + [65])) == "fails"  # ahead, but losing more
    assert verdict(claim, accuracies([90] * 5 + [65], [70] * 5 + [60])) == "fails"  # losing less, but behind


FEDERATIONS = pd.concat(
    accuracies(mocosfl, [80] * 5, clients=clients, sync_every=10 * clients)
    for clients, mocosfl in ((5, [80, 76, 74, 73, 69]), (20, [80, 70, 60, 50, 40]), (200, [60, 55, 50, 50, 45]))
)
FIG4 = ["monacosfl-fig4-depth-hurts-mocosfl", "monacosfl-fig4-unreliable-beyond-7"]


def test_fig4():
    table = check_claims("monacosfl/fig4", FEDERATIONS, "paper").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table["value"].tolist() == [
        "cut 1 is ahead of the worst deep cut by 11.0 to 40.0 points",
        "cuts 9 are behind by 6.8 to 25.0 points (5, 20, 200 clients)",
    ]
    flat = pd.concat([FEDERATIONS.query("clients != 200"), accuracies([60] * 5, [80] * 5, clients=200)])
    assert [verdict(claim, flat) for claim in FIG4] == ["fails", "fails"]
    only_9_points = pd.concat([FEDERATIONS.query("clients > 5"), accuracies([80, 80, 80, 80, 71], [80] * 5)])
    assert [verdict(claim, only_9_points) for claim in FIG4] == ["fails", "holds"]


def test_fig4_asks_for_the_papers_sizes_only_where_the_claim_names_them():
    smaller = FEDERATIONS.replace({"clients": {200: 10}})
    assert [verdict(claim, smaller) for claim in FIG4] == ["not run", "holds"]
    assert [verdict(claim, FEDERATIONS.query("cut_layer <= 7")) for claim in FIG4] == ["not run", "not run"]
    assert [verdict(claim, FEDERATIONS.query("cut_layer >= 9")) for claim in FIG4] == ["not run", "not run"]
    assert [verdict(claim, FEDERATIONS.query("method == 'MonAcoSFL'")) for claim in FIG4] == ["not run", "not run"]


MOBILE = {"architecture": "mobilenetv2", "clients": 20}
FIG7 = ["monacosfl-fig7-gap-40", "monacosfl-fig7-every-depth"]


def test_fig7():
    wide = accuracies([70, 30, 30, 30, 30, 30, 30, 34, 50], [72, 72, 74, 75, 75, 75, 75, 75, 60], **MOBILE)
    table = check_claims("monacosfl/fig7", wide, "paper").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table["value"].tolist() == [
        "smallest gap +41.0 points, at cut 15; relaxed: holds",
        "gap +2.0 to +45.0 points at cuts 1, 3, 5, 7, 9, 11, 13, 15, 17",
    ]
    narrow = accuracies([70] * 9, [75] * 8 + [65], **MOBILE)  # ahead at all cuts but the last
    table = check_claims("monacosfl/fig7", narrow, "paper").set_index("id")
    assert set(table["verdict"]) == {"fails"}
    assert table.loc["monacosfl-fig7-gap-40", "value"] == "smallest gap +5.0 points, at cut 3; relaxed: holds"


def test_fig7_with_few_cuts_or_another_model_is_not_run():
    some = accuracies([70, 30, 30, 30, 30], [75] * 5, **MOBILE)
    assert [verdict(claim, some) for claim in FIG7] == ["not run", "holds"]
    assert [verdict(claim, some.query("cut_layer <= 3")) for claim in FIG7] == ["not run", "not run"]
    resnet = some.assign(architecture="resnet18")
    assert [verdict(claim, resnet) for claim in FIG7] == ["not run", "not run"]


def logged_steps(jump, fall, **columns):
    """Ten steps with syncs at 4 and 8; at a sync MocoSFL's misalignment is multiplied, MonAcoSFL's too."""
    rows = []
    for method, factor in (("MocoSFL", jump), ("MonAcoSFL", fall)):
        level = 1e-3
        for step in range(1, 11):
            synced = step in (4, 8)
            before, level = level, level * factor if synced else level
            rows.append([method, step, synced, before, level])
    frame = pd.DataFrame(rows, columns=["method", "step", "synced", "misalignment_before_sync", "misalignment"])
    return frame.assign(**{"setting": "paper-like", "seed": 0} | columns)


def test_fig9():
    table = check_claims("monacosfl/fig9", logged_steps(8, 0.5), "laptop").set_index("id")
    assert set(table["verdict"]) == {"holds"}
    assert table.loc["monacosfl-fig9-misalignment", "value"] == "x 8.00 at the first sync (step 4)"
    assert table.loc["monacosfl-fig9-monacosfl-flat", "value"] == "x 0.50 over 2 syncs"

    small = logged_steps(1.3, 1.2)
    small.loc[(small["method"] == "MocoSFL") & (small["step"] == 2), "misalignment"] *= 1.5
    assert set(check_claims("monacosfl/fig9", small, "laptop")["verdict"]) == {"fails"}


def test_fig9_speaks_of_the_papers_setting_only():
    other = logged_steps(1.0, 2.0, setting="short windows")
    mixed = pd.concat([other, logged_steps(8, 0.5)])
    assert set(check_claims("monacosfl/fig9", mixed, "laptop")["verdict"]) == {"holds"}
    assert set(check_claims("monacosfl/fig9", other, "laptop")["verdict"]) == {"not run"}
    no_sync = logged_steps(8, 0.5).query("step < 4")
    assert set(check_claims("monacosfl/fig9", no_sync, "laptop")["verdict"]) == {"not run"}


# ------------------------------------------------------------------------------------------------------ tables


def test_a_missing_column_says_what_to_do():
    message = r"monacosfl-fig2-.* reads a column that .* lack \(.*similarity\); they have layer\. Record .* at smoke"
    with pytest.raises(DataError, match=message):
        check_claims("monacosfl/fig2", pd.DataFrame({"layer": [1]}), "smoke")
    with pytest.raises(DataError, match=r"lack \(name 'rule' is not defined\)"):
        check_claims("monacosfl/fig3", RESNET.drop(columns="rule"), "smoke")


def test_an_artifact_without_claims_gives_an_empty_table():
    table = check_claims("monacosfl/beyond_tradeoff", DEEP, "laptop")
    assert table.empty
    assert list(table.columns) == ["id", "claim", "check", "verdict", "value", "profile"]


def test_an_unknown_profile_is_refused():
    with pytest.raises(SettingError, match="profile='fast' cannot be used: expected one of smoke, laptop, gpu, paper"):
        check_claims("monacosfl/fig6", DEEP, "fast")


def test_claims_table_reads_the_most_faithful_record(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks").mkdir()
    records = tmp_path / "figures" / "monacosfl"
    records.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    logged_steps(8, 0.5).to_csv(records / "fig9.smoke.csv", index=False)
    logged_steps(1.3, 0.5).to_csv(records / "fig9.laptop.csv", index=False)

    table = claims_table()
    assert table["id"].tolist() == list(CLAIMS)
    fig9 = table[table["artifact"] == "monacosfl/fig9"]
    assert set(fig9["profile"]) == {"laptop"}
    assert fig9["verdict"].tolist() == ["holds", "fails", "fails", "holds"]
    others = table.drop(fig9.index)
    assert set(others["verdict"]) == {"not run"}
    assert set(others["profile"]) == {""}

    smoke = claims_table("monacosfl", "smoke")
    assert len(smoke) == 26
    assert set(smoke["verdict"]) == {"not run"}
    assert set(smoke.loc[smoke["artifact"] == "monacosfl/fig9", "profile"]) == {"smoke"}
