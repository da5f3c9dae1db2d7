"""The keys that open the API. Light to import, so that a wrong file is found out before anything heavy is loaded."""

from pathlib import Path

from pointer.errors import UsageError


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys of a file, one a line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(
            f"api_key_file: expected a file with one key a line, could not read {path} ({reason}).",
            "Check the path and who may read it.",
        ) from error
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise UsageError(f"api_key_file: expected one key a line, found none in {path}.", "Write a key into it.")
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise UsageError(
            f"api_key_file: expected keys of plain characters without blanks, found another in {path}.",
            "An HTTP header cannot carry it; make one with: openssl rand -hex 24",
        )
    return keys
