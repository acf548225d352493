"""Speed on this machine: `make bench`. Figures are ratios within one run, or come with the machine's shape."""
