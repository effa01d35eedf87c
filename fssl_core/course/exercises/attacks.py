"""Module 9: inversion, secure aggregation, DataMix."""

import torch

from fssl_core.course.exercise import Wrong, as_tensor, compare, exercise, parts, prediction, whole_number
from fssl_core.privacy.datamix import datamix, mixing_coefficients
from fssl_core.privacy.image_quality import explained as explained_share
from fssl_core.privacy.matching import representation_error

MODULUS = 2**32  # of secure aggregation's words


@prediction(
    "attacks/unmixed",
    record=("mfcl/table8", "laptop"),
    unit="dB",
    within=10,
    too_low="The attacker who does not know of the mixing gets 23 dB. This one has solved for both unknown "
    "coefficients, and then attacks as if nothing had been mixed.",
    too_high="That would be nearly a copy to the last bit: the search stops before.",
)
def unmixed(record) -> float:
    """PSNR of the views where DataMix is undone first."""
    return record[(record["part"] == "views") & (record["attack"] == "C1D1 unmixed")]["psnr"].mean()


@exercise(
    "attacks/step",
    away="The error rises: go against the gradient.",
    not_clamped="Pixels outside [0, 1] are no image: put them back after the step.",
    not_relative="Divide the squared difference of an image by the squared norm of what was sent, as the formula says.",
    mean="You step along the gradient of the mean over the images: the more images, the shorter the step of each. "
    "Each image is searched by itself: take the sum.",
)
def step(answer, generator) -> None:
    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    weights, wanted, images = draw(12, 20) - 0.3, draw(3, 12), draw(3, 12)
    images[0] = images[0].round()  # on the border already
    rate = 0.5

    def represent(pixels):
        return (pixels @ weights).relu()

    sent = represent(wanted)

    def stepped(error, way: float = -1.0) -> torch.Tensor:
        start = images.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(error(represent(start)), start)
        return images + way * rate * gradient

    def total(found: torch.Tensor) -> torch.Tensor:
        return representation_error(found[None], sent[None]).sum()

    compare(
        answer(represent, sent, images, rate),
        stepped(total).clamp(0, 1),
        not_clamped=stepped(total),
        away=stepped(total, 1.0).clamp(0, 1),
        not_relative=stepped(lambda found: (found - sent).square().sum()).clamp(0, 1),
        mean=stepped(lambda found: total(found) / len(found)).clamp(0, 1),
    )


@exercise(
    "attacks/explained",
    not_squared="That is the correlation itself: of a negative it is -1. What is worth as much as the picture must "
    "count as much.",
    not_centred="Subtract the mean of each image first, or a grey square explains a lot.",
    together="One number for each image: do not take all images as one long row.",
    similarity="That is how much of the picture is *not* explained.",
)
def explained(answer, generator) -> None:
    images, noise = torch.rand(2, 4, 1, 6, 6, generator=generator, dtype=torch.float64)
    guesses = torch.stack([1 - images[0], images[1] / 2 + 0.3, (images[2] + noise[2]) / 2, noise[3]])
    right = explained_share(guesses, images)
    x, y = guesses.flatten(1), images.flatten(1)
    compare(
        answer(guesses, images),
        right,
        not_squared=torch.cosine_similarity(x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)),
        not_centred=torch.cosine_similarity(x, y).square(),
        together=explained_share(guesses.flatten()[None], images.flatten()[None]).squeeze(),
        similarity=1 - right,
    )


