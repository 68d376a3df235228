"""What can be asked from Python? One module per question, and the answers; `import penstock` shows them."""
