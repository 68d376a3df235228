"""How are results shown? Terminal tables and pictures, and JSON; nothing here computes a result."""
