"""Settings: every field is checked by its annotation, whoever gives the value."""

import json
import math
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pytest
import torch

from fssl_core.errors import SettingError
from fssl_core.evaluation.landscape_runs import LandscapeSettings
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.federation.client_updates import ClientUpdate, FedEMA
from fssl_core.objectives import BYOL, SimCLR
from fssl_core.settings import (
    Count,
    DataName,
    Range,
    Settings,
    Share,
    check_choice,
    check_range,
    check_types,
    closest,
)
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.resistance import ResistanceSettings
from fssl_core.training.split import SplitSettings


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    share: Share = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    count: Count = 3
    rate: float = 0.1
    on: bool = True
    word: str = "a"
    maybe: Count | None = None
    widths: tuple[Count, ...] = (4, 2)
    pair: tuple[float, float] = (0.1, 0.2)
    inner: Inner = field(default_factory=Inner)
    several: tuple[Settings, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Other(Outer):
    count: int = 7  # another default; the range is that of the base


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0.1}, r"count=0\.1 cannot be used: expected a whole number"),
        ({"count": 1.0}, "count=1.0 .*a whole number"),
        ({"count": math.inf}, "count=inf .*a whole number"),
        ({"count": True}, "count=True .*a whole number"),
        ({"count": "3"}, "count='3' .*a whole number"),
        ({"count": None}, "count=None .*a whole number"),
        ({"count": 0}, "count=0 .*at least 1"),
        ({"rate": "0.1"}, "rate='0.1' .*a finite number"),
        ({"rate": math.nan}, "rate=nan .*a finite number"),
        ({"rate": math.inf}, "rate=inf .*a finite number"),
        ({"rate": 10**400}, r"rate=10*\.\.\. cannot be used: expected a finite number"),
        ({"rate": False}, "rate=False .*a finite number"),
        ({"rate": np.float64("nan")}, "rate=.*nan.* .*a finite number"),
        ({"rate": torch.tensor(0.1)}, "rate=tensor.* .*a finite number"),
        ({"rate": np.zeros((9, 9))}, r"rate=array.*\.\.\. .*a finite number"),
        ({"on": "false"}, "on='false' .*true or false"),
        ({"on": "no"}, "on='no' .*true or false"),
        ({"on": 1}, "on=1 .*true or false"),
        ({"word": 1}, "word=1 .*a word"),
        ({"word": None}, "word=None .*a word"),
        ({"maybe": 1.5}, "maybe=1.5 .*a whole number or None"),
        ({"maybe": 0}, "maybe=0 .*at least 1"),
        ({"widths": 4}, "widths=4 .*a list, each entry a whole number"),
        ({"widths": (4, 2.5)}, "widths=2.5 .*a whole number"),
        ({"widths": [4, 0]}, "widths=0 .*at least 1"),
        ({"widths": "42"}, "widths='42' .*a list"),
        ({"pair": (0.1,)}, r"pair=\(0.1,\) .*a list of 2"),
        ({"pair": (0.1, 0.2, 0.3)}, "pair=.*a list of 2"),
        ({"inner": {"share": 0.5}}, r"inner=\{'share': 0.5\} .*Inner\(\)"),
        ({"inner": Outer()}, r"inner='Outer' .*Inner\(\)"),
        ({"several": [3]}, "several=3 .*settings, for example"),
    ],
)
@pytest.mark.parametrize("kind", [Outer, Other])
def test_a_value_of_another_kind_is_refused_in_one_line(kind, values, message):
    with pytest.raises(SettingError, match=message) as caught:
        kind(**values)
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingError, match=message):
        kind().changed(**values)
    with pytest.raises(SettingError, match=message):
        check_types(kind, values)


