"""Wrong command lines: each option of each command with values that it must refuse."""

import os
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.odd import suites
from tests.odd.attempt import Ended, attempt

LONG = "x" * 5000
# Longer than the name of a file may be, and than a message.
NAME = "y" * 1500
RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "h200-fcn5"
# "{}" in a value stands for the scratch folder that `lay_out` fills.
FOLDERS = ("", "{}/file", "{}/file/under", "/proc/out", "/dev/null", "/dev/null/out", "{}/" + LONG,
           "{}/loop", "{}/loop/out", "{}/fifo", "/sys/out", "{}/\x1b[31mred", "{}/\udcff",
           "{}/a\nb", "{}/" + NAME)
ABSENT = ("", "{}/none", "{}/file", "{}/fifo", "{}/loop", "{}/empty", "{}/[/x]", "{}/" + LONG,
          "/dev/null", "{}/\x1b[31m", "{}/a\nb", "{}/" + NAME)
FILES = ("", "{}/none.yaml", "{}/empty", "{}/fifo", "{}/loop", "/dev/zero", "/dev/null",
         "{}/" + LONG, "{}/\x1b[31m.yaml", "{}/random", "{}/" + NAME)
INTEGERS = ("-1", "0", "1.5", "abc", "", "1e400", "nan", "9" * 30, LONG,
            NAME)
# An empty list stands for the default.
LISTS = tuple(text for text in INTEGERS if text)
FLOATS = ("-1", "nan", "inf", "-inf", "abc", "", "1e400", "1e300", LONG)
NAMES = ("none_such", LONG, "\x1b[31mred", "[/x]", "a b", ":boom:", "../..", "tiny_fcn;ls",
         "\udcff", NAME)
DEVICES = ("tpu", "", "gpu0", "CUDA:0", LONG, "\x1b[31m", "both!")
RELEASES = ("pytroch", "pytorch==", "pytorch==x", "==1.0", "pytorch==" + "9." * 3000 + "9",
            "pytorch==../..", "pytorch=2.13.0", "\x1b[31m", LONG, "[/x]", "pytorch:x", NAME)
INTERPRETERS = ("pytorch", "=", "pytorch=", "pytroch=/usr/bin/python3", "pytorch=/none/python",
                "pytorch==2.11.0={python}", "pytorch={}/fifo", "pytorch={}", "pytorch=/dev/null",
                "\x1b[31m=/x", "pytorch=" + LONG, LONG, "pytorch===/x")
SHARES = ("abc", "-1%", "nan", "inf", "1000%", "", "%", "3%%%x", LONG, NAME)
OVERRIDES = ("", "=", "seed", "seed=-1", "seed=1e400", "seed=1:30", "batch=5000000000000", "batch=",
             "devices=[1", "title=\x1b[31m", "x" * 5000 + "=1", "batch=" + LONG, "check=1",
             "check.=1", ".=1", "networks.=1", "networks.tiny_fcn=5", "networks..batch=1", "&a=*a",
             "seed=!!int abc", "seed=2026-02-30T25:61:61Z", "batch={? {a: 1}}", "a.b.c.d.e=1",
             "limits.window=1e300", "interpreters.pytroch=/x", "interpreters.pytorch=/none",
             "threads=1e9", "window_seconds=.nan", "skip=[{}]", "seed=" + "9" * 5000)