@exercise(
    "attacks/masks",
    same_sign="Everybody adds: nothing cancels. Of two clients with a mask in common one adds and the other subtracts.",
    no_modulus="The sum is right, but what a client sends is not between 0 and 2**32 - 1: take it modulo 2**32.",
    power="In Python a power is `**`: 2 ^ 32 is 34.",
    bare="A client sends its model as it is: the server sees it.",
    some="In the sum a mask is left. Each pair of clients has one: add it on one side, subtract it on the other.",
    alone="The sum is right, but a client sends less than all its masks hide: use the mask with every other client.",
)
def masks(answer, generator) -> None:
    clients, numbers = 4, 6
    words = torch.randint(0, 2**20, (clients, numbers), generator=generator)
    drawn = torch.randint(0, MODULUS, (clients, clients, numbers), generator=generator)
    above = torch.ones(clients, clients, dtype=torch.int64).triu(1)[..., None]  # 1 where m < n
    shared = above * drawn + (above * drawn).transpose(0, 1)  # r_mn = r_nm, and none with oneself
    found = []
    for client in range(clients):
        others = {other: shared[client, other] for other in range(clients) if other != client}
        given = as_tensor(answer(words[client], client, others))
        if given.shape != (numbers,) or given.is_floating_point():
            raise Wrong("type", f"expected {numbers} whole numbers, got {given.dtype} of shape {list(given.shape)}.")
        found.append(given.long())
    sent, total = torch.stack(found), words.sum(0)
    right = words + ((above.transpose(0, 1) - above) * shared).sum(1)
    both = (right, 2 * words - right)  # who subtracts here may add there
    everything = words + shared.sum(1)
    if torch.equal(sent, words):
        raise Wrong("bare")
    if torch.equal(sent % MODULUS, everything % MODULUS):
        raise Wrong("same_sign")
    if any(torch.equal(sent, wrong) for one in both for wrong in (one % (2 ^ 32), one % 2 ^ 32)):
        raise Wrong("power")
    if not torch.equal(sent.sum(0) % MODULUS, total):
        raise Wrong("some")
    if ((sent < 0) | (sent >= MODULUS)).any():
        raise Wrong("no_modulus")
    if not any(torch.equal(sent, one % MODULUS) for one in both):
        raise Wrong("alone")


@exercise(
    "attacks/dropouts",
    all_pairs="You count all masks of the lost clients. Those between two lost clients were sent by nobody.",
    each_once="Every client that is left has a mask in common with every one that was lost.",
    survivors="Masks between two clients that are left cancel.",
)
def dropouts(answer, generator) -> None:
    lost = whole_number(2, 5, generator)
    left = 3 * lost + whole_number(0, 3, generator)
    clients = left + lost
    compare(
        answer(clients, lost),
        float(left * lost),
        all_pairs=float(left * lost + lost * (lost - 1) / 2),
        each_once=float(left),
        survivors=float(left * (left - 1) / 2),
    )


@exercise(
    "attacks/mix",
    first_view="You mixed the first views only, or the second ones in another way. Two views of an image are mixed "
    "alike, or they are no pair any more.",
    turned="Your coefficients run the wrong way: mixture i has row i of the table.",
    equal="You take the mean of the examples that are mixed. The coefficients say how much of each.",
)
def mix(answer, generator) -> None:
    coefficients = mixing_coefficients(6, generator)
    views = torch.rand(12, 3, 2, 2, generator=generator, dtype=torch.float64)  # [2N, c, h, w]
    mixed = datamix(views, coefficients)
    members = (coefficients > 0).double()
    compare(
        answer(views, coefficients),
        mixed,
        first_view=torch.cat([mixed[:6], views[6:]]),
        turned=datamix(views, coefficients.T),
        equal=datamix(views, members / members.sum(1, keepdim=True)),
    )


@exercise(
    "attacks/unmix",
    pair="Return two numbers, a and b.",
    swapped="These are the right numbers, in the other order.",
    others="You have 1 - a and 1 - b, the shares of the other example.",
    mean_ratio="You took a mean of the ratios. Only where one of the examples is zero does the ratio tell the "
    "coefficients: that is the smallest one.",
    one_equation="You took 1 - t and 1 - s. But t = (1 - a) / b: solve both equations together.",
    infinite="A ratio with zero below it, or zero over zero, tells nothing: look where both mixtures are above zero.",
)
def unmix(answer, generator) -> None:
    one, other = torch.randn(2, 400, generator=generator, dtype=torch.float64).relu()  # maps behind a ReLU
    a, b = (0.55 + 0.4 * torch.rand(2, generator=generator, dtype=torch.float64)).tolist()
    first, second = a * one + (1 - a) * other, (1 - b) * one + b * other
    both = (first > 0) & (second > 0)
    t, s = (first[both] / second[both]).min().item(), (second[both] / first[both]).min().item()
    mean_t, mean_s = (first[both] / second[both]).mean().item(), (second[both] / first[both]).mean().item()
    given = torch.stack([as_tensor(part).double() for part in parts(answer(first, second), 2, "pair")])
    if not given.isfinite().all():
        raise Wrong("infinite")
    compare(
        given,
        [a, b],
        tolerance=1e-3,
        swapped=[b, a],
        others=[1 - a, 1 - b],
        one_equation=[1 - t, 1 - s],
        mean_ratio=[(1 - mean_t) / (1 - mean_s * mean_t), (1 - mean_s) / (1 - mean_s * mean_t)],
    )
