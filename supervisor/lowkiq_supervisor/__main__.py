"""`python -m lowkiq_supervisor`: the command `lowkiq-supervisor`."""

from __future__ import annotations

from lowkiq_supervisor.entry import main

if __name__ == "__main__":
    main()
