{{- /* What things are called. */ -}}

{{- /* 40 characters at most: Kubernetes makes a label of a StatefulSet's name and eleven more, and we add "-headless". */ -}}
{{- define "lowkiq.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Of a group's objects; 52 characters at most, which is checked. */ -}}
{{- define "lowkiq.nodes.fullname" -}}
{{- include "lowkiq.fullname" . -}}
{{- with get . "group" -}}-{{ . }}{{- end -}}
{{- end -}}

{{- define "lowkiq.web.fullname" -}}
{{ include "lowkiq.fullname" . }}-web
{{- end -}}

{{- define "lowkiq.redisSecret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" (include "lowkiq.fullname" .)) }}
{{- end -}}

{{- define "lowkiq.webSecret" -}}
{{ .Values.web.existingSecret | default (include "lowkiq.web.fullname" .) }}
{{- end -}}

{{- define "lowkiq.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "lowkiq.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "lowkiq.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- /* By these, pods are found. They can't change, so nothing that has a version is among them. Call: (list . COMPONENT) */ -}}
{{- define "lowkiq.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- with get $root "group" }}
lowkiq/group: {{ . }}
{{- end }}
{{- end -}}

{{- /* Of everything but pods, whose labels must not change with the chart's version: that would restart them. */ -}}
{{- define "lowkiq.labels" -}}
{{- $root := index . 0 -}}
{{ include "lowkiq.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- include "lowkiq.moreLabels" $root.Values.labels }}
{{- end -}}

{{- define "lowkiq.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "lowkiq.selector" . }}
{{- include "lowkiq.moreLabels" (merge (dict) $root.Values.podLabels $root.Values.labels) }}
{{- end -}}

{{- /* The schema refuses those that are ours. */ -}}
{{- define "lowkiq.moreLabels" -}}
{{- with . }}
{{ toYaml . }}
{{- end }}
{{- end -}}
