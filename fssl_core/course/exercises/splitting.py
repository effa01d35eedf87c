"""Module 4: split learning, and what crosses the wire."""

from math import ceil, floor, prod

import torch
import torch.nn.functional as F
from torch import nn

from fssl_core.costs.traffic import split_traffic
from fssl_core.course.exercise import as_number, as_tensor, compare, exercise, other_units, prediction, whole_number
from fssl_core.models import build_backbone, client_elements, cut_layers, latent_shape
from fssl_core.models.cutting import cut

ROUNDED = "Nearly: do not round, the number need not be whole."


@exercise(
    "splitting/server_gradient",
    weights="This is the gradient of the server's weights. The client needs that of what it sent.",
    summed="This is the gradient of the sum of the losses. The loss is their mean over the batch.",
    sign="The sign is wrong: expected is the gradient itself, not the step.",
    zero="Everything is 0: has backward been called?",
)
def server_gradient(answer, generator):
    server = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for parameter in server.parameters():
        nn.init.normal_(parameter, generator=generator)
    activations, labels = torch.randn(6, 5, generator=generator), torch.randint(3, (6,), generator=generator)
    leaf = activations.clone().requires_grad_()
    (right,) = torch.autograd.grad(F.cross_entropy(server(leaf), labels), leaf)
    with torch.enable_grad():
        given = answer(server, activations, labels)
    (own,) = torch.autograd.grad(F.cross_entropy(server(activations), labels), [server[0].weight])
    compare(given, right, weights=own, summed=right * len(labels), sign=-right, zero=torch.zeros_like(right))


@exercise(
    "splitting/client_backward",
    no_chain="These are not the client's gradients for what the server sent. Which method of a tensor takes a gradient "
    "from outside?",
    ones="The gradient that came from the server is not used: backward was started from ones.",
    batch_mean="Divided by the batch once too often: the server's mean is in its gradient already.",
    mean="You take the mean of activations times gradient. By the chain rule it is their sum.",
)
def client_backward(answer, generator):
    client = nn.Linear(4, 5)
    for parameter in client.parameters():
        nn.init.normal_(parameter, generator=generator)
    images, gradient = torch.randn(6, 4, generator=generator), torch.randn(6, 5, generator=generator)
    with torch.enable_grad():
        given = as_tensor(answer(client, images, gradient))
    right = gradient.T @ images
    ones = torch.ones_like(gradient).T @ images
    compare(
        given,
        right,
        ones=ones,
        batch_mean=right / len(images),
        mean=right / gradient.numel(),
        no_chain=torch.zeros_like(right),
    )


@exercise(
    "splitting/epoch_bytes",
    no_gradients="For every image an activation goes up, and its gradient comes down.",
    one_way="At a synchronisation the client's model goes up and the average comes down.",
    half="Everything crosses twice: activations and their gradients, the model up and the average down.",
    numbers="These are numbers, not bytes: a float32 takes four.",
    no_sync="Where are the client's parameters?",
)
def epoch_bytes(answer, generator):
    backbone = build_backbone("resnet10", width=8, norm="group", image_size=16, channels=1)
    cuts = cut_layers(backbone)
    cut_layer = cuts[whole_number(0, len(cuts), generator)]
    images, syncs = (whole_number(2, 200, generator) for _ in range(2))
    latent, elements = prod(latent_shape(backbone, cut_layer)), client_elements(backbone, cut_layer)
    traffic = split_traffic(backbone, cut_layer, images=images, syncs=syncs, rule="two-way")
    compare(
        as_number(answer(latent, images, elements, syncs)),
        float(traffic.total_bytes),
        tolerance=0,
        no_gradients=float(traffic.activation_bytes / 2 + traffic.sync_bytes),
        one_way=float(traffic.activation_bytes + traffic.sync_bytes / 2),
        half=traffic.total_bytes / 2,
        numbers=traffic.total_bytes / 4,
        no_sync=float(traffic.activation_bytes),
        unit=other_units(traffic.total_bytes),
    )


@exercise(
    "splitting/break_even",
    rounded_down=ROUNDED,
    rounded_up=ROUNDED,
    inverted="The other way round: this is one over the right number.",
    half="Both sides cross twice, activations and gradients, models up and down. The factor cancels.",
    twice="Both sides cross twice, activations and gradients, models up and down. The factor cancels.",
    no_images="Each of the client's images is sent in an epoch.",
)
def break_even(answer, generator):
    latent, images, elements = (whole_number(50, 5000, generator) for _ in range(3))
    right = latent * images / elements
    compare(
        as_number(answer(latent, images, elements)),
        right,
        tolerance=1e-6,  # or a large number would be its rounded one
        inverted=1 / right,
        half=right / 2,
        twice=2 * right,
        no_images=latent / elements,
        rounded_down=floor(right),
        rounded_up=ceil(right),
    )


@exercise(
    "splitting/client_share",
    server="This is the server's share.",
    percent="Expected is a fraction between 0 and 1.",
    units="Units differ in size: count their parameters.",
    ratio="This is the client's part in units of the server's. Divide by the whole network.",
    number="This is a number of parameters. Expected is a share of all.",
)
def client_share(answer, generator):
    width = 4 * whole_number(1, 5, generator)
    backbone = build_backbone("resnet10", width=width, norm="group", image_size=16, channels=1)
    cuts = cut_layers(backbone)
    cut_layer = cuts[whole_number(0, len(cuts) - 1, generator)]
    client, server = (sum(p.numel() for p in part.parameters()) for part in cut(backbone, cut_layer))
    right = client / (client + server)
    compare(
        as_number(answer(backbone, cut_layer)),
        right,
        server=1 - right,
        percent=100 * right,
        units=len(cut(backbone, cut_layer)[0]) / len(backbone),
        ratio=client / server,
        number=float(client),
    )


@prediction(
    "splitting/deep_cut",
    record=("monacosfl/fig6", "laptop"),
    unit="percent",
    within=8,
    too_low="Fewer activations cross at a deep cut, but the models that are averaged are large.",
    too_high="Each stage of a ResNet halves both sides of its maps and doubles the channels: half as many numbers.",
)
def deep_cut(record):
    sent = record[record.method == "MonAcoSFL"].groupby("cut_layer").bytes_per_client_epoch.mean()
    return 100 * sent[9] / sent[1]
