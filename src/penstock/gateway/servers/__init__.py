"""How does Envoy ask? Two doors for the same question, and the process behind them."""
