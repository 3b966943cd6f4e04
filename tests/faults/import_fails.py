"""Cannot be imported, as a framework whose shared library is missing."""

raise ImportError("libcublas.so.12: cannot open shared object file")
