# Answers to the exercises of 08_normalisation.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch
import torch.nn.functional as F

# %% normalisation/twin
guess = 16


# %% normalisation/twin: too_low
guess = 5


# %% normalisation/twin: too_high
guess = 70


# %% normalisation/twin: unit
guess = 0.15


# %% normalisation/group_norm
def group_norm(x, groups):
    grouped = x.unflatten(1, (groups, -1))
    variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), correction=0, keepdim=True)
    return ((grouped - mean) / (variance + 1e-5).sqrt()).flatten(1, 2)


# %% normalisation/group_norm: over_batch
def group_norm(x, groups):
    variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


# %% normalisation/group_norm: each_channel
def group_norm(x, groups):
    variance, mean = torch.var_mean(x, dim=(2, 3), correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


# %% normalisation/group_norm: all_channels
def group_norm(x, groups):
    variance, mean = torch.var_mean(x, dim=(1, 2, 3), correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt()


# %% normalisation/group_norm: unbiased
def group_norm(x, groups):
    grouped = x.unflatten(1, (groups, -1))
    variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), keepdim=True)
    return ((grouped - mean) / (variance + 1e-5).sqrt()).flatten(1, 2)


# %% normalisation/group_norm: no_root
def group_norm(x, groups):
    grouped = x.unflatten(1, (groups, -1))
    variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), correction=0, keepdim=True)
    return ((grouped - mean) / (variance + 1e-5)).flatten(1, 2)


# %% normalisation/group_norm: no_epsilon
def group_norm(x, groups):
    grouped = x.unflatten(1, (groups, -1))
    variance, mean = torch.var_mean(grouped, dim=(2, 3, 4), correction=0, keepdim=True)
    return ((grouped - mean) / variance.sqrt()).flatten(1, 2)


# %% normalisation/others
answer = {"batch, training"}


# %% normalisation/others: training
answer = set()


# %% normalisation/others: evaluation
answer = {"batch, training", "batch, evaluation"}


# %% normalisation/others: twin
answer = {"batch, training", "twin"}


# %% normalisation/others: group
answer = {"batch, training", "group"}


# %% normalisation/others: words
answer = {"batch"}


# %% normalisation/others: words
answer = [["batch, training"]]


# %% normalisation/bytes
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 4 * 2 * pairs * images * channels * height * width


# %% normalisation/bytes: one_view
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 4 * pairs * images * channels * height * width


# %% normalisation/bytes: one_pair
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 4 * 2 * images * channels * height * width


# %% normalisation/bytes: values
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 2 * pairs * images * channels * height * width


# %% normalisation/bytes: unit
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 4 * 2 * pairs * images * channels * height * width / 2**30


# %% normalisation/bytes: both_ways
def sent_bytes(shape, images, pairs):
    channels, height, width = shape
    return 2 * 4 * 2 * pairs * images * channels * height * width


# %% normalisation/twin_norm
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1)).unflatten(2, (-1, per_group))  # [2, K, G, channels, H, W]
    variance, mean = torch.var_mean(twins, dim=(0, 3, 4, 5), correction=0, keepdim=True)
    return ((twins - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: no_epsilon
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1)).unflatten(2, (-1, per_group))
    variance, mean = torch.var_mean(twins, dim=(0, 3, 4, 5), correction=0, keepdim=True)
    return ((twins - mean) / variance.sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: apart
def twin_norm(x, per_group):
    return F.group_norm(x, x.shape[1] // per_group)


# %% normalisation/twin_norm: listing
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1)).unflatten(2, (-1, per_group))
    variances, means = torch.var_mean(twins, dim=(3, 4, 5), correction=0, keepdim=True)
    return ((twins - means.mean(0)) / (variances.mean(0) + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: neighbours
def twin_norm(x, per_group):
    twins = x.unflatten(0, (-1, 2)).unflatten(2, (-1, per_group))  # [K, 2, G, channels, H, W]
    variance, mean = torch.var_mean(twins, dim=(1, 3, 4, 5), correction=0, keepdim=True)
    return ((twins - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: over_batch
def twin_norm(x, per_group):
    grouped = x.unflatten(1, (-1, per_group))
    variance, mean = torch.var_mean(grouped, dim=(0, 2, 3, 4), correction=0, keepdim=True)
    return ((grouped - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: each_channel
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1))
    variance, mean = torch.var_mean(twins, dim=(0, 3, 4), correction=0, keepdim=True)
    return ((twins - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: unbiased
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1)).unflatten(2, (-1, per_group))
    variance, mean = torch.var_mean(twins, dim=(0, 3, 4, 5), keepdim=True)
    return ((twins - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/twin_norm: groups
def twin_norm(x, per_group):
    twins = x.unflatten(0, (2, -1)).unflatten(2, (per_group, -1))
    variance, mean = torch.var_mean(twins, dim=(0, 3, 4, 5), correction=0, keepdim=True)
    return ((twins - mean) / (variance + 1e-5).sqrt()).reshape(x.shape)


# %% normalisation/partners
def partners(first, second):
    return torch.cdist(-first, second).argmin(1)


# %% normalisation/partners: alike
def partners(first, second):
    return torch.cdist(first, second).argmin(1)


# %% normalisation/partners: other_way
def partners(first, second):
    return torch.cdist(-second, first).argmin(1)


# %% normalisation/partners: in_order
def partners(first, second):
    return torch.arange(len(first))


# %% normalisation/partners: few
def partners(first, second):
    return torch.cdist(first.abs().sum(1, keepdim=True), second.sum(1, keepdim=True)).argmin(1)


# %% normalisation/partners: places
def partners(first, second):
    return torch.cdist(-first, second).min(1).values
