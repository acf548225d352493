"""
Chaos: real supervisors, producers and a real Redis under random faults, and a checker that reads what they did.

    python -m tests.chaos --minutes 20

run.py is one run of it · plan.py says which fault comes when · injector.py does them · journal.py keeps history outside
Redis · history.py reads it back · checker.py judges · causes.py explains · report.py tells. In world/: world.py starts
it all · proxy.py is bad weather between clients and Redis · producer.py pushes · jobs.py is the application,
database.py what its jobs write to.
"""
