"""What a process owes its machine: signals, log lines, files and places. Standard library only."""
