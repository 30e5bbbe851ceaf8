"""One program on two hosts: two processes of this computer, which compute one gradient together."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_hosts_compute_one_gradient():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    environment = os.environ | {
        **{"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    }
    command = [sys.executable, "-m", "kernels.lessons.hosts", coordinator, "2"]
    hosts = []
    try:
        for host in "01":
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            hosts.append(subprocess.Popen([*command, host], env=environment, **pipes))
        heard = set()
        while hosts[0].poll() is None:
            with contextlib.suppress(psutil.Error):
                heard |= {c.laddr.ip for c in psutil.Process(hosts[0].pid).net_connections()}
            time.sleep(0.05)
        assert heard and heard <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, "others may listen in"
        for number, host in enumerate(hosts):
            said, complaint = host.communicate(timeout=120)
            assert host.returncode == 0, complaint
            assert f"host {number} of 2: 2 of 4 devices, " in said  # those of the other count
            off, largest = map(float, re.search(r"most (\S+) of (\S+)\n", said).groups())
            # Without the other host's examples it would be off by more than a tenth.
            assert largest > 50 and off <= 1e-5 * largest
    finally:
        for host in hosts:
            host.kill()
            host.wait()
