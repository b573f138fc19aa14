"""``python -m sfnode``."""

from sfnode.cli import main

if __name__ == "__main__":
    main()
