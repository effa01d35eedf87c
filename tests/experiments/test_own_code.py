"""A digest of a user's own code: the same for the same code, another for every change that may change a result."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import pytest

from fssl_core.data.augment import AUGMENTATIONS
from fssl_core.experiments import averaging_settings, own_code, run
from fssl_core.experiments.store import Run
from fssl_core.federation.aggregation import RULES
from fssl_core.federation.faults import FAULTS
from fssl_core.models import ARCHITECTURES

RULE = """
POWER = 2

def share(values):
    return values / values.sum(0)

def rule(this, least=0.0):
    def inner(values):
        return values.clamp(min=least)
    return share(inner(this.cosines) ** POWER)
"""
NETWORK = """
from torch import nn

class Base(nn.Module):
    def width(self):
        return 8

class Network(Base):
    slope = 0.1

    @property
    def twice(self):
        return 2 * self.width()

    @staticmethod
    def helper(values):
        return values + 1
"""


def module_of(text: str, folder, monkeypatch):
    """A module with a file of its own."""
    name = f"own_{len([*folder.iterdir()])}"
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def without_file(text: str, *_):
    """What a module of that text has, without a file that anybody could read."""
    space = {"__name__": "typed"}
    exec(compile(text, "<typed>", "exec"), space)
    return type("Space", (), space)


def digest(monkeypatch, own, registry=RULES, setting="aggregation") -> str:
    monkeypatch.setitem(registry, "own", own)
    return own_code.digests(averaging_settings("smoke", objective="simclr", **{setting: "own"}))["own"]


@pytest.mark.parametrize("make", [module_of, without_file])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("POWER = 2", "POWER = 3"),
        ("values.sum(0)", "values.sum(1)"),
        ("least=0.0", "least=0.1"),
        ("values.clamp(min=least)", "values.clamp(max=least)"),
        ("** POWER", "* POWER"),
    ],
)
def test_a_change_anywhere_in_its_module_that_a_rule_uses_is_seen(make, old, new, tmp_path, monkeypatch):
    before, same, after = (make(text, tmp_path, monkeypatch) for text in (RULE, RULE, RULE.replace(old, new)))
    assert digest(monkeypatch, before.rule) == digest(monkeypatch, same.rule)
    assert digest(monkeypatch, before.rule) != digest(monkeypatch, after.rule)


@pytest.mark.parametrize("make", [module_of, without_file])
@pytest.mark.parametrize(("default", "end"), [("least=LEAST", ""), ("*, least=LEAST", ""), ("f=floor", ".clamp(f(0))")])
def test_the_value_of_a_default_is_seen(make, default, end, tmp_path, monkeypatch):
    text = f"LEAST = 1\n\ndef floor(x):\n    return x + 1\n\ndef rule(this, {default}):\n    return this.cosines{end}\n"
    changed = text.replace("LEAST = 1", "LEAST = 2").replace("x + 1", "x + 2")
    before, same, after = (make(one, tmp_path, monkeypatch) for one in (text, text, changed))
    assert digest(monkeypatch, before.rule) == digest(monkeypatch, same.rule)
    assert digest(monkeypatch, before.rule) != digest(monkeypatch, after.rule)


def test_comments_layout_and_what_is_not_used_do_not_count(tmp_path, monkeypatch):
    laid_out = RULE.replace("values.sum(0)", "values.sum(\n        0)  # over clients") + "\n\nOTHER = 5\n"
    before, after = (module_of(text, tmp_path, monkeypatch) for text in (RULE, laid_out))
    assert digest(monkeypatch, before.rule) == digest(monkeypatch, after.rule)


@pytest.mark.parametrize(
    ("old", "new"),
    [("return 8", "return 9"), ("slope = 0.1", "slope = 0.2"), ("2 * self", "3 * self"), ("values + 1", "values + 2")],
)
@pytest.mark.parametrize("make", [module_of, without_file])
def test_a_class_has_its_methods_constants_and_bases(make, old, new, tmp_path, monkeypatch):
    before, same, after = (make(text, tmp_path, monkeypatch) for text in (NETWORK, NETWORK, NETWORK.replace(old, new)))
    found = [digest(monkeypatch, one.Network, ARCHITECTURES, "architecture") for one in (before, same, after)]
    assert found[0] == found[1] != found[2]


def test_a_partial_has_its_arguments(tmp_path, monkeypatch):
    rule = module_of(RULE, tmp_path, monkeypatch).rule
    found = {digest(monkeypatch, own) for own in (rule, partial(rule, least=0.1), partial(rule, least=0.2))}
    assert len(found) == 3
    assert digest(monkeypatch, partial(rule, least=0.1)) in found


def test_a_bound_method_has_its_code_and_its_objects_values(tmp_path, monkeypatch):
    text = """
