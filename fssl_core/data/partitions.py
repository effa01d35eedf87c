"""How a training set is divided among clients, and how unlike one another that makes them.

Schemes:

- ``"iid"``: equal shares of the shuffled set.
- ``"classes:k"``: every client holds exactly k classes; a class is divided equally among its clients.
- ``"one-class"``: ``"classes:1"``.
- ``"dirichlet:alpha"``: each class is divided in proportions drawn from a symmetric Dirichlet distribution (Hsu et al.,
  "Measuring the Effects of Non-Identical Data Distribution", 2019); small alpha, unlike clients.
- ``"dirichlet:alpha:least"``: the same, drawn again until every client has so many images; ``least`` is 1 above.
- ``"dirichlet-equal:alpha"``: equally many images for every client, whose class shares are a draw of the distribution
  (Hsu et al., likewise). In random order, clients draw the class of each image by their shares, among the classes of
  which images are left, or by how many are left where they want none of those.
- ``"majority:share"``: of the first classes, as many as clients, client i holds this share of class i, and the others
  have equal parts of the rest of it; images of further classes go to nobody. With equally frequent classes this is the
  bias sigma of Wang et al., "Optimizing Federated Learning on Non-IID Data with Reinforcement Learning", 2020, and with
  two clients and 0.99 the extreme imbalance of MFCL, Figure 4.
- ``"part:i/n:scheme"``: for one client, who trains alone, what client i of n (from 0) has under another scheme.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fssl_core.errors import SettingError
from fssl_core.random import generator
from fssl_core.settings import checked, did_you_mean

SCHEMES = "iid, classes:k, dirichlet:alpha, dirichlet:alpha:least, dirichlet-equal:alpha, majority:share, one-class"
SCHEMES += ", part:i/n:scheme"
WITHOUT_ARGUMENT, KINDS = ("iid", "one-class"), ("classes", "dirichlet", "dirichlet-equal", "majority", "part")
DIRICHLET = ("dirichlet", "dirichlet-equal")
DIRICHLET_DRAWS = 1000  # at most, until every client has enough images
SWEEPS = 3  # over the classes, to even out the sizes of clients; two were enough wherever we looked


@dataclass(frozen=True)
class Scheme:
    """A scheme in its parts; as text it is written in one way, without loss: ``"dirichlet:0.1"``.

    Args:
        kind: what stands before the first colon.
        number: k, alpha or share; None where the kind has none.
        least: images of each client, of ``"dirichlet"``.
    """

    kind: str
    number: float | None = None
    least: int = 1

    def __str__(self) -> str:
        number = "" if self.number is None else f":{self.number!r}".removesuffix(".0")
        return f"{self.kind}{number}" + (f":{self.least}" if self.least > 1 else "")


def partition(labels: Tensor, clients: int, scheme: str, seed: int) -> list[Tensor]:
    """Divide a set among clients; every image goes to one client, unless the scheme says otherwise, and none to two.

    No client stays empty.

    Args:
        labels: class of each image, int ``[N]``.
        clients: number of clients, from 1 to N.
        scheme: see the module's description.
        seed: equal arguments and seed give equal partitions.

    Returns:
        For each client the indices of its images, int64, ascending, on the labels' device. Sizes differ by as
        little as the scheme allows.

    Raises:
        SettingError: the scheme is unknown or cannot be met with these labels and clients, or an argument is of another
            kind.
    """
    clients, scheme = checked("clients", clients, int), checked("partition", scheme, str)
    seed = checked("seed", seed, int)
    if not isinstance(labels, Tensor) or labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        shown = list(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise SettingError("labels", shown, "a tensor of whole numbers, one for each image")
    if not 1 <= clients <= len(labels):
        raise SettingError("clients", clients, f"from 1 to {len(labels)}, the number of images")
    of = parsed(scheme)
    if of.kind == "part":
        return [_part(labels, clients, scheme, seed)]
    draw = generator(seed, "partition")
    device, labels = labels.device, labels.cpu()
    if of.kind == "iid":
        parts = list(torch.randperm(len(labels), generator=draw).tensor_split(clients))
    elif of.kind in ("classes", "one-class"):
        parts = _by_classes(labels, clients, scheme, of.number or 1, draw)
    elif of.kind == "dirichlet":
        parts = _dirichlet(labels, clients, scheme, of.number, of.least, draw)
    elif of.kind == "dirichlet-equal":
        parts = _dirichlet_equal(labels, clients, of.number, draw)
    else:
        parts = _by_majority(labels, clients, scheme, of.number, draw)
    return [part.sort().values.to(device) for part in parts]


def parsed(scheme: str) -> Scheme:
    """The parts of a scheme; of ``"part:..."`` the kind, and the scheme in it is checked.

    Raises:
        SettingError: it is none. Whether one can be met depends on the images.
    """
    kind, _, argument = scheme.partition(":")
    if scheme in WITHOUT_ARGUMENT:
        return Scheme(kind)
    if kind not in KINDS:
        raise SettingError("partition", scheme, f"one of {SCHEMES}{did_you_mean(kind, (*WITHOUT_ARGUMENT, *KINDS))}")
    if kind == "part":
        parsed(_part_of(scheme)[-1])
        return Scheme(kind)
    least = "1"
    if kind == "dirichlet" and ":" in argument:
        argument, _, least = argument.partition(":")
    return Scheme(kind, _number(scheme, argument, int if kind == "classes" else float), _number(scheme, least, int))


def _part_of(scheme: str) -> tuple[int, int, str]:
    """i, n and the scheme of ``"part:i/n:scheme"``."""
    _, which, *rest = scheme.split(":", 2)
    try:
        place, of = map(int, which.split("/"))
    except ValueError:  # not two of them, no numbers, or too long for one
        place = of = 0
    if not (rest and 0 <= place < of) or rest[0].startswith("part:"):
        raise SettingError("partition", scheme, "part:i/n:scheme with i from 0 to n - 1, as in part:0/10:classes:2")
    return place, of, rest[0]


def _part(labels: Tensor, clients: int, scheme: str, seed: int) -> Tensor:
    """The images of one client of another federation."""
    place, of, inner = _part_of(scheme)
    if clients != 1:
        raise SettingError("clients", clients, f"1 for {scheme!r}: one client alone")
    return partition(labels, of, inner, seed)[place]


def _number(scheme: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        word = "a whole number" if kind is int else "a number"
        raise SettingError("partition", scheme, f"{word} above 0 after the colon, as in classes:2 or dirichlet:0.1")
    return value


def _members(labels: Tensor, draw: torch.Generator) -> list[Tensor]:
    """The shuffled images of each class that occurs."""
    order = torch.randperm(len(labels), generator=draw)
    by_class = order[labels[order].argsort(stable=True)]
    return list(by_class.split(labels.unique(return_counts=True)[1].tolist()))


def _by_classes(labels: Tensor, clients: int, scheme: str, k: int, draw: torch.Generator) -> list[Tensor]:
    members = _members(labels, draw)
    classes = len(members)
    if k > classes:
        raise SettingError("partition", scheme, f"at most {classes} classes a client, as many as the set has")
    shares, more = divmod(clients * k, classes)  # clients of each class; of some classes one more
    if shares == 0:
        expected = f"at least {-(-classes // k)}, so that each of the {classes} classes has a client (for {scheme!r})"
        raise SettingError("clients", clients, expected)
    fewest = min(len(images) for images in members)
    if fewest < shares + (more > 0):
        expected = f"at most {fewest * classes // k}: the smallest class has {fewest} images (for {scheme!r})"
        raise SettingError("clients", clients, expected)

    # Each client takes the k classes with the most shares left, ties at random. Shares left then never differ by
    # more than one between classes, so the shares always last and no client needs a class twice.
    left = torch.full((classes,), float(shares))
    if more:
        left[torch.randperm(classes, generator=draw)[:more]] += 1
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in torch.randperm(clients, generator=draw).tolist():
        drawn = (left + torch.rand(classes, generator=draw)).topk(k).indices
        left[drawn] -= 1
        for label in drawn.tolist():
            holders[label].append(client)

    # tensor_split makes its first pieces one image larger: they go to the clients that hold the fewest other images.
    pieces = [images.tensor_split(len(chosen)) for images, chosen in zip(members, holders, strict=True)]
    sizes = [0] * clients
    for sweep in range(SWEEPS):
        for class_pieces, chosen in zip(pieces, holders, strict=True):
            if sweep:
                for client, piece in zip(chosen, class_pieces, strict=True):
                    sizes[client] -= len(piece)
            chosen.sort(key=sizes.__getitem__)
            for client, piece in zip(chosen, class_pieces, strict=True):
                sizes[client] += len(piece)

    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for class_pieces, chosen in zip(pieces, holders, strict=True):
        for client, piece in zip(chosen, class_pieces, strict=True):
            parts[client].append(piece)
    return [torch.cat(part) for part in parts]


def _dirichlet(
    labels: Tensor, clients: int, scheme: str, alpha: float, least: int, draw: torch.Generator
) -> list[Tensor]:
    if least * clients > len(labels):
        expected = f"at most {len(labels) // clients} images for each of {clients} clients, of {len(labels):,} in all"
        raise SettingError("partition", scheme, expected)
    members = _members(labels, draw)
    counts = np.array([len(images) for images in members])
    numbers = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
    for _ in range(DIRICHLET_DRAWS):
        shares = numbers.dirichlet(np.full(clients, alpha), size=len(members))  # [classes, clients]
        ends = (shares.cumsum(axis=1) * counts[:, None]).round().astype(int)[:, :-1]  # [classes, clients - 1]
        if (np.diff(ends, axis=1, prepend=0, append=counts[:, None]).sum(axis=0) >= least).all():
            pieces = [images.tensor_split(end.tolist()) for images, end in zip(members, ends, strict=True)]
            return [torch.cat(client) for client in zip(*pieces, strict=True)]
    images = f"{least} images" if least > 1 else "an image"
    expected = f"a larger alpha or fewer clients: no draw of {DIRICHLET_DRAWS} gave each of {clients} clients {images}"
    raise SettingError("partition", scheme, expected)


def _dirichlet_equal(labels: Tensor, clients: int, alpha: float, draw: torch.Generator) -> list[Tensor]:
    members = _members(labels, draw)
    left = np.array([len(images) for images in members])
    numbers = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
    shares = numbers.dirichlet(np.full(len(members), alpha), size=clients)  # [clients, classes]
    sizes = [len(piece) for piece in torch.empty(len(labels)).tensor_split(clients)]
    counts = np.zeros(shares.shape, dtype=int)
    for client, size in zip(numbers.permutation(clients), sizes, strict=True):
        while missing := size - counts[client].sum():
            preferences = shares[client] * (left > 0)
            odds = preferences if preferences.sum() > 0 else left
            drawn = np.minimum(numbers.multinomial(missing, odds / odds.sum()), left)  # the rest is drawn again
            counts[client] += drawn
            left -= drawn
    pieces = [images.split(column.tolist()) for images, column in zip(members, counts.T, strict=True)]
    return [torch.cat(client) for client in zip(*pieces, strict=True)]


def _by_majority(labels: Tensor, clients: int, scheme: str, share: float, draw: torch.Generator) -> list[Tensor]:
    members = _members(labels, draw)
    if not 2 <= clients <= len(members):
        raise SettingError("clients", clients, f"from 2 to {len(members)}, a class for each (for {scheme!r})")
    if not 1 / clients <= share <= 1:
        raise SettingError("partition", scheme, f"a share from 1 / {clients} to 1: its own class is a client's largest")
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for client, images in enumerate(members[:clients]):
        kept = max(1, round(share * len(images)))
        parts[client].append(images[:kept])
        for step, piece in enumerate(images[kept:].tensor_split(clients - 1), start=1):
            parts[(client + step) % clients].append(piece)
    return [torch.cat(part) for part in parts]


def class_counts(labels: Tensor, parts: list[Tensor], classes: int) -> Tensor:
    """How many images of each class each client holds: int64 ``[clients, classes]``, on the CPU."""
    return torch.stack([labels[part].bincount(minlength=classes) for part in parts]).cpu()


def heterogeneity(labels: Tensor, parts: list[Tensor]) -> float:
    """How unlike the whole set the clients are: 0 when each has its class frequencies, towards 1 as they share none.

    The mean over clients of the total variation distance ``1/2 * sum_c |p_client(c) - p(c)|`` between the client's
    class frequencies and those of all clients together. With k of K equally frequent classes per client: 1 - k/K.

    Args:
        labels: int64 ``[N]`` of all images.
        parts: indices of the images that each client holds, int64 ``[n]``.

    Raises:
        SettingError: a client is empty, so that it has no frequencies.
    """
    counts = class_counts(labels, parts, int(labels.max()) + 1).double()
    if (counts.sum(1) == 0).any():
        raise SettingError("parts", [len(part) for part in parts], "at least one image per client")
    together = counts.sum(0) / counts.sum()
    return ((counts / counts.sum(1, keepdim=True) - together).abs().sum(1) / 2).mean().item()
