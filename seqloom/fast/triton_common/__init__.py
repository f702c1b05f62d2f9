"""Code shared by all Triton kernels."""
