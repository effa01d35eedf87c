"""MFCL's phase 1 with secure aggregation: the gServer sees masked models only, and their average.

Motamedi and Kim, "Modular federated contrastive learning with twin normalization for resource-limited clients", TMLR,
Section 5.6.2, footnote 12. The protocol is in :mod:`fssl_core.privacy.secure_aggregation`; the average is that of plain
federated averaging up to the resolution of its fixed-point numbers. Batch norm's counts of batches are averaged in the
open, as there.

The ledger counts masked models, which are as large as plain ones at 32 bits; keys, shares and signatures are counted by
the protocol's own :meth:`~fssl_core.privacy.secure_parties.Server.traffic`. The cosine and the divergence that a run
logs are read off single models: they belong to the simulation, no server could know them.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fssl_core.data.datasets import Dataset
from fssl_core.federation.aggregation import AVERAGES, Round
from fssl_core.privacy.secure_aggregation import combine_securely
from fssl_core.privacy.secure_messages import SecureAggregation
from fssl_core.settings import check_choice
from fssl_core.training.averaging import AveragingTrainer
from fssl_core.training.modular import AutoencoderSettings


@dataclass(frozen=True, kw_only=True)
class SecureAutoencoderSettings(AutoencoderSettings):
    """Phase 1, securely aggregated.

    Args:
        threshold: so many clients have to last to the end of a round, more than half; None: more than two thirds.
        bits, fraction_bits: of the fixed-point numbers, see
            :class:`~fssl_core.privacy.secure_messages.SecureAggregation`.
    """

    version: ClassVar[int] = 1  # raise when the results of this file change: stored runs are then computed again

    threshold: int | None = None
    bits: int = 32
    fraction_bits: int = 24

    def check(self) -> None:
        super().check()
        check_choice("aggregation", self.aggregation, AVERAGES)  # others look at single models
        check_choice("client_update", self.client_update.name, ["replace"])
        check_choice("client_dropout", self.client_dropout, [0.0])  # the threshold is of all that are drawn
        self.protocol(self.sampled)

    def protocol(self, clients: int) -> SecureAggregation:
        """What the clients of a round agree on."""
        threshold = 2 * clients // 3 + 1 if self.threshold is None else self.threshold
        return SecureAggregation(clients=clients, threshold=threshold, bits=self.bits, fraction_bits=self.fraction_bits)

    def trainer(self, data: Dataset, run) -> "SecureAutoencoderTrainer":
        return SecureAutoencoderTrainer(self, data, run)


class SecureAutoencoderTrainer(AveragingTrainer):
    """Trains one federation; see :class:`~fssl_core.training.averaging.AveragingTrainer`."""

    compares_models: ClassVar[bool] = True  # each is masked

    def combine(self, beta: Tensor, this: Round) -> None:
        s = self.settings
        protocol = s.protocol(this.received.clients)
        combine_securely(this.received, beta[:, 0], self.shared, protocol, seed=s.seed, number=self.finished)
