"""Model inversion: a decoder, trained on a few images, turns what a client sends back into images.

Przewięźlikowski et al., "A deep cut into Split Federated Self-supervised Learning", ECML PKDD 2024, Section 5.3 and
Fig. 8; the attack is that of MocoSFL (Li et al., ICLR 2023). :data:`~fssl_core.privacy.threat.MODEL_INVERSION` says
what the attacker knows. It sends its own images, 1 % of the training set, through the client's model and trains a
decoder (:mod:`fssl_core.privacy.decoder`) from the activations to the images: MSE, Adam at 0.001, batch 32, 50 epochs.
The attack's error on test images is what Fig. 8b shows; larger means more private.

Targets with activations of one shape are attacked together (:mod:`fssl_core.privacy.decoder_training`); a target's
result does not depend on the others.

The paper does not say which images are attacked. The authors' files have 128 for each data set: for CIFAR-10 they are
test images as they are (of a fifth of its test set 27 are found there, of a fifth of its training set none), for
CIFAR-100 augmented ones. Here they are test images, or with ``attacked="train"`` training images that the attacker does
not have.

Differs from the authors' code: the epoch is selected on all images set aside for that, not on one batch of them; images
are not stored as JPEG in between; all images are drawn here, the attacked ones are a fixed file there; the activations
of the attacker's images are computed once, since neither the client nor the images change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import autocast, default_device, keep_freed_memory, repeatable_kernels
from fssl_core.errors import DataError, SettingError
from fssl_core.evaluation.features import extract
from fssl_core.federation.clients import BACKENDS
from fssl_core.precision import chosen_precision, versions_of
from fssl_core.privacy.decoder import DecoderName, Shape, decoder_versions
from fssl_core.privacy.decoder_training import reconstruct, train_decoders
from fssl_core.privacy.image_quality import MEASURES, check_size, explained, quality
from fssl_core.random import generator
from fssl_core.settings import Count, NonNegative, Range, Settings, Share, added, check_choice

FEWEST_IMAGES = 10  # of the attacker: nine to train on and one to select the epoch by
SHOWN_IMAGES = 8  # attacked images whose reconstructions are kept


@dataclass(frozen=True, kw_only=True)
class InversionSettings(Settings):
    """An attack on the client models of some runs. Defaults: MonAcoSFL, Section 5.3, and the authors' code.

    A target is the settings of a run: with the fields ``dataset``, ``image_size`` and ``train_images``, a method
    ``load_data(device)``, and a method ``client_model(run, data)`` that gives the client's part in evaluation mode,
    from normalised images ``[B, C, H, W]`` to activations ``[B, c, h, w]``.
    """

    version: ClassVar[int] = 1  # raise when results change: stored runs are then computed again
    progress_unit: ClassVar[str] = "epoch"

    targets: tuple[Settings, ...]  # all on the same data; a target that was not run yet is run first
    seed: int = 1138  # authors' scripts
    attacker_share: Share = 0.01  # of the training images
    attacker_images: Annotated[int, Range(FEWEST_IMAGES)] | None = None  # instead, where a hundredth is too little
    decoder: str = "res_normN4C64"  # authors' script
    epochs: Count = 50
    batch: Count = 32
    learning_rate: NonNegative = 1e-3
    test_images: Annotated[int, Range(2)] = 128  # attacked ones; authors' code
    attacked: str = added("test", before="test")  # of the test set; or "train", of the training set
    precision: str = "float32"  # bfloat16: autocast; "auto": see fssl_core.precision
    backend: str = "auto"  # how decoders are run: in one call, or in a loop

    def check(self) -> None:
        for target in self.targets:
            if not callable(getattr(target, "client_model", None)):
                expected = "settings of runs with a method client_model(run, data)"
                raise SettingError("targets", type(target).__name__, expected)
        data = {(target.dataset, target.image_size, target.train_images) for target in self.targets}
        if len(data) != 1:
            expected = "runs, at least one, of one and the same (dataset, image_size, train_images)"
            raise SettingError("targets", sorted(data, key=str), expected)
        if len({type(target).load_data for target in self.targets}) != 1:  # MFCL's models see pixels as they are
            kinds = sorted({type(target).__name__ for target in self.targets})
            raise SettingError("targets", kinds, "runs that normalise images alike; attack the others in a second run")
        DecoderName.parse(self.decoder)
        check_choice("attacked", self.attacked, ("test", "train"))
        object.__setattr__(self, "precision", chosen_precision(self.precision))
        check_choice("backend", self.backend, BACKENDS)

    @property
    def versions(self) -> dict[str, int]:
        """Of the decoder and the arithmetic, where they have changed."""
        return decoder_versions(self.decoder) | versions_of(self.precision)

    def choose_images(self, data: Dataset) -> tuple[Tensor, Tensor]:
        """The attacker's images, of the training set, and the attacked ones: uint8 ``[N, C, H, W]``.

        Raises:
            SettingError: there are not so many, or too few to train on.
        """
        train, test = data.train.images, data.test.images
        count = self.attacker_images or round(self.attacker_share * len(train))
        if count < FEWEST_IMAGES:
            expected = f"at least {FEWEST_IMAGES} of the {len(train)} training images; or set attacker_images"
            raise SettingError("attacker_share", self.attacker_share, expected)
        if count > len(train):
            raise SettingError("attacker_images", count, f"at most {len(train)}, the number of training images")
        if self.attacked == "train":
            if count + self.test_images > len(train):
                expected = f"at most {len(train) - count}, the number of training images without the attacker's"
                raise SettingError("test_images", self.test_images, expected)
            both = draw_images(train, count + self.test_images, "attacker images", self.seed)
            return both[:count], both[count:]
        if self.test_images > len(test):
            raise SettingError("test_images", self.test_images, f"at most {len(test)}, the number of test images")
        return (
            draw_images(train, count, "attacker images", self.seed),
            draw_images(test, self.test_images, "attacked images", self.seed),
        )

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Attack every target, and leave tables and tensors in the run's folder.

        Table ``attack``: for each target (its place in ``targets``) the means over the attacked images of mse, psnr
        in decibel and ssim, their standard errors, the mean over the first attacked images of
        :func:`~fssl_core.privacy.image_quality.explained`, best_epoch, and the shape of the latent. Table
        ``reference``: mse, psnr and ssim of each target's untrained decoder, and of the mean of the attacker's images
        as the guess for every image. Table ``history``: train_mse and validation_mse by target and epoch. Tensors
        ``reconstructions``: of the first attacked images the uint8 ``originals`` ``[images, C, H, W]`` and
        ``reconstructions`` ``[targets, images, C, H, W]``.

        Returns:
            the run's summary: means over the targets.
        """
        keep_freed_memory()
        data = self.targets[0].load_data(default_device())
        check_size(data.image_size)  # before anything is trained
        attacker_images, attacked_images = self.choose_images(data)
        models = [target.client_model(run.result_of(target), data) for target in self.targets]
        groups: dict[Shape, list[int]] = {}  # targets by the shape of their latent
        for target, model in enumerate(models):
            groups.setdefault(_latent_shape(model, data), []).append(target)

        results = run.checkpoint.load() or {}  # by target
        epochs = self.epochs * len(groups)
        done = self.epochs * sum(members[0] in results for members in groups.values())
        progress(done, epochs)
        with repeatable_kernels():
            for members in groups.values():
                if members[0] in results:
                    continue
                clients = [models[target] for target in members]
                group_results = self._attack(
                    clients,
                    data,
                    attacker_images,
                    attacked_images,
                    lambda epoch, done=done: progress(done + epoch, epochs),
                )
                results |= dict(zip(members, group_results, strict=True))
                done += self.epochs
                run.checkpoint.save(results)

        mean_image = quality(_pixels(attacker_images).mean(0).expand(attacked_images.shape), _pixels(attacked_images))
        in_order = [(target, results[target]) for target in range(len(models))]
        attack = pd.DataFrame([{"target": target, **result["attack"]} for target, result in in_order])
        untrained = [
            {"reference": "untrained decoder", "target": target, **result["untrained"]} for target, result in in_order
        ]
        history = [{"target": target, **row} for target, result in in_order for row in result["history"]]
        run.write_table("attack", attack)
        run.write_table("reference", pd.DataFrame([{"reference": "mean image", **mean_image}, *untrained]))
        run.write_table("history", pd.DataFrame(history))
        run.save_tensors(
            "reconstructions",
            {
                "originals": attacked_images[:SHOWN_IMAGES].cpu(),
                "reconstructions": torch.stack([result["reconstructions"] for _, result in in_order]),
            },
        )
        return {
            **{name: attack[name].mean() for name in MEASURES},
            "mean_image_mse": mean_image["mse"],
            "images_of_attacker": len(attacker_images),
            "official_data": data.official,  # False: not comparable with published numbers
        }

    def _attack(
        self,
        clients: Sequence[nn.Module],
        data: Dataset,
        attacker_images: Tensor,
        attacked_images: Tensor,
        progress: Callable[[int], None],
    ) -> list[dict[str, Any]]:
        """The results of targets whose latents have one shape, in plain values and tensors on the CPU."""
        features, latents = (
            _sent(clients, images, data, self.precision) for images in (attacker_images, attacked_images)
        )
        trained = train_decoders(self, features, _pixels(attacker_images), progress)
        reconstructions, guesses = (
            reconstruct(self, decoders, latents) for decoders in (trained.decoders, trained.untrained)
        )
        best_epoch, history = trained.best_epoch, trained.history
        shown = as_uint8(reconstructions[:, :SHOWN_IMAGES])
        originals = attacked_images[:SHOWN_IMAGES].cpu()
        return [
            {
                "attack": {
                    **quality(reconstructions[row], _pixels(attacked_images)),
                    "explained": explained(shown[row], originals).mean().item(),
                    "best_epoch": best_epoch[row],
                    "latent": "x".join(map(str, features.shape[2:])),
                },
                "untrained": quality(guesses[row], _pixels(attacked_images)),
                "history": history[history["target"] == row].drop(columns="target").to_dict("records"),
                "reconstructions": shown[row],
            }
            for row in range(len(clients))
        ]


