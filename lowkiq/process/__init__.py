"""Manners of a process on its machine: signals, log lines, files and places. Standard library only."""
