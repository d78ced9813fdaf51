"""Graph State Space Convolution for PyTorch Geometric."""
