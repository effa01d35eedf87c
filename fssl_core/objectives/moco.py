"""Momentum contrast: the InfoNCE loss against a queue of earlier keys.

He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, and MoCo-v2 (Chen et al.,
2020), as used by MocoSFL (Eq. 1) and MonAcoSFL (Eq. 1): the positive stands in the denominator, too.

Differs from the authors' code: their queue starts filled with random vectors; ours starts empty and only holds keys
that a model made, so the first step has no negatives and a loss of zero.

The split engine uses :class:`KeyQueue` and :func:`info_nce` on its own; :class:`MoCoV2` is the whole method on one
client, for federated averaging.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.devices import in_full_precision
from fssl_core.federation.clients import ClientMatrix
from fssl_core.objectives.base import Learner, Objective, classify
from fssl_core.settings import Count, Temperature, check_choice, check_range


class KeyQueue:
    """The memory M of negative keys, first in, first out.

    Args:
        size: most keys held.
        dim: length of a key.
        device, dtype: of the keys.
    """

    def __init__(self, size: int, dim: int, *, device: torch.device | str = "cpu", dtype=torch.float32) -> None:
        check_range("queue_size", size, 1)
        self._memory = torch.zeros(size, dim, device=device, dtype=dtype)
        self._pushed = 0  # keys ever pushed; a Python number, so that reading it never waits for a GPU

    def __len__(self) -> int:
        return min(self._pushed, len(self._memory))

    @property
    def keys(self) -> Tensor:
        """The keys held, ``[len(self), dim]``, in no particular order. A view: do not keep it over a push."""
        return self._memory[: len(self)]

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Add keys ``[count, dim]``; the oldest give way. Of more keys than the queue holds, the last stay."""
        size = len(self._memory)
        skipped = max(0, len(keys) - size)
        first = (self._pushed + skipped) % size
        kept = keys[skipped:]
        head = min(len(kept), size - first)
        self._memory[first : first + head] = kept[:head]
        self._memory[: len(kept) - head] = kept[head:]
        self._pushed += len(keys)

    def state_dict(self) -> dict:
        """The queue as plain values."""
        return {"memory": self._memory, "pushed": self._pushed}

    def load_state_dict(self, state: dict) -> None:
        """Take over what :meth:`state_dict` gave."""
        self._memory.copy_(state["memory"])
        self._pushed = state["pushed"]


@in_full_precision
def info_nce(queries: Tensor, positives: Tensor, negatives: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """InfoNCE, averaged over the batch (Eq. 1).

    Args:
        queries: unit vectors, ``[N, D]``.
        positives: the unit key of each query, ``[N, D]``.
        negatives: unit keys shared by all queries, ``[K, D]``; may be empty.
        temperature: above 0.

    Returns:
        the mean loss in nats, and the contrastive accuracy: the fraction of queries that are closer to their
        positive than to every negative.
    """
    positive = (queries * positives).sum(1, keepdim=True)  # [N, 1]
    logits = torch.cat([positive, queries @ negatives.T], dim=1) / temperature  # [N, 1 + K]
    return classify(logits, logits.new_zeros(len(logits), dtype=torch.int64))


NEGATIVES = ("fresh", "aged", "random")


@dataclass(frozen=True, kw_only=True)
class MoCoV2(Objective):
    """Settings of MoCo-v2 on a client with a queue of its own.

    Args:
        temperature: of :func:`info_nce`.
        queue_size: most keys held.
        symmetric: both views are query and key, and the losses are averaged; MoCo-v2 has one of each.
        negatives: what the loss sees as negatives, for MocoSFL's Fig. 1(c): ``"fresh"``, the queue's keys;
            ``"aged"``, keys that first wait until another ``age`` batches are made; ``"random"``, unit vectors that
            no model made, which are as easy as negatives can be.
        age: see there.
    """

    has_target: ClassVar[bool] = True

    name: str = "moco-v2"
    temperature: Temperature = 0.1  # authors' code of MocoSFL; MoCo-v2 has 0.2
    queue_size: Count = 6000
    symmetric: bool = False
    negatives: str = "fresh"
    age: Count = 100

    def check(self) -> None:
        super().check()
        check_choice("negatives", self.negatives, NEGATIVES)

    def learner(self, online: ClientMatrix, target: ClientMatrix | None) -> "MoCoLearner":
        return MoCoLearner(self, online, target)


class MoCoLearner(Learner):
    """Query by the online model, key by the target, which follows before each step, as in MoCo's code."""

    def __init__(self, objective: MoCoV2, online: ClientMatrix, target: ClientMatrix) -> None:
        super().__init__(objective, online, target)
        like = online.weights
        self.queue = KeyQueue(objective.queue_size, objective.projector[-1], device=like.device, dtype=like.dtype)
        self._waiting: list[Tensor] = []

    def loss(self, views: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        o = self.objective
        self.follow()
        pairs = [(views[0], views[1]), (views[1], views[0])][: 2 if o.symmetric else 1]
        losses, accuracies, self._keys = [], [], []
        for query_view, key_view in pairs:
            query = F.normalize(self.online(query_view), dim=1)
            with torch.no_grad():
                key = F.normalize(self.target(key_view), dim=1)
            loss, accuracy = info_nce(query, key, self.queue.keys, o.temperature)
            losses.append(loss)
            accuracies.append(accuracy)
            self._keys.append(key)
        figures = {"contrastive_accuracy": torch.stack(accuracies).mean()}
        if len(self.queue):
            figures["negative_similarity"] = (query.detach() @ self.queue.keys.T).mean()
        return torch.stack(losses).mean(), figures

    def after_step(self) -> None:
        """The keys of this step become negatives of the next ones; of aged ones, later."""
        o = self.objective
        if o.negatives == "random":
            return
        keys = torch.cat(self._keys)
        if o.negatives == "aged":
            self._waiting.append(keys)
            if len(self._waiting) <= o.age:
                return
            keys = self._waiting.pop(0)
        self.queue.push(keys)

    def initial_state(self, generator: torch.Generator) -> dict[str, Any]:
        memory, pushed = torch.zeros_like(self.queue.state_dict()["memory"]), 0
        if self.objective.negatives == "random":
            memory = F.normalize(torch.randn(memory.shape, generator=generator), dim=1).to(memory)
            pushed = len(memory)
        return {"queue": {"memory": memory, "pushed": pushed}, "waiting": []}

    def state_dict(self) -> dict[str, Any]:
        return {"queue": copy.deepcopy(self.queue.state_dict()), "waiting": list(self._waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.queue.load_state_dict(state["queue"])
        self._waiting = [keys.to(self.queue.keys) for keys in state["waiting"]]
