"""What a client sends and receives in a whole training, in bytes, counted before anything is trained.

It is what the run's own ledger has of the mean client. Of FedCA, Orchestra and an own objective with ``shares`` the
models alone are counted, and not what clients exchange beside them, such as dictionaries and centroids.
"""

from fssl_core.costs.client_load import ALONE
from fssl_core.costs.compute import nbytes
from fssl_core.costs.modular import phase2_bytes
from fssl_core.costs.traffic import engine_traffic
from fssl_core.data.datasets import Dataset
from fssl_core.errors import SettingError
from fssl_core.models import build_backbone
from fssl_core.models.cutting import output_shape
from fssl_core.settings import check_choice
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.layerwise import LayerwiseSettings, LayerwiseTrainer
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.split import SplitSettings


def client_traffic(settings: AveragingSettings | SplitSettings | ModularSettings, data: Dataset) -> float:
    """Bytes that the mean client sends and receives, in float32.

    Args:
        settings: of a run.
        data: its images, normally ``settings.load_data()``: their number, shape and division count, not their pixels.

    Raises:
        SettingError: settings of another kind, or what a client sends depends on how the training goes.
    """
    s = settings
    if isinstance(s, ModularSettings):
        check_choice("missing", s.missing, (0.0,))
        module = s.phase1.build_model(data).client_module
        images = sum(map(len, s.phase1.divide(data)))
        sent = phase2_bytes(output_shape(module, data.channels, data.image_size), images, s.pairs)
        return client_traffic(s.phase1, data) + sent / s.phase1.clients
    if isinstance(s, SplitSettings):
        return _split(s, data)
    if type(s) not in (AveragingSettings, AutoencoderSettings, MoonSettings, LayerwiseSettings):
        expected = "settings of averaging, layer-wise, split or modular training"
        raise SettingError("settings", type(s).__name__, expected)
    if s.client_update.watches:
        raise SettingError("client_update", s.client_update.name, "one that exchanges all layers in every round")
    if isinstance(s, LayerwiseSettings):
        return _layerwise(s, data)
    exchanges = 2 * sum(len(s.taking_part(finished)) for finished in range(s.rounds))
    if s.objective.begins:  # they get the model once more, before the first round
        exchanges += len(s.taking_part(0))
    return exchanges * nbytes(s.build_model(data).state_dict().values()) / s.clients


def _layerwise(s: LayerwiseSettings, data: Dataset) -> float:
    """A client that takes part in every round, without depth dropout: the engine says what crosses in each."""
    check_choice("most_layers", s.most_layers, (None,))
    check_choice("client_dropout", s.client_dropout, (0.0,))
    if s.sampled < s.clients:
        raise SettingError(
            "clients_per_round", s.clients_per_round, "None: a client that has missed a stage fetches it"
        )
    trainer, sent, stage = LayerwiseTrainer(s.changed(**ALONE, keep_every=0), data), 0, None
    for own in s.plan(len(trainer.units)):
        if own is not stage:  # the first round of a stage brings the layers that the last one has finished
            trainer.enter(stage := own)
            trainer.outgoing = trainer.worker
            first = nbytes(trainer.downloads(0))
            trainer.memory[0]["held"] = [name for name, _ in trainer.frozen.named_children()]
            later, up = nbytes(trainer.downloads(0)), nbytes(trainer.uploads(0))
            sent += first - later
        sent += later + up
    return float(sent)


def _split(s: SplitSettings, data: Dataset) -> float:
    steps = min(map(len, s.divide(data))) // s.client_batch
    backbone = build_backbone(
        s.architecture, width=s.width, norm=s.norm, image_size=data.image_size, channels=data.channels, values=False
    )
    in_epoch = {
        sampled: sum(
            message.bytes
            for message in engine_traffic(
                backbone,
                s.cut_layer,
                images=steps * s.client_batch,
                syncs=-(-steps // s.sync_every),
                momentum_sync=s.method == "MonAcoSFL",
                symmetric=s.both_views,
                sampled=sampled,
                freeze_client=s.freeze_client,
            )
        )
        for sampled in (True, False)
    }
    share = s.sampled / s.clients
    return s.epochs * (share * in_epoch[True] + (1 - share) * in_epoch[False])
