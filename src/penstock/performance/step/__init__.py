"""How long is one engine step? Its work at the speed of light, and its time as coefficients."""
