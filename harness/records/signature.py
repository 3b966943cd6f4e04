"""Signs a folder's SHA256SUMS with an SSH key, and checks whose signature it is, by OpenSSH."""

import shutil
import subprocess
from pathlib import Path

from analysis.records.manifest import MANIFEST, SIGNATURE, check_manifest
from harness.errors import WrongUse, brief

NAMESPACE = "dlbench"  # so that a signature of something else does not count
LIMIT_SECONDS = 120.0  # a passphrase may be asked for


def sign(folder: Path, key: Path) -> Path:
    """Sign the hashes of `folder` with the private `key`; return the signature's path.

    Raises WrongUse if the files are not those of SHA256SUMS, or if the key cannot sign.
    """
    _refuse_unreadable("--key", key)
    if faults := check_manifest(folder):
        raise WrongUse(f"{folder}: {faults[0][0]} is not as {MANIFEST} says: `dlbench report` "
                       "renews it, `dlbench audit` lists what differs")
    done = _keygen(["sign", "-q", "-f", str(key), "-n", NAMESPACE], folder)
    if done.returncode:
        raise WrongUse(f"--key {key}: cannot sign: {_said(done)}")
    (folder / SIGNATURE).write_bytes(done.stdout)
    return folder / SIGNATURE


def signer(folder: Path, allowed: Path) -> tuple[str, str]:
    """Return who of the file `allowed` signed the hashes of `folder`, or "" and what is wrong."""
    _refuse_unreadable("--signed-by", allowed)
    signature = folder / SIGNATURE
    if not signature.is_file() or not (folder / MANIFEST).is_file():
        return "", "no signature: `dlbench sign` makes one"
    files = ["-s", str(signature), "-f", str(allowed)]
    found = _keygen(["find-principals", *files], folder)
    names = found.stdout.decode(errors="replace").split("\n")
    if found.returncode or not names[0]:
        return "", "a signature by a key that is not among them"
    done = _keygen(["verify", *files, "-n", NAMESPACE, "-I", names[0]], folder)
    return (names[0], "") if not done.returncode else ("", _said(done))


def _refuse_unreadable(option: str, file: Path) -> None:
    if not shutil.which("ssh-keygen"):
        raise WrongUse(f"{option}: needs ssh-keygen of OpenSSH 8.1 or newer; "
                       "install openssh-client")
    if not file.is_file():
        raise WrongUse(f"{option} {file}: no such file")


def _keygen(words: list[str], folder: Path) -> "subprocess.CompletedProcess[bytes]":
    with (folder / MANIFEST).open("rb") as hashes:
        try:
            return subprocess.run(["ssh-keygen", "-Y", *words], stdin=hashes, capture_output=True,
                                  timeout=LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise WrongUse(f"ssh-keygen: no answer within {LIMIT_SECONDS:.0f} s") from None


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    text = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
    return brief(text or f"exit code {done.returncode}", 200)
