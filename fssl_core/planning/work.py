"""What a run computes and holds, by its settings: the engines. Evaluations on top: :mod:`.evaluations`.

A run is counted in passes of images through modules (:mod:`.modules`), products of losses and of evaluations included.
Arithmetic of augmentations, normalisations and optimisers is not: it counts in the rates of :mod:`.machines`.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce, singledispatch
from math import prod
from typing import Any, NamedTuple

import torch
from torch import nn

from fssl_core.costs.client_load import views_of
from fssl_core.data.datasets import Dataset
from fssl_core.data.partitions import parsed
from fssl_core.evaluation.knn import KNN_BLOCK
from fssl_core.evaluation.linear_probe import PROBE_BATCH
from fssl_core.models.stages import reshape_layer, stages
from fssl_core.objectives import Objective
from fssl_core.planning.modules import NoValues, Passes, passes
from fssl_core.settings import Settings
from fssl_core.training.averaging import ALL_MODELS, AveragingSettings
from fssl_core.training.featarc import FeatArcSettings
from fssl_core.training.fedpac import FedPacSettings
from fssl_core.training.heterofl import HeteroFLSettings
from fssl_core.training.layerwise import LayerwiseSettings
from fssl_core.training.modular import AutoencoderSettings, ModularSettings
from fssl_core.training.moon import MoonSettings
from fssl_core.training.partial import PartialSettings
from fssl_core.training.representations import HELD_BYTES
from fssl_core.training.settings import FederationSettings, RoundSettings, TrainingSettings
from fssl_core.training.split import SplitSettings
from fssl_core.training.split_clients import MEASURED_IMAGES
from fssl_core.training.split_learning import SplitLearningSettings


@dataclass(frozen=True)
class Work:
    """What a run takes, without the runs that it builds on.

    Args:
        training: FLOPs, a multiply-add counts 2.
        evaluation: FLOPs of kNN, probes and measurements.
        steps: of optimisers.
        small_steps: of linear classifiers on stored features.
        precision: of the passes.
        bytes_per_flop: what autograd would keep, in float32, for a FLOP of a forward pass: how much memory is moved.
        device_bytes: largest on the device: images, all models there, what autograd keeps; an estimate.
        clients_bytes: of these, the models of clients.
        result_bytes: that it leaves in the store.
        checkpoint_bytes: of a state from which it resumes.
    """

    training: float = 0.0
    evaluation: float = 0.0
    steps: float = 0.0
    small_steps: float = 0.0
    precision: str = "float32"
    bytes_per_flop: float = 0.0
    device_bytes: float = 0.0
    clients_bytes: float = 0.0
    result_bytes: float = 0.0
    checkpoint_bytes: float = 0.0


@singledispatch
def work_of(settings: Settings) -> Work:
    """What a run of these settings takes; call it inside :func:`~fssl_core.data.outlines.outlines_only`.

    Raises:
        NotImplementedError: nothing counts settings of this kind yet.
    """
    raise NotImplementedError(f"the work of {type(settings).__name__} is not counted")


# ---------------------------------------------------------------- parts


def without_values(data: Dataset) -> Dataset:
    """The same set with images on the meta device."""
    train, test = (replace(own, images=own.images.to("meta")) for own in (data.train, data.test))
    return replace(data, train=train, test=test)


_known: dict[tuple, Any] = {}


def once(what: str, key: tuple, make: Callable[[], Any]) -> Any:
    """What ``make`` gives, which is called once for equal keys."""
    if (what, key) not in _known:
        _known[what, key] = make()
    return _known[what, key]


def data_of(settings: TrainingSettings) -> Dataset:
    """The images of a run, without values."""
    first = getattr(settings, "phase1", settings)
    key = (first.dataset, first.image_size, first.train_images, type(settings).load_data)
    return once("data", key, lambda: without_values(settings.load_data()))


_FORM = ("dataset", "image_size", "architecture", "width", "norm", "cut_layer", "cut", "channels_per_group", "variance")
_FORM += ("objective", "projector", "projector_hidden", "projector_dim", "auxiliary", "gradients", "bases")


def form(settings: Settings) -> tuple:
    """The fields that decide the modules of a run."""
    first = getattr(settings, "phase1", None)
    values = [(field, getattr(one, field, None)) for one in (settings, first) if one is not None for field in _FORM]
    return (type(settings).__name__, *values)


def counted(settings: Settings, name: str, make: Callable[[], tuple[nn.Module, tuple[int, ...]]]) -> Passes:
    """The passes of a module, made and counted once for all settings that make the same one.

    Args:
        settings: of the run.
        name: of the module among those of the run.
        make: gives the module, and the shape of its input.
    """
    return once("passes", (name, *form(settings)), lambda: passes(*make()))


def built(settings: TrainingSettings, data: Dataset) -> nn.Module:
    """The whole model of a run without values, made once for all settings of one form; not to be changed."""

    def build() -> nn.Module:
        with NoValues():
            return settings.build_model(data).to("meta")

    return once("model", form(settings), build)


def sizes(settings: FederationSettings, data: Dataset) -> list[int]:
    """Images of each client; those of another seed have the same distribution."""
    if parsed(settings.partition).kind not in ("dirichlet", "majority", "part"):
        return [len(data.train) // settings.clients] * settings.clients
    key = (settings.dataset, settings.train_images, settings.clients, settings.partition)
    return once("sizes", key, lambda: [len(part) for part in settings.changed(seed=0).divide(data)])


def image_bytes(data: Dataset) -> int:
    return data.train.images.numel() + data.test.images.numel()


def activation_bytes(settings: TrainingSettings, saved: float) -> float:
    """Of what float32 would keep; autocast keeps about half."""
    return saved * (0.5 if settings.precision == "bfloat16" else 1.0)


def knn(settings: TrainingSettings, data: Dataset, model: Passes) -> float:
    """FLOPs of a kNN accuracy on the validation share of the test set."""
    if not data.labelled:
        return 0.0
    bank, queries, width = len(data.train), max(1, round(settings.validation_share * len(data.test))), prod(model.shape)
    return (bank + queries) * model.forward + 2.0 * bank * queries * width


def probe(epochs: int, train: int, test: int, width: int, classes: int) -> tuple[float, float]:
    """FLOPs and steps of a linear classifier on stored features that need no gradient, tested after every epoch."""
    return 2.0 * epochs * width * classes * (2 * train + test), epochs * -(-train // PROBE_BATCH)


def last_probe(settings: TrainingSettings, data: Dataset, backbone: Passes) -> tuple[float, float]:
    """FLOPs and steps of the linear probe of a run's own summary."""
    if not (settings.probe_epochs and data.labelled):
        return 0.0, 0.0
    images = len(data.train) + len(data.test)
    flops, steps = probe(
        settings.probe_epochs, len(data.train), len(data.test), prod(backbone.shape), len(data.classes)
    )
    return images * backbone.forward + flops, steps


