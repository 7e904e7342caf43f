"""Processes with several devices each, alone or several that compute together."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.ports import free_port

SCRIPT = Path(__file__).with_name("steps_on_devices.py")
ROOT = SCRIPT.parents[3]


def with_devices(count):
    """Return this process's environment, changed so that JAX finds `count` CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return os.environ | {"XLA_FLAGS": flags.strip()}


def start(processes, devices, *arguments):
    """Start `steps_on_devices.py` as processes that compute together, each with a number of devices."""
    started = []
    port = free_port()
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    for number in range(processes):
        environment = with_devices(devices) | {"PYTHONPATH": path.rstrip(os.pathsep)}
        if processes > 1:
            environment |= {
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(processes),
                "JAX_PROCESS_ID": str(number),
            }
        command = [sys.executable, str(SCRIPT), *map(str, arguments)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
    return started
