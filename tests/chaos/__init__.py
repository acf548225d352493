"""
Chaos: real supervisors, producers and a real Redis under random faults, and a checker that reads what they did.

    python -m tests.faults.chaos --minutes 20

world.py starts it all · plan.py says which fault comes when · injector.py does them · proxy.py is bad weather between
clients and Redis · producer.py pushes · jobs.py is the application, database.py what its jobs write to · journal.py
keeps history outside Redis · history.py reads it back · checker.py judges · report.py tells.
"""
