"""A package `cupti` for tests: in the place of NVIDIA's, once its parent folder is on PYTHONPATH."""
