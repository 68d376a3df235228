"""The `penstock` command: parses, calls one library function, hands the result to `report`."""
