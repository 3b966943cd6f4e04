"""Several processes, one on each node or for each device of one node.

`tf.distribute.MultiWorkerMirroredStrategy` joins them.
"""

import json
import os

import tensorflow as tf

from runners.protocol import Unsupported

# Strategy -> device -> implementation. TensorFlow's AUTO is a ring through the host's memory, on
# GPUs too: two H100s took 986 ms for a step of AlexNet, 9.1 by MirroredStrategy's NCCL.
COMMUNICATION = {"ring": {"cpu": "RING", "cuda": "RING"}, "nccl": {"cuda": "NCCL"},
                 "multi_worker": {"cpu": "RING", "cuda": "NCCL"}}
joined = {}


def join(task):
    """Return the strategy of all processes. It must be the first that TensorFlow does in each."""
    if task.device == "cpu" and task.devices > task.ranks:
        raise Unsupported("MultiWorkerMirroredStrategy has one CPU device in each process: "
                          "ask for devices: 1 of each node")
    if task.strategy not in joined:
        workers = os.environ["DLBENCH_NODES"].split(",")
        # Nodes share a port; processes of one node have their own.
        if "DLBENCH_PORT" in os.environ:
            workers = [address + ":" + os.environ["DLBENCH_PORT"] for address in workers]
        os.environ["TF_CONFIG"] = json.dumps({
            "cluster": {"worker": workers}, "task": {"type": "worker", "index": task.rank}})
        implementation = getattr(tf.distribute.experimental.CommunicationImplementation,
                                 COMMUNICATION[task.strategy][task.device])
        options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
        joined[task.strategy] = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=options)
    return joined[task.strategy]


def wait_for_all(strategy):
    """Return when all processes have come here: one number goes round."""
    if "wait" not in joined:
        def add():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(()))

        joined["wait"] = tf.function(lambda: strategy.run(add))
    strategy.experimental_local_results(joined["wait"]())[0].numpy()
