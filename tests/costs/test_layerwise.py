"""Resources of LW-FedSSL: every printed cell of traffic and GFLOPs, and the counts of parts in closed form."""

import pytest

from fssl_core.costs.layerwise import (
    ADD_ONS,
    METHODS,
    communication_bytes,
    cost_curves,
    dictionary_bytes,
    epoch_macs,
    resources,
    round_bytes,
    training_macs,
)
from fssl_core.costs.parts import Model, Part, build_model, resnet18, total, vit
from fssl_core.errors import SettingError
from fssl_core.federation.schedule import schedule
from fssl_core.papers.reference import paper_table
from fssl_core.reporting.resource_cells import resources_of

DIGITS = {"communication": 2, "flops": 0, "communication_ratio": 2, "flops_ratio": 2}
MISPRINT = (
    11,
    "Prog-FedSSL",
    "MoCoV3",
    224,
    "none",
    "flops",
)  # repeats the cell of end-to-end training, its ratio does not
TWO_HEADS = (
    2,
    "LW-FedSSL",
    "SimCLR",
    32,
    "none",
    "flops",
)  # the head counted for each view, elsewhere once for each image
RATIO = (6, "LW-FedSSL", "MoCoV3", 32, "representation alignment", "flops_ratio")  # 318 / 139, of rounded cells
EXCEPTIONS = (MISPRINT, TWO_HEADS, RATIO)


def printed():
    """Rows of all resource cells but memory, each beside the row that its ratio refers to."""
    cases = []
    for number in (2, 3, 4, 5, 6, 10, 11):
        table = paper_table("lwfedssl", f"table{number}")
        for row in table[table["metric"].isin(DIGITS)].itertuples():
            base = row._replace(stages=float("nan"), method=end_to_end(row))
            if number == 6:  # here ratios refer to the method without its add-on
                base = row._replace(add_on="none")
            key = (number, row.method, row.ssl_method, int(row.image_size), getattr(row, "add_on", "none"), row.metric)
            name = f"table{number}-{row.Index}-{row.method}-{row.metric}"
            cases.append(pytest.param(row, base, key, id=name))
    return cases


def end_to_end(row):
    return {"MoCoV3": "FedMoCoV3", "BYOL": "FedBYOL", "SimCLR": "FedSimCLR"}[row.ssl_method]


def value(ours, metric):
    return ours.communication_gb if metric.startswith("communication") else ours.gflops


@pytest.mark.parametrize(("row", "base", "key"), printed())
def test_printed_cells_come_out_to_the_last_digit(row, base, key):
    ours = value(resources_of(row), row.metric)
    if row.metric.endswith("ratio"):
        ours /= value(resources_of(base), row.metric)
    assert (round(ours, DIGITS[row.metric]) == row.value) == (key not in EXCEPTIONS)


def test_there_are_as_many_cells_as_the_tables_have():
    cells = [case.values[2] for case in printed()]
    # traffic and GFLOPs of 12, 11, 3, 8, 3 and 9 rows in Tables 2, 3, 4, 6, 10 and 11; traffic alone in Table 5
    assert len(cells) == 2 * (2 * (12 + 11 + 3 + 8 + 3 + 9) + 3)
    assert all(cells.count(key) == 1 for key in EXCEPTIONS)


def test_the_misprinted_cell_repeats_the_one_above_it_and_its_ratio_is_ours():
    table = paper_table("lwfedssl", "table11")
    cells = table[table["image_size"] == 224].set_index(["method", "metric"])["value"]
    assert cells["Prog-FedSSL", "flops"] == cells["FedMoCoV3", "flops"] == 2028
    ours = [resources(name, "MoCoV3", image_size=224, patch_size=16).gflops for name in ("Prog-FedSSL", "FedMoCoV3")]
    assert [round(count) for count in ours] == [1120, 2028]
    assert round(ours[0] / ours[1], 2) == cells["Prog-FedSSL", "flops_ratio"] == 0.55


def test_one_ratio_is_that_of_the_rounded_cells_while_the_headline_is_not():
    plain, aligned = (resources("LW-FedSSL", "MoCoV3", add_on=add_on).gflops for add_on in (ADD_ONS[0], ADD_ONS[3]))
    assert (round(aligned / plain, 2), round(round(aligned) / round(plain), 2)) == (2.28, 2.29)
    full = resources("FedMoCoV3", "MoCoV3").gflops
    assert (round(full / plain, 2), round(round(full) / round(plain), 2)) == (4.20, 4.22)


def test_no_count_of_the_head_gives_all_gflops_of_simclr():
    table = paper_table("lwfedssl", "table2")
    cells = table[(table["ssl_method"] == "SimCLR") & (table["metric"] == "flops")].set_index("method")["value"]
    fits = {
        views: {m for m, cell in cells.items() if round(resources(m, "SimCLR", head_views=views).gflops) == cell}
        for views in (1, 2)
    }
    assert fits == {1: {"FedSimCLR", "FedCA", "Prog-FedSSL"}, 2: {"LW-FedSSL", "Prog-FedSSL"}}


