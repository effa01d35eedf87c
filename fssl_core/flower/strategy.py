"""The Strategy: the engine's choice of clients, its table of weights, its record of a round.

A client that has not answered within the timeout, or whose process or SuperNode is gone, is dropped for good with a
line on stderr; steps and averages go on with the others. One that reports an error, or whose reply cannot be used
(another shape, values that are not finite, another number of images than it has joined with), is left out of that round
with a line on stderr, and asked again in the next ones. Where nobody's reply can be used the run ends, and so it does
where fewer can than a robust rule needs: with ``krum`` and five clients one bad reply is enough.
"""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from fssl_core.errors import FsslError
from fssl_core.federation.clients import ClientMatrix
from fssl_core.flower.replies import ReplyError, read_training
from fssl_core.notices import notice, printable, say
from fssl_core.training.averaging import AveragingTrainer

RAISED = (1, 2)  # Flower's codes of an app that cannot be loaded, and of one that raised an error


class AveragingStrategy(Strategy):
    """The server's part of federated averaging, whatever the rule of aggregation.

    Args:
        trainer: has the global model, and afterwards the metrics and tables of the run.
        nodes: by client, its Flower node: see :func:`fssl_core.flower.server.admit`.

    Attributes:
        lost: by client, the round in which it was lost.
        refused: by client, the rounds in which its reply was not used.
    """

    def __init__(self, trainer: AveragingTrainer, nodes: dict[int, int]) -> None:
        self.trainer = trainer
        self.nodes = dict(nodes)
        self.lost: dict[int, int] = {}
        self.refused: dict[int, list[int]] = {}
        self._asked: list[int] = []  # clients of this round, in the order in which they were drawn

    def summary(self) -> None:
        """One line before the first round."""
        s = self.trainer.settings
        notice(f"{s.method} with {s.objective.name}: {s.rounds} rounds, {s.sampled} of {s.clients} clients in each")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The global model to the clients that the engine draws; where all of these are lost, to all that are left."""
        trainer = self.trainer
        drawn = trainer.settings.taking_part(trainer.finished).tolist()
        self._asked = [client for client in drawn if client in self.nodes] or sorted(self.nodes)
        for client in self._asked:
            for block in trainer.downloads(client):
                trainer.ledger.send(block, "parameters", "down", torch.tensor([client]))
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "server-round": server_round})})
        return [Message(content, self.nodes[client], MessageType.TRAIN) for client in self._asked]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """The new global model, and the engine's figures of the round with the kNN accuracy.

        Raises:
            FsslError: no client's reply can be used.
        """
        trainer, answers = self.trainer, self._answers(server_round, replies)
        trainer.trained = ClientMatrix(trainer.global_model(), len(answers))
        for place, (client, (state, figures)) in enumerate(answers.items()):
            trainer.trained.row_module(place).load_state_dict(state)
            trainer.rows.append(figures)
            for block in trainer.uploads(client):
                trainer.ledger.send(block, "parameters", "up", torch.tensor([client]))
        trainer.close_round(torch.tensor(list(answers)))
        return ArrayRecord(trainer.shared.state_dict(0)), MetricRecord(trainer.metrics[-1])

    def _answers(self, server_round: int, replies: Iterable[Message]) -> dict[int, tuple[dict[str, Tensor], dict]]:
        """By client, in the order in which they were asked, models and figures of those whose reply can be used."""
        clients = {self.nodes[client]: client for client in self._asked}
        due = self.trainer.shared.state_dict(0)
        used: dict[int, tuple[dict[str, Tensor], dict]] = {}
        problems: dict[int, str] = {}
        for reply in replies:
            client = clients.pop(reply.metadata.src_node_id, None)  # one reply counts
            if client is None:
                continue
            if reply.has_error() and reply.error.code not in RAISED:
                clients[reply.metadata.src_node_id] = client  # it has not answered
            elif reply.has_error():
                problems[client] = f"Client {client} failed in round {server_round}: {printable(reply.error.reason)}"
            else:
                try:
                    used[client] = read_training(reply.content, due, int(self.trainer.images[client]))
                except ReplyError as error:
                    problems[client] = f"The reply of client {client} in round {server_round} cannot be used: {error}."
        for client in clients.values():
            self.lost[client] = server_round
            del self.nodes[client]
            notice(f"client {client} is lost in round {server_round}: it is gone, or did not answer in time.")
        for client, problem in problems.items():
            self.refused.setdefault(client, []).append(server_round)
            say(f"{problem} The round goes on without it.")
        if not used:
            why = " ".join(["", *problems.values()])
            raise FsslError(f"No client answered in round {server_round}; the training cannot go on.{why}")
        return {client: used[client] for client in self._asked if client in used}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked: the server has evaluated."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        """Nothing to do."""
