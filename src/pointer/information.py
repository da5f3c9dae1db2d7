"""What is installed here and what it can use: the facts behind `pointer info` and a good bug report."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from pointer import __version__

DISTRIBUTION = "pointer-text"
EXTRAS = ("keywords", "train", "eval", "serve", "writer", "cluster")


def gather() -> dict[str, Any]:
    """Versions, device, embedded checkpoints, and the state of every optional part."""
    checkpoints = sorted(folder.name for folder in (Path(__file__).parent / "checkpoints").glob("*/"))
    return {
        "pointer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": _device(),
        "cores": os.cpu_count(),
        "models": checkpoints,
        "packages": {name: _state(name) for name in _requirements(None)},
        "optional parts": {extra: _extra_state(extra) for extra in EXTRAS},
    }


def _device() -> str:
    """The graphics card that PyTorch would use, if it is installed and there is one."""
    try:
        import torch
    except ImportError:
        return "cpu"
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "cpu"


def _requirements(extra: str | None) -> list[str]:
    """The distributions that the base install, or an extra, asks for."""
    names = []
    for line in metadata.requires(DISTRIBUTION) or []:
        requirement, _, condition = line.partition(";")
        wanted = re.search(r"extra == ['\"](\w+)['\"]", condition)
        if (wanted.group(1) if wanted else None) == extra:
            names.append(re.split(r"[\s\[<>=!~;(]", requirement.strip())[0])
    return names


def _state(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _extra_state(extra: str) -> str:
    missing = [name for name in _requirements(extra) if _state(name) == "missing"]
    if not missing:
        return "present"
    return f'missing {", ".join(missing)}: pip install "{DISTRIBUTION}[{extra}]"'
