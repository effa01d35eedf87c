import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.models import build_backbone
from fssl_core.objectives import MoCoV3
from fssl_core.objectives.moco import info_nce
from fssl_core.objectives.moco_v3 import in_batch_info_nce
from fssl_core.random import generator
from tests.objectives.learners import Client, embeddings, small, two_views


def slow(queries, keys, temperature):
    queries, keys = (F.normalize(rows, dim=1).tolist() for rows in (queries, keys))
    losses, right = [], []
    for i, query in enumerate(queries):
        similarity = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
        below = sum(math.exp(value / temperature) for value in similarity)
        losses.append(-2 * temperature * math.log(math.exp(similarity[i] / temperature) / below))
        right.append(similarity[i] == max(similarity))
    return sum(losses) / len(losses), sum(right) / len(right)


def test_loss_and_accuracy_are_algorithm_1_term_by_term():
    queries = embeddings(seed=1).requires_grad_()
    keys = (queries.detach() + embeddings(seed=2)).requires_grad_()
    loss, accuracy = in_batch_info_nce(queries, keys, 0.2)
    expected, fraction = slow(queries, keys, 0.2)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert accuracy.item() == pytest.approx(fraction)
    loss.backward()
    assert keys.grad is None


def test_loss_is_mocos_with_the_other_images_keys_as_queue():
    queries, keys = (F.normalize(embeddings(seed=seed), dim=1) for seed in (1, 2))
    single = [
        info_nce(queries[i : i + 1], keys[i : i + 1], torch.cat([keys[:i], keys[i + 1 :]]), 0.2)[0] for i in range(6)
    ]
    torch.testing.assert_close(in_batch_info_nce(queries, keys, 0.2)[0], 0.4 * torch.stack(single).mean())


def test_learner_adds_both_directions_between_online_and_target():
    client, views = Client(small("moco-v3", temperature=0.3)), two_views()
    client.target.weights.mul_(1.1)  # to tell it from the online model
    target = client.learner.target
    q = [client.model.train()(view) for view in views]
    with torch.no_grad():
        k = [target(view) for view in views]
    forward, backward = slow(q[0], k[1], 0.3), slow(q[1], k[0], 0.3)
    loss, figures = client.loss(views)
    assert loss.item() == pytest.approx(forward[0] + backward[0], abs=1e-10)
    assert figures["contrastive_accuracy"].item() == pytest.approx((forward[1] + backward[1]) / 2)


def test_heads_have_the_size_that_lwfedssls_traffic_shows():
    """accounting_conventions.md, 1.1 and 1.2; a batch norm's counter of batches is not among the values there."""
    backbone = build_backbone("resnet10", width=64, generator=generator(0, "backbone"))
    assert backbone.feature_dim == 512  # as of the ResNet-18
    model = MoCoV3().build_model(backbone, generator(0, "heads"))
    for head, expected in ((model.projector, 659_968), (model.predictor, 264_192)):
        state = head.state_dict().items()
        assert sum(value.numel() for name, value in state if "num_batches" not in name) == expected
