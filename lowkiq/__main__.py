"""`python -m lowkiq`: the command `lowkiq`."""

from __future__ import annotations

from lowkiq.cli import main

if __name__ == "__main__":
    main()
