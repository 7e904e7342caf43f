"""The processes of a run, numbered by rank, and the variables by which PyTorch and others find each other.

Each machine has one worker. It starts `tasks_per_node` processes of a command, or calls a function once. The
launcher states which machine this is in variables of JAX (`jestlab.models.processes`), and the number of
processes per machine in `TASKS`.

References:
    The variables of `env://` and of torchrun, docs.pytorch.org/docs/stable/elastic/run.html; options of
    torchrun as variables, `torch.distributed.argparse_util.env`; those of Slurm, slurm.schedmd.com/srun.html.
"""

import os
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple

from jestlab.models.processes import Place, place

TASKS = "JESTLAB_TASKS_PER_NODE"
"""Variable of a worker: the number of processes of a command on each machine."""

_OTHERS = re.compile(
    r"MASTER_(ADDR|PORT)|PET_(NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT)|TORCHELASTIC_\w+|ROLE_NAME"
    r"|((LOCAL|NODE|GROUP|ROLE)_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE"
)
"""Names of variables of another launcher, such as a torchrun that started jestlab."""


class Ranks(NamedTuple):
    """The processes of a run, as one of its machines sees them: `tasks` on each, and the machine's place."""

    tasks: int = 1
    place: Place = Place()

    @classmethod
    def of_command(cls) -> "Ranks":
        """Return the processes of a command; without other machines, find a free port."""
        here = place()
        return cls(int(os.environ.get(TASKS) or 1), here if here.port else here._replace(port=_free_port()))

    @property
    def size(self) -> int:
        """Number of processes on all machines."""
        return self.place.size * self.tasks

    def title(self, local: int = 0) -> str:
        """Return a prefix for messages about a process, "rank 3 on n2: "; empty if there is only one."""
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        rank = self.place.number * self.tasks + local
        return f"rank {rank} on {host}: " if self.size > 1 else ""

    def variables(self, local: int, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of this machine's process number `local`; none if it is the only one.

        Args:
            local: Number of the process on this machine.
            inherited: The worker's environment. Its variables of Slurm and JAX that number processes get
                values for this process.
        """
        node, nodes, address, port = map(str, self.place)
        rank, count = str(self.place.number * self.tasks + local), str(self.size)
        numbers = {
            "SLURM_PROCID": rank,
            "SLURM_LOCALID": str(local),
            "SLURM_NODEID": node,
            "SLURM_NTASKS": count,
            "SLURM_NPROCS": count,
            "SLURM_NTASKS_PER_NODE": str(self.tasks),
            "SLURM_NNODES": nodes,
            "JAX_PROCESS_ID": rank,
            "JAX_NUM_PROCESSES": count,
        }
        variables = {name: value for name, value in numbers.items() if name in inherited}
        if self.size == 1:
            return variables
        variables |= {
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "RANK": rank,
            "WORLD_SIZE": count,
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(self.tasks),
            "NODE_RANK": node,
        }
        if self.place.size > 1:
            variables |= {
                "PET_NNODES": nodes,
                "PET_NODE_RANK": node,
                "PET_MASTER_ADDR": address,
                "PET_MASTER_PORT": port,
            }
        return variables


def set_variables() -> None:
    """Replace the variables of another launcher in this process, a worker, by those of its rank."""
    for name in filter(_OTHERS.fullmatch, list(os.environ)):
        del os.environ[name]
    os.environ.update(Ranks(place=place()).variables(0, os.environ))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
