{{- /* Nodes and bytes. */ -}}

{{- /*
All nodes together. Every pod has it in its environment, so it changes with a roll-out only. When replicas come and go
without one, it counts those that there can be: numbers that are away are missing, and other nodes run their shards.
*/ -}}
{{- define "lowkiq.numberOfNodes" -}}
{{- $replicas := .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas -}}
{{- /* With replicas 0, still a number that a pod could start with. */ -}}
{{- mul (max 1 (int $replicas)) (int .Values.nodes) -}}
{{- end -}}

{{- /* The bytes of a quantity as Kubernetes writes it. Call: (dict "quantity" QUANTITY "of" NAME) */ -}}
{{- define "lowkiq.bytes" -}}
{{- /* A number in YAML reaches us as a float, which would print as 1.073741824e+09. */ -}}
{{- $text := kindIs "string" .quantity | ternary (toString .quantity) (int64 .quantity | toString) -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text) -}}
{{- fail (printf "%s: can't tell how many bytes %q are; write it like 512Mi, 1.5Gi, 800M or 1073741824, or set maxRss" .of $text) -}}
{{- end -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- $number := trimSuffix $unit $text -}}
{{- mulf (float64 $number) (get $units $unit | default 1) | floor | int64 -}}
{{- end -}}

{{- /*
What goes to --max-rss, or nothing. A node that is replaced works on beside its successor until its jobs have ended,
one node of a pod at a time: so the limit must hold a node more than there are. A fifth of it is left: for the
supervisor (some 40 MiB), for nodes that grow between two looks, and as each node's share varies by a tenth, lest all be
replaced at once.
*/ -}}
{{- define "lowkiq.maxRss" -}}
{{- if ne .Values.maxRss "auto" -}}
{{- if ne .Values.maxRss "none" }}{{ .Values.maxRss }}{{ end -}}
{{- else -}}
{{- with include "lowkiq.memoryLimit" . -}}
{{- $processes := add1 $.Values.nodes -}}
{{- $each := div (mul . 8) (mul 10 $processes 1048576) -}}
{{- /* An idle node takes about 45 MiB. Below that, nodes would be replaced for ever. */ -}}
{{- if lt $each 64 -}}
{{- fail (printf "%sresources.limits.memory %v is too little for nodes=%d and the successor of one of them: each could have %d MiB, and needs 64 or more; raise the limit, lower nodes, or set maxRss" (include "lowkiq.at" $) $.Values.resources.limits.memory (int $.Values.nodes) $each) -}}
{{- end -}}
{{- printf "%dM" $each -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The limit in bytes, or nothing. */ -}}
{{- define "lowkiq.memoryLimit" -}}
{{- with (.Values.resources.limits | default dict).memory -}}
{{- include "lowkiq.bytes" (dict "quantity" . "of" (printf "%sresources.limits.memory" (include "lowkiq.at" $))) -}}
{{- end -}}
{{- end -}}

{{- /* A warning if a maxRss of one's own lets the processes of a pod reach the limit before any is replaced. */ -}}
{{- define "lowkiq.memoryWarning" -}}
{{- if not (has .Values.maxRss (list "auto" "none")) -}}
{{- with include "lowkiq.memoryLimit" . -}}
{{- /* 400M of Lowkiq's is 400Mi of Kubernetes'. */ -}}
{{- $each := include "lowkiq.bytes" (dict "quantity" (regexReplaceAll "([KMGT])$" $.Values.maxRss "${1}i") "of" "maxRss") -}}
{{- $processes := add1 $.Values.nodes -}}
{{- if gt (mul $each $processes) (int64 .) }}
WARNING: {{ include "lowkiq.at" $ }}maxRss {{ $.Values.maxRss }} × {{ $processes }} processes ({{ $.Values.nodes }} nodes and the successor of the one that is being
replaced) is more than resources.limits.memory {{ $.Values.resources.limits.memory }}: the kernel may kill the container before a node is replaced.
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
