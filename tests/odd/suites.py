"""Odd suites: those that must be refused, and odd values for the keys of a good one."""

import random
from pathlib import Path

from harness.plan.parts import Check, Limits
from harness.plan.suite import Suite
from tests.odd.attempt import Ended, attempt

BASE = {"frameworks": "[pytorch]", "networks": "[tiny_fcn]", "batches": "[4]", "device": "cpu",
        "processes": "1", "windows": "2", "window_seconds": "0.01", "peaks": "false"}
KEYS = [*Suite.model_fields, "batch", "network", "framework", "precision", "tuning", "strategy",
        *(f"check.{key}" for key in Check.model_fields),
        *(f"limits.{key}" for key in Limits.model_fields)]
DEEP = 3000
# Values that are wrong for every key.
WRONG = {
    "int_of_text": "!!int abc", "float_of_text": "!!float abc", "timestamp": "!!timestamp nope",
    "date": "2026-02-30T25:61:61Z", "binary": "!!binary \"####\"", "object": "!!python/object:os.x",
    "apply": "!!python/object/apply:os.system [true]", "own_tag": "!mine {a: 1}",
    "set_of_maps": "!!set {? {a: 1}}", "pairs": "!!pairs [a]", "omap": "!!omap [a]",
    "map_as_key": "{? {a: 1} : b}", "list_as_key": "{? [1, 2] : b}", "null_key": "{? null : 1}",
    "deep_list": "[" * DEEP, "deep_whole": "[" * DEEP + "]" * DEEP, "deep_map": "{a: " * DEEP,
    "digits": "9" * 5000, "negative_digits": "-" + "9" * 5000, "hexadecimal": "0x" + "f" * 5000,
    "long_float": "1." + "0" * 5000 + "1e9999", "huge": "1e400", "infinite": ".inf",
    "minus_infinite": "-.inf", "not_a_number": ".nan", "sexagesimal": "1:30", "clock": "12:30:45.5",
    "minus_sexagesimal": "-1:30", "itself": "&a [*a]", "itself_in_map": "&a {b: *a}",
    "no_anchor": "*missing", "percent": "%x", "at": "@x", "backtick": "`x`", "open_quote": "\"abc",
    "open_list": "[1, 2", "close_list": "]", "nul": "\"\\0\"", "escape": "\"\\e[31mred\"",
    "surrogate": "\"\\ud800\"", "bell": "\"\\a\\b\"", "long": "a" * 20000,
    "long_words": "a b " * 5000, "nested": "{a: {b: {c: 1}}}", "merge_text": "{<<: text}",
    "merge_list": "{<<: [1]}", "twice": "{a: 1, a: 2}", "comma": ",", "two_documents": "1\n---\n2",
}
# Values that fit some keys.
ODD = {
    "minus": "-1", "zero": "0", "half": "0.5", "large": "9223372036854775808", "big": "10000000000",
    "true": "true", "no": "no", "nothing": "null", "tilde": "~", "list": "[]", "map": "{}",
    "empty": "''", "space": "' '", "text": "abc", "underscore": "1_000", "octal": "017",
    "minus_zero": "-0", "tiny": "1e-320", "exponent": "1e3", "lists": "[[1], [2]]",
    "mixed": "[1, a, null]", "many": "[" + "1, " * 3000 + "1]", "range": str(list(range(1, 900))),
    "bool_list": "[true, false]", "number_key": "{1: 2}", "path": "../../../etc/passwd",
    "markup": "'[/x]'", "emoji": "'pytorch:x:'", "slash": "a/b", "newline": "\"a\\nb\"",
    "release": "pytorch==9.9.9", "long_release": "pytorch==" + "9." * 300 + "9", "plus": "+3",
    "block": "|\n  a\n  b", "comment": "# nothing", "unicode": "ﬀ½²", "arabic": "٣", "five": "5e6",
}


def named() -> dict[str, bytes]:
    """Suites that must be refused, by name."""
    base = text_of(BASE)
    found = {f"{key}-{name}": _with(key, value) for key in ("title", "seed", "networks", "check")
             for name, value in WRONG.items() if not (key == "title" and name in TITLES)}
    found |= {name: f"{base}{line}\n".encode() for name, line in LINES.items()}
    lol = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    aliases = "networks: &a [tiny_fcn]\nbatches: [" + ", ".join(["*a"] * 20000) + "]\n"
    return found | {
        "laughs": lol.encode(), "laughs_in_networks": lol.replace("a11:", "networks:").encode(),
        "aliases": aliases.encode(), "nothing": b"", "null": b"null\n", "list": b"[1, 2]\n",
        "number": b"5\n", "text": b"smoke\n", "nul": b"title: a\0b\n", "zeros": bytes(10000),
        "random": random.Random(1).randbytes(5000), "latin": "title: Größe".encode("latin-1"),
        "utf16": "title: a\nbatch: x".encode("utf-16"), "gzip": b"\x1f\x8b\x08\x00" + bytes(99),
        "tabs": b"title: a\n\tbatch: 4\n", "colons": b"a: b: c: d\n", "questions": b"? " * 3000,
        "dashes": b"- " * 3000, "ten_megabytes": b"# comment\n" * 2**20,
        "many_keys": b"".join(b"k%d: 1\n" % n for n in range(4000)),
        "long_key": b"k" * 3000 + b": 1\n", "long_line": b"title: " + b"x" * 2**20,
        "directive": b"%YAML 9.9\n---\ntitle: a\n", "documents": b"title: a\n---\ntitle: b\n",
        "key_twice": b"title: a\ntitle: b\n", "escape_key": b"\"\\e[31m\": 1\n",
        "markup_key": b"'[/x]': 1\n", "newline_key": b"\"a\\nb\": 1\n",
    }


