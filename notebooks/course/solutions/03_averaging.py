# Answers to the exercises of 03_averaging.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch


# %% averaging/fedavg
def fedavg(models, images):
    return (images / images.sum()) @ models


# %% averaging/fedavg: unweighted
def fedavg(models, images):
    return models.mean(0)


# %% averaging/fedavg: not_normalised
def fedavg(models, images):
    return images @ models


# %% averaging/fedavg: inverted
def fedavg(models, images):
    return (1 / images / (1 / images).sum()) @ models


# %% averaging/fedavg: summed
def fedavg(models, images):
    return models.sum(0)


# %% averaging/fedavg: averaged
def fedavg(models, images):
    return ((images / images.sum())[:, None] * models).mean(0)


# %% averaging/fedavg: softmax
def fedavg(models, images):
    return models[images.argmax()]


# %% averaging/divide
def divide(labels, shares):
    parts = [[] for _ in range(shares.shape[1])]
    for label, label_shares in enumerate(shares):
        images = (labels == label).nonzero().flatten()
        ends = (label_shares.cumsum(0) * len(images)).round().long()[:-1]
        for part, piece in zip(parts, images.tensor_split(ends), strict=True):
            part.append(piece)
    return [torch.cat(part) for part in parts]


# %% averaging/divide: lost
def divide(labels, shares):
    parts = [[] for _ in range(shares.shape[1])]
    for label, label_shares in enumerate(shares):
        images = (labels == label).nonzero().flatten()
        start = 0
        for part, share in zip(parts, label_shares, strict=True):
            count = int(share * len(images))
            part.append(images[start : start + count])
            start += count
    return [torch.cat(part) for part in parts]


# %% averaging/divide: twice
def divide(labels, shares):
    parts = []
    for client_shares in shares.T:
        members = [(labels == label).nonzero().flatten() for label in range(len(client_shares))]
        parts.append(
            torch.cat([m[: round(share.item() * len(m))] for m, share in zip(members, client_shares, strict=True)])
        )
    return parts


# %% averaging/divide: type
def divide(labels, shares):
    ends = (shares.mean(0).cumsum(0) * len(labels)).round().long()[:-1]
    client = torch.bucketize(torch.arange(len(labels)), ends, right=True)
    return [client == number for number in range(shares.shape[1])]


# %% averaging/divide: type
def divide(labels, shares):
    ends = (shares.mean(0).cumsum(0) * len(labels)).round().long()[:-1]
    return list((torch.arange(len(labels)) + 1).tensor_split(ends))


# %% averaging/divide: shares
def divide(labels, shares):
    ends = (shares.mean(0).cumsum(0) * len(labels)).round().long()[:-1]
    return list(torch.arange(len(labels)).tensor_split(ends))


# %% averaging/unlikeness
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    together = counts.sum(0) / counts.sum()
    return ((client_frequencies - together).abs().sum(1) / 2).mean()


# %% averaging/unlikeness: not_halved
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    together = counts.sum(0) / counts.sum()
    return (client_frequencies - together).abs().sum(1).mean()


# %% averaging/unlikeness: counts
def unlikeness(counts):
    return ((counts - counts.float().mean(0)).abs().sum(1) / 2).mean()


# %% averaging/unlikeness: from_uniform
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    return ((client_frequencies - 1 / counts.shape[1]).abs().sum(1) / 2).mean()


# %% averaging/unlikeness: unweighted
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    return ((client_frequencies - client_frequencies.mean(0)).abs().sum(1) / 2).mean()


# %% averaging/unlikeness: of_classes
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    together = counts.sum(0) / counts.sum()
    return ((client_frequencies - together).abs() / 2).mean()


# %% averaging/unlikeness: largest
def unlikeness(counts):
    client_frequencies = counts / counts.sum(1, keepdim=True)
    together = counts.sum(0) / counts.sum()
    return ((client_frequencies - together).abs().sum(1) / 2).max()


# %% averaging/dirichlet_loss
guess = 0


# %% averaging/dirichlet_loss: too_low
guess = -10


# %% averaging/dirichlet_loss: too_high
guess = 20


# %% averaging/dirichlet_loss: type
guess = "a lot"


# %% averaging/round_bytes
def round_bytes(model):
    return 2 * 4 * sum(value.numel() for value in model.state_dict().values())


# %% averaging/round_bytes: one_way
def round_bytes(model):
    return 4 * sum(value.numel() for value in model.state_dict().values())


# %% averaging/round_bytes: unit
def round_bytes(model):
    return 2 * 4 * sum(value.numel() for value in model.state_dict().values()) / 1e6


# %% averaging/round_bytes: no_buffers
def round_bytes(model):
    return 2 * 4 * sum(value.numel() for value in model.parameters())


# %% averaging/round_bytes: no_count
def round_bytes(model):
    return 2 * 4 * sum(value.numel() for value in model.state_dict().values() if value.ndim)


# %% averaging/round_bytes: numbers
def round_bytes(model):
    return 2 * sum(value.numel() for value in model.state_dict().values())


# %% averaging/round_bytes: one_way_no_buffers
def round_bytes(model):
    return sum(value.nbytes for value in model.parameters())


# %% averaging/round_bytes: one_way_numbers
def round_bytes(model):
    return sum(value.numel() for value in model.state_dict().values())


# %% averaging/drift
def drift(models):
    return (models - models.mean(0)).norm(dim=1).mean()


# %% averaging/drift: squared
def drift(models):
    return (models - models.mean(0)).square().sum(1).mean()


# %% averaging/drift: root_of_mean
def drift(models):
    return (models - models.mean(0)).square().sum(1).mean().sqrt()


# %% averaging/drift: of_numbers
def drift(models):
    return (models - models.mean(0)).abs().mean()


# %% averaging/drift: summed
def drift(models):
    return (models - models.mean(0)).norm(dim=1).sum()


# %% averaging/drift: of_average
def drift(models):
    return (models - models.mean(0)).mean(0).norm()
