"""`python -m lazycron` is `lazycron`."""

from lazycron.cli import main

if __name__ == "__main__":
    main()
