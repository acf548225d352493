"""
Lowkiq's process supervisor: keeps a number of nodes running on one machine, and ends them gently.

It knows processes, signals and deadlines, and nothing of jobs: it has no threads, no Redis client, and imports
`lowkiq` only inside a forked child (or with --preload, before the first of them, and then makes sure that nothing of
it runs here), so that nothing a job or an application does can stop it from supervising.
"""
