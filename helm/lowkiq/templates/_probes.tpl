{{- /*
What `lowkiq-supervisor ping` says: 0, the supervisor answers; 2, it doesn't. With --ready, 1 if something is missing.

Only that nobody answers is for Kubernetes to mend. The supervisor replaces nodes that die or hang by itself, and nodes
wait for a Redis that is away: to restart the pod then would kill jobs, and mend nothing. So only readiness asks for
more: a roll-out waits for it, and so do evictions.

`ping` asks over a unix socket, not Redis, and takes a few hundredths of a second of CPU. On a busy machine Python may
take seconds to start, hence the timeouts: the kubelet counts one as a failure.
*/ -}}
{{- define "lowkiq.probes" -}}
# Until it answers; with --preload, that is when the application is imported.
startupProbe:
  exec:
    command: [lowkiq-supervisor, ping]
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: {{ div (add .Values.bootTimeout 30) 5 }}
# Fails when the supervisor doesn't answer, three times in a minute and a half, and never because of nodes or Redis.
livenessProbe:
  exec:
    command: [lowkiq-supervisor, ping]
  periodSeconds: 30
  timeoutSeconds: 15
  failureThreshold: 3
# All nodes are there.
readinessProbe:
  exec:
    command: [lowkiq-supervisor, ping, --ready]
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 2
{{- end -}}
