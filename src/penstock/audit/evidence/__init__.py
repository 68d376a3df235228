"""Evidence for checks: data sheets, weight formats, physical limits, published rows and the performance model."""
