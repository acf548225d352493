"""Tests of applications without Redis."""
