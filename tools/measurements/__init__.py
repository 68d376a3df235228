"""How is every shipped measurement made from the raw files? A reader for each, named filters, one writer."""