def evaluation_bytes(data: Dataset, width: int) -> float:
    """Features of all images, and the similarities of a block of queries."""
    return 4.0 * (len(data.train) + len(data.test)) * width + 6.0 * KNN_BLOCK * len(data.train)


def device_bytes(settings: TrainingSettings, data: Dataset, held: float, saved: float, width: int) -> float:
    """Images, models, and the larger of what autograd keeps and what an evaluation of features of a width takes."""
    return image_bytes(data) + held + max(activation_bytes(settings, saved), evaluation_bytes(data, width))


# ---------------------------------------------------------------- federated averaging


def loss_flops(objective: Objective, batch: int, images_of_others: int) -> float:
    """FLOPs of the products in the loss of a step, forward and backward."""
    width = objective.projector[-1] if objective.projector else 0
    match objective.name:
        case "simclr":
            queries = batch if objective.loss == "one-direction" else 2 * batch
            return 6.0 * queries * 2 * batch * width
        case "fedca":
            return 2 * batch * width * (6.0 * 2 * batch + 4.0 * images_of_others)
        case "barlow-twins":
            return 6.0 * batch * width**2
        case "moco-v3":
            return 8.0 * batch**2 * width
        case "moco-v2":
            return (2 if objective.symmetric else 1) * 6.0 * batch * objective.queue_size * width
        case "orchestra":
            return 6.0 * batch * objective.global_clusters * width
    return 0.0


