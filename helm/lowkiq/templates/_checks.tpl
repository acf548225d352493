{{- /*
What a schema can't say, or not in words that help: what is missing, and what doesn't go together. What is missing is
`required`, which `helm lint` is content with, since a chart alone knows no application.
*/ -}}

{{- define "lowkiq.checks" -}}
{{- include "lowkiq.checks.needed" . -}}
{{- include "lowkiq.checks.redis" . -}}
{{- include "lowkiq.checks.groups" . -}}
{{- $_ := include "lowkiq.eachGroup" (list . "lowkiq.checks.group") -}}
{{- include "lowkiq.checks.web" . -}}
{{- end -}}

{{- define "lowkiq.checks.group" -}}
{{- include "lowkiq.checks.ownership" . -}}
{{- include "lowkiq.checks.numbers" . -}}
{{- include "lowkiq.checks.grace" . -}}
{{- include "lowkiq.checks.options" . -}}
{{- include "lowkiq.checks.environment" . -}}
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

{{- /* A queue of two groups would have two nodes for each shard: one of them always stands by. */ -}}
{{- define "lowkiq.checks.groups" -}}
{{- $groups := dict -}}
{{- range $group, $own := .Values.workers -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" $group) -}}
{{- fail (printf "workers: %q can't be a group's name, as objects are named after it: small letters, digits and hyphens, and a letter first" $group) -}}
{{- end -}}
{{- if eq $group "web" -}}
{{- fail "workers: web is the web view's name; name the group after its queues" -}}
{{- end -}}
{{- $name := include "lowkiq.nodes.fullname" (dict "group" $group "Values" $.Values "Chart" $.Chart "Release" $.Release) -}}
{{- if gt (len $name) 52 -}}
{{- fail (printf "workers.%s: the %s's name %s has %d characters, and may have 52; shorten the group's name, or set fullnameOverride" $group (get ($own | default dict) "workload" | default $.Values.workload) $name (len $name)) -}}
{{- end -}}
{{- $queues := get ($own | default dict) "queues" -}}
{{- if not $queues -}}
{{- fail (printf "workers.%s.queues is missing: name the queues that this group runs, such as [OrderSync]" $group) -}}
{{- end -}}
{{- range $queues -}}
{{- $queue := splitList "=" . | first -}}
{{- if hasKey $groups $queue -}}
{{- fail (printf "workers.%s.queues: %s is in workers.%s already; a queue belongs to one group, whose nodes share its shards" $group $queue (get $groups $queue)) -}}
{{- end -}}
{{- $_ := set $groups $queue $group -}}
{{- end -}}
{{- end -}}
{{- if and $groups .Values.queues -}}
{{- fail "queues: with workers, each group names its own" -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.ownership" -}}
{{- $at := include "lowkiq.at" . -}}
{{- $strategy := .Values.updateStrategy -}}
{{- if eq .Values.ownership "numbers" -}}
{{- if eq .Values.workload "Deployment" -}}
{{- fail (printf "%sworkload: a Deployment's pods have no numbers; set %sownership=elastic, or leave it a StatefulSet" $at $at) -}}
{{- end -}}
{{- if kindIs "invalid" .Values.replicas -}}
{{- fail (printf "%sreplicas is missing: numbered nodes must know how many there are; name it, or set %sownership=elastic" $at $at) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.workload "Deployment") (or (eq ($strategy.type | default "") "OnDelete") (hasKey ($strategy.rollingUpdate | default dict) "partition")) -}}
{{- fail (printf "%supdateStrategy: OnDelete and partition are a StatefulSet's; a Deployment has Recreate, or maxSurge and maxUnavailable" $at) -}}
{{- end -}}
{{- if and (eq .Values.workload "StatefulSet") (or (eq ($strategy.type | default "") "Recreate") (hasKey ($strategy.rollingUpdate | default dict) "maxSurge")) -}}
{{- fail (printf "%supdateStrategy: Recreate and maxSurge are a Deployment's; set %sworkload=Deployment, which needs elastic ownership" $at $at) -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.numbers" -}}
{{- $at := include "lowkiq.at" . -}}
{{- $nodes := include "lowkiq.numberOfNodes" . | int -}}
{{- if gt $nodes 10000 -}}
{{- fail (printf "%s%d nodes in all: Lowkiq looks for 10000 at most; lower replicas (autoscaling.maxReplicas) or nodes" (empty $at | ternary "" (printf "%s: " (trimSuffix "." $at))) $nodes) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail (printf "%sautoscaling.minReplicas %d is more than autoscaling.maxReplicas %d" $at (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.grace" -}}
{{- with .Values.terminationGracePeriodSeconds -}}
{{- if lt (int .) (add $.Values.drainTimeout 10 | int) -}}
{{- fail (printf "%sterminationGracePeriodSeconds %d is less than drainTimeout %d and ten seconds: jobs would be killed before their time is over" (include "lowkiq.at" $) (int .) (int $.Values.drainTimeout)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Of two equal options the last would win, and the pod would be other than the chart says. */ -}}
{{- define "lowkiq.checks.options" -}}
{{- $at := include "lowkiq.at" . -}}
{{- $values := dict "--nodes" "nodes" "--require" "app" "--drain-timeout" "drainTimeout" "--boot-timeout" "bootTimeout" "--max-rss" "maxRss" "--queues" "queues" "--threads" "threads" -}}
{{- range .Values.extraArgs -}}
{{- $option := regexReplaceAll "=.*" . "" -}}
{{- if hasKey $values $option -}}
{{- fail (printf "%sextraArgs: %s is set by the value %s" $at $option (get $values $option)) -}}
{{- end -}}
{{- if or (has $option (list "--node-number" "--number-of-nodes" "--state-dir" "--no-embedded-redis" "--burst")) (hasPrefix "-r" .) -}}
{{- fail (printf "%sextraArgs: %s is the chart's" $at .) -}}
{{- end -}}
{{- if hasPrefix "--web" $option -}}
{{- fail (printf "%sextraArgs: %s would run the web view in every pod; use the value web.enabled" $at $option) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.environment" -}}
{{- $at := include "lowkiq.at" . -}}
{{- $values := dict "LOWKIQ_NAMESPACE" "redis.namespace" "LOWKIQ_DRAIN_TIMEOUT" "drainTimeout" "LOWKIQ_BOOT_TIMEOUT" "bootTimeout" "LOWKIQ_MAX_RSS" "maxRss" "LOWKIQ_QUEUES" "queues" "LOWKIQ_THREADS" "threads" "LOWKIQ_WEB_TOKEN" "web.token or web.existingSecret" "LOWKIQ_WEB_USER" "web.existingSecret" "LOWKIQ_WEB_PASSWORD" "web.existingSecret" -}}
{{- $own := list "NODE_NUMBER" "NUMBER_OF_NODES" "LOWKIQ_NODE_NUMBER" "LOWKIQ_NUMBER_OF_NODES" "LOWKIQ_STATE_DIR" -}}
{{- range .Values.env -}}
{{- if hasKey $values .name -}}
{{- fail (printf "%senv: %s is set by %s" $at .name (get $values .name)) -}}
{{- end -}}
{{- if has .name $own -}}
{{- fail (printf "%senv: %s is the chart's" $at .name) -}}
{{- end -}}
{{- if and (eq .name "LOWKIQ_REDIS_URL") (not $.Values.redis.elsewhere) -}}
{{- fail (printf "%senv: LOWKIQ_REDIS_URL is set by redis.url or redis.existingSecret; or set redis.elsewhere=true" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowkiq.checks.web" -}}
{{- $web := .Values.web -}}
{{- if not $web.enabled -}}
{{- if .Values.serviceMonitor.enabled -}}
{{- fail "serviceMonitor.enabled needs web.enabled: /metrics is the web view's" -}}
{{- end -}}
{{- if .Values.prometheusRule.enabled -}}
{{- fail "prometheusRule.enabled needs web.enabled: /metrics is the web view's" -}}
{{- end -}}
{{- if include "lowkiq.autoscale" . -}}
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
