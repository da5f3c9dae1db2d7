"""The command `pointer`, which is `python -m pointer`, too."""

import gc


def main() -> None:
    """Run the command line. The garbage collector is kept from what is none: it would take a fifth of a short run."""
    gc.disable()
    from pointer.cli import main as run

    gc.freeze()
    gc.enable()
    try:
        run()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
