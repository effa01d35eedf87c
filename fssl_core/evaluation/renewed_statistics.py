"""A pre-training whose batch norms remember anew, for a probe to see: same weights, other running statistics.

For federations whose server averages running statistics like weights, or scales them, as L-DAWA's code does (Ur Rehman
et al., ICCV 2023); see :mod:`fssl_core.evaluation.batch_statistics`. Ours, in no paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fssl_core.data.datasets import Dataset
from fssl_core.devices import repeatable_kernels
from fssl_core.errors import SettingError
from fssl_core.evaluation.batch_statistics import with_statistics_of
from fssl_core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class RenewedStatistics(Settings):
    """A pre-training with the running statistics of its training images, without augmentation, as a probe sees them.

    ``pretraining`` is any settings with ``load_data`` and ``trained_backbone``, as for
    :class:`~fssl_core.evaluation.downstream.DownstreamSettings`, and so is this.
    """

    pretraining: Settings

    def check(self) -> None:
        if not hasattr(self.pretraining, "trained_backbone"):
            expected = "settings with load_data and trained_backbone, for example an AveragingSettings"
            raise SettingError("pretraining", type(self.pretraining).__name__, expected)

    def load_data(self, device: torch.device | str = "cpu") -> Dataset:
        return self.pretraining.load_data(device)

    def trained_backbone(self, run, data: Dataset) -> nn.Module:
        """The pre-trained encoder with renewed statistics, in evaluation mode."""
        backbone = self.pretraining.trained_backbone(run.result_of(self.pretraining), data)
        with repeatable_kernels():
            return with_statistics_of(backbone, data.train, data.normalise)

    def execute(self, run, progress: Callable[..., None]) -> dict[str, Any]:
        """Nothing to compute but the pre-training: the statistics take a moment, wherever they are needed."""
        run.result_of(self.pretraining)
        return {}
