"""What do runs say? Shipped measurements as rows, public benchmarks run again, two endpoints compared."""
