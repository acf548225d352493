"""How fast it is here: `make bench`. Figures are ratios within one run, or come with the machine's shape."""
