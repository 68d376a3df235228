"""The Python API: one module per question, and the answer types; `import penstock` exports them."""
