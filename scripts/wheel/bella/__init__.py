"""Starts the `bella` of this package with the libtorch of the torch that is installed beside it."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERIES = (HERE / "torch_series").read_text().strip()


def fail(why):
    sys.exit(f"error: {why}: bella needs torch {SERIES} in the same environment: {sys.executable} -m pip install 'torch=={SERIES}.*'")


def torch_folder():
    """Finds torch without importing it, which would take seconds."""
    found = find_spec("torch")
    if found is None or not found.submodule_search_locations:
        fail("torch is not installed")
    folder = Path(found.submodule_search_locations[0])
    told = re.search(r"__version__ *= *['\"]([^'\"]+)", (folder / "version.py").read_text())
    version = told[1] if told else "without a version"
    if not version.startswith(f"{SERIES}."):
        fail(f"{folder} is torch {version}")
    return folder


def main():
    libraries = torch_folder() / "lib"
    if libraries != HERE.parent / "torch" / "lib":  # where the program itself looks
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{libraries}:{others}" if others else str(libraries)
    program = HERE / "bin" / "bella"
    os.execv(program, [str(program), *sys.argv[1:]])
