"""The Python API: one module per function. `import penstock` exports the functions and their answer types."""
