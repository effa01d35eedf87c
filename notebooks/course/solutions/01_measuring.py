# Answers to the exercises of 01_measuring.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch
import torch.nn.functional as F

# %% measuring/untrained
guess = 25


# %% measuring/untrained: too_low
guess = 10


# %% measuring/untrained: too_high
guess = 60


# %% measuring/untrained: unit
guess = 0.25


# %% measuring/cosine
def cosine(queries, bank):
    return F.normalize(queries) @ F.normalize(bank).T


# %% measuring/cosine: not_normalised
def cosine(queries, bank):
    return queries @ bank.T


# %% measuring/cosine: one_normalised
def cosine(queries, bank):
    return F.normalize(queries) @ bank.T


# %% measuring/cosine: transposed
def cosine(queries, bank):
    return F.normalize(bank) @ F.normalize(queries).T


# %% measuring/cosine: together
def cosine(queries, bank):
    return (queries / queries.norm()) @ (bank / bank.norm()).T


# %% measuring/cosine: shape
def cosine(queries, bank):
    return F.cosine_similarity(queries[:1], bank)


# %% measuring/knn
def knn(queries, bank, labels, k, temperature):
    similarity, nearest = (F.normalize(queries) @ F.normalize(bank).T).topk(k)
    weights = (similarity / temperature).exp()
    votes = torch.zeros(len(queries), labels.max() + 1)
    votes.scatter_add_(1, labels[nearest], weights)
    return votes.argmax(1)


# %% measuring/knn: unweighted
def knn(queries, bank, labels, k, temperature):
    _, nearest = (F.normalize(queries) @ F.normalize(bank).T).topk(k)
    votes = torch.zeros(len(queries), labels.max() + 1)
    votes.scatter_add_(1, labels[nearest], torch.ones(nearest.shape))
    return votes.argmax(1)


# %% measuring/knn: nearest
def knn(queries, bank, labels, k, temperature):
    return labels[(F.normalize(queries) @ F.normalize(bank).T).argmax(1)]


# %% measuring/knn: everybody
def knn(queries, bank, labels, k, temperature):
    weights = (F.normalize(queries) @ F.normalize(bank).T / temperature).exp()
    return (weights @ F.one_hot(labels).float()).argmax(1)


# %% measuring/knn: not_normalised
def knn(queries, bank, labels, k, temperature):
    similarity, nearest = (queries @ bank.T).topk(k)
    weights = (similarity / temperature).exp()
    votes = torch.zeros(len(queries), labels.max() + 1)
    votes.scatter_add_(1, labels[nearest], weights)
    return votes.argmax(1)


# %% measuring/knn: type
def knn(queries, bank, labels, k, temperature):
    similarity, _ = (F.normalize(queries) @ F.normalize(bank).T).topk(k)
    return similarity.mean(1)


# %% measuring/chance
def chance(labels, classes):
    return labels.bincount().max().item() / len(labels)


# %% measuring/chance: uniform
def chance(labels, classes):
    return 1 / classes


# %% measuring/chance: count
def chance(labels, classes):
    return labels.bincount().max().item()


# %% measuring/chance: drawn
def chance(labels, classes):
    shares = labels.bincount(minlength=classes) / len(labels)
    return (shares**2).sum().item()


# %% measuring/probe_size
def probe_size(features, classes):
    return classes * features + classes


# %% measuring/probe_size: no_bias
def probe_size(features, classes):
    return classes * features


# %% measuring/probe_size: one_bias
def probe_size(features, classes):
    return classes * features + 1


# %% measuring/probe_size: transposed_bias
def probe_size(features, classes):
    return classes * features + features
