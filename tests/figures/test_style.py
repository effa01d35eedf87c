from fssl_core.experiments.profiles_mfcl import MFCL_METHODS
from fssl_core.figures.style import (
    METHOD_COLOURS,
    METHODS,
    NORMALISATIONS,
    finish,
    lighter,
    method_styles,
    panels,
    spread_note,
)


def test_methods_have_distinct_colours_and_marks():
    assert len(set(METHOD_COLOURS.values())) == len(METHODS)
    assert len({style.marker for style in METHODS.values()}) == len(METHODS)


def test_what_is_no_known_method_gets_a_style_that_no_method_has():
    styles = method_styles(["mine", "MocoSFL", "yours", "mine"])
    assert styles["MocoSFL"] == METHODS["MocoSFL"]
    assert len({style.colour for style in styles.values()}) == 3
    assert {styles["mine"].colour, styles["yours"].colour}.isdisjoint(METHOD_COLOURS.values())


def test_a_variant_of_a_method_is_a_lighter_shade_with_the_same_marker():
    first, second = method_styles(["MocoSFL-1", "MocoSFL-3"]).values()
    assert first == METHODS["MocoSFL"]
    assert second.colour == "#eaae80"  # half of #d55e00
    many = [style.colour for style in method_styles(f"MocoSFL-{cut}" for cut in range(1, 8)).values()]
    assert len({*many}) == 7
    assert many[-1] == lighter(first.colour, 0.3)  # which is still seen on white
    first, second, common = method_styles(["MocoSFL-1", "MocoSFL-3", "MocoSFL, one common model"]).values()
    assert len({first.colour, second.colour, common.colour}) == 3
    assert first.marker == second.marker == common.marker
    batch, group = method_styles(["FedSimCLR(BN)", "FedSimCLR(GN)"]).values()
    assert (batch, group.marker) == (METHODS["FedSimCLR"], batch.marker)
    known, grouped = method_styles(["MFCL(GN)", "MFCL(GN), groups of TN"]).values()
    assert (known, grouped.marker) == (METHODS["MFCL(GN)"], known.marker)
    trained, frozen = method_styles(["mine, trained on", "mine, frozen"]).values()
    assert (trained.marker, trained.colour == frozen.colour) == (frozen.marker, False)


def test_a_method_after_rounds_of_fedavg_has_a_fixed_style_beside_its_own():
    for name in ("L-DAWA", "M-DAWA"):
        after = f"{name} after FedAvg"
        assert method_styles([after])[after].colour == lighter(METHODS[name].colour, 0.5)


def test_the_note_says_what_means_and_spreads_are():
    said = "bars: mean, lines: ±\u00a01 sample standard deviation over seeds"
    assert spread_note([3, 3], "bars", "lines") == said
    assert spread_note([3, 0], "bars", "lines") == said  # a cell without a run is not drawn
    assert spread_note([1, 3, 2], "bars", "lines") == said + ", n\u00a0=\u00a01\u00a0to\u00a03"
    assert spread_note([5], "circles", "lines", over="images").endswith("over images")


def test_no_line_of_a_subtitle_begins_with_the_dot_between_its_parts_or_ends_within_a_word():
    for width in range(20, 90):
        fig, _ = panels(1, width=width / 10)
        lines = (
            finish(fig, "title", "profile laptop · scattered-digits, non-IID · 3 seeds")
            .texts[-1]
            .get_text()
            .split("\n")
        )
        assert " ".join(lines) == "profile laptop · scattered-digits, non-IID · 3 seeds"
        assert not any(line.startswith("·") or line.endswith("-") for line in lines)


def test_nothing_is_said_of_a_spread_that_is_not_there():
    assert spread_note([1, 1], "bars", "lines") == spread_note([], "bars", "lines") == ""


def test_every_reading_of_a_normalisation_has_a_style_of_its_own():
    names = {name.removeprefix("MFCL(").replace(")", "", 1) for name in MFCL_METHODS}
    assert names <= {*NORMALISATIONS}
    assert len({*NORMALISATIONS.values()}) == len(NORMALISATIONS)