@dataclass(frozen=True)
class Rounds:
    """What a federation does in rounds: the mean client of a round, all local epochs.

    Args:
        clients: that take part in a round.
        images: of all passes over a client's images.
        steps: of a client.
        batch: images a step.
    """

    clients: int
    images: float
    steps: float
    batch: float

    @classmethod
    def of(cls, s: RoundSettings, data: Dataset) -> "Rounds":
        all_sizes = sizes(s, data)
        used = [s.used(size) for size in all_sizes if size]
        steps = [-(-own // min(s.batch, size)) for own, size in zip(used, filter(None, all_sizes), strict=True)]
        images, steps = sum(used) / len(used), sum(steps) / len(steps)
        return cls(s.sampled, s.local_epochs * images, s.local_epochs * steps, images / steps)


class Stage(NamedTuple):
    """Passes of what the clients train for some rounds: one of layer-wise training's stages, or a whole run."""

    rounds: int
    frozen: Passes
    trained: Passes
    target: Passes
    seen: Passes  # the encoder, as evaluations see it


@work_of.register
def _averaging(s: AveragingSettings) -> Work:
    data = data_of(s)
    stages_of_run = _layerwise_stages(s, data) if isinstance(s, LayerwiseSettings) else [_only_stage(s, data)]
    encoder = stages_of_run[-1].seen
    rounds, objective = Rounds.of(s, data), s.objective
    online, targets = views_of(objective)
    contrasted = 2 if isinstance(s, MoonSettings) and objective.contrast_weight else 0
    layers_aligned = getattr(s, "representation_alignment", 0)
    aligned = 2 if layers_aligned or (isinstance(s, FeatArcSettings) and s.alignment) else 0
    training = evaluation = 0.0
    for count, frozen, trained, target, seen in stages_of_run:
        image = s.views * frozen.forward + online * trained.trained + (targets + contrasted) * target.forward
        image += aligned * seen.forward
        if objective.shares and objective.name == "fedca":  # the dictionary, of a last pass over the images
            image += 2 * trained.forward / s.local_epochs
        flops = rounds.images * image + rounds.steps * loss_flops(
            objective, round(rounds.batch), (rounds.clients - 1) * round(rounds.images / s.local_epochs)
        )
        training += count * rounds.clients * flops
        if isinstance(s, FeatArcSettings) and s.groups > 1:
            training += max(0, s.rounds - s.group_from) * rounds.clients * rounds.images / s.local_epochs * seen.forward
        if isinstance(s, FedPacSettings):  # the classifier's own passes, and features of classes before and after
            measured = 2 * (s.alignment > 0) + (s.alignment == 0 and s.classifiers == "combined")
            alone = s.classifier_epochs * (seen.forward + (trained.trained - seen.trained))
            each = rounds.images / s.local_epochs * (alone + measured * seen.forward)
            training += count * rounds.clients * each
            evaluation += count * len(data.test) * seen.forward
        if isinstance(s, HeteroFLSettings) and s.static_batch_norm:
            evaluation += count * len(data.train) * target.forward
        evaluation += count * knn(s, data, seen)
    probed, small_steps = last_probe(s, data, encoder)
    probes = 1 + (s.rounds // s.probe_every if s.probe_every else 0)
    evaluation += probes * probed + (len(data.test) * encoder.forward if s.supervised else 0.0)

    _, frozen, trained, target, _ = max(stages_of_run, key=lambda stage: stage.trained.bytes)
    of_one, sampled = 5 + bool(s.client_update.follows_training), min(s.sampled, ALL_MODELS)  # with the gradient
    remembers = s.client_update.keeps or contrasted or layers_aligned  # own last models
    kept = s.clients * (bool(remembers) + bool(s.keep_velocity))
    if isinstance(s, FeatArcSettings) and s.groups > 1:
        kept += s.groups
    kept_targets = s.clients if objective.has_target and s.target_at_start == "kept" else 0
    queue = 4.0 * getattr(objective, "queue_size", 0) * (objective.projector[-1] if objective.projector else 0)
    clients = (sampled + kept) * trained.bytes + kept_targets * target.bytes + s.clients * queue
    saved = online * max(stage.trained.saved_bytes for stage in stages_of_run) * rounds.batch
    held = of_one * trained.bytes + bool(targets) * target.bytes + frozen.bytes + clients
    whole = max(stage.frozen.bytes + stage.trained.bytes for stage in stages_of_run)
    models = s.rounds // s.keep_every + 1 if s.keep_every else 0
    return Work(
        training=training,
        evaluation=evaluation,
        steps=s.rounds * rounds.clients * rounds.steps,
        small_steps=probes * small_steps,
        precision=s.precision,
        bytes_per_flop=encoder.bytes_per_flop,
        device_bytes=device_bytes(s, data, held, saved, prod(encoder.shape)),
        clients_bytes=clients,
        result_bytes=(1 + models) * whole,
        checkpoint_bytes=clients + (2 + models) * whole,
    )


def _only_stage(s: AveragingSettings, data: Dataset) -> Stage:
    if isinstance(s, AutoencoderSettings):
        module = counted(s, "client module", lambda: (built(s, data).client_module, data.shape))
        decoder = counted(s, "decoder", lambda: (built(s, data).decoder, module.shape))
        pooled = replace(module, shape=module.shape[:1])
        return Stage(s.rounds, Passes(), module + decoder, pooled, pooled)
    encoder = counted(s, "encoder", lambda: (built(s, data).encoder, data.shape))
    projector = counted(s, "projector", lambda: (built(s, data).projector, encoder.shape))
    predictor = counted(s, "predictor", lambda: (built(s, data).predictor, projector.shape))
    target = encoder + projector
    trained = _held(s, data, target + predictor) if isinstance(s, PartialSettings) else target + predictor
    return Stage(s.rounds, Passes(), trained, target, encoder)


def _held(s: PartialSettings, data: Dataset, whole: Passes) -> Passes:
    """Of the whole model what the mean client trains, by its images; what autograd keeps is that of the largest."""
    images = sizes(s, data)
    total, flops = sum(images), ("forward", "backward", "inner_backward")
    shares = dict.fromkeys(s.shares, 0.0)  # of the images
    for client, own in enumerate(images):
        shares[s.share_of(client)] += own / total
    parts = {share: _scaled(whole, share) for share in shares}
    if isinstance(s, HeteroFLSettings):
        for share in shares:
            narrow = s.narrowed(share)
            parts[share] = counted(narrow, "whole", lambda one=narrow: (built(one, data), data.shape))
    return replace(whole, **{name: sum(shares[one] * getattr(parts[one], name) for one in shares) for name in flops})


def _layerwise_stages(s: LayerwiseSettings, data: Dataset) -> list[Stage]:
    whole = built(s, data)
    backbone = whole.encoder[0]
    units, shape = stages(backbone), data.shape
    seen: dict[str, Passes] = {}  # by name, each unit behind those before it
    for name, unit in backbone.named_children():
        seen[name] = counted(s, f"unit {name}", lambda unit=unit, before=shape: (unit, before))
        shape = seen[name].shape
    projector = counted(s, "projector", lambda: (whole.projector, (backbone.feature_dim,)))
    predictor = counted(s, "predictor", lambda: (whole.predictor, projector.shape))

    def stack(layers: range, *tail: str) -> Passes:
        names = [*(name for layer in layers for name in units.added[layer]), *tail]
        return reduce(operator.add, (seen[name] for name in names), Passes())

    found = []
    plan = s.plan(len(units))
    for stage in dict.fromkeys(plan):
        width = seen[units.added[stage.present[-1]][-1]].shape[0]
        between = Passes()
        if width != backbone.feature_dim:
            reshape = partial(reshape_layer, width, backbone.feature_dim, generator=torch.Generator())
            between = counted(s, f"reshape {width}", lambda reshape=reshape, width=width: (reshape(), (width,)))
        left = (len(stage.present) - stage.dropped) / len(stage.present)  # of depth dropout's layers
        frozen, active = _scaled(stack(stage.frozen), left), _scaled(stack(stage.active, *units.tail), left)
        target = active + between + projector
        pooled = replace(frozen + active, shape=(width,))
        found.append(Stage(plan.count(stage), frozen, target + predictor, target, pooled))
    return found


def _scaled(own: Passes, share: float) -> Passes:
    if share == 1:
        return own
    flops = {name: getattr(own, name) * share for name in ("forward", "backward", "inner_backward", "saved_bytes")}
    return replace(own, **flops)


# ---------------------------------------------------------------- split training


@work_of.register
def _split(s: SplitSettings) -> Work:
    data = data_of(s)
    client = counted(s, "client", lambda: (built(s, data)[0], data.shape))
    body = counted(s, "server", lambda: (built(s, data)[1:-1], client.shape))
    projector = counted(s, "projector", lambda: (built(s, data)[-1], body.shape))
    server, backbone, whole = body + projector, client + body, client + body + projector
    each = min(sizes(s, data))
    steps = each // s.client_batch
    images = s.sampled * steps * s.client_batch  # of an epoch
    views, directions = 2 if s.both_views else 1, 2 if s.symmetric else 1
    own = 2 * client.forward if s.freeze_client else views * (2 * client.forward + client.backward)
    inner = server.trained if s.freeze_client else server.inner_trained
    queries = 2 * inner if s.both_views else inner + (directions - 1) * server.trained
    rest = queries + directions * server.forward
    rest += directions * 4.0 * s.queue_size * s.projector_dim  # of InfoNCE with the queue, whose keys need no gradient
    measured = 0.0
    if s.sampled > 1:
        measured = 2 * s.sampled * min(MEASURED_IMAGES, each) * whole.forward
    evaluation = -(-s.epochs // s.validate_every) * (knn(s, data, whole) + measured)
    probed, small_steps = last_probe(s, data, backbone)
    copies = s.clients + (s.sampled if s.sampled < s.clients else 0)
    clients = 3 * copies * client.bytes
    held = clients + s.sampled * client.bytes + 4 * server.bytes + 4 * s.queue_size * s.projector_dim
    saved = s.sampled * s.client_batch * views * (client.saved_bytes + server.saved_bytes)
    return Work(
        training=s.epochs * images * (own + rest),
        evaluation=evaluation + probed,
        steps=s.epochs * steps * (2 if s.variant == "SFL-V1" else 1 + s.sampled),
        small_steps=small_steps,
        precision=s.precision,
        bytes_per_flop=backbone.bytes_per_flop,
        device_bytes=device_bytes(s, data, held, saved, prod(whole.shape)),
        clients_bytes=clients,
        result_bytes=whole.bytes,
        checkpoint_bytes=3 * s.clients * client.bytes + 3 * server.bytes + 4 * s.queue_size * s.projector_dim,
    )


@work_of.register
def _split_learning(s: SplitLearningSettings) -> Work:
    data = data_of(s)
    layers = counted(s, "client", lambda: (built(s, data)[0], data.shape))
    head = Passes()
    if s.gradients == "local":
        head = counted(s, "head", lambda: (s.build_client(built(s, data)[0], data).head, layers.shape))
    body = counted(s, "server", lambda: (built(s, data)[1:-1], layers.shape))
    classifier = counted(s, "classifier", lambda: (built(s, data)[-1], body.shape))
    server, rounds = body + classifier, Rounds.of(s, data)
    image = (layers + head).trained + (server.inner_trained if s.gradients == "server" else server.trained)
    evaluation = s.rounds * knn(s, data, layers + body)
    probed, small_steps = last_probe(s, data, layers + body)
    clients = 3 * s.sampled * (layers + head).bytes
    saved = s.sampled * rounds.batch * (layers + head + server).saved_bytes
    return Work(
        training=s.rounds * rounds.clients * rounds.images * image,
        evaluation=evaluation + probed + len(data.test) * (layers + server).forward,
        steps=s.rounds * rounds.steps * (s.sampled + (1 if s.variant == "SFL-V1" else s.sampled)),
        small_steps=small_steps,
        precision=s.precision,
        bytes_per_flop=(layers + body).bytes_per_flop,
        device_bytes=device_bytes(s, data, clients + 4 * server.bytes, saved, prod(body.shape)),
        clients_bytes=clients,
        result_bytes=(layers + server).bytes,
        checkpoint_bytes=(layers + head).bytes + 3 * server.bytes,
    )


# ---------------------------------------------------------------- modular training


@work_of.register
def _modular(s: ModularSettings) -> Work:
    data, first = data_of(s), s.phase1
    model = built(s, data)
    (first_layers, *others), pool = model.encoder
    client = counted(s, "client", lambda: (first_layers, data.shape))
    rest = counted(s, "rest", lambda: (nn.Sequential(*others, pool), client.shape))
    projector = counted(s, "projector", lambda: (model.projector, rest.shape))
    server, encoder = rest + projector, client + rest
    all_sizes = sizes(first, data)
    images = sum(all_sizes[number] for number in s.received.tolist())
    batch = min(s.batch, images)
    passes_over = s.epochs * s.pairs_per_epoch
    steps = passes_over * (images // batch)
    delivered = 8.0 * prod(client.shape) * s.pairs * images  # bytes
    kept = delivered <= HELD_BYTES
    sent = (min(s.pairs, passes_over) if kept else passes_over) * images * 2 * s.datamix * client.forward
    training = steps * batch * (2 * server.trained + 6.0 * 4 * batch * projector.shape[0]) + sent
    shown = -(-s.epochs // s.validate_every)
    whole = encoder + projector
    probed = [last_probe(s, data, part) for part in (whole, encoder)]
    held, saved = client.bytes + 4 * server.bytes + kept * delivered, 2 * batch * server.saved_bytes
    return Work(
        training=training,
        evaluation=shown * knn(s, data, whole) + sum(flops for flops, _ in probed),
        steps=steps,
        small_steps=sum(count for _, count in probed),
        precision=s.precision,
        bytes_per_flop=encoder.bytes_per_flop,
        device_bytes=device_bytes(s, data, held, saved, prod(encoder.shape)),
        result_bytes=whole.bytes,
        checkpoint_bytes=2 * server.bytes + whole.bytes,
    )