def test_headline_ratios_come_from_unrounded_values():
    full, layerwise, progressive = (resources(name, "MoCoV3") for name in ("FedMoCoV3", "LW-FedSSL", "Prog-FedSSL"))
    assert round(full.macs / layerwise.macs, 2) == 4.20
    assert round(full.communication_bytes / layerwise.communication_bytes, 2) == 5.07
    assert round(full.macs / progressive.macs, 2) == 1.84
    assert round(full.communication_bytes / progressive.communication_bytes, 2) == 1.67


# ------------------------------------------------------------------------------------------------- in closed form


@pytest.mark.parametrize(
    ("image_size", "patch_size", "width", "depth", "channels"),
    [(32, 4, 192, 12, 3), (224, 16, 192, 12, 3), (8, 4, 12, 4, 1)],
)
def test_vit_in_closed_form(image_size, patch_size, width, depth, channels):
    """Norms: 5 for an element; attention: scores and weighted values, tokens^2 x width each."""
    tokens, patch = (image_size // patch_size) ** 2, channels * patch_size**2
    products = 4 * width**2 + 2 * 4 * width**2  # query, key, value, projection; the hidden layer is 4 times as wide
    block = Part(
        parameters=products + 6 * width + 2 * 2 * width,  # biases of projection and MLP; two layer norms
        macs=tokens * products + 2 * tokens**2 * width + 2 * 5 * tokens * width,
    )
    encoder = vit(image_size, patch_size, width=width, depth=depth, channels=channels)
    assert encoder.stem == Part(patch * width + width, macs=tokens * patch * width)
    assert encoder.units == (block,) * depth
    assert encoder.norm == Part(2 * width, macs=5 * tokens * width)
    assert (encoder.positions, encoder.feature_dim) == (tokens * width, width)


def in_closed_form(inputs, outputs, kernel_size, side):
    """A convolution without bias whose result is ``side x side``, and its batch norm: 2 for an element."""
    products = inputs * outputs * kernel_size**2
    return Part(products + 2 * outputs, 2 * outputs, 1, products * side**2 + 2 * outputs * side**2)


@pytest.mark.parametrize(("image_size", "width", "channels"), [(32, 64, 3), (96, 4, 1)])
def test_resnet_in_closed_form(image_size, width, channels):
    encoder = resnet18(image_size, width=width, channels=channels)
    assert encoder.stem == in_closed_form(channels, width, 7, image_size // 2)
    side, inputs = image_size // 4, width
    for number, unit in enumerate(encoder.units):
        outputs = width * 2**number
        side //= 1 if number == 0 else 2
        layers = [in_closed_form(inputs, outputs, 3, side), *[in_closed_form(outputs, outputs, 3, side)] * 3]
        shortcut = [in_closed_form(inputs, outputs, 1, side)] if number else []
        assert unit == total([*layers, *shortcut])
        inputs = outputs
    assert (encoder.norm, encoder.feature_dim, encoder.positions) == (Part(), 8 * width, 0)


def test_heads_in_closed_form():
    """Linear layers without bias; batch norm after all but the last, with no scale and shift after the projector."""
    model = build_model(vit(), "MoCoV3")
    first, second, last = 192 * 512, 512 * 512, 512 * 256
    plain, affine = Part(0, 2 * 256, 1, 256), Part(2 * 512, 2 * 512, 1, 2 * 512)
    products = first + second + last
    assert model.projector == Part(products, macs=products) + affine + affine + plain
    products = 256 * 512 + 512 * 256
    assert model.predictor == Part(products, macs=products) + affine
    assert (model.projector.values, model.predictor.values) == (496_128, 264_192)
    assert build_model(vit(), "SimCLR").predictor == Part()


# --------------------------------------------------------------------------------------------- the formulas, by hand


def test_traffic_by_the_papers_formulas():
    """The sums of ``accounting_conventions.md``, Section 1.2, with 2 blocks a stage."""
    model, each, block = build_model(vit(), "MoCoV3"), 2, 444_288
    patch, positions, rest = 9_408, 64 * 192, 384 + 496_128 + 264_192
    layerwise = sum(30 * ((s == 1) * patch + each * block + rest) for s in range(1, 7))
    progressive = sum(30 * (patch + positions + s * each * block + rest) for s in range(1, 7))
    sums = {
        "layer-wise": layerwise,
        "progressive": progressive,
        "end-to-end": 180 * (patch + positions + 12 * block + rest),
    }
    for kind, values in sums.items():
        stages = schedule(kind, 12, rounds=180, stages=None if kind == "end-to-end" else 6)
        assert communication_bytes(stages, model) == 2 * 4 * values
    worst = schedule("layer-wise", 12, rounds=180, stages=6, worst_case=True)
    assert communication_bytes(worst, model) == 4 * (layerwise + progressive)
    assert [round_bytes(worst[2], model).down, round_bytes(worst[2], model).up] == [
        4 * (patch + positions + 6 * block + rest),
        4 * (2 * block + rest),
    ]


def test_counters_of_batch_norm_are_sent_when_asked():
    stage = schedule("progressive", 4, rounds=4)[1]
    model = build_model(resnet18(), "BYOL")
    extra = round_bytes(stage, model, counters=True).up - round_bytes(stage, model).up
    assert extra == 4 * (1 + 4 + 5 + 3 + 1)  # stem, two ResNet stages, both heads


def test_computation_by_hand_with_unequal_units():
    units = tuple(Part(macs=macs) for macs in (100, 200, 400))
    encoder = vit(depth=3)
    encoder = type(encoder)(Part(macs=10), units, Part(macs=1_000_000), 8)
    model = Model(encoder, Part(macs=1), Part(macs=2))
    layerwise = [3 * 10 + 3 * 100 + 9, 10 + 100 + 3 * 200 + 9, 10 + 300 + 3 * 400 + 9]
    progressive = [30 + 300 + 9, 30 + 900 + 9, 30 + 2100 + 9]
    for kind, expected in (("layer-wise", layerwise), ("progressive", progressive), ("end-to-end", progressive[-1:])):
        stages = schedule(kind, 3, rounds=6)
        assert [epoch_macs(stage, model) for stage in stages] == expected
        assert training_macs(stages, model, local_epochs=5) == 5 * (6 // len(stages)) * sum(expected)
    stage = schedule("layer-wise", 3, rounds=3)[2]
    assert epoch_macs(stage, model, views=2, head_views=1) == 2 * (layerwise[2] - 9) + 9
    assert epoch_macs(stage, model, alignment=True) == layerwise[2] + 2 * 300


def test_add_ons_participation_and_the_dictionary():
    plain, aligned, proximal = (resources("LW-FedSSL", "MoCoV3", add_on=ADD_ONS[index]) for index in (0, 3, 2))
    assert plain == proximal
    assert aligned.communication_bytes == plain.communication_bytes
    dictionary = dictionary_bytes(180, 10, 11_828, 512)
    assert dictionary == (180 + 179 * 10) * 11_776 * 256 * 4
    fedca, fedsimclr = (resources(name, "SimCLR") for name in ("FedCA", "FedSimCLR"))
    assert fedca.communication_bytes - fedsimclr.communication_bytes == dictionary
    assert resources("FedU", "BYOL") == resources("FedEMA", "BYOL") == resources("FedBYOL", "BYOL")


def test_curves_of_figure_5():
    curves = cost_curves(build_model(vit(), "MoCoV3"))
    by_stage = curves.groupby(["method", "stage"])
    assert curves.groupby("method").size().to_dict() == {"FedMoCoV3": 180, "LW-FedSSL": 180, "Prog-FedSSL": 180}
    assert (by_stage[["epoch_macs", "round_bytes"]].nunique() == 1).all(axis=None)
    gflops = (by_stage["epoch_macs"].first() / 1e9).round(3)
    mebibytes = (by_stage["round_bytes"].first() / 2**20).round(2)
    assert gflops["LW-FedSSL"].iloc[[0, 1, -1]].to_list() == [0.094, 0.123, 0.423]
    assert gflops["Prog-FedSSL"].iloc[[0, -1]].to_list() == [0.094, 1.084]
    assert gflops["FedMoCoV3", 1] == 1.084
    assert mebibytes["LW-FedSSL"].to_list() == [9.27] + [9.19] * 11
    assert mebibytes["Prog-FedSSL"].iloc[[0, 5, 11]].to_list() == [9.36, 26.31, 46.65]
    for method, name in (("FedMoCoV3", "FedMoCoV3"), ("LW-FedSSL", "LW-FedSSL"), ("Prog-FedSSL", "Prog-FedSSL")):
        rows, whole = curves[curves["method"] == method], resources(name, "MoCoV3")
        assert rows["round_bytes"].sum() == whole.communication_bytes
        assert (rows["epoch_macs"] * rows["local_epochs"]).sum() == whole.macs


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "FedLayer"}, r"method='FedLayer' cannot be used: expected one of FedMoCoV3, "),
        ({"method": "FedU"}, r"ssl_method='MoCoV3' cannot be used: expected one of BYOL\."),
        ({"add_on": "dropout"}, r"add_on='dropout' cannot be used"),
        ({"method": "FedMoCoV3", "add_on": ADD_ONS[1]}, r"add_on='depth dropout' cannot be used: expected none with"),
        ({"architecture": "ViT-Base"}, r"architecture='ViT-Base' cannot be used: expected one of ViT-Tiny, ResNet-18"),
        ({"patch_size": 5}, r"patch_size=5 cannot be used: expected a divisor of image_size=32\."),
        ({"architecture": "ResNet-18", "image_size": 48, "rounds": 120}, r"image_size=48 cannot be used"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        resources(**{"method": "LW-FedSSL", "ssl_method": "MoCoV3", **settings})


def test_all_methods_of_the_tables_are_known():
    names = {name for number in (2, 3, 4, 5, 6, 10, 11) for name in paper_table("lwfedssl", f"table{number}")["method"]}
    assert names - {"Scratch", "MoCoV3", "BYOL", "SimCLR", "all"} == set(METHODS)
