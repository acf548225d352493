"""
Lowkiq's process supervisor: keeps a number of nodes running on one machine, and ends them gently.

It knows processes, signals and deadlines, and nothing of jobs: it has no threads, no Redis client, and imports
`lowkiq` only inside a forked child, so that nothing a job or an application does can stop it from supervising.
"""
