"""The simulator beside a real vLLM: a small model, a trace, a calibration, and what came of them."""
