"""The versions of loaded CUDA libraries, read from a small library of the same shape."""

import ctypes
import shutil
import subprocess

import pytest

from runners.tensorflow import libraries

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no g++ here builds the library: apt-get install g++")
SOURCE = "int cublasGetProperty(int kind, int *value) { *value = 12 - 3 * kind; return 0; }"


def test_a_loaded_library_says_its_version(tmp_path):
    source, library = tmp_path / "blas.c", tmp_path / "libcublas.so.12"
    source.write_text(SOURCE)
    subprocess.run(["g++", "-xc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)

    assert "cublas" not in libraries.loaded()
    ctypes.CDLL(str(library))

    assert libraries.loaded()["cublas"] == "12.9.6"


def test_a_library_without_the_function_says_nothing(tmp_path):
    source, library = tmp_path / "dnn.c", tmp_path / "libcudnn.so.9"
    source.write_text("int other(void) { return 1; }")
    subprocess.run(["g++", "-xc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    ctypes.CDLL(str(library))

    assert "cudnn" not in libraries.loaded()
