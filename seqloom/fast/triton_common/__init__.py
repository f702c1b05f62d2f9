"""What all Triton kernels share."""
