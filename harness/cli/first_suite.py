"""`dlbench init`: a first suite, with a comment on each key."""

from pathlib import Path

from harness.errors import WrongUse

TEMPLATE = """\
title: My first campaign
# `dlbench run {file} --dry-run` prints what it would do, `dlbench run {file}` does it.
# Any key can be set on the command line too: `dlbench run {file} devices=1,2 batch=64`.

# `dlbench frameworks` lists them. A release is written as in pytorch==2.12.0.
frameworks: [pytorch, tensorflow]

# `dlbench networks` lists them. The batch is of one device.
networks:
  fcn5: {{batch: 512}}
  alexnet_cifar: {{batch: 128}}

# cpu, cuda, both, or auto: GPUs where there are any.
device: auto
# How many train together, as in [1, 2, 4].
devices: [1]
# fp32, tf32, bf16, fp16.
precisions: [fp32]
# stock: what a framework's documentation teaches first. Also compiled, tuned and uncompiled.
tunings: [stock]

# Each process is one repetition. Three give an interval, five an honest one.
processes: 3
# Timed windows of a process, and their length.
windows: 5
window_seconds: 0.3
"""


def write(file: Path) -> None:
    """Write the suite into a new file. Raises WrongUse if there is one."""
    try:
        with file.open("x", encoding="utf-8") as draft:
            draft.write(TEMPLATE.format(file=file))
    except FileExistsError:
        raise WrongUse(f"{file}: is there already; name another file") from None
