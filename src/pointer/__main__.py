"""`python -m pointer` is the command `pointer`."""

from pointer.cli import main

if __name__ == "__main__":
    main()
