"""What evaluations and attacks compute and hold, without the runs that they build on; see :mod:`.work`."""

from math import prod

from torch import nn

from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.evaluation.downstream import DownstreamSettings
from fssl_core.evaluation.features import unpooled
from fssl_core.evaluation.fine_tuning import FineTuneSettings
from fssl_core.evaluation.landscape_runs import LandscapeSettings
from fssl_core.evaluation.probe_runs import ProbeSettings
from fssl_core.evaluation.renewed_statistics import RenewedStatistics
from fssl_core.evaluation.semi_supervised import SemiSupervisedSettings
from fssl_core.evaluation.untrained import UntrainedSettings
from fssl_core.models import build_backbone, cut
from fssl_core.models.heads import MLP, GlobalPool
from fssl_core.planning.modules import Passes
from fssl_core.planning.work import (
    Work,
    activation_bytes,
    built,
    counted,
    data_of,
    evaluation_bytes,
    image_bytes,
    knn,
    last_probe,
    loss_flops,
    once,
    probe,
    without_values,
    work_of,
)
from fssl_core.privacy.decoder import build_decoder
from fssl_core.privacy.decoder_training import VALIDATION_SHARE
from fssl_core.privacy.inversion import InversionSettings
from fssl_core.privacy.reconstruction import ReconstructionSettings
from fssl_core.settings import Settings
from fssl_core.training.averaging import AveragingSettings
from fssl_core.training.modular import ModularSettings
from fssl_core.training.resistance import ResistanceSettings

DOUBLE_BACKWARD = 3  # passes of a gradient that is matched, beside its own


def client_model(target: Settings, data: Dataset) -> nn.Module:
    """What ``client_model`` gives, without values."""
    model = built(target, data)
    return model.client_module if isinstance(target, AveragingSettings) else model[0]


def _source(pretraining: Settings) -> Settings:
    """The training at the bottom of it, which may be one that is not run."""
    if isinstance(pretraining, UntrainedSettings):
        return pretraining.of
    return _source(pretraining.pretraining) if isinstance(pretraining, RenewedStatistics) else pretraining


def _evaluated(s: DownstreamSettings, source: Dataset) -> Dataset:
    """The images that are classified."""
    if not getattr(s, "dataset", None):
        return source
    return without_values(load_dataset(s.dataset, image_size=source.image_size, train_images=s.train_images))


def _backbone(source: Settings, data: Dataset, *, maps: bool = False) -> Passes:
    """What is evaluated of a training's model: features, or the maps that they are means of."""
    backbone = source.backbone(built(source, data))
    return counted(source, f"backbone {maps}", lambda: (unpooled(backbone) if maps else backbone, data.shape))


def _labelled(s: DownstreamSettings, data: Dataset) -> int:
    """Images with labels: which ones the seed decides, and not how many."""
    key = (type(s), data.name, len(data.train), s.label_fraction)
    return once("labelled", key, lambda: len(s.labelled_images(data)))