def test_numbers_of_numpy_and_lists_become_plain_values_with_the_same_key():
    given = Outer(
        count=np.int64(3), rate=np.float64(0.1), on=np.bool_(True), word=np.str_("a"), maybe=np.uint8(5),
        widths=[np.int32(4), 2], pair=[0.1, np.float64(0.2)], inner=Inner(share=np.float64(0.5)),
    )  # fmt: skip
    plain = Outer(maybe=5)
    assert given == plain
    assert given.key == plain.key
    assert json.loads(json.dumps(given.as_dict())) == json.loads(json.dumps(plain.as_dict()))
    kinds = {name: type(getattr(given, name)) for name in ("count", "rate", "on", "word", "maybe", "widths", "pair")}
    assert list(kinds.values()) == [int, float, bool, str, int, tuple, tuple]
    assert [type(width) for width in given.widths] == [int, int]


def test_a_whole_number_is_a_float_where_one_is_wanted():
    assert Outer(rate=1).key == Outer(rate=1.0).key
    assert Outer(pair=(1, 2)).key == Outer(pair=(1.0, 2.0)).key
    assert SplitSettings(client_learning_rate=1).key == SplitSettings(client_learning_rate=1.0).key


def test_keys_of_stored_runs_stay():
    """Runs and records of before are found by these."""
    assert SplitSettings().key == "918b5ac4e9d9adcc"
    assert AveragingSettings().key == "3e5e2fa51e9b837d"
    assert LayerwiseSettings().key == "fb20243f72c13e16"
    assert ModularSettings().key == "d3d004747424f608"
    assert ProbeSettings(pretraining=MoonSettings()).key == "bda9b83db1228163"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SplitSettings(seed=0.1), "seed=0.1 .*a whole number"),
        (lambda: SplitSettings(freeze_client="false"), "freeze_client='false' .*true or false"),
        (lambda: SplitSettings(symmetric="no"), "symmetric='no' .*true or false"),
        (lambda: SplitSettings(client_learning_rate=-1), "client_learning_rate=-1.0 .*at least 0"),
        (lambda: SplitSettings(projector_dim=0), "projector_dim=0 .*at least 1"),
        (lambda: SplitSettings(temperature=math.inf), "temperature=inf .*a finite number"),
        (lambda: SplitSettings(epochs=1.5), "epochs=1.5 .*a whole number"),
        (lambda: SplitSettings(epochs=math.inf), "epochs=inf .*a whole number"),
        (lambda: SplitSettings(clients=[5]), r"clients=\[5\] .*a whole number"),
        (lambda: SplitSettings(dataset=None), "dataset=None .*a word"),
        (lambda: SplitSettings(method=["MocoSFL"]), r"method=\['MocoSFL'\] .*a word"),
        (lambda: AveragingSettings(objective="byol"), r"objective='byol' .*BYOL\(\)"),
        (lambda: AveragingSettings(objective=BYOL), r"objective=<class .*BYOL\(\)"),
        (lambda: AveragingSettings(proximal=-0.1), "proximal=-0.1 .*at least 0"),
        (lambda: AveragingSettings(keep_velocity=1), "keep_velocity=1 .*true or false"),
        (lambda: MoonSettings(rounds=2.0), "rounds=2.0 .*a whole number"),
        (lambda: MoonSettings(batch=0), "batch=0 .*at least 1"),
        (lambda: SimCLR(projector=(64, 1.5)), "projector=1.5 .*a whole number"),
        (lambda: SimCLR(temperature="hot"), "temperature='hot' .*a finite number"),
        (lambda: LayerwiseSettings(stages=0), "stages=0 .*at least 1"),
        (lambda: ResistanceSettings(attacker_share=1.5), "attacker_share=1.5 .*a number from 0 to 1"),
        (lambda: LandscapeSettings(pretraining=3), "pretraining=3 .*settings"),
        (lambda: ProbeSettings(pretraining=MoonSettings(), dataset=3), "dataset=3 .*a word or None"),
    ],
)
def test_engines_refuse_what_they_cannot_use(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_unknown_names_are_listed():
    with pytest.raises(SettingError, match=r"speed=3 .*one of the settings of Inner: share"):
        check_types(Inner, {"speed": 3})
    with pytest.raises(SettingError, match=r"speed=3 .*one of the settings of Inner: share"):
        Inner().changed(speed=3)


def test_settings_know_the_data_sets_that_they_read():
    @dataclass(frozen=True, kw_only=True)
    class Pair(Settings):
        first: DataName = "a"
        second: DataName | None = None
        others: tuple[Settings, ...] = ()

    assert Pair().data_sets == {"a"}
    assert Pair(second="b", others=(Pair(first="c"), Inner())).data_sets == {"a", "b", "c"}
    assert ResistanceSettings().data_sets == {"cifar10", "cifar100"}
    probe = ProbeSettings(pretraining=MoonSettings(dataset="digits"), dataset="scattered-digits")
    assert probe.data_sets == {"digits", "scattered-digits"}
    assert ModularSettings().data_sets == {"cifar10"}


@pytest.mark.parametrize("value", [[1], (1, [2]), np.zeros(2), {"a": 1}, torch.zeros(2), "b", None])
def test_a_choice_may_be_asked_of_anything(value):
    with pytest.raises(SettingError, match="one of a, 1"):
        check_choice("choice", value, ["a", 1])


def test_a_name_that_is_nearly_right_is_told_what_it_may_have_meant():
    with pytest.raises(SettingError, match=r"one of simclr, byol, 'a, b' \(did you mean simclr\?\)"):
        check_choice("objective", "simlcr", ["simclr", "byol", "a, b"])
    with pytest.raises(SettingError, match=r"one of simclr, byol\.$"):
        check_choice("objective", "moco", ["simclr", "byol"])
    assert closest("batch", ["client_batch", "batches_a", "epochs"]) == "batches_a"  # as it is written
    assert closest("batch", ["client_batch", "epochs"]) == "client_batch"
    assert closest("rate", ["learning_rate", "client_learning_rate", "epochs"]) is None  # two have the word
    with pytest.raises(SettingError, match=r"expected learning_rate, or another of the settings of \w+: seed, "):
        ProbeSettings(pretraining=MoonSettings()).pretraining.changed(lerning_rate=0.1)


@pytest.mark.parametrize("value", ["1", None, [1], math.nan, True, 0, 3, np.zeros(2)])
def test_a_range_may_be_asked_of_anything(value):
    with pytest.raises(SettingError, match="a number from 1 to 2"):
        check_range("number", value, 1, 2)


def test_the_metadata_of_an_annotation_is_a_range():
    @dataclass(frozen=True, kw_only=True)
    class Half(Settings):
        half: Annotated[float, Range(0, 0.5)] = 0.5

    with pytest.raises(SettingError, match=r"half=0.6 .*a number from 0 to 0\.5"):
        Half(half=0.6)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_a_whole_number_has_64_bits(value):
    """A longer one may come with a peer's message, and ends as an overflow somewhere else."""

    @dataclass(frozen=True, kw_only=True)
    class Drawn(Settings):
        seed: int = 0

    assert Drawn(seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(SettingError, match=r"^seed=.* cannot be used: expected a number from -9\.22"):
        Drawn(seed=value)


def test_an_own_objective_or_client_update_has_a_name_of_its_own():
    """Its settings say no more of it: by the name of its base it would be taken for that."""
    for base in (SimCLR, FedEMA, ClientUpdate):
        named, unnamed = (
            dataclass(frozen=True, kw_only=True)(type("Mine", (base,), {"__module__": "mine", **names}))
            for names in ({"__annotations__": {"name": str}, "name": "mine"}, {})
        )
        assert named().name == "mine"
        with pytest.raises(SettingError, match="another one, which Mine has to give itself"):
            unnamed()


def test_a_class_whose_fields_are_none_is_refused():
    """Without the decorator its values would be in no key."""

    class Forgotten(Inner):
        more: Count = 1

    with pytest.raises(SettingError, match=r"'Forgotten' .*a class with @dataclass\(frozen=True, kw_only=True\)"):
        Forgotten()


def test_a_field_annotated_as_a_list_is_told_how_else():
    @dataclass(frozen=True, kw_only=True)
    class Listed(Settings):
        widths: list = ()

    with pytest.raises(SettingError, match=r"widths=\[4\] .*a tuple, of a field annotated as tuple\[\.\.\.\]"):
        Listed(widths=[4])
