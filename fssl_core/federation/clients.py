"""A federation is a matrix: every client's model is a row of one contiguous buffer.

The buffer is stored block by block: first the first parameter of all clients, then the second of all clients, and so
on, so that each parameter's ``[clients, *shape]`` block is contiguous and a module can use it as it is, without a
copy. What a federation does then becomes a few operations on the buffer: an exponential moving average is one
``lerp_``, SGD is one fused optimiser step on one parameter, an average over clients is a mean over rows.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fssl_core.settings import check_choice, check_range

if TYPE_CHECKING:
    from fssl_core.federation.rows import Rows


class ClientMatrix:
    """The models of all clients: one row a client, one column a value of the model's state.

    Args:
        model: an ordinary module. Every row starts as a copy of its state, so all clients begin equal.
            Its buffers must be floating point, as those of :mod:`fssl_core.models.layers` are.
        clients: number of rows, at least 1.

    Attributes:
        weights: all parameters, ``[clients * parameters]``: a leaf for an optimiser. Its ``grad`` is where
            :meth:`module` puts the gradients.
        blocks: by name, parameters first, the state of all clients ``[clients, *shape]``. Those of parameters are
            views of ``weights``; a buffer (batch norm's statistics) has memory of its own, because autograd would
            take its update during a forward pass for a change of the weights.
        parameter_names: of these blocks, the names of those that are parameters.
        elements: numbers in one client's state (parameters and buffers): what one client sends at a synchronisation.
    """

    def __init__(self, model: nn.Module, clients: int) -> None:
        check_range("clients", clients, 1)
        state = model.state_dict()
        self._shapes = shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        like = next(iter(state.values()))
        self.clients = clients
        self.elements = sum(value.numel() for value in state.values())
        self.parameters = sum(shape.numel() for shape in shapes.values())
        self.weights = nn.Parameter(
            torch.empty(clients * self.parameters, dtype=like.dtype, device=like.device), requires_grad=False
        )
        self.parameter_blocks = self._views_by_name(self.weights.detach())
        self._buffers = {  # contiguous: of one number a clone would keep expand's stride of 0, which cuBLAS refuses
            name: value.expand(clients, *value.shape).clone(memory_format=torch.contiguous_format)
            for name, value in state.items()
            if name not in shapes
        }
        self.blocks = {**self.parameter_blocks, **self._buffers}
        self.parameter_names = list(shapes)
        self._model = model
        self.load_state_dict(state)

    def _views_by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """The ``[rows, *shape]`` blocks of a tensor laid out as the ``weights`` of some rows."""
        rows = len(flat) // self.parameters
        blocks = flat.split([rows * shape.numel() for shape in self._shapes.values()])
        return {name: block.view(rows, *self._shapes[name]) for name, block in zip(self._shapes, blocks, strict=True)}

    def requires_grad_(self) -> "ClientMatrix":
        """Make room for gradients: modules made from now on accumulate theirs into ``weights.grad``."""
        self.weights.requires_grad_()
        self.weights.grad = torch.zeros_like(self.weights)
        return self

    def module(self) -> nn.Module:
        """One module that runs all clients at once, on activations ``[batch, clients * channels, height, width]``.

        Its parameters and buffers are this matrix: what changes in one changes in the other. With a single client
        it is an ordinary module.
        """
        return self.row_module(0) if self.clients == 1 else self._bind(lambda block: block)

    def row_module(self, client: int) -> nn.Module:
        """An ordinary module of one client, on activations ``[batch, channels, height, width]``; views again."""
        return self._bind(lambda block: block[client])

    def row_copy(self, client: int) -> nn.Module:
        """A copy of :meth:`row_module` with tensors of its own, in half the time of its ``deepcopy``."""
        return self._bind(lambda block: block[client].clone())

    def row_modules(self) -> list[nn.Module]:
        """:meth:`row_module` of every client."""
        return [self.row_module(client) for client in range(self.clients)]

    def _bind(self, part: Callable[[Tensor], Tensor]) -> nn.Module:
        """A copy of the model whose parameters, gradients and buffers are ``part`` of the blocks."""
        gradients = {} if self.weights.grad is None else self._views_by_name(self.weights.grad)
        module = _shell(self._model)
        for name, block in self.blocks.items():
            owner_name, _, leaf = name.rpartition(".")
            owner = module.get_submodule(owner_name)
            if name in self.parameter_blocks:
                owner._parameters[leaf] = parameter = nn.Parameter(part(block), requires_grad=name in gradients)
                if name in gradients:
                    parameter.grad = part(gradients[name])
            else:
                owner._buffers[leaf] = part(block)
        return module

    def state_dict(self, client: int | None = None) -> dict[str, Tensor]:
        """A copy of one client's state; with None, of the average over all clients."""
        return {
            name: (block.mean(0) if client is None else block[client]).clone() for name, block in self.blocks.items()
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Give every client the same state."""
        for name, block in self.blocks.items():
            block.copy_(state[name].expand_as(block))

    def select(self, name: str, clients: Sequence[int] | Tensor) -> Tensor:
        """One tensor of the states of some clients, ``[len(clients), *shape]``; a copy."""
        return self.blocks[name][clients]

    def row(self, client: int) -> Tensor:
        """One client's state as a flat tensor, parameters first; a copy."""
        return torch.cat([block[client].reshape(-1) for block in self.blocks.values()])

    @torch.no_grad()
    def load_row(self, client: int, row: Tensor) -> None:
        """Take over what :meth:`row` gave."""
        parts = row.split([block[0].numel() for block in self.blocks.values()])
        for block, part in zip(self.blocks.values(), parts, strict=True):
            block[client] = part.view(block.shape[1:])

    @torch.no_grad()
    def zero_(self) -> None:
        """The parameters of all clients are 0."""
        self.weights.zero_()

    def all_rows(self) -> dict[str, Tensor]:
        """All clients' states as they lie in memory, for a checkpoint; not copies. Of equal states one."""
        if self.clients > 1 and all(_rows_equal(block) for block in self.blocks.values()):
            weights = torch.cat([block[0].reshape(-1) for block in self.parameter_blocks.values()])
            return {"weights": weights} | {name: block[:1] for name, block in self._buffers.items()}
        return {"weights": self.weights.detach(), **self._buffers}

    @torch.no_grad()
    def load_all_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`all_rows` gave, of a matrix of the same model and number of clients."""
        blocks = {**rows, **self._views_by_name(rows["weights"])}  # of one row where all are equal
        for name, block in self.blocks.items():
            block.copy_(blocks[name])

    @torch.no_grad()
    def take(self, source: "ClientMatrix | Rows", rows: Sequence[int] | Tensor) -> None:
        """Fill this matrix with the given rows of another: the clients that take part now."""
        for name, block in self.blocks.items():
            block.copy_(source.select(name, rows))

    @torch.no_grad()
    def put(self, target: "ClientMatrix | Rows", rows: Sequence[int] | Tensor) -> None:
        """Write this matrix back as the given rows of another: the inverse of :meth:`take`."""
        target.replace(rows, self)

    @torch.no_grad()
    def replace(self, clients: Sequence[int] | Tensor, source: "ClientMatrix") -> None:
        """The rows of another matrix are the states of these clients from now on; see :meth:`put`."""
        for name, block in source.blocks.items():
            self.blocks[name][clients] = block

    @torch.no_grad()
    def average_towards_(self, online: "ClientMatrix", decay: float) -> None:
        """Exponential moving average of the parameters: ``self = decay * self + (1 - decay) * online``."""
        self.weights.lerp_(online.weights, 1 - decay)


def _shell(module: nn.Module) -> nn.Module:
    """A copy of a module whose tensors are to be replaced: of the values of its attributes only containers are copied.

    ``deepcopy`` takes several times as long, for tensors that nobody will see.
    """
    copies: dict[nn.Module, nn.Module] = {}  # a module that occurs twice, which named_modules has once, stays one
    for _, original in module.named_modules():
        copies[original] = shell = copy.copy(original)
        for name, value in vars(original).items():
            if isinstance(value, dict | set | list):
                vars(shell)[name] = value.copy()
    for shell in copies.values():
        shell._modules = {name: copies.get(child) for name, child in shell._modules.items()}
    return copies[module]


def forward_stacked(module: nn.Module, images: Tensor) -> Tensor:
    """All clients in one call: every convolution becomes one grouped convolution.

    Args:
        module: from :meth:`ClientMatrix.module`.
        images: ``[clients, batch, channels, height, width]``.

    Returns:
        activations, ``[clients, batch, channels, height, width]``.
    """
    clients = images.shape[0]
    folded = images.transpose(0, 1).flatten(1, 2)  # [batch, clients * channels, H, W]
    return module(folded).unflatten(1, (clients, -1)).transpose(0, 1)


def forward_loop(modules: Sequence[nn.Module], images: Tensor) -> Tensor:
    """One client after the other: the readable reference, same shapes and values as :func:`forward_stacked`."""
    return torch.stack([module(batch) for module, batch in zip(modules, images, strict=True)])


@torch.no_grad()
def keeps_clients_apart(module: nn.Module, images: Tensor) -> bool:
    """Whether two clients give in one call what they give one after the other: no layer looks across channels.

    One that has parameters of its own, and takes the channels of one client only, fails in such a call.

    Args:
        module: of one client.
        images: ``[2, batch, channels, height, width]``, unlike each other.
    """
    forwards = [ClientForward(ClientMatrix(module, 2), backend) for backend in ("stacked", "loop")]
    for forward in forwards:
        forward.train(False)
    apart = forwards[1](images)
    try:
        together = forwards[0](images)
    except (RuntimeError, ValueError):
        return False
    return together.shape == apart.shape and torch.allclose(together, apart, rtol=1e-2, atol=1e-3 * apart.abs().max())


BACKENDS = ("auto", "stacked", "loop")
PIXELS_WORTH_A_CALL = 8192  # measured on a CPU: tests/benchmarks/test_split.py


class ClientForward:
    """Runs the models of a :class:`ClientMatrix` on ``[clients, batch, channels, height, width]``.

    Args:
        matrix: the clients, with room for gradients if there is to be any.
        backend: ``"stacked"`` (:func:`forward_stacked`), ``"loop"`` (:func:`forward_loop`), or ``"auto"``: on a CPU a
            loop where each client has more than ``PIXELS_WORTH_A_CALL`` pixels (images x height x width), enough to
            hide the overhead of a call; otherwise, and always on a GPU, stacked.
    """

    def __init__(self, matrix: ClientMatrix, backend: str = "auto") -> None:
        check_choice("backend", backend, BACKENDS)
        self.backend = backend
        self._matrix = matrix
        self._modules: dict[str, list[nn.Module]] = {}  # made when first needed
        self.training = True  # the mode of every module; change it by train()

    def chosen(self, images: Tensor) -> str:
        """The backend for these images: ``"stacked"`` or ``"loop"``."""
        if self.backend != "auto":
            return self.backend
        pixels = images[0, :, 0].numel()  # of one client
        return "loop" if images.device.type == "cpu" and pixels > PIXELS_WORTH_A_CALL else "stacked"

    def __call__(self, images: Tensor) -> Tensor:
        backend = self.chosen(images)
        if backend not in self._modules:
            modules = [self._matrix.module()] if backend == "stacked" else self._matrix.row_modules()
            self._modules[backend] = [module.train(self.training) for module in modules]
        modules = self._modules[backend]
        if backend == "loop":
            return forward_loop(modules, images)
        if len(images) == 1:  # a single client is an ordinary module
            return modules[0](images[0])[None]
        return forward_stacked(modules[0], images)

    def train(self, mode: bool = True) -> None:
        """Training or evaluation mode of every module."""
        self.training = mode
        for modules in self._modules.values():
            for module in modules:
                module.train(mode)


def _rows_equal(block: Tensor) -> bool:
    """Whether all rows have the same bits: neither is -0.0 equal to 0.0, nor a NaN different from itself."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[block.element_size()]
    bits = block.view(integers)
    return torch.equal(bits[1:], bits[:1].expand_as(bits[1:]))


@torch.no_grad()
def misalignment(
    online: "ClientMatrix | Rows", momentum: "ClientMatrix | Rows", clients: Tensor | None = None
) -> Tensor:
    """Sum over clients and parameters of ``|online - momentum|``: Eq. 2 of MonAcoSFL, before its division.

    Args:
        online, momentum: of the same model.
        clients: the rows to count; None for all those of matrices.

    Returns:
        a scalar; divide by clients x parameters for the mean of Eq. 2.
    """
    if clients is None:
        return (online.weights - momentum.weights).abs_().sum()
    gaps = ((online.select(name, clients) - momentum.select(name, clients)) for name in online.parameter_names)
    return sum(gap.abs().sum() for gap in gaps)


@torch.no_grad()
def divergence(matrix: ClientMatrix) -> Tensor:
    """How far clients are from their average, layer by layer: the inner sums of Eq. 4 of MocoSFL.

    Returns:
        ``[parameter tensors]``: for each, the L2 distance of a client to the average client, averaged over clients,
        in the order of ``parameter_blocks``. Their sum is one synchronisation's term of Eq. 4.
    """
    distances = []
    for block in matrix.parameter_blocks.values():
        rows = block.flatten(1)  # [clients, numbers]
        distances.append((rows - rows.mean(0)).norm(dim=1).mean())
    return torch.stack(distances)
