# Answers to the exercises of 09_attacks.ipynb: of each the right one, and wrong ones with the hint that they get.

# %% set-up
import torch


# %% attacks/step
def step(represent, sent, images, rate):
    images = images.clone().requires_grad_()
    errors = (represent(images) - sent).square().sum(1) / sent.square().sum(1)
    (gradient,) = torch.autograd.grad(errors.sum(), images)
    return (images - rate * gradient).clamp(0, 1)


# %% attacks/step: away
def step(represent, sent, images, rate):
    images = images.clone().requires_grad_()
    errors = (represent(images) - sent).square().sum(1) / sent.square().sum(1)
    (gradient,) = torch.autograd.grad(errors.sum(), images)
    return (images + rate * gradient).clamp(0, 1)


# %% attacks/step: not_clamped
def step(represent, sent, images, rate):
    images = images.clone().requires_grad_()
    errors = (represent(images) - sent).square().sum(1) / sent.square().sum(1)
    (gradient,) = torch.autograd.grad(errors.sum(), images)
    return images - rate * gradient


# %% attacks/step: not_relative
def step(represent, sent, images, rate):
    images = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((represent(images) - sent).square().sum(), images)
    return (images - rate * gradient).clamp(0, 1)


# %% attacks/step: mean
def step(represent, sent, images, rate):
    images = images.clone().requires_grad_()
    errors = (represent(images) - sent).square().sum(1) / sent.square().sum(1)
    (gradient,) = torch.autograd.grad(errors.mean(), images)
    return (images - rate * gradient).clamp(0, 1)


# %% attacks/explained
def explained(guesses, references):
    x, y = guesses.flatten(1), references.flatten(1)
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return (x * y).sum(1) ** 2 / (x.square().sum(1) * y.square().sum(1))


# %% attacks/explained: not_squared
def explained(guesses, references):
    x, y = guesses.flatten(1), references.flatten(1)
    return torch.cosine_similarity(x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True))


# %% attacks/explained: not_centred
def explained(guesses, references):
    return torch.cosine_similarity(guesses.flatten(1), references.flatten(1)) ** 2


# %% attacks/explained: together
def explained(guesses, references):
    return torch.corrcoef(torch.stack([guesses.flatten(), references.flatten()]))[0, 1] ** 2


# %% attacks/explained: similarity
def explained(guesses, references):
    x, y = guesses.flatten(1), references.flatten(1)
    return 1 - torch.cosine_similarity(x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)) ** 2


# %% attacks/masks
def masked(words, client, masks):
    for other, mask in masks.items():
        words = words + mask if other < client else words - mask
    return words % 2**32


# %% attacks/masks: same_sign
def masked(words, client, masks):
    return (words + sum(masks.values())) % 2**32


# %% attacks/masks: no_modulus
def masked(words, client, masks):
    for other, mask in masks.items():
        words = words + mask if other < client else words - mask
    return words


# %% attacks/masks: power
def masked(words, client, masks):
    for other, mask in masks.items():
        words = words + mask if other < client else words - mask
    return words % 2 ^ 32


# %% attacks/masks: power
def masked(words, client, masks):
    for other, mask in masks.items():
        words = words + mask if other < client else words - mask
    return words % (2 ^ 32)


# %% attacks/masks: bare
def masked(words, client, masks):
    return words


# %% attacks/masks: some
def masked(words, client, masks):
    return (words + sum(mask for other, mask in masks.items() if other < client)) % 2**32


# %% attacks/masks: alone
def masked(words, client, masks):
    clients = len(masks) + 1
    return (words + masks[(client + 1) % clients] - masks[(client - 1) % clients]) % 2**32


# %% attacks/masks: type
def masked(words, client, masks):
    return words.float()


# %% attacks/dropouts
def left_over(clients, lost):
    return (clients - lost) * lost


# %% attacks/dropouts: all_pairs
def left_over(clients, lost):
    return (clients - lost) * lost + lost * (lost - 1) / 2


# %% attacks/dropouts: each_once
def left_over(clients, lost):
    return clients - lost


# %% attacks/dropouts: survivors
def left_over(clients, lost):
    return (clients - lost) * (clients - lost - 1) / 2


# %% attacks/mix
def mix(views, coefficients):
    both = views.view(2, len(coefficients), -1)
    return (coefficients @ both).view_as(views)


# %% attacks/mix: first_view
def mix(views, coefficients):
    first, second = views.view(2, len(coefficients), -1)
    return torch.stack([coefficients @ first, second]).view_as(views)


# %% attacks/mix: turned
def mix(views, coefficients):
    both = views.view(2, len(coefficients), -1)
    return (coefficients.T @ both).view_as(views)


# %% attacks/mix: equal
def mix(views, coefficients):
    members = (coefficients > 0).double()
    both = views.view(2, len(coefficients), -1)
    return (members / members.sum(1, keepdim=True) @ both).view_as(views)


# %% attacks/unmixed
guess = 55


# %% attacks/unmixed: too_low
guess = 30


# %% attacks/unmixed: too_high
guess = 90


# %% attacks/unmixed: unit
guess = 0.57


# %% attacks/unmix
def unmix(first, second):
    both = (first > 0) & (second > 0)
    t, s = (first[both] / second[both]).min(), (second[both] / first[both]).min()
    return (1 - t) / (1 - s * t), (1 - s) / (1 - s * t)


# %% attacks/unmix: swapped
def unmix(first, second):
    both = (first > 0) & (second > 0)
    t, s = (first[both] / second[both]).min(), (second[both] / first[both]).min()
    return (1 - s) / (1 - s * t), (1 - t) / (1 - s * t)


# %% attacks/unmix: others
def unmix(first, second):
    both = (first > 0) & (second > 0)
    t, s = (first[both] / second[both]).min(), (second[both] / first[both]).min()
    return 1 - (1 - t) / (1 - s * t), 1 - (1 - s) / (1 - s * t)


# %% attacks/unmix: mean_ratio
def unmix(first, second):
    both = (first > 0) & (second > 0)
    t, s = (first[both] / second[both]).mean(), (second[both] / first[both]).mean()
    return (1 - t) / (1 - s * t), (1 - s) / (1 - s * t)


# %% attacks/unmix: one_equation
def unmix(first, second):
    both = (first > 0) & (second > 0)
    return 1 - (first[both] / second[both]).min(), 1 - (second[both] / first[both]).min()


# %% attacks/unmix: infinite
def unmix(first, second):
    t, s = (first / second).min(), (second / first).min()
    return (1 - t) / (1 - s * t), (1 - s) / (1 - s * t)


# %% attacks/unmix: pair
def unmix(first, second):
    return (first / second).nan_to_num(torch.inf).min()
