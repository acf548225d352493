{{- /*
Groups of nodes. Without `workers` there is one, without a name; with it, each has its own values on top of the others,
and everything that nodes need is made once for each.
*/ -}}

{{- /* Renders a template for each group, which is called with the group's values. Call: (list . TEMPLATE) */ -}}
{{- define "lowkiq.eachGroup" -}}
{{- $root := index . 0 -}}
{{- $template := index . 1 -}}
{{- range $group, $own := $root.Values.workers | default (dict "" dict) }}
{{- $values := deepCopy $root.Values -}}
{{- include "lowkiq.overlay" (list $values ($own | default dict)) }}
---
{{ include $template (dict "group" $group "Values" $values "Chart" $root.Chart "Release" $root.Release "Capabilities" $root.Capabilities) }}
{{- end }}
{{- end -}}

{{- /* Lays values over others, in place and as Helm does: maps are merged, null takes out, the rest replaces. */ -}}
{{- define "lowkiq.overlay" -}}
{{- $onto := index . 0 -}}
{{- range $name, $value := index . 1 -}}
{{- $known := get $onto $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $onto $name -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $known) -}}
{{- include "lowkiq.overlay" (list $known $value) -}}
{{- else -}}
{{- $_ := set $onto $name $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Where a group's values are, for messages: "workers.mail.", or nothing. */ -}}
{{- define "lowkiq.at" -}}
{{- with get . "group" -}}workers.{{ . }}.{{- end -}}
{{- end -}}

{{- /* In how many groups numbered pods come and go without a roll-out; nothing if in none. */ -}}
{{- define "lowkiq.comeAndGo" -}}
{{- with regexFindAll "yes" (include "lowkiq.eachGroup" (list . "lowkiq.comesAndGoes")) -1 -}}{{ len . }}{{- end -}}
{{- end -}}

{{- define "lowkiq.comesAndGoes" -}}
{{- if and .Values.autoscaling.enabled (eq .Values.ownership "numbers") -}}yes{{- end -}}
{{- end -}}

{{- /* The same, of groups that KEDA scales; and of those whose pods are numbered. */ -}}
{{- define "lowkiq.autoscale" -}}
{{- with regexFindAll "yes" (include "lowkiq.eachGroup" (list . "lowkiq.autoscales")) -1 -}}{{ len . }}{{- end -}}
{{- end -}}

{{- define "lowkiq.autoscales" -}}
{{- if .Values.autoscaling.enabled -}}yes{{- end -}}
{{- end -}}

{{- define "lowkiq.areNumbered" -}}
{{- with regexFindAll "yes" (include "lowkiq.eachGroup" (list . "lowkiq.isNumbered")) -1 -}}{{ len . }}{{- end -}}
{{- end -}}

{{- define "lowkiq.isNumbered" -}}
{{- if eq .Values.ownership "numbers" -}}yes{{- end -}}
{{- end -}}
