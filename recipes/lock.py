"""Prints what `pip` would install for development on this kind of machine, each file with its sha256.

    python recipes/lock.py > requirements.lock

It takes the versions of `constraints.txt` and no settings of this machine. Options are passed on to pip.
"""

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def resolved(options: list[str]) -> dict[str, tuple[str, str]]:
    """Version and sha256 of every package that pip would install, by name."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--disable-pip-version-check", "--report", str(report), *options]
        subprocess.run([*command, "--constraint", str(ROOT / "constraints.txt"), f"{ROOT}[dev]"], check=True)
        found = json.loads(report.read_text("utf-8"))["install"]
    return {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
        if "archive_info" in one["download_info"]
    }


def main() -> None:
    """Print the file."""
    version = ".".join(platform.python_version_tuple()[:2])
    print(
        f"# {platform.system()} {platform.machine()}, Python {version}; recipes/lock.py made it from constraints.txt."
    )
    for name, (number, digest) in sorted(resolved(sys.argv[1:]).items()):
        print(f"{name}=={number} --hash=sha256:{digest}")


if __name__ == "__main__":
    main()
