# Answers to the exercises of 06_aggregation.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch
import torch.nn.functional as F

# %% aggregation/gap
guess = -10


# %% aggregation/gap: too_low
guess = -40


# %% aggregation/gap: too_high
guess = 4.5


# %% aggregation/gap: unit
guess = -0.1


# %% aggregation/l_dawa
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows, row[None], dim=1) for row, rows in zip(previous, received, strict=True)]
    return torch.stack(cosines, 1) / len(received[0])


# %% aggregation/l_dawa: not_divided
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows, row[None], dim=1) for row, rows in zip(previous, received, strict=True)]
    return torch.stack(cosines, 1)


# %% aggregation/l_dawa: normalised
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows, row[None], dim=1) for row, rows in zip(previous, received, strict=True)]
    table = torch.stack(cosines, 1)
    return table / table.sum(0)


# %% aggregation/l_dawa: whole_model
def l_dawa(previous, received):
    before, after = torch.cat(previous), torch.cat(received, 1)
    cosines = F.cosine_similarity(after, before[None], dim=1)
    return cosines[:, None].expand(-1, len(previous)) / len(after)


# %% aggregation/l_dawa: among_clients
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows, rows.mean(0)[None], dim=1) for rows in received]
    return torch.stack(cosines, 1) / len(received[0])


# %% aggregation/l_dawa: updates
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows - row, row[None], dim=1) for row, rows in zip(previous, received, strict=True)]
    return torch.stack(cosines, 1) / len(received[0])


# %% aggregation/l_dawa: transposed
def l_dawa(previous, received):
    cosines = [F.cosine_similarity(rows, row[None], dim=1) for row, rows in zip(previous, received, strict=True)]
    return torch.stack(cosines) / len(received[0])


# %% aggregation/l_dawa: products
def l_dawa(previous, received):
    products = [rows @ row for row, rows in zip(previous, received, strict=True)]
    return torch.stack(products, 1) / len(received[0])


# %% aggregation/combine
def combine(beta, received):
    return [beta[:, layer] @ rows for layer, rows in enumerate(received)]


# %% aggregation/combine: normalised
def combine(beta, received):
    return [beta[:, layer] @ rows / beta[:, layer].sum() for layer, rows in enumerate(received)]


# %% aggregation/combine: first_layer
def combine(beta, received):
    return [beta[:, 0] @ rows for rows in received]


# %% aggregation/combine: unweighted
def combine(beta, received):
    return [rows.mean(0) for rows in received]


# %% aggregation/combine: list
def combine(beta, received):
    return torch.cat([beta[:, layer] @ rows for layer, rows in enumerate(received)])


# %% aggregation/combine: shape
def combine(beta, received):
    return [beta[:, layer][None] @ rows for layer, rows in enumerate(received)]


# %% aggregation/combine: rows
def combine(beta, received):
    return [beta[:, layer : layer + 1] * rows for layer, rows in enumerate(received)]


# %% aggregation/factors
def factors(beta):
    shrinking = beta.sum(0)
    return beta / shrinking, shrinking


# %% aggregation/factors: over_layers
def factors(beta):
    shrinking = beta.sum(1)
    return beta / shrinking[:, None], shrinking


# %% aggregation/factors: mean
def factors(beta):
    shrinking = beta.mean(0)
    return beta / shrinking, shrinking


# %% aggregation/factors: product
def factors(beta):
    return beta / beta.max(0).values, beta.sum(0)


# %% aggregation/factors: pair
def factors(beta):
    return beta / beta.sum(0)


# %% aggregation/norm
def norm(c, clients):
    equal = (c**2 + (1 - c**2) / clients) ** 0.5
    return equal, c * equal


# %% aggregation/norm: no_differences
def norm(c, clients):
    return c, c**2


# %% aggregation/norm: not_averaged
def norm(c, clients):
    return 1.0, c


# %% aggregation/norm: same
def norm(c, clients):
    equal = (c**2 + (1 - c**2) / clients) ** 0.5
    return equal, equal


# %% aggregation/norm: once_more
def norm(c, clients):
    residual = (1 - c**2) / clients
    return (c**2 + residual) ** 0.5, (c**4 + residual) ** 0.5


# %% aggregation/norm: pair
def norm(c, clients):
    return (c**2 + (1 - c**2) / clients) ** 0.5


# %% aggregation/smaller
def smaller(s):
    return 1, 1 / s, 1 / s**2


# %% aggregation/smaller: no_norm
def smaller(s):
    return s, 1, 1 / s


# %% aggregation/smaller: gradient
def smaller(s):
    return 1, s, 1


# %% aggregation/smaller: relative
def smaller(s):
    return 1, 1 / s, 1 / s


# %% aggregation/smaller: triple
def smaller(s):
    return 1 / s**2
