"""What does a document hold? The shape of what `--json` and `to_dict` give, from which its JSON schema is made."""
