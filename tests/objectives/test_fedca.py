import math

import pytest
import torch
import torch.nn.functional as F

from fssl_core.errors import SettingError
from fssl_core.objectives import FedCA
from fssl_core.objectives.simclr import nt_xent
from fssl_core.random import generator
from tests.objectives.learners import Client, embeddings, small, two_views


def entries(count=7, dim=5, seed=9):
    return F.normalize(embeddings(count, dim, seed), dim=1)


def slow(first, second, dictionary, temperature):
    """The loss term by term, and the fraction of embeddings whose positive is nearer than everything else."""
    z = [[value / math.hypot(*row) for value in row] for row in [*first.tolist(), *second.tolist()]]
    count, losses, right = len(z), [], []
    for i, own in enumerate(z):
        j = (i + count // 2) % count

        def similarity(other, own=own):
            return sum(a * b for a, b in zip(own, other, strict=True)) / temperature

        negatives = [similarity(z[k]) for k in range(count) if k not in (i, j)]
        negatives += [similarity(entry) for entry in dictionary.tolist()]
        positive = similarity(z[j])
        losses.append(-math.log(math.exp(positive) / (math.exp(positive) + sum(map(math.exp, negatives)))))
        right.append(positive > max(negatives))
    return sum(losses) / count, sum(right) / count


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_loss_and_accuracy_are_the_definition_term_by_term(noise):
    first = embeddings(seed=1)
    second = first + noise * embeddings(seed=2)
    loss, accuracy = nt_xent(first, second, 0.3, dictionary=entries())
    expected = slow(first, second, entries(), 0.3)
    assert loss.item() == pytest.approx(expected[0], abs=1e-12)
    assert accuracy.item() == pytest.approx(expected[1], abs=1e-7)


def test_without_a_dictionary_it_is_simclr():
    first, second = embeddings(seed=1), embeddings(seed=2)
    ours, simclr = nt_xent(first, second, 0.5, dictionary=entries(0)), nt_xent(first, second, 0.5)
    for one, other in zip(ours, simclr, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_client_takes_the_entries_of_the_others_as_negatives():
    client, views = Client(small("fedca", temperature=0.5)), two_views()
    pooled = client.objective.pool(
        {number: {"projections": entries(3, 16, seed=number)} for number in (0, 2, 5)}, {}, generator(0, "pool")
    )
    plain = client.model.train()
    expected = slow(*(plain(view) for view in views), torch.cat([pooled["0"], pooled["5"]]), 0.5)
    client.learner.receive(pooled, 2)
    loss, figures = client.loss(views)
    assert loss.item() == pytest.approx(expected[0], abs=1e-10)
    assert figures["contrastive_accuracy"].item() == pytest.approx(expected[1])


def test_an_entry_is_the_unit_mean_of_both_views_and_making_it_changes_nothing():
    client, batches = Client(small("fedca")), [two_views(4, seed=1), two_views(2, seed=2)]
    client.train([two_views()], 0.01)
    plain, before = client.online.module().eval(), client.online.state_dict(0)
    with torch.no_grad():
        sent = client.learner.contribution(iter(batches), generator(0, "contribution"))["projections"]
    pairs = [views[:, [image]] for views in batches for image in range(views.shape[1])]  # alone in a batch
    projections = [[F.normalize(plain(view), dim=1) for view in pair] for pair in pairs]
    torch.testing.assert_close(sent, torch.cat([F.normalize((one + two) / 2, dim=1) for one, two in projections]))
    torch.testing.assert_close(sent.norm(dim=1), torch.ones(6, dtype=torch.float64))
    assert all(torch.equal(value, before[name]) for name, value in client.online.state_dict(0).items())
    assert client.learner.online.training


def test_alignment_is_the_mean_distance_of_representations_over_public_images_in_turn():
    client, views = Client(small("fedca", alignment_weight=2.0)), two_views(4)
    images, wanted = two_views(6, seed=3)[0], embeddings(6, 64)
    unaligned, _ = client.loss(views)
    client.learner.align(images, wanted)
    for rows in ([0, 1, 2, 3], [4, 5, 0, 1]):
        plain = client.online.module().train()
        loss, figures = client.loss(views)
        made = plain.encoder(images[rows])
        distances = [math.dist(one, other) for one, other in zip(made.tolist(), wanted[rows].tolist(), strict=True)]
        assert figures["alignment"].item() == pytest.approx(sum(distances) / 4, abs=1e-10)
        assert (loss - unaligned).item() == pytest.approx(2 * sum(distances) / 4, abs=1e-10)
        client.learner.after_step()
    state = client.learner.state_dict()
    assert state == {"next_public_image": 2}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"alignment_weight": -1.0}, "alignment_weight=-1.0"),
        ({"alignment_model": "cifar100"}, "alignment_model='cifar100' .*AveragingSettings"),
    ],
)
def test_a_wrong_setting_names_itself(values, message):
    with pytest.raises(SettingError, match=message):
        FedCA(**values)
