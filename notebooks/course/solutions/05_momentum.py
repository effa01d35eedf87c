# Answers to the exercises of 05_momentum.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import math

import torch


# %% momentum/memory
def memory(decay, steps):
    return decay**steps


# %% momentum/memory: percent
def memory(decay, steps):
    return 100 * decay**steps


# %% momentum/memory: linear
def memory(decay, steps):
    return 1 - steps * (1 - decay)


# %% momentum/memory: forgotten
def memory(decay, steps):
    return 1 - decay**steps


# %% momentum/memory: once
def memory(decay, steps):
    return decay


# %% momentum/synchronise
def synchronise(online, momentum):
    return online.mean(0).expand_as(online), momentum.mean(0).expand_as(momentum)


# %% momentum/synchronise: only_online
def synchronise(online, momentum):
    return online.mean(0).expand_as(online), momentum


# %% momentum/synchronise: copied
def synchronise(online, momentum):
    online = online.mean(0).expand_as(online)
    return online, online


# %% momentum/synchronise: one_row
def synchronise(online, momentum):
    return online.mean(0), momentum.mean(0)


# %% momentum/misalignment
def misalignment(online, momentum):
    return (online - momentum).abs().mean()


# %% momentum/misalignment: signed
def misalignment(online, momentum):
    return (online - momentum).mean()


# %% momentum/misalignment: squared
def misalignment(online, momentum):
    return (online - momentum).square().mean()


# %% momentum/misalignment: summed
def misalignment(online, momentum):
    return (online - momentum).abs().sum()


# %% momentum/gap
guess = 12


# %% momentum/gap: too_low
guess = 1


# %% momentum/gap: too_high
guess = 40


# %% momentum/gap: unit
guess = 0.12


# %% momentum/identifiability
def identifiability(keys):
    means = keys[:, 0::2].mean(1)
    tested = keys[:, 1::2]
    nearest = torch.cdist(tested.flatten(0, 1), means).argmin(1).view(tested.shape[:2])
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: seen
def identifiability(keys):
    nearest = torch.cdist(keys.flatten(0, 1), keys.mean(1)).argmin(1).view(keys.shape[:2])
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: in_means
def identifiability(keys):
    tested = keys[:, 1::2]
    nearest = torch.cdist(tested, keys.mean(1)[None]).argmin(2)
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: product
def identifiability(keys):
    means = keys[:, 0::2].mean(1)
    nearest = (keys[:, 1::2] @ means.T).argmax(2)
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: direction
def identifiability(keys):
    means = torch.nn.functional.normalize(keys[:, 0::2].mean(1), dim=1)
    nearest = torch.cdist(keys[:, 1::2], means[None]).argmin(2)
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: even
def identifiability(keys):
    means = keys[:, 1::2].mean(1)
    tested = keys[:, 0::2]
    nearest = torch.cdist(tested.flatten(0, 1), means).argmin(1).view(tested.shape[:2])
    return (nearest == torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/identifiability: wrong_ones
def identifiability(keys):
    means = keys[:, 0::2].mean(1)
    tested = keys[:, 1::2]
    nearest = torch.cdist(tested.flatten(0, 1), means).argmin(1).view(tested.shape[:2])
    return (nearest != torch.arange(len(keys))[:, None]).float().mean()


# %% momentum/signature
guess = 30


# %% momentum/signature: too_low
guess = 12


# %% momentum/signature: too_high
guess = 100


# %% momentum/signature: unit
guess = 0.3


# %% momentum/shortcut
def shortcut(keys, clients):
    return math.log(keys / clients)


# %% momentum/shortcut: nothing
def shortcut(keys, clients):
    return math.log(keys)


# %% momentum/shortcut: gain
def shortcut(keys, clients):
    return math.log(clients)


# %% momentum/shortcut: others
def shortcut(keys, clients):
    return math.log(keys - keys / clients)


# %% momentum/shortcut: binary
def shortcut(keys, clients):
    return math.log2(keys / clients)
