"""Momentum contrast: the InfoNCE loss against a queue of earlier keys.

He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, and MoCo-v2 (Chen et al.,
2020), as used by MocoSFL (Eq. 1) and MonAcoSFL (Eq. 1): the positive stands in the denominator, too.

Differs from the authors' code: their queue starts filled with random vectors; ours starts empty and only holds keys
that a model made, so the first step has no negatives and a loss of zero.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fssl_core.errors import SettingError


class KeyQueue:
    """The memory M of negative keys, first in, first out.

    Args:
        size: most keys held.
        dim: length of a key.
        device, dtype: of the keys.
    """

    def __init__(self, size: int, dim: int, *, device: torch.device | str = "cpu", dtype=torch.float32) -> None:
        if size < 1:
            raise SettingError("queue_size", size, "at least 1")
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
    loss = F.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.int64))
    accuracy = (logits.detach().argmax(1) == 0).float().mean()
    return loss, accuracy
