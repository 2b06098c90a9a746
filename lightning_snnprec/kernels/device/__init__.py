"""What runs on the GPU: Triton code only."""
