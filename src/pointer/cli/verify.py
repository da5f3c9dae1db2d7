"""The command that looks at a checkpoint: verify."""

from typing import Annotated

import typer


def verify(
    folder: Annotated[str, typer.Argument(help="Folder of a checkpoint, embedded model or Hub id.")],
    write: Annotated[bool, typer.Option("--write", help="Write the manifest anew, for what is there now.")] = False,
) -> None:
    """Compare every file of a checkpoint with its manifest, byte by byte.

    Examples:
        pointer verify wiki
    """
    from pointer.checkpoint import checkpoint_folder
    from pointer.integrity import read_manifest
    from pointer.integrity import verify as check
    from pointer.storage import full_disk_explained, write_manifest

    place = checkpoint_folder(folder)
    if write:
        with full_disk_explained(place):
            write_manifest(place)
        print(f"{place}: wrote the manifest of {len(read_manifest(place)['files'])} files")
    else:
        print(f"{place}: {check(place)} files, all as they were written")
