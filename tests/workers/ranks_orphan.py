"""Each rank starts a process in a session of its own, which nobody ends for it."""

import subprocess
import sys

from tests.workers.ranks import Runner as Ranks


class Runner(Ranks):
    def __init__(self, task):
        super().__init__(task)
        subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"], start_new_session=True)