class First:
    def __init__(self, power):
        self.power = power
    def weights(self, this):
        return this.cosines ** self.power
    @classmethod
    def of_class(cls, this):
        return this.cosines
class Second(First):
    def weights(self, this):
        return this.cosines * self.power
"""
    module = module_of(text, tmp_path, monkeypatch)
    rules = [module.First(2).weights, module.First(3).weights, module.Second(2).weights, module.First.of_class]
    assert len({digest(monkeypatch, rule) for rule in rules}) == 4
    assert digest(monkeypatch, module.First(2).weights) == digest(monkeypatch, rules[0])


@pytest.mark.parametrize("make", [module_of, without_file])
def test_a_lambda_is_seen_to_its_end(make, tmp_path, monkeypatch):
    text = "rule = (\n    lambda r:\n        r.cosines.abs() ** 1 / (r.cosines.abs() ** 1).sum(0)\n)\n"
    before, same, after = (make(one, tmp_path, monkeypatch) for one in (text, text, text.replace("** 1)", "** 2)")))
    found = [digest(monkeypatch, one.rule) for one in (before, same, after)]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("text", "name", "old", "new"),
    [
        (RULE, "rule", "** POWER", "* POWER"),
        (RULE, "rule", "clamp(min", "clamp(max"),
        (NETWORK, "Network", "slope = 0.1", "slope = 0.2"),
        (NETWORK, "Network", "2 * self", "3 * self"),
    ],
)
def test_a_file_that_was_edited_since_says_nothing_of_the_code_that_runs(text, name, old, new, tmp_path, monkeypatch):
    running = module_of(text, tmp_path, monkeypatch)
    Path(running.__file__).write_text(text.replace(old, new))
    anew = module_of(text.replace(old, new), tmp_path, monkeypatch)
    found = {digest(monkeypatch, getattr(module, name), ARCHITECTURES, "architecture") for module in (running, anew)}
    assert len(found) == 2


def test_what_begins_left_of_its_indentation_is_seen(tmp_path, monkeypatch):
    text = "def make(p):\n    def rule(this):\n#       old\n        return this.cosines ** p * 2\n    return rule\n"
    before, after = (module_of(one, tmp_path, monkeypatch) for one in (text, text.replace("* 2", "* 3")))
    found = [digest(monkeypatch, rule) for rule in (before.make(1), before.make(1), before.make(2), after.make(1))]
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_an_object_that_keeps_a_method_of_its_own_or_itself_has_a_digest(tmp_path, monkeypatch):
    text = """
from types import SimpleNamespace
KEPT = SimpleNamespace(p=1)
KEPT.itself = KEPT
class Rule:
    def __init__(self, kind):
        self.score = self.first if kind == 1 else self.second
    def first(self, this):
        return this.cosines * KEPT.p
    def second(self, this):
        return this.norms * KEPT.p
    def __call__(self, this):
        return self.score(this)
