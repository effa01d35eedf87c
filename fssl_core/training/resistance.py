"""Resistant client parts: trained beforehand against a simulated inversion attacker (ResSFL, TAResSFL).

Li et al., "ResSFL: a resistance transfer framework for defending model inversion attack in split federated learning",
CVPR 2022, and its target-aware variant TAResSFL, which MonAcoSFL's text names as an additional defence (Section 5.3).
On a public labelled data set, the source, client part and server part learn to classify, while the client part also
learns to be of no use to a decoder that is trained at the same time:

    minimise over the model    cross entropy + strength * max(0, SSIM(decoder(client(x)), x) - similarity_limit)
    minimise over the decoder  MSE(decoder(client(x)), x)

The decoder makes several steps for each of the model, since the client part can only hide from an attacker that keeps
up with it. Target-aware means that x, the images of the second term, come from the data to be protected. They are drawn
for the simulated attacker alone; the attack that comes later draws its own. The client part is then handed to
:class:`~fssl_core.training.split.SplitSettings` as ``pretrained_client``, and frozen there or trained on.

Neither paper's text is among those that this project reproduces: structure and loss follow their public descriptions,
and the numbers are our choice. A ``strength`` of 0 is the control: the same pre-training without the attacker.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset, load_dataset
from fssl_core.devices import default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import NonFiniteLossError, SettingError
from fssl_core.evaluation.features import extract
from fssl_core.models import ARCHITECTURES, GlobalPool, build_backbone, cut, latent_shape, norms_of
from fssl_core.models.heads import MLP
from fssl_core.privacy.decoder import DecoderName, build_decoder, decoder_versions
from fssl_core.privacy.image_quality import ssim
from fssl_core.privacy.inversion import draw_images
from fssl_core.random import generator
from fssl_core.settings import (
    Channels,
    Count,
    DataName,
    NonNegative,
    Pixels,
    Range,
    Settings,
    Share,
    check_choice,
    check_range,
)


@dataclass(frozen=True, kw_only=True)
class ResistanceSettings(Settings):
    """Everything that decides a resistant client part. Its model must be that of the split run it is made for."""

    version: ClassVar[int] = 2  # raise when the results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "epoch"
    leaves_client: ClassVar[bool] = True  # the tensors "client", with which a split run can begin

    seed: int = 1138
    # data
    dataset: DataName = "cifar10"  # to be protected; its labels are not used
    image_size: Pixels | None = None  # pixels, also of the source; None: that of the data set
    train_images: Count | None = None  # as in the split run
    attacker_share: Share = 0.01  # of the training images, which the simulated attacker has
    attacker_images: Count | None = None  # so many instead
    source: DataName = "cifar100"  # public, labelled
    source_images: Count | None = None  # use only so many, equally many of each class; None: all
    # model
    architecture: str = "resnet18"
    width: Channels = 64
    norm: str = "group"
    cut_layer: Count = 11
    # the game
    strength: NonNegative = 1.0  # 0: no attacker
    similarity_limit: Annotated[float, Range(-1, 1)] = 0.3  # SSIM from which on the client part is charged
    decoder: str = "res_normN4C64"
    decoder_steps: Count = 3  # for each of the model; with 1, a fresh decoder saw as much as without the defence
    # optimisation
    epochs: Count = 40
    batch: Count = 128
    learning_rate: NonNegative = 0.05
    momentum: Share = 0.9
    weight_decay: NonNegative = 5e-4
    decoder_learning_rate: NonNegative = 1e-3  # of Adam, as the attack's

    def check(self) -> None:
        check_choice("architecture", self.architecture, ARCHITECTURES)
        check_choice("norm", self.norm, [norm for norm in norms_of(self.architecture) if norm != "twin"])  # no pairs
        DecoderName.parse(self.decoder)

    @property
    def versions(self) -> dict[str, int]:
        """Of the decoder, where it has changed."""
        return decoder_versions(self.decoder)

    def load_data(self, device: torch.device | str = "cpu") -> tuple[Dataset, Dataset]:
        """The data to be protected, and the source in the same image size.

        Raises:
            SettingError: their images differ in the number of channels.
        """
        target = load_dataset(self.dataset, device=device, image_size=self.image_size, train_images=self.train_images)
        source = load_dataset(self.source, device=device, image_size=target.image_size, train_images=self.source_images)
        if source.channels != target.channels:
            expected = f"a data set with {target.channels} channels, as {target.name} has"
            raise SettingError("source", self.source, expected)
        return target, source

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Train, and leave the table ``metrics`` and the tensors ``client`` in the run's folder.

        Arguments are those of every run: :meth:`fssl_core.training.settings.TrainingSettings.execute`.

        Returns:
            the run's summary: accuracy on the source's test set as a fraction, and how similar the simulated
            attacker's last reconstructions were.
        """
        keep_freed_memory()
        game = ResistanceTrainer(self, *self.load_data(default_device()))
        state = run.checkpoint.load()
        if state is not None:
            game.load_state_dict(state)
        progress(game.epoch, self.epochs)
        with run.saver() as saver, repeatable_kernels():
            while game.epoch < self.epochs:
                game.train_epoch()
                saver.offer(game.state_dict)
                progress(game.epoch, self.epochs, **{name: game.metrics[-1][name] for name in ("loss", "similarity")})
            accuracy = game.source_accuracy()
            run.write_table("metrics", pd.DataFrame(game.metrics))
            run.save_tensors("client", game.client.state_dict())
        last = {name: value for name, value in game.metrics[-1].items() if name != "epoch"}
        return {**last, "source_accuracy": accuracy}