COMMANDS: Mapping[str, tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]] = {
    "run": (("run", "{}/suite.yaml"), {
        "--out": FOLDERS, "--interpreter": INTERPRETERS, "": OVERRIDES, "--resume": ("",)}),
    "dry": (("run", "{}/suite.yaml", "--dry-run"), {
        "--out": ("", "{}/file", "{}/\x1b[31m"), "--interpreter": INTERPRETERS, "": OVERRIDES}),
    "suite": (("run",), {"": FILES}),
    "verify": (("verify", "--networks", "tiny_fcn"), {
        "--networks": NAMES, "--frameworks": RELEASES, "--device": DEVICES, "--jobs": INTEGERS,
        "--precision": ("fp8", "", LONG), "--tuning": ("best", "", LONG),
        "--mode": ("serving", "", LONG),
        "--out": ("", *FOLDERS[2:12]),
        "--devices": ("0", "-1", "x", "1,,x", "9" * 30, LONG), "--interpreter": INTERPRETERS}),
    "compare": (("compare", "pytorch==2.12.0", "pytorch==2.13.0"), {
        "--suite": FILES, "--out": FOLDERS, "--fail-on-regression": SHARES, "--repeats": INTEGERS,
        "--interpreter": INTERPRETERS[:6], "": OVERRIDES[:8]}),
    "sides": (("compare", "pytorch==2.12.0"), {"": RELEASES}),
    "recorded": (("compare", "{}/campaign"), {"": ABSENT[1:]}),
    "bisect": (("bisect", "pytorch", "--releases", "2.12.0,2.13.0", "--network", "tiny_fcn"), {
        "--releases": ("", "2.12.0", "x,y", "2.12.0,2.13.0,../..", LONG), "--network": NAMES,
        "--threshold": SHARES, "--suite": FILES, "--out": FOLDERS}),
    "bisected": (("bisect", "--releases", "2.12.0,2.13.0", "--network", "tiny_fcn"), {
        "": RELEASES}),
    "gemm": (("study", "gemm", "--networks", "tiny_fcn", "--device", "cpu"), {
        "--device": DEVICES, "--networks": NAMES, "--precisions": NAMES, "--batch": INTEGERS,
        "--largest": FLOATS, "--window-seconds": FLOATS, "--processes": INTEGERS,
        "--threads": INTEGERS, "--campaign": ABSENT, "--out": FOLDERS,
        "--interpreter": INTERPRETERS}),
    "conv": (("study", "conv", "--networks", "alexnet_cifar", "--device", "cpu"), {
        "--device": DEVICES, "--networks": NAMES, "--passes": NAMES, "--math": NAMES,
        "--part": ("0/1", "2/1", "1/0", "x", "", "1/1/1", "nan/1", LONG), "--largest": FLOATS,
        "--sample": INTEGERS, "--windows": INTEGERS, "--window-seconds": FLOATS,
        "--out": FOLDERS[:6]}),
    "layers": (("study", "layers", "--device", "cpu"), {
        "--device": DEVICES, "--frameworks": RELEASES, "--layers": NAMES, "--layouts": NAMES,
        "--precisions": NAMES, "--batch": (*INTEGERS, "1"), "--out": FOLDERS[:6]}),
    "attention": (("study", "attention", "--device", "cpu"), {
        "--device": DEVICES, "--frameworks": RELEASES, "--lengths": LISTS, "--heads": LISTS,
        "--widths": LISTS, "--causal": NAMES, "--precisions": NAMES, "--passes": NAMES,
        "--batch": INTEGERS, "--processes": INTEGERS, "--out": FOLDERS[:6]}),
    "aggregation": (("study", "aggregation", "--device", "cpu"), {
        "--device": DEVICES, "--devices": ("0", "x", "1,,2", "9" * 30, LONG), "--windows": INTEGERS,
        "--largest": INTEGERS, "--window-seconds": FLOATS, "--again": ABSENT, "": ABSENT,
        "--out": FOLDERS}),
    "show": (("study", "show"), {"": ABSENT}),
    "build": (("env", "build"), {"": RELEASES}),
    "build_on": (("env", "build", "pytorch"), {"--device": DEVICES}),
    "fetch": (("data", "fetch"), {"": NAMES}),
    "networks": (("networks",), {"": NAMES}),
    "report": (("report",), {"": ABSENT}),
    "report_to": (("report", "{}/campaign"), {"--out": FOLDERS}),
    "audit": (("audit",), {"": ABSENT}),
    "explain": (("explain", "--a", "pytorch", "--b", "pytorch:tuned"), {"": ABSENT}),
    "explained": (("explain", "{}/campaign", "--b", "pytorch:tuned"), {"--a": RELEASES}),
    "publish": (("publish", "--out", "{}/site"), {"--results": ABSENT}),
    "index": (("publish", "--index"), {"--results": ABSENT}),
    "site": (("publish", "--results", "{}/results"), {"--out": FOLDERS}),
    "pack": (("pack",), {"": ABSENT}),
    "sign": (("sign", "--key", "{}/file"), {"": ABSENT}),
    "key": (("sign", "{}/campaign"), {"--key": ABSENT}),
    "signed": (("audit", "{}/campaign"), {"--signed-by": ABSENT[3:]}),
}
NAMED: Mapping[str, tuple[str, ...]] = {
    "no_words": ("levitate",), "no_suite": ("run",), "long_word": (LONG,), "escape": ("\x1b[31m",),
    "unknown_option": ("run", "{}/suite.yaml", "--colour", "red"),
    "long_option": ("run", "{}/suite.yaml", f"--{LONG}"),
    "interpreter_twice": ("run", "{}/suite.yaml", "--interpreter", "pytorch={python}",
                          "--interpreter", "pytorch={python}"),
    "interpreter_of_others": ("run", "{}/suite.yaml", "--interpreter", "jax==0.9.2={python}"),
    "verify_interpreter_twice": ("verify", "--interpreter", "pytorch=/a", "--interpreter",
                                 "pytorch=/b"),
    "resume_nothing": ("run", "{}/suite.yaml", "--resume", "--out", "{}/none"),
    "resume_file": ("run", "{}/suite.yaml", "--resume", "--out", "{}/file"),
    "resume_loop": ("run", "{}/suite.yaml", "--resume", "--out", "{}/loop"),
    "compare_one_framework": ("compare", "pytorch==2.12.0"),
    "compare_repeats_of_two": ("compare", "pytorch==2.12.0", "pytorch==2.13.0", "--repeats", "2"),
    "explain_three": ("explain", "{}/campaign", "{}/campaign", "{}/campaign", "--a", "pytorch",
                      "--b", "pytorch"),
    "again_and_windows": ("study", "aggregation", "--again", "{}/campaign", "--windows", "3"),
    "show_out": ("study", "show", "{}/campaign", "--out", "{}/x"),
    "publish_into_others": ("publish", "--results", "{}/results", "--out", "{}/full"),
}