"""
    module = module_of(text, tmp_path, monkeypatch)
    found = [digest(monkeypatch, module.Rule(kind)) for kind in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_what_this_project_has_registered_has_no_digest():
    assert own_code.digests(averaging_settings("smoke", objective="simclr")) == {}
    assert "code" not in Run(averaging_settings("smoke", objective="simclr")).identity()


def test_a_changed_rule_is_computed_again_and_an_unchanged_one_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    first, second = (
        module_of(f"def rule(this):\n    return this.cosines * 0 + {share}\n", tmp_path, monkeypatch).rule
        for share in (0.25, 0.5)
    )
    monkeypatch.setitem(RULES, "own", first)
    settings = averaging_settings("smoke", objective="simclr", aggregation="own", rounds=1, probe_epochs=0)
    assert run(settings, progress=False).finished
    assert Run(settings).finished
    monkeypatch.setitem(RULES, "own", second)
    assert not Run(settings).finished
    assert run(settings, progress=False).finished
    assert "was computed with other code of 'own'; starting again." in capsys.readouterr().err


def test_what_replaces_something_of_the_kit_never_shares_its_stored_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    settings = SIMCLR.changed(rounds=1, probe_epochs=0)
    assert run(settings, progress=False).finished
    with monkeypatch.context() as replaced:
        replaced.setitem(RULES, "fedavg", lambda this: this.cosines * 0 + 0.5 / this.clients)
        assert not Run(settings).finished
        assert run(settings, progress=False).finished
    assert not Run(settings).finished


SIMCLR = averaging_settings("smoke", objective="simclr")
SETTINGS = """
from dataclasses import dataclass
import numpy as np
import torch
from fssl_core.federation.client_updates import ClientUpdate
from fssl_core.objectives import SimCLR

@dataclass(frozen=True, kw_only=True)
class Update(ClientUpdate):
    name: str = "mine"

    def weight(self):
        return 0.5

@dataclass(frozen=True, kw_only=True)
class Objective(SimCLR):
    name: str = "mine"

    def scale(self):
        return Learner.factor

class Learner:
    factor = 2.0
"""


@pytest.mark.parametrize(
    ("use", "old", "new"),
    [
        (lambda module: {"client_update": module.Update()}, "return 0.5", "return 0.95"),
        (lambda module: {"objective": module.Objective()}, "factor = 2.0", "factor = 3.0"),
    ],
)
def test_own_classes_of_settings_are_seen_with_what_they_use(use, old, new, tmp_path, monkeypatch):
    before, same, after = (
        module_of(text, tmp_path, monkeypatch) for text in (SETTINGS, SETTINGS, SETTINGS.replace(old, new))
    )
    found = [own_code.digests(SIMCLR.changed(**use(module))) for module in (before, same, after)]
    assert all(found)
    assert found[0] == found[1] != found[2]


def test_own_settings_that_say_their_version_are_taken_at_their_word(tmp_path, monkeypatch):
    versioned = SETTINGS.replace("    name: str =", "    version = 1\n    name: str =")
    module = module_of(versioned, tmp_path, monkeypatch)
    assert own_code.digests(SIMCLR.changed(client_update=module.Update())) == {}


def test_a_rule_and_a_fault_of_one_name_are_both_seen(tmp_path, monkeypatch):
    text = "def rule(this):\n    return this.cosines**1\n\ndef fault(update, draw):\n    return 1 * update\n"
    found = []
    for old, new in (("", ""), ("", ""), ("**1", "**2"), ("1 *", "2 *")):
        module = module_of(text.replace(old, new), tmp_path, monkeypatch)
        monkeypatch.setitem(RULES, "mine", module.rule)
        monkeypatch.setitem(FAULTS, "mine", module.fault)
        settings = SIMCLR.changed(aggregation="mine", fault="mine", faulty_share=0.5)
        found.append(own_code.digests(settings)["mine"])
    assert found[0] == found[1]
    assert len({*found}) == 3


def test_an_own_augmentation_has_its_values(monkeypatch):
    found = []
    for blur in (0.0, 0.0, 0.5):
        monkeypatch.setitem(AUGMENTATIONS, "mine", AUGMENTATIONS["digits"].changed(blur=blur))
        found.append(own_code.digests(SIMCLR.changed(augmentation="mine"))["mine"])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(("preset", "replaced"), [("mine", "mine-second"), ("byol", "byol-second"), ("byol", "byol")])
def test_an_own_second_view_and_a_preset_of_the_kit_that_is_replaced_are_seen(preset, replaced, monkeypatch):
    monkeypatch.setitem(AUGMENTATIONS, "mine", AUGMENTATIONS["digits"].changed(flip=0.5))
    settings = SIMCLR.changed(augmentation=preset)
    found = [own_code.digests(settings)]
    for blur in (0.2, 0.3):
        monkeypatch.setitem(AUGMENTATIONS, replaced, AUGMENTATIONS["digits"].changed(blur=blur, flip=0.1))
        found.append(own_code.digests(settings))
    assert found[0].get(replaced) != found[1][replaced] != found[2][replaced]


def test_what_a_rule_has_computed_of_its_own_values_is_no_change_of_it(tmp_path, monkeypatch):
    text = """
