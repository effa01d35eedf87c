import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import DataError, SettingError
from fssl_core.objectives import Orchestra
from fssl_core.objectives.orchestra import (
    SHARPNESS,
    SINKHORN_ITERATIONS,
    balanced_k_means,
    cluster_loss,
    rotated,
    sinkhorn,
)
from fssl_core.random import generator
from tests.objectives.learners import Client, embeddings, small, two_views


def unit(count, dim=5, seed=0):
    return F.normalize(embeddings(count, dim, seed), dim=1)


def test_sinkhorn_is_the_plain_iteration_and_balances():
    similarities = unit(9, seed=1) @ unit(4, seed=2).T
    p = [[math.exp(SHARPNESS * value) for value in row] for row in similarities.tolist()]
    p = [[value / sum(row) for value in row] for row in p]
    for _ in range(SINKHORN_ITERATIONS):
        for column in range(4):
            total = sum(row[column] for row in p)
            for row in p:
                row[column] *= 9 / 4 / total
        p = [[value / sum(row) for value in row] for row in p]
    ours = sinkhorn(similarities)
    torch.testing.assert_close(ours, torch.tensor(p, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.sum(1), torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(ours.sum(0), torch.full((4,), 9 / 4, dtype=torch.float64), rtol=1e-4, atol=0)


def test_sinkhorn_survives_opposite_vectors_in_single_precision():
    similarities = torch.tensor([[1.0, -1.0]] * 3)
    torch.testing.assert_close(sinkhorn(similarities), torch.full((3, 2), 0.5))


def test_clusters_have_equal_size_where_the_nearest_centroid_would_take_all():
    """Twelve points in a narrow cone, three of them near each axis of it; all prefer the first centroid."""
    axes = F.normalize(torch.eye(4, dtype=torch.float64) + 3, dim=1)
    points = F.normalize(axes.repeat(3, 1) + 0.01 * embeddings(12, 4), dim=1)
    start = torch.stack([axes.mean(0), *torch.eye(4, dtype=torch.float64)[:3] - 0.5])
    start = F.normalize(start, dim=1)
    assert (points @ start.T).argmax(1).unique().tolist() == [0]
    found = balanced_k_means(points, start)
    members = (points @ found.T).argmax(1)
    assert members.bincount(minlength=4).tolist() == [3, 3, 3, 3]
    for cluster in range(4):
        mean = points[members == cluster].mean(0)
        torch.testing.assert_close(found[cluster], mean / mean.norm())


def test_a_cluster_without_points_keeps_its_centroid():
    points, start = unit(2, seed=1), unit(5, seed=2)
    found = balanced_k_means(points, start)
    nearest = (points @ found.T).argmax(1)
    torch.testing.assert_close(found[nearest], points)
    assert sum(torch.equal(before, after) for before, after in zip(start, found, strict=True)) == 3


def test_loss_is_the_cross_entropy_with_the_targets_soft_clusters():
    z, targets, centroids = embeddings(seed=1).requires_grad_(), embeddings(seed=2).requires_grad_(), unit(3, seed=4)
    total, agree = 0.0, 0
    for one, other in zip(z.tolist(), targets.tolist(), strict=True):
        tables = []
        for row in (one, other):
            cosines = [sum(a * b for a, b in zip(row, c, strict=True)) / math.hypot(*row) for c in centroids.tolist()]
            parts = [math.exp(cosine / 0.1) for cosine in cosines]
            tables.append([part / sum(parts) for part in parts])
        p, wanted = tables
        total -= sum(w * math.log(q) for w, q in zip(wanted, p, strict=True))
        agree += p.index(max(p)) == wanted.index(max(wanted))
    loss, agreement = cluster_loss(z, targets, centroids, 0.1)
    assert (loss.item(), agreement.item()) == pytest.approx((total / 6, agree / 6), abs=1e-7)
    loss.backward()
    assert z.grad.norm() > 0
    assert targets.grad is None


def test_rotations_are_balanced_and_four_quarters_are_none():
    images = two_views(8)[0]
    turned, quarters = rotated(images)
    assert quarters.bincount().tolist() == [2, 2, 2, 2]
    for image, view, count in zip(images, turned, quarters.tolist(), strict=True):
        assert torch.equal(torch.rot90(view, 4 - count, dims=(1, 2)), image)
    with pytest.raises(DataError, match=r"square images, got \[8, 6\]"):
        rotated(images[..., :6])


def test_the_loss_is_that_of_clusters_and_rotations():
    client, views = Client(small("orchestra")), two_views()
    plain = client.model.train()
    target = client.objective.build_target(client.model).train()
    z = plain.projector(plain.encoder(views[1]))
    clusters, _ = cluster_loss(z, target(views[0]), client.learner.centroids, 0.1)
    turned, quarters = rotated(views[1])
    loss, _ = client.loss(views)
    assert loss.item() == pytest.approx((clusters + F.cross_entropy(plain(turned), quarters)).item(), abs=1e-10)


def test_by_default_a_third_view_is_rotated_and_the_head_ends_with_a_plain_batch_norm():
    """As in the authors' model: the rotated view is drawn on its own, the head's outputs have no scale or shift."""
    objective = small("orchestra", views=3, output_norm="plain")
    assert {n: getattr(Orchestra(), n) for n in ("views", "output_norm", "start")} == {
        "views": 3,
        "output_norm": "plain",
        "start": "clusters",
    }
    client, views = Client(objective), torch.cat([two_views(), two_views(seed=7)[:1]])
    plain = client.model.train()
    target = objective.build_target(client.model).train()
    z = plain.projector(plain.encoder(views[1]))
    torch.testing.assert_close(z.mean(0), torch.zeros(16, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(z.var(0, correction=0), torch.ones(16, dtype=torch.float64), rtol=1e-2, atol=0)
    assert plain.projector[-1].weight is plain.projector[-1].bias is plain.projector[-2].bias is None
    clusters, _ = cluster_loss(z, target(views[0]), client.learner.centroids, 0.1)
    turned, quarters = rotated(views[2])
    loss, _ = client.loss(views)
    assert loss.item() == pytest.approx((clusters + F.cross_entropy(plain(turned), quarters)).item(), abs=1e-10)


def test_before_the_first_step_the_memory_fills_with_targets_of_first_views():
    learner = Client(small("orchestra")).learner
    batches = [two_views(10, seed=seed) for seed in range(3)]
    learner.begin(batches)
    first_views = [F.normalize(learner.target(views[0]), dim=1) for views in batches[:2]]
    assert torch.equal(learner.memory.keys, torch.cat(first_views)[:16])  # the third batch finds it full


def test_a_client_sends_centroids_of_its_last_targets():
    client = Client(small("orchestra"))
    client.train([two_views(3)], 0.01)
    with pytest.raises(DataError, match=r"4 local clusters .* only 3: lower local_clusters"):
        client.learner.contribution(iter([]), generator(0, "contribution"))
    client.train([two_views(5, seed=seed) for seed in range(3)], 0.01)
    held = client.learner.memory.keys.clone()
    assert held.shape == (16, 16)  # the last of 18
    sent = client.learner.contribution(iter([]), generator(0, "contribution"))["centroids"]
    start = held[torch.randperm(16, generator=generator(0, "contribution"))[:4]]
    assert torch.equal(sent, balanced_k_means(held, start))


def test_the_server_clusters_the_centroids_of_all_clients():
    objective = small("orchestra")
    first = objective.pool({}, {}, generator(0, "pool"))
    torch.testing.assert_close(first["centroids"].norm(dim=1), torch.ones(6))
    assert torch.equal(first["centroids"], objective.pool({}, {}, generator(0, "pool"))["centroids"])
    assert not torch.equal(first["centroids"], objective.pool({}, {}, generator(1, "pool"))["centroids"])
    local = {client: {"centroids": unit(4, 16, seed=client)} for client in (1, 3, 8)}
    after = objective.pool(local, first, generator(0, "pool"))
    everything = torch.cat([unit(4, 16, seed=client) for client in (1, 3, 8)])
    assert torch.equal(after["centroids"], balanced_k_means(everything, first["centroids"].double()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"predictor": (512,)}, r"predictor=\(512,\) .*rotations"),
        ({"local_clusters": 200}, "local_clusters=200 .*2 to 128"),
        ({"views": 4}, "views=4 .*2, 3"),
        ({"start": "zero"}, "start='zero' .*clusters, random"),
        ({"global_clusters": 1}, "global_clusters=1"),
        ({"temperature": 0.0}, "temperature=0.0"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        Orchestra(**values)
