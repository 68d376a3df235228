"""How is an audit shown? In the terminal, as a page and as a document."""