# A title may be any text.
TITLES = {"date", "sexagesimal", "clock", "minus_sexagesimal", "hexadecimal"}
LINES = {
    "seed_below_zero": "seed: -1", "seed_float": "seed: 1.5", "seed_huge": "seed: 1e400",
    "seed_digits": f"seed: {10**30}", "batch_huge": "batch: 5000000000000",
    "batch_digits": f"batch: {10**40}", "batch_float": "batch: 1.5", "batch_zero": "batch: 0",
    "threads_huge": "threads: 1000000000000", "threads_text": "threads: most",
    "devices_huge": "devices: 1000000000000", "devices_zero": "devices: 0",
    "processes_huge": "processes: 100000000000", "windows_huge": "windows: 1000000000000",
    "windows_zero": "windows: 0", "window_seconds_huge": "window_seconds: 1e300",
    "window_seconds_nan": "window_seconds: .nan", "window_seconds_minus": "window_seconds: -1",
    "interval_huge": "{processes: 3, interval: 1e300}", "interval_nan": "interval: .nan",
    "most_huge": "processes_most: 10000000000000", "jobs_huge": "check_jobs: 100000000000",
    "prepare_huge": "prepare_jobs: 1000000000000", "check_batch_huge": "check: {batch: 5000000000}",
    "check_steps_huge": "check: {steps: 100000000000}", "limit_huge": "limits: {window: 1e300}",
    "limit_zero": "limits: {window: 0}", "limit_text": "limits: {window: long}",
    "framework_unknown": "framework: pytroch", "framework_path": "framework: ../../../etc/passwd",
    "network_unknown": "network: fcn6", "network_number": "network: 5",
    "network_map": "network: {tiny_fcn: {batches: {a: 1}}}", "precision": "precision: fp8",
    "tuning": "tuning: best", "data": "data: /dev/zero", "strategy": "strategy: wish",
    "skip_nothing": "skip: [{}]", "skip_unknown": "skip: [{framework: torch}]",
    "skip_text": "skip: all", "interpreter_list": "interpreters: [a]",
    "interpreter_unknown": "interpreters: {pytroch: /usr/bin/python3}",
    "interpreter_number": "interpreters: {pytorch: 5}",
    "interpreter_nul": "interpreters: {pytorch: \"/usr/bin\\0/python3\"}",
    "interpreter_folder": "interpreters: {pytorch: /usr/bin}",
    "interpreter_absent": "interpreters: {pytorch: /nowhere/python3}",
    "interpreter_other": "interpreters: {pytorch==9.9: /usr/bin/python3}",
    "title_escape": "title: \"\\e]0;owned\\a\"", "title_list": "title: [a]",
    "title_number": "title: 5", "telemetry_text": "telemetry: maybe", "peaks_number": "peaks: 5",
    "scaling": "scaling: both", "device": "device: tpu", "unknown": "colour: red",
    "shorthand_twice": "batch: 4", "everything": "batches: " + str(list(range(1, 800))) + "\n"
    "threads: " + str(list(range(1, 800))) + "\ndevices: " + str(list(range(1, 800))),
    "frameworks_many": "framework: [" + "pytorch, " * 3000 + "pytorch]",
    "release_long": "framework: pytorch==" + "9." * 3000 + "9",
    "release_path": "framework: pytorch==../../x",
    "release_newline": "framework: \"pytorch==1\\n\"",
}


def judge(content: bytes, file: Path, codes: tuple[int, ...]) -> Ended:
    """Plan the suite `content`, written to `file`."""
    file.write_bytes(content)
    return attempt(["run", str(file), "--dry-run"], codes)


def text_of(suite: dict[str, str]) -> str:
    lines = [f"{key}: {value}\n" for key, value in suite.items() if "." not in key]
    for mapping in ("check", "limits"):
        inner = [f"{key.partition('.')[2]}: {value}" for key, value in suite.items()
                 if key.startswith(f"{mapping}.")]
        lines += [f"{mapping}: {{{', '.join(inner)}}}\n"] if inner else []
    return "".join(lines)


def _with(key: str, value: str) -> bytes:
    return text_of({**BASE, key: value}).encode("utf-8", "surrogatepass")
