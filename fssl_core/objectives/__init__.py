"""Self-supervised objectives, a file each, and the supervised one that they are compared with.

``OBJECTIVES`` has those that federated averaging runs. MOON and reconstruction need engines of their own.
"""

from fssl_core.objectives.barlow_twins import BarlowTwins
from fssl_core.objectives.base import Learner, Objective, SelfSupervisedModel
from fssl_core.objectives.byol import BYOL
from fssl_core.objectives.fedca import FedCA
from fssl_core.objectives.moco import MoCoV2
from fssl_core.objectives.moco_v3 import MoCoV3
from fssl_core.objectives.orchestra import Orchestra
from fssl_core.objectives.simclr import SimCLR
from fssl_core.objectives.simsiam import SimSiam
from fssl_core.objectives.supervised import Supervised

OBJECTIVES: dict[str, type[Objective]] = {
    kind.name: kind for kind in (MoCoV2, BYOL, SimCLR, BarlowTwins, SimSiam, MoCoV3, FedCA, Orchestra, Supervised)
}

__all__ = [
    "BYOL",
    "OBJECTIVES",
    "BarlowTwins",
    "FedCA",
    "Learner",
    "MoCoV2",
    "MoCoV3",
    "Objective",
    "Orchestra",
    "SelfSupervisedModel",
    "SimCLR",
    "SimSiam",
    "Supervised",
]
