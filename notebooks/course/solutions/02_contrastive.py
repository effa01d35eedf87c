# Answers to the exercises of 02_contrastive.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import math

import torch
import torch.nn.functional as F


# %% contrastive/info_nce
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1, keepdim=True)
    logits = torch.cat([positive_logits, queries @ negatives.T], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long))


# %% contrastive/info_nce: no_positive
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1) / temperature
    return (torch.logsumexp(queries @ negatives.T / temperature, 1) - positive_logits).mean()


# %% contrastive/info_nce: of_others
def info_nce(queries, positives, negatives, temperature):
    logits = torch.cat([queries @ positives.T, queries @ negatives.T], dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(len(queries)))


# %% contrastive/info_nce: no_temperature
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1, keepdim=True)
    logits = torch.cat([positive_logits, queries @ negatives.T], dim=1)
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long))


# %% contrastive/info_nce: multiplied
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1, keepdim=True)
    logits = torch.cat([positive_logits, queries @ negatives.T], dim=1) * temperature
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long))


# %% contrastive/info_nce: no_logarithm
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1, keepdim=True)
    logits = torch.cat([positive_logits, queries @ negatives.T], dim=1) / temperature
    return logits.softmax(1)[:, 0].mean()


# %% contrastive/info_nce: summed
def info_nce(queries, positives, negatives, temperature):
    positive_logits = (queries * positives).sum(1, keepdim=True)
    logits = torch.cat([positive_logits, queries @ negatives.T], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long), reduction="sum")


# %% contrastive/ignorance
def ignorance(batch):
    return math.log(2 * batch - 1)


# %% contrastive/ignorance: all_of_them
def ignorance(batch):
    return math.log(2 * batch)


# %% contrastive/ignorance: negatives
def ignorance(batch):
    return math.log(2 * batch - 2)


# %% contrastive/ignorance: sign
def ignorance(batch):
    return -math.log(2 * batch - 1)


# %% contrastive/ignorance: share
def ignorance(batch):
    return 1 / (2 * batch - 1)


# %% contrastive/nt_xent
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(first)))


# %% contrastive/nt_xent: with_itself
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    return F.cross_entropy(z @ z.T / temperature, torch.arange(len(z)).roll(len(first)))


# %% contrastive/nt_xent: zero_itself
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    logits = (z @ z.T / temperature).fill_diagonal_(0)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(first)))


# %% contrastive/nt_xent: no_positive
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    similarity = z @ z.T / temperature
    rows, partners = torch.arange(len(z)), torch.arange(len(z)).roll(len(first))
    positive = similarity[rows, partners]
    negatives = similarity.clone().fill_diagonal_(-torch.inf)
    negatives[rows, partners] = -torch.inf
    return (negatives.logsumexp(1) - positive).mean()


# %% contrastive/nt_xent: within_view
def nt_xent(first, second, temperature):
    logits = F.normalize(first) @ F.normalize(second).T / temperature
    rows = torch.arange(len(first))
    return (F.cross_entropy(logits, rows) + F.cross_entropy(logits.T, rows)) / 2


# %% contrastive/nt_xent: one_direction
def nt_xent(first, second, temperature):
    logits = F.normalize(first) @ F.normalize(second).T / temperature
    return F.cross_entropy(logits, torch.arange(len(first)))


# %% contrastive/nt_xent: no_temperature
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    return F.cross_entropy((z @ z.T).fill_diagonal_(-torch.inf), torch.arange(len(z)).roll(len(first)))


# %% contrastive/nt_xent: multiplied
def nt_xent(first, second, temperature):
    z = F.normalize(torch.cat([first, second]), dim=1)
    logits = (z @ z.T * temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(first)))


# %% contrastive/nt_xent: not_normalised
def nt_xent(first, second, temperature):
    z = torch.cat([first, second])
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(logits, torch.arange(len(z)).roll(len(first)))


# %% contrastive/queue
def push(queue, keys, size):
    return torch.cat([queue, keys])[-size:]


# %% contrastive/queue: order
def push(queue, keys, size):
    return torch.cat([keys, queue])[:size]


# %% contrastive/queue: grows
def push(queue, keys, size):
    return torch.cat([queue, keys])


# %% contrastive/queue: keeps_old
def push(queue, keys, size):
    return torch.cat([queue, keys])[:size]


# %% contrastive/queue: forgets
def push(queue, keys, size):
    return keys


# %% contrastive/queue: shape
def push(queue, keys, size):
    return torch.cat([queue[len(queue) + len(keys) - size :], keys])


# %% contrastive/queue: grows
def push(queue, keys, size):
    return torch.cat([queue[-(size - len(keys)) :], keys])


# %% contrastive/ema
def ema(momentum, online, decay):
    return decay * momentum + (1 - decay) * online


# %% contrastive/ema: swapped
def ema(momentum, online, decay):
    return (1 - decay) * momentum + decay * online


# %% contrastive/ema: added
def ema(momentum, online, decay):
    return decay * momentum + online


# %% contrastive/ema: error
def ema(momentum, online, decay):
    return decay * momentum + (1 - decay) * on_line  # noqa: F821


# %% contrastive/random_negatives
guess = 5


# %% contrastive/random_negatives: too_low
guess = 0


# %% contrastive/random_negatives: too_high
guess = 35


# %% contrastive/random_negatives: unit
guess = 0.06
