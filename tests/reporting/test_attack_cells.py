import pandas as pd
import pytest
import torch

from fssl_core.errors import DataError
from fssl_core.experiments.store import Run, run_all
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.reporting.attack_cells import attack_cells, attack_pictures
from tests.privacy.test_reconstruction import PHASE1, SPLIT

DEEPER = SPLIT.changed(cut_layer=5)


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSSL_RUNS", str(tmp_path_factory.mktemp("runs")))
        search = {"images": 3, "iterations": 2, "seed": 4}
        attacks = [
            InversionSettings(
                targets=(SPLIT, DEEPER), decoder="res_normN0C8", epochs=1, attacker_images=20, test_images=3, seed=4
            ),
            ReconstructionSettings(target=DEEPER, **search),
            ReconstructionSettings(target=PHASE1, **search),
            ReconstructionSettings(target=PHASE1, collusion=False, **search),
        ]
        run_all(attacks, progress=False)
        yield attacks


def test_each_target_of_each_attack_has_a_row_with_the_figures_of_its_run(attacks):
    cells = attack_cells(attacks)
    names = cells[["system", "attack", "layers"]].values.tolist()
    assert names == [
        ["MonAcoSFL", "decoder", 3],
        ["MonAcoSFL", "decoder", 5],
        ["MonAcoSFL", "search", 5],
        ["MFCL", "search", 2],
        ["MFCL", "search, model unknown", 2],
    ]
    decoder, *searches = (Run(settings) for settings in attacks)
    assert cells.mse.tolist() == [*decoder.table("attack").mse, *(run.summary["mse"] for run in searches)]
    assert cells.key.tolist() == [attacks[0].key, *(settings.key for settings in attacks)]
    assert cells.representation_error.isna().tolist() == [True, True, False, False, False]
    assert cells.explained[2:].tolist() == [run.summary["explained"] for run in searches]
    kept = decoder.tensors("reconstructions")
    for made, share in zip(kept["reconstructions"], cells.explained[:2], strict=True):
        pairs = zip(made.flatten(1).float(), kept["originals"].flatten(1).float(), strict=True)
        correlation = torch.stack([torch.corrcoef(torch.stack(pair))[0, 1] for pair in pairs])
        assert share == pytest.approx(correlation.square().mean().item(), abs=1e-4)


def test_tables_are_enough(attacks, monkeypatch):
    expected = attack_cells(attacks)
    monkeypatch.setattr(Run, "tensors", lambda run, name: pytest.fail("an archive leaves them out"))
    pd.testing.assert_frame_equal(attack_cells(attacks), expected)


def test_the_guess_of_the_mean_image_stands_beside_all_attacks_of_its_system_and_seed(attacks):
    cells = attack_cells(attacks)
    reference = Run(attacks[0]).table("reference").iloc[0]  # of the mean image, as the run itself measured it
    assert cells.mean_image_mse[:3].tolist() == pytest.approx([reference.mse] * 3)
    assert cells.mean_image_ssim[:3].tolist() == pytest.approx([reference.ssim] * 3)
    assert cells.filter(like="mean_image_")[3:].isna().all(axis=None)  # nobody decodes MFCL here
    assert not any("mean_image" in name for name in attack_cells(attacks[1:]))
    assert len(attack_cells(attacks[:1] * 2)) == 4  # two decoders of one system and seed, as of MFCL with two norms


def test_pictures_are_what_the_runs_keep_of_the_same_images(attacks):
    originals, pictures = attack_pictures(attacks, images=2)
    assert {name: list(by_layers) for name, by_layers in pictures.items()} == {
        ("MFCL", "search"): [2],
        ("MFCL", "search, model unknown"): [2],
        ("MonAcoSFL", "decoder"): [3, 5],
        ("MonAcoSFL", "search"): [5],
    }
    made, truth = (images / 255 for images in (pictures["MonAcoSFL", "search"][5], originals))
    assert made.shape == truth.shape == (2, 1, 16, 16)
    kept = Run(attacks[1]).tensors("reconstructions")
    assert torch.equal(made, kept["reconstructions"][0, :2] / 255)
    assert torch.equal(truth, kept["originals"][:2] / 255)


def test_attacks_on_other_images_have_no_common_pictures(attacks):
    other = attacks[1].changed(seed=5)
    run_all([other], progress=False)
    with pytest.raises(DataError, match=r"attacks on the same images: of one seed, got \[4, 5\]"):
        attack_pictures([attacks[0], other])
