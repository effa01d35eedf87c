"""Federated averaging as a Flower app (https://flower.ai): the same engine, with clients on machines of their own.

=============  ==============================================================================
``agreement``  settings from a run's configuration, and what server and clients have to share
``client``     the ClientApp: one client's local training
``replies``    what a client answers, checked before it is used
``strategy``   the Strategy: who takes part, aggregation, the record of a round
``server``     the ServerApp: wait for the clients, train, store
=============  ==============================================================================

``examples/flower`` is the folder that ``flwr run`` takes. Flower carries the models and starts the processes; what is
computed is what :class:`~fssl_core.training.averaging.AveragingTrainer` computes, which both sides make from the same
settings. Flower ends a client's process after each message, so what a client keeps between rounds (target branch,
queue, own model, momentum) lies in Flower's ``context.state``: in the memory of its SuperNode, as long as that runs.
"""

from fssl_core.errors import FsslError

try:
    import flwr  # noqa: F401
except ImportError as error:
    raise FsslError("A Flower app needs Flower: pip install 'fssl-core[flower]'.") from error