def draw_images(images: Tensor, count: int, purpose: str, seed: int) -> Tensor:
    """``count`` of the images ``[N, C, H, W]`` in a random order: the same in all attacks of one seed and purpose."""
    rows = torch.randperm(len(images), generator=generator(seed, purpose))[:count]
    return images[rows.to(images.device)]


def as_uint8(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1] as they are stored, on the CPU."""
    return (pixels * 255).round().to(torch.uint8).cpu()


def _sent(clients: Sequence[nn.Module], images: Tensor, data: Dataset, precision: str) -> Tensor:
    """What each client sends of uint8 images: float32 ``[K, N, c, h, w]``."""
    shape = _latent_shape(clients[0], data)
    with autocast(images.device, precision):
        sent = [extract(client, images, data.normalise) for client in clients]  # each [N, c * h * w]
    return torch.stack(sent).unflatten(2, shape)


@torch.no_grad()
def _latent_shape(client: nn.Module, data: Dataset) -> Shape:
    like = next(client.parameters())
    image = torch.zeros(1, *data.train.images.shape[1:], dtype=like.dtype, device=like.device)
    shape = tuple(client(image).shape[1:])
    if len(shape) != 3:
        raise DataError(
            f"A client is attacked through activations [B, c, h, w], not [B, {', '.join(map(str, shape))}]."
        )
    return shape


def _pixels(images: Tensor) -> Tensor:
    """uint8 to float in [0, 1]."""
    return images / 255
