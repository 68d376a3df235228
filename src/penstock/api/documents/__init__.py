"""Types of the documents that `--json` and `to_dict` return; their JSON schemas are generated from them."""
