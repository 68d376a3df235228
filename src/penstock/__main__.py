"""`python -m penstock` is the `penstock` command."""

from penstock.cli.root import main

main()
