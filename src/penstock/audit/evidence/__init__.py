"""On what grounds is a speed judged? Formats people name, the bounds of physics, published rows and the model."""
