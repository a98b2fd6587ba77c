"""Combiners that are trained on held-out text: Adaptive, Kernel-Smoothed and Robust kNN-MT."""
