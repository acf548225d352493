"""
The contenders: the same job in each, by one interface. A file is run in its contender's own environment, as
`produce` (enqueues what it is told on standard input: stage.py) or `work` (becomes a worker process of five threads).

BENCH_REDIS is the URL of the server, BENCH_REPORT where jobs tell that they ran, BENCH_JOB what the job does, and
BENCH_PROCESSES how many worker processes there are.
"""
