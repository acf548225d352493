{{- /*
What a schema can't say, or not in words that help: what is missing, and what doesn't go together. What is missing is
`required`, which `helm lint` is content with, since a chart alone knows no application.
*/ -}}

{{- define "lowkiq.checks" -}}
{{- include "lowkiq.checks.needed" . -}}
{{- include "lowkiq.checks.redis" . -}}
{{- include "lowkiq.checks.numbers" . -}}
{{- include "lowkiq.checks.options" . -}}
{{- include "lowkiq.checks.environment" . -}}
{{- include "lowkiq.checks.web" . -}}
{{- end -}}

{{- define "lowkiq.checks.needed" -}}
{{- $_ := required "app is missing: the module with your Lowkiq application, such as --set app=shop.jobs" .Values.app -}}
{{- $_ = required "image.repository is missing: an image with your application and Lowkiq, such as registry.example.com/shop" .Values.image.repository -}}
{{- $_ = required "image.tag is missing: name one that is never pushed again, or image.digest" (.Values.image.tag | default .Values.image.digest) -}}
{{- end -}}

{{- define "lowkiq.checks.redis" -}}
{{- $given := list -}}
{{- if .Values.redis.url -}}{{- $given = append $given "redis.url" -}}{{- end -}}
{{- if .Values.redis.existingSecret -}}{{- $given = append $given "redis.existingSecret" -}}{{- end -}}
{{- if .Values.redis.elsewhere -}}{{- $given = append $given "redis.elsewhere" -}}{{- end -}}
{{- $_ := required "which Redis? Set redis.url, or redis.existingSecret, or redis.elsewhere=true if the application or its environment names it" (join "" $given) -}}
{{- if gt (len $given) 1 -}}
{{- fail (printf "%s: set only one of them" (join " and " $given)) -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.numbers" -}}
{{- $nodes := include "lowkiq.numberOfNodes" . | int -}}
{{- if gt $nodes 10000 -}}
{{- fail (printf "%d nodes in all: Lowkiq looks for 10000 at most; lower replicas (autoscaling.maxReplicas) or nodes" $nodes) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas %d is more than autoscaling.maxReplicas %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}

{{- /* Of two equal options the last would win, and the pod would be other than the chart says. */ -}}
{{- define "lowkiq.checks.options" -}}
{{- $values := dict "--nodes" "nodes" "--require" "app" "--drain-timeout" "drainTimeout" "--boot-timeout" "bootTimeout" "--max-rss" "maxRss" -}}
{{- range .Values.extraArgs -}}
{{- $option := regexReplaceAll "=.*" . "" -}}
{{- if hasKey $values $option -}}
{{- fail (printf "extraArgs: %s is set by the value %s" $option (get $values $option)) -}}
{{- end -}}
{{- if or (has $option (list "--node-number" "--number-of-nodes" "--state-dir" "--no-embedded-redis" "--burst")) (hasPrefix "-r" .) -}}
{{- fail (printf "extraArgs: %s is the chart's" .) -}}
{{- end -}}
{{- if hasPrefix "--web" $option -}}
{{- fail (printf "extraArgs: %s would run the web view in every pod; use the value web.enabled" $option) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.environment" -}}
{{- $values := dict "LOWKIQ_NAMESPACE" "redis.namespace" "LOWKIQ_DRAIN_TIMEOUT" "drainTimeout" "LOWKIQ_BOOT_TIMEOUT" "bootTimeout" "LOWKIQ_MAX_RSS" "maxRss" "LOWKIQ_WEB_TOKEN" "web.token or web.existingSecret" "LOWKIQ_WEB_USER" "web.existingSecret" "LOWKIQ_WEB_PASSWORD" "web.existingSecret" -}}
{{- $own := list "NODE_NUMBER" "NUMBER_OF_NODES" "LOWKIQ_NODE_NUMBER" "LOWKIQ_NUMBER_OF_NODES" "LOWKIQ_STATE_DIR" -}}
{{- range .Values.env -}}
{{- if hasKey $values .name -}}
{{- fail (printf "env: %s is set by %s" .name (get $values .name)) -}}
{{- end -}}
{{- if has .name $own -}}
{{- fail (printf "env: %s is the chart's" .name) -}}
{{- end -}}
{{- if and (eq .name "LOWKIQ_REDIS_URL") (not $.Values.redis.elsewhere) -}}
{{- fail "env: LOWKIQ_REDIS_URL is set by redis.url or redis.existingSecret; or set redis.elsewhere=true" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.web" -}}
{{- $web := .Values.web -}}
{{- if not $web.enabled -}}
{{- if .Values.serviceMonitor.enabled -}}
{{- fail "serviceMonitor.enabled needs web.enabled: /metrics is the web view's" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "autoscaling.enabled needs web.enabled: KEDA asks the web view for the lag" -}}
{{- end -}}
{{- if $web.ingress.enabled -}}
{{- fail "web.ingress.enabled needs web.enabled" -}}
{{- end -}}
{{- end -}}
{{- if and $web.token $web.existingSecret -}}
{{- fail "web.token and web.existingSecret: set only one of them" -}}
{{- end -}}
{{- if and $web.noAuth (or $web.token $web.existingSecret) -}}
{{- fail "web.noAuth lets everybody in: leave web.token and web.existingSecret out, or web.noAuth" -}}
{{- end -}}
{{- if and $web.ingress.enabled (not $web.ingress.hosts) -}}
{{- fail "web.ingress.hosts is empty: name the hosts, such as --set web.ingress.hosts={jobs.example.com}" -}}
{{- end -}}
{{- end -}}
