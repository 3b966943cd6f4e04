"""Starts MXNet on one node of several: `python -m runners.mxnet.servers WORDS...`.

MXNet's nodes meet at parameter servers: a scheduler on the first node, and on each node a server
beside the worker, which is Python with these words. They end with the worker. MXNet 1.9.1 takes
its part from variables as it is imported. Python 3.6 syntax.
"""

import os
import signal
import subprocess
import sys


def main(words):
    """Run this node's processes; return the worker's exit code."""
    addresses, node = os.environ["DLBENCH_NODES"].split(","), int(os.environ["SLURM_PROCID"])
    common = dict(os.environ, DMLC_PS_ROOT_URI=addresses[0],
                  DMLC_PS_ROOT_PORT=os.environ["DLBENCH_PORT"], DMLC_NODE_HOST=addresses[node],
                  DMLC_NUM_SERVER=str(len(addresses)), DMLC_NUM_WORKER=str(len(addresses)))
    hidden = {name: value for name, value in common.items() if name != "DLBENCH_SECRET"}
    roles = ["server"] + ["scheduler"] * (node == 0)
    helpers = [subprocess.Popen([sys.executable, "-c", "import mxnet"],
                                env=dict(hidden, DMLC_ROLE=role)) for role in roles]
    worker = subprocess.Popen([sys.executable] + words, env=dict(common, DMLC_ROLE="worker"))
    signal.signal(signal.SIGTERM, lambda number, frame: worker.send_signal(number))
    code = worker.wait()
    for helper in helpers:
        helper.kill()
        helper.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
