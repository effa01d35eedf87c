"""What the settings of methods have in common that train with labels on the averaging engine."""

from dataclasses import dataclass, field
from typing import ClassVar

from fssl_core.errors import SettingError
from fssl_core.objectives import Objective, Supervised
from fssl_core.training.averaging import AveragingSettings


@dataclass(frozen=True, kw_only=True)
class LabelledSettings(AveragingSettings):
    """Defaults: those of MOON's paper, Section 4.1, on CIFAR-10, so that the methods differ in nothing else."""

    trains: ClassVar[type[Objective]] = Supervised

    objective: Objective = field(default_factory=Supervised)
    partition: str = "dirichlet:0.5"
    clients: int = 10
    local_epochs: int = 10
    batch: int = 64
    learning_rate: float = 0.01
    weight_decay: float = 1e-5
    schedule: str = "constant"
    selection: str = "last"

    def check(self) -> None:
        super().check()
        if not isinstance(self.objective, self.trains):
            raise SettingError("objective", self.objective.name, f"{self.trains.__name__}()")
