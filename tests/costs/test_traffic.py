"""Traffic: the settings file's numbers, the statements on optima, and a count message by message."""

from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml

import fssl_core.papers
from fssl_core.costs.traffic import RULES, engine_traffic, split_traffic, traffic_table
from fssl_core.errors import SettingError
from fssl_core.models import build_backbone, cut

SETTINGS = yaml.safe_load(Path(fssl_core.papers.__path__[0], "data", "monacosfl_settings.yaml").read_text("utf-8"))
COMPUTED = SETTINGS["official_code"]["overhead"]["computed_224"]
MIB = 2**20


@pytest.fixture(scope="module")
def table():
    """Paper's Fig. 3 (250 images, 10 synchronisations) at two resolutions, one row per cut and rule."""
    names = ("resnet18", "mobilenetv2", "mobilenetv2-imagenet")
    rows = {size: traffic_table(names, image_size=size, images=250, syncs=10) for size in (224, 32)}
    return {size: frame.set_index(["architecture", "code_index", "rule"]) for size, frame in rows.items()}


@pytest.mark.parametrize("row", COMPUTED["resnet18"], ids=lambda row: str(row[0]))
def test_resnet18_equals_the_settings_file(table, row):
    check_row(table[224].loc["resnet18"], row)


@pytest.mark.parametrize("row", COMPUTED["mobilenetv2_cifar_strides"], ids=lambda row: str(row[0]))
def test_mobilenetv2_equals_the_settings_file(table, row):
    check_row(table[224].loc["mobilenetv2"], row)


def check_row(frame, row):
    code, activations, one_way_parameters, one_way_total, two_way_total = row
    for rule, total in (("one-way", one_way_total), ("two-way", two_way_total)):
        ours = frame.loc[(code, rule)]
        assert round(ours.activation_bytes / MIB, 1) == activations
        assert ours.total_bytes / MIB == pytest.approx(total, abs=0.1)  # the file adds parts that it rounded first
    assert round(frame.loc[(code, "one-way")].sync_bytes / MIB, 1) == one_way_parameters


def optimum(frame, architecture, rule):
    """Code index of the cheapest cut."""
    return frame.loc[architecture].xs(rule, level="rule").total_bytes.idxmin()


@pytest.mark.parametrize(
    ("architecture", "size", "codes"),  # in the order of RULES
    [
        ("resnet18", 224, (8, 6, 6)),  # labels 15, 11, 11: the paper says 11
        ("mobilenetv2", 224, (7, 7, 5)),  # the paper says 7, which fits the code index
        ("mobilenetv2-imagenet", 224, (5, 5, 4)),  # label 7 only when momentum models are counted
        ("resnet18", 32, (4, 4, 4)),  # label 7 for any rule
        ("mobilenetv2", 32, (5, 4, 4)),
    ],
)
def test_where_the_stated_optimum_appears(table, architecture, size, codes):
    assert tuple(optimum(table[size], architecture, rule) for rule in RULES) == codes


def test_margins_between_labels_11_and_15(table):
    totals = table[224].loc["resnet18"].total_bytes / MIB
    assert round(totals[8, "two-way"] - totals[6, "two-way"]) == 179
    assert round(totals[6, "one-way"] - totals[8, "one-way"]) == 6


def test_split_traffic_by_hand():
    backbone = build_backbone("resnet18")
    traffic = split_traffic(backbone, 1, images=3, syncs=2, rule="two-way")
    assert traffic.activation_bytes == 4 * 2 * 3 * (64 * 32 * 32)
    assert traffic.sync_bytes == 4 * 2 * 2 * (64 * 3 * 9 + 64 + 64)
    assert traffic.total_bytes == traffic.activation_bytes + traffic.sync_bytes


def test_table_labels_all_cuts():
    frame = traffic_table(["resnet10"], ["two-way"], image_size=16, images=5, syncs=1)
    assert list(frame.columns) == [
        "architecture", "cut_layer", "code_index", "rule", "image_size", "images", "syncs",
        "activation_bytes", "sync_bytes", "total_bytes",
    ]  # fmt: skip
    assert frame.cut_layer.tolist() == [1, 3, 5, 7, 9]
    assert frame.code_index.tolist() == [1, 2, 3, 4, 5]
    assert set(frame.rule) == {"two-way"}
    backbone = build_backbone("resnet10", image_size=16)
    for row in frame.itertuples():
        traffic = split_traffic(backbone, row.cut_layer, images=5, syncs=1, rule="two-way")
        assert (row.activation_bytes, row.sync_bytes) == (traffic.activation_bytes, traffic.sync_bytes)
    with pytest.raises(SettingError, match=r"rule='free' cannot be used"):
        traffic_table(["resnet10"], rules=["free"], image_size=16, images=5, syncs=1)


@pytest.mark.parametrize("momentum_sync", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_engine_traffic_counts_every_message(momentum_sync, symmetric, sampled):
    """A plain play of one epoch: two steps of batch 3, three synchronisations, real tensors."""
    steps, batch, syncs = 2, 3, 3
    backbone = build_backbone("mobilenetv2", width=4, image_size=16)  # its client has batch-norm buffers
    client, _ = cut(backbone, 5)
    sent = Counter()

    def send(purpose, direction, *tensors):
        sent[purpose, direction] += sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    if sampled:
        for _ in range(steps):
            for _ in range(2 if symmetric else 1):
                latent = client(torch.zeros(batch, 3, 16, 16))
                send("activations", "up", latent)
                send("momentum_activations", "up", latent)
                send("gradients", "down", torch.ones_like(latent))
    for purpose in ("parameters", "momentum_parameters") if momentum_sync else ("parameters",):
        for _ in range(syncs):
            if sampled:
                send(purpose, "up", *client.state_dict().values())
            send(purpose, "down", *client.state_dict().values())

    records = engine_traffic(
        backbone,
        5,
        images=steps * batch,
        syncs=syncs,
        momentum_sync=momentum_sync,
        symmetric=symmetric,
        sampled=sampled,
    )
    assert {(record.purpose, record.direction): record.bytes for record in records} == sent
    assert len(records) == len(sent)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rule": "free"}, r"rule='free' cannot be used: expected one of one-way, two-way, two-way-momentum\."),
        ({"images": -1}, r"images=-1 cannot be used: expected at least 0\."),
        ({"syncs": -1}, r"syncs=-1 cannot be used: expected at least 0\."),
        ({"cut_layer": 2}, r"cut_layer=2 cannot be used: expected one of 1, 3, 5, 7, 9\."),
    ],
)
def test_bad_settings(setting, message):
    backbone = build_backbone("resnet10", width=4)
    with pytest.raises(SettingError, match=message):
        split_traffic(backbone, **{"cut_layer": 1, "images": 1, "syncs": 1, "rule": "one-way", **setting})
    if "rule" not in setting:
        with pytest.raises(SettingError, match=message):
            engine_traffic(backbone, **{"cut_layer": 1, "images": 1, "syncs": 1, "momentum_sync": True, **setting})
