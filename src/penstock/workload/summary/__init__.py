"""What is in a workload? Its rates, lengths and sharing in a few figures."""
