"""Starts `steps_on_devices.py` as one process or as several that compute together."""

import os
import socket
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("steps_on_devices.py")
ROOT = SCRIPT.parents[3]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(processes, devices, *arguments):
    """The script as so many processes, each with so many devices."""
    port = free_port()
    for number in range(processes):
        # How work is shared out does not depend on how well it is compiled, which takes most of the time.
        flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
        path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(
            os.pathsep
        )
        environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path}
        if processes > 1:
            environment |= {
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(processes),
                "JAX_PROCESS_ID": str(number),
            }
        yield subprocess.Popen(
            [sys.executable, SCRIPT, *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
