"""A trial: would one covariance between measurements predict better than pools and factors? See decision 8."""
