"""Does a key give away which client made it?

In split federated MoCo every client makes the keys of its own images with its own momentum model. If those models
have drifted apart, a key carries a signature of its client. A query comes from the same client as its positive key
while the queue's negatives come mostly from others, so the contrastive loss can be lowered by recognising the
client instead of the image: a shortcut that needs no visual features. This number measures the signature. No paper
reports it.

The clients' images differ as well when the partition is not IID, so a key tells something about its client even
when the models are all equal. Compare with the same images passed through one common client model: what is above
that comes from the models.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fssl_core.errors import DataError
from fssl_core.evaluation.features import evaluating
from fssl_core.federation.clients import ClientForward, ClientMatrix


@torch.no_grad()
def client_identifiability(keys: Tensor) -> float:
    """How well a nearest-mean rule tells which client made a key.

    The mean key of each client is taken over its even-numbered images; each odd-numbered one is then given to the
    client with the nearest mean (Euclidean). Chance is ``1 / clients``, also where all keys are the same.

    Args:
        keys: [clients, images, D], normally unit vectors; at least two clients and two images.

    Returns:
        Fraction of odd-numbered images given to the right client, in [0, 1].

    Raises:
        DataError: fewer than two clients or images, or keys that are not finite.
    """
    if keys.dim() != 3 or min(keys.shape[:2]) < 2:
        raise DataError(
            f"Client identifiability needs keys [clients, images, D] of at least 2 clients with 2 images, "
            f"got {list(keys.shape)}."
        )
    if not keys.isfinite().all():
        raise DataError("Client identifiability needs finite keys: the model that made them has diverged.")
    keys = keys.float()
    means = keys[:, 0::2].mean(1)  # [clients, D]
    held_out = keys[:, 1::2]  # [clients, images // 2, D]
    # |x - m|^2 = |x|^2 - 2 x.m + |m|^2, where |x|^2 is the same for every client
    score = held_out @ means.T - means.square().sum(1) / 2  # [clients, images // 2, clients]
    clients = torch.arange(len(keys), device=keys.device)[:, None]
    return (score.argmax(2) == clients).double().mean().item()


@torch.no_grad()
def own_and_common_identifiability(
    momentum: ClientMatrix, forward: ClientForward, server: nn.Module, images: Tensor
) -> tuple[float, float]:
    """:func:`client_identifiability` of the keys that clients make, and of one common model's keys of the same images.

    Args:
        momentum: the clients' momentum models. Their average is the common model.
        forward: runs them.
        server: the server's momentum part, from activations to keys.
        images: normalised, [clients, images, channels, height, width]; of each client its own.

    Returns:
        both accuracies. All models are in the mode that they had before.
    """
    average = ClientMatrix(momentum.row_module(0), 1)
    average.load_state_dict(momentum.state_dict())
    accuracies = []
    with evaluating(server):
        for model, batch in ((forward, images), (ClientForward(average), images.flatten(0, 1)[None])):
            mode = model.training
            model.train(False)
            keys = F.normalize(server(model(batch).flatten(0, 1)), dim=1)
            model.train(mode)
            accuracies.append(client_identifiability(keys.view(*images.shape[:2], -1)))
    return accuracies[0], accuracies[1]
