"""How a client takes over the global model: what it keeps of its own one, and what is not exchanged at all.

Every rule is a table of shares ``kept[layer]`` in [0, 1]: a client starts its round, layer by layer, from
``(1 - kept) * global + kept * last``, where ``last`` is the model that it had last. FedAvg keeps nothing. A client that
takes part for the first time has nothing to keep; a layer that was not exchanged is kept.

``FedU``    Zhuang et al., "Collaborative unsupervised visual representation learning from decentralized data",
            ICCV 2021: the divergence-aware predictor update. The predictor is the client's own where its encoder has
            moved far from the global one.
``FedEMA``  Zhuang et al., "Divergence-aware federated self-supervised learning", ICLR 2022: the whole model is a
            mixture, in which a client's own share grows with that divergence.
``EUC``     what L-DAWA's tables call EUC, which cites layer-wise adaptive aggregation (Lee et al.,
            "Layer-wise adaptive model aggregation for scalable federated learning", AAAI 2023) and says no more than
            that a Euclidean distance decides which layers are updated. This is our reading, not the authors' code:
            in every second round, the half of the layers that moved least at the last synchronisation stays with
            the clients.

The divergence of FedU and FedEMA has two readings, of the L2 distance of each convolution (here: of each tensor of two
or more dimensions), averaged over them:

- ``"drift"``, as in the authors' code: from the encoder with which the client began its last local training to the
  one with which it ended it, without shortcut convolutions. It is the default, and with it the threshold of 0.4 and
  the autoscaler mean what they mean there.
- ``"distance"``: from the client's last encoder to the new global one, shortcuts included.

L-DAWA's text has "the divergence between the backbone models of the clients and the server" (Section 1), which fits
both, and a distance "between the current model and previous global model" (Section 2.3), which is the drift. Differs
from the authors' code in both: FedEMA mixes batch norm's running statistics as it mixes weights; there they are the
global model's.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fssl_core.federation.aggregation import Layers
from fssl_core.federation.clients import ClientMatrix
from fssl_core.settings import NonNegative, Settings, Share, added, check_choice, check_own_name

DIVERGENCES = ("drift", "distance")


def encoder_divergence(client_model: ClientMatrix, shared: ClientMatrix, *, shortcuts: bool = True) -> float:
    """Mean over the encoder's weight tensors of ``|client_model - shared|``; matrices of one row."""
    distances = [
        torch.linalg.vector_norm(block - shared.blocks[name])
        for name, block in client_model.parameter_blocks.items()
        if name.startswith("encoder.") and block.dim() > 2 and (shortcuts or ".shortcut." not in name)
    ]
    return torch.stack(distances).mean().item()


@dataclass(frozen=True, kw_only=True)
class ClientUpdate(Settings):
    """The global model replaces the client's: FedAvg, and the base of the other rules.

    Args:
        name: of the rule; there to be stored with a run.
    """

    watches: ClassVar[bool] = False  # whether `skipped` looks at how far layers have moved

    name: str = "replace"

    def check(self) -> None:
        check_own_name(self)

    @property
    def keeps(self) -> bool:
        """Whether clients need their last model."""
        return type(self) is not ClientUpdate

    def kept(self, client_model: ClientMatrix, shared: ClientMatrix, layers: Layers, memory: dict[str, Any]) -> Tensor:
        """The share ``[L]`` of its own model that a client starts from.

        Args:
            client_model: the model that the client had at the end of its last round, one row.
            shared: the global model, one row.
            layers: of both.
            memory: plain values that the client remembers; may be changed.
        """
        return torch.zeros(len(layers))

    @property
    def follows_training(self) -> bool:
        """Whether :meth:`trained` is to be called."""
        return False

    def trained(self, before: ClientMatrix, after: ClientMatrix, memory: dict[str, Any]) -> None:
        """Note in ``memory`` what :meth:`kept` needs of the client's local training; matrices of one row."""

    def skipped(self, finished: int, moved: Tensor | None) -> Tensor | None:
        """Layers that are not exchanged at the end of a round, bool ``[L]``; None: all are.

        Args:
            finished: rounds before this one.
            moved: mean squared distance of the clients' layers to the global one when they were last exchanged,
                ``[L]``; None in the first round, and for rules that do not watch.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class DivergenceAware(ClientUpdate):
    """What FedU and FedEMA share.

    Args:
        divergence: ``"drift"`` or ``"distance"``: see the module.
    """

    divergence: str = added("drift", before="distance")

    def check(self) -> None:
        super().check()
        check_choice("divergence", self.divergence, DIVERGENCES)

    @property
    def follows_training(self) -> bool:
        return self.divergence == "drift"

    def trained(self, before: ClientMatrix, after: ClientMatrix, memory: dict[str, Any]) -> None:
        memory["drift"] = encoder_divergence(after, before, shortcuts=False)

    def diverged(self, client_model: ClientMatrix, shared: ClientMatrix, memory: dict[str, Any]) -> float:
        """The divergence, of what :meth:`kept` is given."""
        return memory["drift"] if self.follows_training else encoder_divergence(client_model, shared)


@dataclass(frozen=True, kw_only=True)
class FedU(DivergenceAware):
    """A predictor of one's own where encoders diverge; where there is none, the projection head's last layer."""

    name: str = "fedu"
    threshold: NonNegative = 0.4  # mu: the default of the authors' code

    def kept(self, client_model: ClientMatrix, shared: ClientMatrix, layers: Layers, memory: dict[str, Any]) -> Tensor:
        if self.diverged(client_model, shared, memory) < self.threshold:
            return torch.zeros(len(layers))
        own = "predictor."
        if not any(name.startswith(own) for name in client_model.blocks):  # then what ends the projection head
            own = client_model.parameter_names[-1].rpartition(".")[0] + "."
        chosen = {layer for layer, name in zip(layers.of, client_model.blocks, strict=True) if name.startswith(own)}
        return torch.tensor([float(layer in chosen) for layer in range(len(layers))])


@dataclass(frozen=True, kw_only=True)
class FedEMA(DivergenceAware):
    """``kept = min(scale * divergence, 1)`` of every layer; the scale makes a client's first share ``tau``."""

    name: str = "fedema"
    tau: Share = 0.7  # the autoscaler's target: Section 4.2 of the paper

    def kept(self, client_model: ClientMatrix, shared: ClientMatrix, layers: Layers, memory: dict[str, Any]) -> Tensor:
        divergence = self.diverged(client_model, shared, memory)
        if "scale" not in memory:
            memory["scale"] = self.tau / max(divergence, 1e-12)
        return torch.full((len(layers),), min(memory["scale"] * divergence, 1.0))


@dataclass(frozen=True, kw_only=True)
class EUC(ClientUpdate):
    """Layers that move little are exchanged in every second round only.

    Layers are those of the aggregation: where each tensor is one, so is each of batch norm's counts of batches, which
    with clients of equal size is always among those that move least.
    """

    watches: ClassVar[bool] = True

    name: str = "euc"
    share: Share = 0.5  # of the layers

    def skipped(self, finished: int, moved: Tensor | None) -> Tensor | None:
        if moved is None or finished % 2:  # so that an even number of rounds ends with everything exchanged
            return None
        few = torch.zeros_like(moved, dtype=torch.bool)
        few[moved.argsort(stable=True)[: round(self.share * len(moved))]] = True
        return few
