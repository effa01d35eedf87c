"""Self-supervised objectives, a file each."""

from fssl_core.objectives.base import Learner, Objective, SelfSupervisedModel
from fssl_core.objectives.byol import BYOL
from fssl_core.objectives.moco import MoCoV2

OBJECTIVES: dict[str, type[Objective]] = {"moco-v2": MoCoV2, "byol": BYOL}

__all__ = ["BYOL", "OBJECTIVES", "Learner", "MoCoV2", "Objective", "SelfSupervisedModel"]