class ResistanceTrainer:
    """The game of one client part, one server part and one simulated attacker.

    Args:
        settings: what to do.
        target: the data to be protected.
        source: labelled images of the same shape.

    Attributes:
        images: the simulated attacker's, uint8 ``[A, C, H, W]``. Those of
            :class:`~fssl_core.privacy.inversion.InversionSettings` with the same seed are drawn independently of them.
    """

    def __init__(self, settings: ResistanceSettings, target: Dataset, source: Dataset) -> None:
        self.settings = s = settings
        self.target, self.source = target, source
        self.device = target.train.images.device
        init = generator(s.seed, "resistance")
        channels, side, _ = target.shape
        backbone = build_backbone(
            s.architecture, width=s.width, norm=s.norm, image_size=side, channels=channels, generator=init
        )
        latent = latent_shape(backbone, s.cut_layer)
        self.client, server = cut(backbone, s.cut_layer)
        classifier = MLP(backbone.feature_dim, [len(source.classes)], generator=init)
        self.model = nn.Sequential(self.client, server, GlobalPool(), classifier).to(self.device)
        # Batch norm as the attack's own decoder has it; its batches are as large as the attacker's images allow.
        self.decoder = build_decoder(s.decoder, latent, target.shape, generator=init).to(self.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=s.learning_rate, momentum=s.momentum, weight_decay=s.weight_decay
        )
        self.decoder_optimizer = torch.optim.Adam(self.decoder.parameters(), lr=s.decoder_learning_rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, s.epochs)

        count = s.attacker_images or round(s.attacker_share * len(target.train))
        check_range("attacker_images", count, 2, len(target.train))
        self.images = draw_images(target.train.images, count, "simulated attacker images", s.seed)
        self.epoch = 0
        self.metrics: list[dict[str, float]] = []

    def train_epoch(self) -> None:
        """One pass over the source."""
        s, train = self.settings, self.source.train
        order = torch.randperm(len(train), generator=generator(s.seed, "source order", self.epoch)).to(self.device)
        rows = []
        attacked = self._attacked_batches()
        for batch in order.split(s.batch):
            if len(batch) > 1:
                images = self.source.normalise(train.images[batch])
                attacker_batches = [next(attacked) for _ in range(s.decoder_steps)]
                rows.append(self.step(images, train.labels[batch], attacker_batches))
        means = {name: torch.stack([row[name] for row in rows]).mean().item() for name in rows[0]}
        self.schedule.step()
        self.epoch += 1
        self.metrics.append({"epoch": self.epoch, **means})

    def step(self, images: Tensor, labels: Tensor, attacked: Sequence[Tensor]) -> dict[str, Tensor]:
        """The attacker's steps, one for each of its batches, then the model's, charged for the last of these.

        Args:
            images: of the source, normalised, ``[B, C, H, W]``.
            labels: theirs, ``[B]``.
            attacked: batches of the attacker's images, uint8, each ``[A, C, H, W]``.

        Raises:
            NonFiniteLossError: a loss is NaN or infinite.
        """
        s = self.settings
        loss = cross_entropy = F.cross_entropy(self.model(images), labels)
        for batch in attacked:
            pixels = batch / 255
            latents = self.client(self.target.normalise(batch))  # [A, c, h, w]
            attack = F.mse_loss(self.decoder(latents.detach()), pixels)
            self.decoder_optimizer.zero_grad()
            attack.backward()
            self.decoder_optimizer.step()
        if not torch.isfinite(attack + cross_entropy):
            raise NonFiniteLossError(
                f"the losses are {attack.item()} (attacker) and {cross_entropy.item()} in epoch {self.epoch + 1}; what "
                f"was stored before it is kept. Lower learning_rate={s.learning_rate} or strength={s.strength}."
            )

        similarity = ssim(self.decoder(latents), pixels).mean()
        if s.strength > 0:
            loss = cross_entropy + s.strength * F.relu(similarity - s.similarity_limit)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": cross_entropy.detach(), "similarity": similarity.detach(), "attack_mse": attack.detach()}

    def _attacked_batches(self) -> Iterator[Tensor]:
        """The attacker's images in batches of one size, without end, in an order that depends on the epoch alone."""
        s, count = self.settings, len(self.images)
        draw = generator(s.seed, "attacked order", self.epoch)
        while True:
            order = torch.randperm(count, generator=draw)
            for rows in order.split(min(s.batch, count)):
                if len(rows) == min(s.batch, count):
                    yield self.images[rows.to(self.device)]

    def source_accuracy(self) -> float:
        """Accuracy on the source's test set, in [0, 1]: the model has learnt something besides hiding."""
        test = self.source.test
        logits = extract(self.model, test.images, self.source.normalise)
        return (logits.argmax(1) == test.labels).sum().item() / len(test)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        parts = (self.model, self.decoder, self.optimizer, self.decoder_optimizer, self.schedule)
        return {"epoch": self.epoch, "metrics": self.metrics, "parts": [part.state_dict() for part in parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was taken."""
        parts = (self.model, self.decoder, self.optimizer, self.decoder_optimizer, self.schedule)
        for part, value in zip(parts, state["parts"], strict=True):
            part.load_state_dict(value)
        self.epoch, self.metrics = state["epoch"], state["metrics"]
