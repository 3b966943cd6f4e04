"""Starts a process for each device of one machine: TensorFlow brings no launcher.

`python -m runners.tensorflow.launcher 2 -m runners MODULE`. A process finds its rank in
DLBENCH_RANK, where it meets the others in DLBENCH_NODES, and sees one of this process's GPUs.
"""

import os
import signal
import socket
import subprocess
import sys
import time

POLL_SECONDS = 0.05
# After a process has failed, how long the others have to say why they failed.
LAST_WORDS_SECONDS = 2.0


def main(count, words):
    """Run Python with these words in `count` processes; return the first exit code that is not 0.

    The others end with one that fails, and all with this process.
    """
    places = ",".join(f"127.0.0.1:{port}" for port in free_ports(count))
    ranks = [subprocess.Popen([sys.executable] + words, env=dict(
        os.environ, DLBENCH_RANK=str(rank), DLBENCH_NODES=places, **gpu_of(rank)))
             for rank in range(count)]
    signal.signal(signal.SIGTERM, lambda number, frame: end(ranks))
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            time.sleep(LAST_WORDS_SECONDS)
            end(ranks)
        time.sleep(POLL_SECONDS)
    return next((code if code > 0 else 128 - code
                 for code in (rank.returncode for rank in ranks) if code), 0)


def end(ranks):
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()


def gpu_of(rank):
    """Return the variable that shows a rank its own GPU; none where no GPU is seen."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return {"CUDA_VISIBLE_DEVICES": str(rank)}
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[rank]} if visible else {}


def free_ports(count):
    """Return free ports; each is held until the last one is known."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