@work_of.register
def _downstream(s: DownstreamSettings) -> Work:
    source = _source(s.pretraining)
    data = data_of(source)
    other = _evaluated(s, data)
    backbone = _backbone(source, data, maps=getattr(s, "features", "pooled") == "unpooled")
    train, test, classes = _labelled(s, other), len(other.test), len(other.classes)
    width = prod(backbone.shape)
    flops, steps = 0.0, 0
    if isinstance(s, ProbeSettings):
        flops, steps = probe(s.epochs, train, test, width, classes)
    elif isinstance(s, SemiSupervisedSettings):
        products = s.hidden * (width + classes)
        flops, steps = 2.0 * s.epochs * products * (3 * train + test), s.epochs * -(-train // s.batch)
    renewed = len(data.train) if isinstance(s.pretraining, RenewedStatistics) else 0
    return Work(
        evaluation=(renewed + train + test) * backbone.forward + flops,
        small_steps=steps,
        bytes_per_flop=backbone.bytes_per_flop,
        device_bytes=image_bytes(data) + image_bytes(other) * (other is not data) + 4.0 * (train + test) * width,
    )


@work_of.register
def _renewed(s: RenewedStatistics) -> Work:
    return Work()  # where it is needed


@work_of.register
def _untrained(s: UntrainedSettings) -> Work:
    data = data_of(s.of)
    whole = built(s.of, data)
    seen = counted(s.of, "compared by kNN", lambda: (s.of.compared(whole), data.shape))
    backbone = _backbone(s.of, data)
    probes = [last_probe(s.of, data, backbone)]
    if isinstance(s.of, ModularSettings):
        probes.append(last_probe(s.of, data, seen))
    return Work(
        evaluation=knn(s.of, data, seen)
        + sum(flops for flops, _ in probes)
        + (len(data.test) * backbone.forward if s.of.supervised else 0.0),
        small_steps=sum(steps for _, steps in probes),
        precision=s.of.precision,
        bytes_per_flop=backbone.bytes_per_flop,
        device_bytes=image_bytes(data) + seen.bytes + evaluation_bytes(data, prod(backbone.shape)),
    )


@work_of.register
def _fine_tuning(s: FineTuneSettings) -> Work:
    source = _source(s.pretraining)
    data = data_of(source)
    other = _evaluated(s, data)
    backbone = _backbone(source, data)
    classes = len(other.classes)
    head = counted(source, f"classifier of {classes}", lambda: (MLP(prod(backbone.shape), (classes,)), backbone.shape))
    model, train, test = backbone + head, _labelled(s, other), len(other.test)
    saved = activation_bytes(s, min(s.batch, train) * model.saved_bytes)
    return Work(
        training=s.epochs * train * model.trained,
        evaluation=(s.epochs + 1) * test * model.forward,
        steps=s.epochs * -(-train // s.batch),
        precision=s.precision,
        bytes_per_flop=backbone.bytes_per_flop,
        device_bytes=image_bytes(data) + image_bytes(other) * (other is not data) + 4 * model.bytes + saved,
        checkpoint_bytes=3 * model.bytes,
    )


@work_of.register
def _landscape(s: LandscapeSettings) -> Work:
    source = s.pretraining
    data = data_of(source)
    model = built(source, data)
    encoder = counted(source, "encoder", lambda: (model.encoder, data.shape))
    whole = encoder + counted(source, "projector", lambda: (model.projector, encoder.shape))
    points = len(s.radii) * (s.circle_points + 1) + s.points**2 + 1
    batches = s.images // source.batch
    loss = loss_flops(source.objective, source.batch, 0) / 3  # forward only
    kept = source.rounds // source.keep_every + 1
    return Work(
        evaluation=points * (2 * s.images * whole.forward + batches * loss),
        small_steps=points,
        precision=source.precision,
        bytes_per_flop=encoder.bytes_per_flop,
        device_bytes=image_bytes(data) + (kept + 4) * whole.bytes,
    )


@work_of.register
def _inversion(s: InversionSettings) -> Work:
    data = data_of(s.targets[0])
    own = s.attacker_images or round(s.attacker_share * len(data.train))
    kept_aside = max(1, round(VALIDATION_SHARE * own))
    training = evaluation = steps = held = 0.0
    groups = set()
    for target in s.targets:
        client = counted(target, "client model", lambda target=target: (client_model(target, data), data.shape))
        decoder = counted(
            target,
            f"decoder {s.decoder}",
            lambda client=client: (build_decoder(s.decoder, client.shape, data.shape), client.shape),
        )
        training += s.epochs * (own - kept_aside) * decoder.trained
        evaluation += (own + s.test_images) * client.forward
        evaluation += (s.epochs * kept_aside + 2 * s.test_images) * decoder.forward
        held += 6 * decoder.bytes + s.batch * decoder.saved_bytes + 4.0 * own * prod(client.shape)
        if client.shape not in groups:  # attacked together
            groups.add(client.shape)
            steps += s.epochs * -(-(own - kept_aside) // s.batch)
    return Work(
        training=training,
        evaluation=evaluation,
        steps=steps,
        precision=s.precision,
        bytes_per_flop=decoder.bytes_per_flop,
        device_bytes=image_bytes(data) + held,
    )


@work_of.register
def _reconstruction(s: ReconstructionSettings) -> Work:
    first = getattr(s.target, "phase1", s.target)
    data = data_of(first)
    client = counted(first, "client model", lambda: (client_model(first, data), data.shape))
    views = 2 if hasattr(s.target, "phase1") else 1
    step = client.inner_trained
    if s.gradient and getattr(s.threat, "knows_gradient", False):
        decoder = counted(first, "decoder", lambda: (built(first, data).decoder, client.shape))
        step += DOUBLE_BACKWARD * (client + decoder).inner_trained
    return Work(
        training=s.iterations * s.images * views * step,
        steps=s.iterations,
        bytes_per_flop=client.bytes_per_flop,
        device_bytes=image_bytes(data) + 2 * s.images * views * client.saved_bytes,
        result_bytes=3.0 * views * s.images * prod(data.shape),
    )


@work_of.register
def _resistance(s: ResistanceSettings) -> Work:
    target, source = map(without_values, s.load_data())
    channels, side, _ = target.shape
    like = {"width": s.width, "norm": s.norm, "image_size": side, "channels": channels}
    layers, others = cut(build_backbone(s.architecture, **like, values=False), s.cut_layer)
    client = counted(s, "client", lambda: (layers, target.shape))
    rest = counted(s, "server", lambda: (nn.Sequential(others, GlobalPool()), client.shape))
    head = counted(s, "head", lambda: (MLP(rest.shape[0], (len(source.classes),)), rest.shape))
    decoder = counted(s, s.decoder, lambda: (build_decoder(s.decoder, client.shape, target.shape), client.shape))
    model = client + rest + head
    steps = s.epochs * -(-len(source.train) // s.batch)
    attacked = min(s.batch, s.attacker_images or round(s.attacker_share * len(target.train)))
    attacker = s.decoder_steps * (client.forward + decoder.trained)
    charged = decoder.forward + (decoder.inner_backward + client.backward if s.strength else 0.0)
    return Work(
        training=s.epochs * len(source.train) * model.trained + steps * attacked * (attacker + charged),
        evaluation=len(source.test) * model.forward,
        steps=steps * (1 + s.decoder_steps),
        bytes_per_flop=decoder.bytes_per_flop,
        device_bytes=image_bytes(target)
        + image_bytes(source)
        + 4 * model.bytes
        + 5 * decoder.bytes
        + s.batch * model.saved_bytes
        + attacked * (1 + s.decoder_steps) * decoder.saved_bytes,
        result_bytes=client.bytes,
        checkpoint_bytes=3 * model.bytes + 4 * decoder.bytes,
    )
