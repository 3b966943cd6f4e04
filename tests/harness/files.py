"""Files that a machine shows, in a folder of a test."""

from pathlib import Path


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files by their names below `root`, and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root
