"""Split federated MoCo as one would write it first: a list of modules, an optimiser each, loops. The oracle."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class PlainSplit:
    """Client modules, their momentum copies, and a server; nothing shared with the engine but the layers.

    Args:
        client, server: ordinary modules, copied.
        clients: how many clients there are.
        settings: a ``SplitSettings``.
        size: images in a client's batch.
    """

    def __init__(self, client, server, clients, settings):
        self.s = settings
        self.online = [copy.deepcopy(client).requires_grad_() for _ in range(clients)]
        self.momentum = [copy.deepcopy(client) for _ in range(clients)]
        self.server, self.momentum_server = copy.deepcopy(server).requires_grad_(), copy.deepcopy(server)
        rate = settings.learning_rate if settings.client_learning_rate is None else settings.client_learning_rate
        options = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
        self.optimizers = [torch.optim.SGD(model.parameters(), lr=rate, **options) for model in self.online]
        self.server_optimizer = torch.optim.SGD(self.server.parameters(), lr=settings.learning_rate, **options)
        self.queue = []
        self.server_steps = 0

    @staticmethod
    @torch.no_grad()
    def ema(momentum: nn.Module, online: nn.Module, decay: float) -> None:
        for old, new in zip(momentum.parameters(), online.parameters(), strict=True):
            old.copy_(decay * old + (1 - decay) * new)

    def step(self, views1, views2, sampled):
        """``views1[i]``, ``views2[i]``: the two views of the batch of client ``sampled[i]``, ``[b, C, H, W]``."""
        s = self.s
        for i in sampled:
            self.ema(self.momentum[i], self.online[i], s.ema_decay)
        self.ema(self.momentum_server, self.server, s.ema_decay)
        if s.symmetric and s.swap_at != "client":
            return self.swapped_step(views1, views2, sampled)
        activations, momentum_activations = [], []
        for i, v1, v2 in zip(sampled, views1, views2, strict=True):
            queries, keys = (torch.cat([v1, v2]), torch.cat([v2, v1])) if s.symmetric else (v1, v2)
            activations.append(self.online[i](queries))
            with torch.no_grad():
                momentum_activations.append(self.momentum[i](keys))
        queries = F.normalize(self.server(torch.cat(activations)), dim=1)
        with torch.no_grad():
            keys = F.normalize(self.momentum_server(torch.cat(momentum_activations)), dim=1)
        loss = self.loss(queries, keys)
        for optimizer in [*self.optimizers, self.server_optimizer]:
            optimizer.zero_grad()
        loss.backward()
        for i in sampled:
            self.optimizers[i].step()
        self.server_optimizer.step()
        self.server_steps += 1
        self.push(keys)
        return loss.item()

    def swapped_step(self, views1, views2, sampled):
        """As in MocoSFL's code: one view through either model of a client, swapped at the server."""
        online = torch.cat([self.online[i](view) for i, view in zip(sampled, views1, strict=True)])
        with torch.no_grad():
            momentum = torch.cat([self.momentum[i](view) for i, view in zip(sampled, views2, strict=True)])
        received = online.detach().requires_grad_()  # what crosses the network has no graph
        losses, keys = [], []
        for query, key in ((received, momentum), (momentum, received)):
            with torch.no_grad():
                keys.append(F.normalize(self.momentum_server(key), dim=1))
            losses.append(self.loss(F.normalize(self.server(query), dim=1), keys[-1]))
        loss = sum(losses) if self.s.swap_at == "server-sum" else sum(losses) / 2
        for optimizer in [*self.optimizers, self.server_optimizer]:
            optimizer.zero_grad()
        loss.backward()
        online.backward(received.grad)
        for i in sampled:
            self.optimizers[i].step()
        self.server_optimizer.step()
        self.push(torch.cat(keys[::-1]))
        return loss.item()

    def loss(self, queries, keys):
        """Eq. 1, literally."""
        loss = 0.0
        for query, key in zip(queries, keys, strict=True):
            positive = torch.exp(query @ key / self.s.temperature)
            negative = sum(torch.exp(query @ other / self.s.temperature) for other in self.queue)
            loss = loss - torch.log(positive / (positive + negative))
        return loss / len(queries)

    def push(self, keys):
        self.queue = (self.queue + list(keys))[-self.s.queue_size :]

    @torch.no_grad()
    def synchronise(self, sampled):
        groups = [self.online] + ([self.momentum] if self.s.method == "MonAcoSFL" else [])
        for models in groups:
            states = [models[i].state_dict() for i in sampled]
            mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
            for model in models:
                model.load_state_dict(mean)
