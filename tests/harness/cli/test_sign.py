"""Signatures tell whose a campaign is; an audit without one cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.cli.main import app
from harness.errors import WrongUse
from harness.records import signature

PUBLISHED = Path(__file__).parents[3] / "results" / "h200x2-traced-2026-11-22"
pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here: install openssh-client")


@pytest.fixture
def campaign(tmp_path) -> Path:
    return shutil.copytree(PUBLISHED, tmp_path / "campaign")


@pytest.fixture
def key(tmp_path) -> Path:
    return new_key(tmp_path, "mine")


def new_key(folder: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)], check=True)
    kind, public, _ = (folder / f"{name}.pub").read_text().split()
    (folder / f"{name}.allowed").write_text(f'{name}@example.org namespaces="dlbench" {kind} {public}\n')
    return folder / name


def test_an_audit_tells_whose_signature_it_is(campaign, key):
    done = CliRunner().invoke(app, ["sign", str(campaign), "--key", str(key)])
    assert done.exit_code == 0, done.output
    audited = CliRunner().invoke(app, ["audit", str(campaign), "--signed-by", f"{key}.allowed"])
    assert (audited.exit_code, "signed by mine@example.org" in audited.output) == (0, True), audited.output
    assert CliRunner().invoke(app, ["audit", str(campaign)]).exit_code == 0


def test_other_signers_changed_hashes_and_no_signature_are_findings(campaign, key, tmp_path):
    allowed = Path(f"{key}.allowed")
    assert signature.signer(campaign, allowed) == ("", "no signature: `dlbench sign` makes one")
    signature.sign(campaign, key)
    assert signature.signer(campaign, allowed) == ("mine@example.org", "")
    new_key(tmp_path, "other")
    assert signature.signer(campaign, tmp_path / "other.allowed")[1] == "a signature by a key that is not among them"
    hashes = campaign / signature.MANIFEST
    hashes.write_text(hashes.read_text().replace("0", "1", 1))
    assert signature.signer(campaign, allowed)[0] == ""
    assert CliRunner().invoke(app, ["audit", str(campaign), "--signed-by", str(allowed)]).exit_code == 1


def test_files_that_are_not_those_of_the_hashes_are_not_signed(campaign, key):
    (campaign / "report.md").write_text("forged")
    with pytest.raises(WrongUse, match=r"report\.md is not as SHA256SUMS says: `dlbench report` renews it"):
        signature.sign(campaign, key)


def test_without_openssh_the_message_says_what_to_install(campaign, key, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(WrongUse, match=r"--key: needs ssh-keygen of OpenSSH 8\.1 or newer; install openssh-client"):
        signature.sign(campaign, key)
