"""A launcher as frameworks bring them: it starts ranks and waits for all.

`python -m tests.faults.processes.launch 2 -m runners MODULE`
"""

import os
import subprocess
import sys

if __name__ == "__main__":
    count, *command = sys.argv[1:]
    ranks = [subprocess.Popen([sys.executable, *command], env={**os.environ, "RANK": str(rank)})
             for rank in range(int(count))]
    sys.exit(max(abs(rank.wait()) for rank in ranks))
