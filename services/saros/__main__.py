"""`python -m saros`: the command line, where its script is not at hand."""

from saros.cli import main

if __name__ == "__main__":
    main()
