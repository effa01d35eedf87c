"""Kernels that are forked from a warm Python, where there is one: a provisioner of Jupyter's."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from fssl_core.experiments.warm import fork

NAME = "fssl-forked"


class ForkedProvisioner(LocalProvisioner):
    """Starts this Python's kernels by a fork, and any other kernel as it would start anyway."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> dict[str, Any]:
        process = None
        if cmd[0] == sys.executable and "env" in kwargs:
            output = {name: kwargs.get(name) for name in ("stdout", "stderr")}
            process = fork(cmd[1:], kwargs["env"], folder=kwargs.get("cwd"), **output)
        if process is None:
            return await super().launch_kernel(cmd, **kwargs)
        self.process, self.pid, self.pgid = process, process.pid, process.pid
        self.cwd = kwargs.get("cwd", Path.cwd())
        return self.connection_info


def use_forked_kernels() -> None:
    """In this process, for kernel specs that name no provisioner of their own."""
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:{ForkedProvisioner.__name__}", factory.GROUP_NAME)
    factory.default_provisioner_name = NAME