def lay_out(folder: Path) -> None:
    """Fill a scratch folder with files, folders and links of every kind."""
    (folder / "suite.yaml").write_text(suites.text_of(suites.BASE), encoding="utf-8")
    (folder / "file").write_text("in the way", encoding="utf-8")
    (folder / "random").write_bytes(random.Random(2).randbytes(3000))
    for name in ("empty", "results", "[/x]", "full"):
        (folder / name).mkdir(parents=True)
    (folder / "full" / "thesis.tex").write_text("mine", encoding="utf-8")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "fifo")
    shutil.copytree(RECORDED, folder / "campaign")


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name and the words of every command line that must be refused."""
    yield from NAMED.items()
    for name, (words, options) in COMMANDS.items():
        for option, values in options.items():
            for number, value in enumerate(values):
                if (option, value) == ("--resume", ""):
                    yield f"{name}-resume", (*words, option)
                else:
                    given = ("--", value) if not option else (f"{option}={value}",)
                    yield f"{name}{option or '-word'}-{number}", (*words, *given)


def judge(words: tuple[str, ...], folder: Path) -> Ended:
    """Run a command line with its places filled in."""
    places = {"{python}": str(folder / "file"), "{}": str(folder)}
    filled = []
    for word in words:
        for place, text in places.items():
            word = word.replace(place, text)
        filled.append(word)
    return attempt(filled)
