"""How much pip is about to download: a stand-in for pip reports files of a server of the test."""

import http.server
import json
import os
import threading

import pytest

from harness.environments import sizes

PIP = """#!/bin/sh
echo "$*" >> {folder}/asked
case "$*" in
  "-m pip --version") cat {folder}/version ;;
  "-m pip install --quiet --upgrade pip") [ -e {folder}/newer ] && cp {folder}/newer {folder}/version ;;
  *--dry-run*) cat {folder}/report ;;
esac
"""


@pytest.fixture
def pip(tmp_path):
    """A stand-in for a Python with pip 24.2: `pip(torch=URL)` makes its report."""
    (tmp_path / "python").write_text(PIP.format(folder=tmp_path))
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "version").write_text("pip 24.2 from /somewhere\n")

    def report(**urls):
        (tmp_path / "report").write_text(json.dumps({"install": [
            {"metadata": {"name": name.replace("_", "-")}, "download_info": {"url": url}} for name, url in urls.items()]}))
        return sizes.describe(tmp_path / "python", ["torch==2.13.0"], os.environ)

    return report


@pytest.fixture
def server(monkeypatch):
    """Answers HEAD of /500 with 500 bytes, of /none without a size."""

    class Files(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            if self.path != "/none":
                self.send_header("Content-Length", self.path.strip("/"))
            self.end_headers()

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_sum_and_the_largest_file_are_said(pip, server):
    assert pip(torch=f"{server}/176000000", numpy=f"{server}/16200000") == "2 packages, 192 MB to download (torch 176 MB)"


def test_gigabytes_and_cuda_are_named(pip, server):
    assert pip(torch=f"{server}/527000000", nvidia_cublas=f"{server}/2000000000") == (
        "2 packages, 2.53 GB to download (nvidia-cublas 2 GB, with CUDA)")


def test_a_file_of_this_machine_is_measured(pip, tmp_path):
    (tmp_path / "a wheel.whl").write_bytes(b"x" * 2_000_000)
    assert pip(toy=(tmp_path / "a wheel.whl").as_uri()) == "1 package, 2 MB to download (toy 2 MB)"


@pytest.mark.parametrize("url", ["{server}/none", "http://127.0.0.1:1/x.whl", "file:///no/such.whl", "ftp:", "", "http://127.0.0.1:1/a b.whl"])
def test_an_unknown_size_is_not_guessed(pip, server, url):
    assert pip(torch=f"{server}/500", numpy=url.format(server=server)) == ""


@pytest.mark.parametrize("report", ["", "[]", "{}", '{"install": [{}]}', '{"install": []}'])
def test_a_report_of_another_form_is_passed_over(pip, tmp_path, report):
    pip()
    (tmp_path / "report").write_text(report)
    assert sizes.describe(tmp_path / "python", [], os.environ) == ""


def test_a_pip_whose_dry_run_downloads_is_never_asked_for_one(pip, server, tmp_path):
    (tmp_path / "version").write_text("pip 23.2.1 from /somewhere\n")
    assert pip(torch=f"{server}/500000") == ""
    assert "--dry-run" not in (tmp_path / "asked").read_text()


def test_an_old_pip_is_renewed_first(pip, server, tmp_path):
    (tmp_path / "version").write_text("pip 23.2.1 from /somewhere\n")
    (tmp_path / "newer").write_text("pip 25.0 from /somewhere\n")
    assert pip(torch=f"{server}/500000") == "1 package, 0.5 MB to download (torch 0.5 MB)"


def test_a_python_that_does_not_run_says_nothing(tmp_path):
    assert sizes.describe(tmp_path / "none", [], os.environ) == ""
