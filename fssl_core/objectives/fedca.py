"""FedCA: SimCLR whose negatives are also projections of other clients' images, and an alignment model.

Zhang et al., "Federated Unsupervised Representation Learning", arXiv:2010.08982: the dictionary module and the
alignment module. A baseline of LW-FedSSL (Tun et al., arXiv:2401.11647, Table 2), whose resources say more about the
first than its text: see ``papers/data/accounting_conventions.md``, Section 1.2.

Dictionary. After local training a client sends a projection of each image that its last epoch saw; the union of what
all clients of a round sent goes to those of the next one, in all rounds but the first. With z the unit embeddings of
both views of a batch and d the entries of the other clients, the loss of the pair (i, j) is

    -log exp(z_i z_j / tau) / (sum_{k != i} exp(z_i z_k / tau) + sum_d exp(z_i d / tau))

Alignment. A model that was trained without labels on public images pulls: the loss has in addition
``alignment_weight`` times the mean of ``|f(x) - f_align(x)|`` over a batch of public images, f being encoders.

How it differs, and what is open. The text of FedCA is not among those that this project reproduces; it is followed in
its public description, and the weight of the alignment could not be checked. The temperature is LW-FedSSL's.

- An entry is the unit mean of the projections of an image's two views by the trained model in evaluation mode: one
  vector and two passes through the encoder, which is what the traffic and the GFLOPs that LW-FedSSL prints come to.
  All entries are used in every step; a float32 table of the similarities of 1,024 views with those of nine other
  clients takes 0.43 GB, and the peak memory printed for FedCA is 1.98 GB above that of FedSimCLR.
- A client receives its own entries, as the traffic says, but leaves them out: the last projection of an image would
  be the nearest of the negatives of its next one.
- With partial participation the dictionary is that of the clients of the last round.
- Neither LW-FedSSL's text nor its numbers say that it had an alignment model, and on which images: the default has
  none. With one, clients hold the public images already and receive their representations by the alignment model
  once, instead of the model. The images are not augmented, and every client goes through them in the same order.
- As in :mod:`fssl_core.objectives.simclr`, the views go through the model one after the other.

The entries do not move while a client trains. Embeddings can leave the region where they lie, instead of telling
images apart. On digits, one seed, that happened at temperatures of 0.2 and 0.5 (a mean similarity of 0.1 with the
entries and 0.7 within a batch; kNN accuracy below that of the untrained encoder, SimCLR's above); at 0.05 both methods
were about level.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.devices import repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective
from fssl_core.objectives.simclr import nt_xent
from fssl_core.settings import NonNegative, Settings, Temperature, check_choice

PUBLIC_BATCH = 256  # images a forward pass of the alignment model


@dataclass(frozen=True, kw_only=True)
class FedCA(Objective):
    """Settings of FedCA.

    Args:
        alignment_model: a run on public images, for example ``AveragingSettings(dataset="cifar100",
            train_images=5000, clients=1, objective=SimCLR(), ...)``, whose encoder is like that of the federation;
            None: no alignment.
        alignment_weight: beta, of the distance to its representations.
    """

    shares: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    name: str = "fedca"
    projector: tuple[int, ...] = (128,)
    output_norm: str = "none"  # LW-FedSSL's heads have "plain"
    temperature: Temperature = 0.05  # LW-FedSSL's of all its methods
    alignment_model: Settings | None = None
    alignment_weight: NonNegative = 0.01

    def check(self) -> None:
        super().check()
        needed = ("trained_model", "architecture", "width")
        if self.alignment_model is not None and not all(hasattr(self.alignment_model, name) for name in needed):
            expected = "None or the settings of a run on public images, for example AveragingSettings(clients=1)"
            raise SettingError("alignment_model", self.alignment_model, expected)

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "FedCALearner":
        return FedCALearner(self, online, target)

    def pool(
        self, contributions: dict[int, dict[str, Tensor]], before: dict[str, Tensor], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """The union of the dictionaries, by client: its number as a string."""
        return {str(client): sent["projections"] for client, sent in contributions.items()}

    def public(self, settings: Settings, data: Dataset, run: Any) -> tuple[Tensor, Tensor] | None:
        """The images of the alignment model's run, and what its encoder makes of them.

        Raises:
            SettingError: its encoder or its images are not like those of the federation, or the engine has no access
                to other runs.
        """
        alignment_model = self.alignment_model
        if alignment_model is None:
            return None
        for name in ("architecture", "width"):
            check_choice(f"alignment_model.{name}", getattr(alignment_model, name), [getattr(settings, name)])
        if run is None:
            expected = "None where settings are not run by fssl_core.experiments.store.run, which finds other runs"
            raise SettingError("alignment_model", alignment_model.key, expected)
        images = data.train.images
        public_data = alignment_model.load_data(images.device)
        if public_data.train.images.shape[1:] != images.shape[1:]:
            sizes = " and ".join(
                "x".join(map(str, shape[1:])) for shape in (public_data.train.images.shape, images.shape)
            )
            expected = f"images like those of {data.name} (these are {sizes}): set image_size of the alignment model"
            raise SettingError("alignment_model.dataset", public_data.name, expected)
        encoder = alignment_model.trained_model(run.result_of(alignment_model), public_data).encoder
        with torch.no_grad(), repeatable_kernels():
            blocks = public_data.train.images.split(PUBLIC_BATCH)
            representations = torch.cat(
                [encoder(public_data.normalise(block, alignment_model.dtype)) for block in blocks]
            )
        return data.normalise(public_data.train.images, settings.dtype), representations.to(settings.dtype)


class FedCALearner(Learner):
    """Both views through the online model, and public images where there is an alignment model.

    Attributes:
        dictionary: projections of the other clients' images, unit vectors ``[K, D]``.
        public: images, and their representations by the alignment model.
    """

    def __init__(self, objective: FedCA, online: ClientMatrix, target: ClientMatrix | None) -> None:
        super().__init__(objective, online, target)
        self.dictionary = online.weights.detach().new_empty(0, objective.projector[-1])
        self.public: tuple[Tensor, Tensor] | None = None
        self._next = 0  # public image

    def receive(self, pooled: dict[str, Tensor], client: int) -> None:
        others = [entries for owner, entries in pooled.items() if owner != str(client)]
        self.dictionary = torch.cat([self.dictionary[:0], *(entries.to(self.dictionary) for entries in others)])

    def align(self, images: Tensor, representations: Tensor) -> None:
        self.public = images, representations

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        o = self.objective
        loss, accuracy = nt_xent(*self.outputs(views), o.temperature, dictionary=self.dictionary)
        figures = {"contrastive_accuracy": accuracy}
        if self.public is None:
            return loss, figures
        images, targets = self.public
        rows = torch.arange(self._next, self._next + views.shape[1], device=images.device) % len(images)
        self._after = int(self._next + views.shape[1]) % len(images)
        alignment = torch.linalg.vector_norm(self.online.encoder(images[rows]) - targets[rows], dim=1).mean()
        return loss + o.alignment_weight * alignment, figures | {"alignment": alignment.detach()}

    def after_step(self) -> None:
        """The next batch of public images."""
        if self.public is not None:
            self._next = self._after

    def contribution(self, batches: Iterable[Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        """``projections``, unit vectors ``[n, D]``: of each image one."""
        self.online.eval()
        means = [sum(F.normalize(self.online(view), dim=1) for view in views) for views in batches]
        self.online.train()
        return {"projections": F.normalize(torch.cat(means), dim=1).to(self.dictionary)}

    def initial_state(self, generator: torch.Generator) -> dict[str, Any]:
        return {"next_public_image": 0}

    def state_dict(self) -> dict[str, Any]:
        return {"next_public_image": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next = state["next_public_image"]
