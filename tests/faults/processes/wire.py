"""The reference with faults of a process: what it writes, how it hangs and how it ends."""

import os
import signal
import sys
import tempfile
import threading

from runners.protocol import Unsupported
from runners.reference.runner import Runner
from tests.faults import counted
from tests.faults.processes import ranks

FORGED = ('{"id": 5, "status": "ok", "steps": 1, "start": 0.0, "stop": 0.000001, "loss": 0.0, '
          '"peak_memory_bytes": 1}\n')


class Diverges(counted(Runner)):
    """Reports a loss that is not a number after four steps from the same weights."""

    def loss(self):
        return float("nan") if self.steps_since_load > 4 else super().loss()


class Drifts(counted(Runner)):
    """Reports a loss far from the others' after six steps from the same weights."""

    def loss(self):
        return super().loss() + (50.0 if self.steps_since_load > 6 else 0.0)


class Forged(Runner):
    """Prints lines that look like answers on stdout, from Python and from below it."""

    def step(self):
        print(FORGED)
        os.write(1, FORGED.encode())
        super().step()


class Garbage(Runner):
    """Writes something that is not JSON on the private descriptor."""

    def step(self):
        for descriptor in range(3, 20):
            try:
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                    os.write(descriptor, b"I am not JSON\n")
            except OSError:
                continue
        super().step()


class Hang(Runner):
    """Hangs in its first step, its heart still beating."""

    def step(self):
        threading.Event().wait()


class HangsInBuild(Runner):
    """Hangs as it builds its network, its heart still beating."""

    def __init__(self, task):
        threading.Event().wait()


class HangsWhenTimed(counted(Runner)):
    """Passes its proof, which takes three steps at most after it loads, and hangs in the fourth."""

    def step(self):
        if self.steps_since_load == 3:
            threading.Event().wait()
        super().step()


class Litters(ranks.Runner):
    """Leaves a file in the temporary folder, as frameworks do."""

    @staticmethod
    def describe():
        os.close(tempfile.mkstemp(prefix="litter-")[0])
        return Runner.describe()


class Noise(Runner):
    """Writes 200 kB to stderr and as much to stdout in each step."""

    def step(self):
        sys.stderr.write("noise of a framework\n" * 10000)
        sys.stdout.write("noise of a framework\n" * 10000)
        super().step()


class Orphan(Runner):
    """Leaves a child in a session of its own that keeps the pipe of answers open, then dies."""

    def step(self):
        if os.fork() == 0:
            os.setsid()
            threading.Event().wait()
        os._exit(3)


class Raises(counted(Runner)):
    """Raises an ordinary exception in the third step, and goes on with the fourth."""

    def step(self):
        if self.steps == 2:
            self.steps += 1
            raise RuntimeError("the third step is broken")
        super().step()


class Refuses(Runner):
    """Refuses this machine before its first answer."""

    @staticmethod
    def describe():
        raise Unsupported("this wheel needs AVX-512 [see the release notes]")


class Restless(Runner):
    """Crashes where it should return the memory of a network that it had."""

    built = False

    def __init__(self, task):
        super().__init__(task)
        Restless.built = True

    @staticmethod
    def return_memory():
        if Restless.built:
            raise RuntimeError("memory cannot be returned")


class Segfault(Runner):
    """Dies of a segmentation fault in its first step, as a broken native library does."""

    def step(self):
        sys.stderr.write("about to read address 0\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)


class Stopped(Runner):
    """Stops itself in its first step: no heartbeat, no processor time, no exit."""

    def step(self):
        os.kill(os.getpid(), signal.SIGSTOP)
