"""The `penstock` command: parses arguments, calls one library function, and renders the result with `report`."""
