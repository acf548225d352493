{{- /* What all pods of this chart have in common. */ -}}

{{- define "lowkiq.podSettings" -}}
serviceAccountName: {{ include "lowkiq.serviceAccount" . }}
# Nobody here talks to Kubernetes.
automountServiceAccountToken: false
# Otherwise a Service called lowkiq would set LOWKIQ_PORT, and so on.
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lowkiq.containerSettings" -}}
image: {{ include "lowkiq.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
# `kubectl describe pod` then tells why it ended.
terminationMessagePolicy: FallbackToLogsOnError
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Where Redis is, then what the application wants. */ -}}
{{- define "lowkiq.environment" -}}
{{- if not .Values.redis.elsewhere }}
- name: LOWKIQ_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "lowkiq.redisSecret" . }}
      key: {{ .Values.redis.secretKey }}
{{- end }}
- name: LOWKIQ_NAMESPACE
  value: {{ .Values.redis.namespace | quote }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lowkiq.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSizeLimit }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lowkiq.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- with .Values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /*
A new URL must restart the pods: otherwise some would go on with the old Redis until something else restarts them. Of a
secret that isn't ours we don't know; `kubectl rollout restart` does it then. Too little of a hash for who may read pods,
and no secrets, to guess a password by.
*/ -}}
{{- define "lowkiq.podAnnotations" -}}
{{- if .Values.redis.url }}
checksum/redis-url: {{ printf "%s %s" .Release.Name .Values.redis.url | sha256sum | trunc 4 | quote }}
{{- end }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}
