"""What is Envoy told? Its configuration as plain values, and the program itself."""
