{{- /*
What `lowkiq-supervisor status` says: 0, all is well; 1, degraded; 2, no supervisor answers.

Only the last is for Kubernetes to mend. The supervisor replaces nodes that die or hang by itself, and nodes wait for a
Redis that is away: to restart the pod then would kill jobs, and mend nothing. So only readiness wants a 0: a roll-out
waits for it, and so do evictions.

`status` asks over a unix socket, not Redis. Python takes a moment to start, and on a busy machine seconds, hence the
timeouts: the kubelet counts one as a failure.
*/ -}}
{{- define "lowkiq.probes" -}}
# Until it answers; with --preload, that is when the application is imported.
startupProbe:
  {{- include "lowkiq.answers" . | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: {{ div (add .Values.bootTimeout 30) 5 }}
# Fails when the supervisor doesn't answer, three times in a minute and a half, and never because of nodes or Redis.
livenessProbe:
  {{- include "lowkiq.answers" . | nindent 2 }}
  periodSeconds: 30
  timeoutSeconds: 15
  failureThreshold: 3
# All nodes are there.
readinessProbe:
  exec:
    command: [lowkiq-supervisor, status, --json]
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 2
{{- end -}}

{{- define "lowkiq.answers" -}}
exec:
  command: [sh, -c, 'lowkiq-supervisor status --json >/dev/null; test $? -ne 2']
{{- end -}}
