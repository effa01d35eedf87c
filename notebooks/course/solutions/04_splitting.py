# Answers to the exercises of 04_splitting.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch.nn.functional as F

from fssl_core.models import cut


# %% splitting/server_gradient
def server_gradient(server, activations, labels):
    activations = activations.clone().requires_grad_()
    F.cross_entropy(server(activations), labels).backward()
    return activations.grad


# %% splitting/server_gradient: summed
def server_gradient(server, activations, labels):
    activations = activations.clone().requires_grad_()
    F.cross_entropy(server(activations), labels, reduction="sum").backward()
    return activations.grad


# %% splitting/server_gradient: weights
def server_gradient(server, activations, labels):
    F.cross_entropy(server(activations), labels).backward()
    return next(server.parameters()).grad


# %% splitting/server_gradient: sign
def server_gradient(server, activations, labels):
    activations = activations.clone().requires_grad_()
    F.cross_entropy(server(activations), labels).backward()
    return -activations.grad


# %% splitting/client_backward
def client_backward(client, images, gradient):
    client(images).backward(gradient)
    return client.weight.grad


# %% splitting/client_backward: ones
def client_backward(client, images, gradient):
    client(images).sum().backward()
    return client.weight.grad


# %% splitting/client_backward: batch_mean
def client_backward(client, images, gradient):
    client(images).backward(gradient / len(images))
    return client.weight.grad


# %% splitting/client_backward: mean
def client_backward(client, images, gradient):
    (client(images) * gradient).mean().backward()
    return client.weight.grad


# %% splitting/client_backward: shape
def client_backward(client, images, gradient):
    images = images.clone().requires_grad_()
    client(images).backward(gradient)
    return images.grad


# %% splitting/client_share
def client_share(backbone, cut_layer):
    client, server = cut(backbone, cut_layer)
    client_parameters, server_parameters = (
        sum(parameter.numel() for parameter in part.parameters()) for part in (client, server)
    )
    return client_parameters / (client_parameters + server_parameters)


# %% splitting/client_share: server
def client_share(backbone, cut_layer):
    client, server = cut(backbone, cut_layer)
    client_parameters, server_parameters = (
        sum(parameter.numel() for parameter in part.parameters()) for part in (client, server)
    )
    return server_parameters / (client_parameters + server_parameters)


# %% splitting/client_share: units
def client_share(backbone, cut_layer):
    return len(cut(backbone, cut_layer)[0]) / len(backbone)


# %% splitting/client_share: ratio
def client_share(backbone, cut_layer):
    client, server = cut(backbone, cut_layer)
    client_parameters, server_parameters = (
        sum(parameter.numel() for parameter in part.parameters()) for part in (client, server)
    )
    return client_parameters / server_parameters


# %% splitting/client_share: percent
def client_share(backbone, cut_layer):
    client, server = cut(backbone, cut_layer)
    client_parameters, server_parameters = (
        sum(parameter.numel() for parameter in part.parameters()) for part in (client, server)
    )
    return 100 * client_parameters / (client_parameters + server_parameters)


# %% splitting/epoch_bytes
def epoch_bytes(latent, images, elements, syncs):
    return 4 * 2 * (latent * images + elements * syncs)


# %% splitting/epoch_bytes: no_gradients
def epoch_bytes(latent, images, elements, syncs):
    return 4 * (latent * images + 2 * elements * syncs)


# %% splitting/epoch_bytes: unit
def epoch_bytes(latent, images, elements, syncs):
    return 4 * 2 * (latent * images + elements * syncs) / 1024


# %% splitting/epoch_bytes: one_way
def epoch_bytes(latent, images, elements, syncs):
    return 4 * (2 * latent * images + elements * syncs)


# %% splitting/epoch_bytes: half
def epoch_bytes(latent, images, elements, syncs):
    return 4 * (latent * images + elements * syncs)


# %% splitting/epoch_bytes: numbers
def epoch_bytes(latent, images, elements, syncs):
    return 2 * (latent * images + elements * syncs)


# %% splitting/break_even
def break_even(latent, images, elements):
    return latent * images / elements


# %% splitting/break_even: inverted
def break_even(latent, images, elements):
    return elements / (latent * images)


# %% splitting/break_even: twice
def break_even(latent, images, elements):
    return 2 * latent * images / elements


# %% splitting/break_even: rounded_down
def break_even(latent, images, elements):
    return latent * images // elements


# %% splitting/break_even: rounded_up
def break_even(latent, images, elements):
    return -(-latent * images // elements)


# %% splitting/break_even: no_images
def break_even(latent, images, elements):
    return latent / elements


# %% splitting/deep_cut
guess = 25


# %% splitting/deep_cut: too_low
guess = 5


# %% splitting/deep_cut: too_high
guess = 80


# %% splitting/deep_cut: unit
guess = 0.25
