"""`python -m rocketpy` is the `rocketpy` command."""

from rocketpy.cli.main import main

if __name__ == "__main__":
    main()