from functools import cached_property
class Rule:
    def __init__(self, power):
        self.power = power
    @cached_property
    def factor(self):
        return 2.0 ** self.power
    def __call__(self, this):
        return this.cosines * self.factor
"""
    module = module_of(text, tmp_path, monkeypatch)
    rule = module.Rule(1)
    before = digest(monkeypatch, rule)
    assert rule.factor == 2.0
    assert digest(monkeypatch, rule) == before != digest(monkeypatch, module.Rule(2))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{'p': 2, 'q': [1, {3}]}", "{'p': 40, 'q': [1, {3}]}"),
        ("{'p': 2, 'q': [1, {3}]}", "{'p': 2, 'q': [1, {4}]}"),
        ("torch.tensor([1.0, 1.0])", "torch.tensor([1.0, 0.0])"),
        ("np.array([1, 2])", "np.array([1, 3])"),
        ("np.int64(2)", "np.int64(3)"),
        ("SimpleNamespace(p=2)", "SimpleNamespace(p=3)"),
        ("Power(2).of", "Power(3).of"),
    ],
)
def test_values_of_its_module_that_a_rule_uses_are_seen(old, new, tmp_path, monkeypatch):
    text = """
import numpy as np
import torch
from types import SimpleNamespace
class Power:
    def __init__(self, power):
        self.power = power
    def of(self, x):
        return x ** self.power
CONF = {'p': 2, 'q': [1, {3}]}
N = np.int64(2)
S = SimpleNamespace(p=2)
F = Power(2).of
CONF['itself'] = CONF
W = torch.tensor([1.0, 1.0])
A = np.array([1, 2])
def rule(this):
    return F(this.cosines) * W.sum() * CONF['p'] ** N + A.sum() * S.p
"""
    before, same, after = (module_of(one, tmp_path, monkeypatch) for one in (text, text, text.replace(old, new)))
    assert digest(monkeypatch, before.rule) == digest(monkeypatch, same.rule)
    assert digest(monkeypatch, before.rule) != digest(monkeypatch, after.rule)


@pytest.mark.parametrize(
    ("old", "new"), [("2 * f", "3 * f"), ("POWER = 2", "POWER = 3"), ("rule.least = 0", "rule.least = 1")]
)
def test_decorators_cached_properties_and_attributes_of_a_rule_are_seen(old, new, tmp_path, monkeypatch):
    text = """
import functools
POWER = 2
def doubled(f):
    @functools.wraps(f)
    def wrapper(this):
        return 2 * f(this)
    return wrapper
class Power:
    @functools.cached_property
    def power(self):
        return POWER
@doubled
def rule(this):
    return this.cosines.clamp(min=rule.least) ** Power().power
rule.least = 0
"""
    before, same, after = (module_of(one, tmp_path, monkeypatch) for one in (text, text, text.replace(old, new)))
    assert digest(monkeypatch, before.rule) == digest(monkeypatch, same.rule)
    assert digest(monkeypatch, before.rule) != digest(monkeypatch, after.rule)


def test_a_rule_that_fills_one_list_is_seen_with_the_values_of_others(tmp_path, monkeypatch):
    text = """
LENGTH = {'all': 1.0}
def rule(this):
    rows = []
    rows.append(this.cosines * LENGTH['all'])
    return rows[0]
"""
    before, after = (module_of(one, tmp_path, monkeypatch) for one in (text, text.replace("1.0", "0.5")))
    assert digest(monkeypatch, before.rule) != digest(monkeypatch, after.rule)


def test_a_log_that_a_rule_fills_is_no_change_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    text = "LOG = []\ndef rule(this):\n    LOG.append(len(LOG))\n    return this.cosines * 0 + 1 / this.clients\n"
    module = module_of(text, tmp_path, monkeypatch)
    monkeypatch.setitem(RULES, "own", module.rule)
    settings = SIMCLR.changed(aggregation="own", rounds=1, probe_epochs=0)
    assert run(settings, progress=False).finished
    assert module.LOG
    assert Run(settings).finished
