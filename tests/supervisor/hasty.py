"""
`lowkiq-supervisor` as people run it, but for constants: what takes a minute with them can be seen in a second.

Usage: hasty.py JSON ARGUMENT ..., with constants such as {"policy.load.GROW_AFTER": 1} in the JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

from lowkiq_supervisor.entry import main

if __name__ == "__main__":
    for name, value in json.loads(sys.argv.pop(1)).items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(f"lowkiq_supervisor.{module}"), constant, value)
    main()
