import json
import os
import subprocess
import sys

import pytest
import torch

from fssl_core import precision
from fssl_core.errors import SettingError
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.experiments.store import run
from fssl_core.objectives.simclr import nt_xent
from fssl_core.precision import bfloat16_is_fast, chosen_precision
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.split import SplitSettings

SMALL = {
    "dataset": "scattered-digits",
    "train_images": 100,
    "augmentation": "digits",
    "width": 4,
    "clients": 2,
    "partition": "iid",
}
SMALL |= {"architecture": "resnet10", "epochs": 1, "client_batch": 10, "knn_k": 5, "probe_epochs": 0}
CPU = torch.device("cpu")


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A machine whose CPU takes so much of float32's time with bfloat16."""
    monkeypatch.setenv("FSSL_CACHE", str(tmp_path))

    def machine(share):
        measured = []
        monkeypatch.setattr(precision, "share_of_float32", lambda: measured.append(share) or share)
        monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)
        precision._measured.cache_clear()
        return measured

    yield machine
    precision._measured.cache_clear()


@pytest.mark.parametrize(
    ("share", "expected"), [(0.4, "bfloat16"), (0.8, "bfloat16"), (0.81, "float32"), (9.0, "float32")]
)
def test_auto_is_what_is_fast(here, share, expected):
    here(share)
    assert chosen_precision("auto") == expected
    assert [chosen_precision(name) for name in ("float32", "bfloat16", "float64")] == ["float32", "bfloat16", "float64"]


@pytest.mark.parametrize("kind", [SplitSettings, AveragingSettings, FineTuneSettings, InversionSettings])
def test_settings_say_what_auto_became_and_share_no_key(here, kind):
    needed = {
        "FineTuneSettings": {"pretraining": SplitSettings()},
        "InversionSettings": {"targets": (SplitSettings(),)},
    }
    made = {}
    for share, expected in ((0.4, "bfloat16"), (1.5, "float32")):
        here(share)
        precision._measured.cache_clear()
        (precision.cache_root() / "precision.json").unlink(missing_ok=True)
        made[expected] = settings = kind(precision="auto", **needed.get(kind.__name__, {}))
        assert settings.precision == expected
        assert settings.as_dict()["precision"] == settings.identity()["precision"] == expected
        assert settings == kind(precision=expected, **needed.get(kind.__name__, {}))
        assert settings.changed(seed=5).precision == expected
    assert made["bfloat16"].key != made["float32"].key


def test_both_phases_of_modular_training_may_ask(here):
    here(0.4)
    first = AutoencoderSettings(precision="auto")
    assert ModularSettings(phase1=first, precision="auto").precision == first.precision == "bfloat16"


def test_the_machine_is_measured_once_and_remembered_by_processor_and_torch(here, tmp_path):
    measured = here(0.5)
    assert bfloat16_is_fast(CPU)
    assert bfloat16_is_fast(CPU)
    precision._measured.cache_clear()  # another process
    assert bfloat16_is_fast(CPU)
    assert measured == [0.5]
    kept = json.loads((tmp_path / "precision.json").read_text())
    ((processor, share),) = kept.items()
    assert share == 0.5
    assert f"torch {torch.__version__}" in processor


@pytest.mark.parametrize("content", ["", "[]", "{", '{"processor": "fast"}'])
def test_a_file_that_says_nothing_is_measured_again(here, tmp_path, content):
    (tmp_path / "precision.json").write_text(content.replace("processor", precision._processor()))
    assert here(2.0) == []
    assert not bfloat16_is_fast(CPU)
    assert json.loads((tmp_path / "precision.json").read_text())[precision._processor()] == 2.0


def test_what_is_known_of_another_machine_stays(here, tmp_path):
    (tmp_path / "precision.json").write_text('{"another": 0.1}')
    here(2.0)
    assert not bfloat16_is_fast(CPU)
    assert json.loads((tmp_path / "precision.json").read_text()) == {"another": 0.1, precision._processor(): 2.0}


def test_a_cache_that_cannot_be_written_is_said(here, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FSSL_CACHE", str(tmp_path / "file"))
    here(0.5)
    assert bfloat16_is_fast(CPU)
    assert "cannot be kept in" in capsys.readouterr().err


def test_devices_without_a_cpu_s_answer(monkeypatch):
    monkeypatch.setattr(precision, "share_of_float32", lambda: pytest.fail("measured"))
    assert not bfloat16_is_fast(torch.device("mps"))
    for capability, supported, fast in (((7, 5), True, False), ((8, 0), True, True), ((9, 0), False, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, value=capability: value)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated, value=supported: value)
        assert bfloat16_is_fast(torch.device("cuda", 0)) == fast


def test_a_cpu_without_instructions_is_not_measured(monkeypatch):
    monkeypatch.setattr(precision, "share_of_float32", lambda: pytest.fail("measured"))
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not bfloat16_is_fast(CPU)


def test_the_measurement_is_short_and_leaves_random_numbers_alone():
    before = torch.get_rng_state()
    with torch.no_grad():
        share = precision.share_of_float32()
    assert 0.05 < share < 50
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif("avx512_bf16" not in precision._processor(), reason="needs a CPU with AVX512-BF16")
def test_the_same_processor_without_its_instructions_keeps_float32(tmp_path):
    """oneDNN can be told to leave instructions out: the rest of the machine is a CPU without them.

    With them it is measured, and not every processor that has them is faster by them.
    """
    code = "from fssl_core.precision import chosen_precision; print(chosen_precision('auto'))"
    chosen = {}
    for limit in ("AVX512_CORE", "DEFAULT"):
        environment = os.environ | {"FSSL_CACHE": str(tmp_path), "ONEDNN_MAX_CPU_ISA": limit}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        chosen[limit] = done.stdout.strip()
    (share,) = (
        share for name, share in json.loads((tmp_path / "precision.json").read_text()).items() if "DEFAULT" in name
    )
    assert chosen == {"AVX512_CORE": "float32", "DEFAULT": "bfloat16" if share <= precision.WORTH_IT else "float32"}


def test_no_precision():
    with pytest.raises(
        SettingError, match="precision='half' cannot be used: expected one of float32, bfloat16, float64, auto"
    ):
        SplitSettings(precision="half")


def test_a_run_states_the_precision_that_it_used(here, monkeypatch, tmp_path):
    here(0.4)
    monkeypatch.setenv("FSSL_RUNS", str(tmp_path / "runs"))
    done = run(SplitSettings(precision="auto", cut_layer=1, **SMALL), progress=False)
    assert done.provenance["precision"] == "bfloat16"
    assert done.provenance["tf32"] == []
    assert json.loads((done.folder / "settings.json").read_text())["settings"]["precision"] == "bfloat16"
    assert run(SplitSettings(precision="bfloat16", cut_layer=1, **SMALL), progress=False).folder == done.folder


def test_losses_can_be_counted_without_being_computed():
    first = torch.empty(4, 8, device="meta")
    loss, accuracy = nt_xent(first, first, temperature=0.5)
    assert (loss.shape, accuracy.shape) == ((), ())
