{{/* Names and labels. RayService names are at most 47 characters, so all names are. */}}
{{- define "llmrt.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 47 | trimSuffix "-" -}}
{{- end -}}

{{- define "llmrt.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- end -}}

{{- define "llmrt.selector" -}}
app.kubernetes.io/name: {{ include "llmrt.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of Ray's pods: KubeRay's services select them by its own app.kubernetes.io/name. */}}
{{- define "llmrt.raySelector" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: llmrt-ray
{{- end -}}

{{- define "llmrt.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "llmrt.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "llmrt.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "llmrt.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "llmrt.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Where the API key is: the name of a secret, or nothing. */}}
{{- define "llmrt.keySecret" -}}
{{- if .Values.auth.existingSecret -}}
{{- .Values.auth.existingSecret -}}
{{- else if .Values.auth.apiKey -}}
{{- include "llmrt.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* --backend. */}}
{{- define "llmrt.backend" -}}
{{- $default := dict "cpu" "cpu" "nvidia" "cuda" "ascend" "cann" -}}
{{- default (get $default .Values.device.kind) .Values.device.backend -}}
{{- end -}}

{{/* The extended resource of a card. */}}
{{- define "llmrt.resourceName" -}}
{{- $default := dict "nvidia" "nvidia.com/gpu" "ascend" "huawei.com/Ascend910" -}}
{{- default (get $default .Values.device.kind) .Values.device.resourceName -}}
{{- end -}}

{{/* Folder of the model store. */}}
{{- define "llmrt.store" -}}
{{- printf "%s/%s" (trimSuffix "/" .Values.model.volume.mountPath) .Values.model.volume.storePath | trimSuffix "/" -}}
{{- end -}}

{{/* delay, then SIGTERM and --grace, then a margin. */}}
{{- define "llmrt.terminationGrace" -}}
{{- add .Values.drain.delaySeconds .Values.serve.grace .Values.drain.marginSeconds -}}
{{- end -}}

{{/* Whether Ray's head runs a replica, as text. */}}
{{- define "llmrt.headRuns" -}}
{{- $set := .Values.ray.head.runsReplicas -}}
{{- kindIs "invalid" $set | ternary (ne .Values.device.kind "cpu") $set -}}
{{- end -}}

{{/* Whole CPUs of a pod, at least 1: its limit, else its request. */}}
{{- define "llmrt.cpus" -}}
{{- $cpu := dig "limits" "cpu" (dig "requests" "cpu" "1" .Values.resources) .Values.resources | toString -}}
{{- $whole := hasSuffix "m" $cpu | ternary (div (trimSuffix "m" $cpu | int) 1000) (floor (float64 $cpu) | int) -}}
{{- max 1 $whole -}}
{{- end -}}

{{/* Flags of `llmrt serve` that the Deployment and Ray share, as a YAML list of words. */}}
{{- define "llmrt.flags" -}}
{{- $s := .Values.serve -}}
{{- $rows := list
  (list "parallel" $s.parallel) (list "max-queue" $s.maxQueue) (list "request-timeout" $s.requestTimeout)
  (list "ctx" $s.ctx) (list "batch" $s.batch) (list "kv-type" $s.kvType) (list "kv-memory" $s.kvMemory)
  (list "swap-space" $s.swapSpace) (list "max-loaded-models" $s.maxLoadedModels) (list "keep-alive" $s.keepAlive) -}}
{{- if not .Values.ray.enabled }}{{ $rows = append $rows (list "threads" $s.threads) }}{{ end -}}
{{- $words := list -}}
{{- range $rows -}}
{{- $value := index . 1 -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $text := kindIs "string" $value | ternary $value (printf "%d" (int64 $value)) -}}
{{- $words = append $words (printf "--%s=%s" (index . 0) $text) -}}
{{- end -}}
{{- end -}}
{{- with .Values.device.split }}{{ $words = append $words (printf "--split=%s" .) }}{{ end -}}
{{- if .Values.device.strict }}{{ $words = append $words "--strict-device" }}{{ end -}}
{{- concat $words $s.extraArgs | toYaml -}}
{{- end -}}

{{/* Combinations that values.schema.json does not express. */}}
{{- define "llmrt.validate" -}}
{{- $v := .Values -}}
{{- $volume := $v.model.volume -}}
{{- if and $v.model.pull (or $volume.readOnly (eq $volume.kind "image")) -}}
{{- fail "model.pull needs a volume that can be written: set model.volume.readOnly to false, and a kind other than image" -}}
{{- end -}}
{{- if and (eq $volume.kind "image") (semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "model.volume.kind image needs Kubernetes 1.33 or newer: this is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and $v.auth.apiKey $v.auth.existingSecret -}}
{{- fail "auth.apiKey and auth.existingSecret are both set: leave one empty" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (lt (int $v.autoscaling.maxReplicas) (int $v.autoscaling.minReplicas)) -}}
{{- fail "autoscaling.maxReplicas is less than autoscaling.minReplicas" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (kindIs "invalid" $v.autoscaling.targetCPUUtilizationPercentage) (not $v.autoscaling.metrics) -}}
{{- fail "autoscaling has no criterion: set targetCPUUtilizationPercentage or metrics" -}}
{{- end -}}
{{- if $v.ray.enabled -}}
{{- if lt (int $v.ray.replicas.max) (int $v.ray.replicas.min) }}{{ fail "ray.replicas.max is less than ray.replicas.min" }}{{ end -}}
{{- range $key := list "autoscaling" "podDisruptionBudget" "networkPolicy" -}}
{{- if (get $v $key).enabled }}{{ fail (printf "%s.enabled has no effect with ray.enabled: set it to false" $key) }}{{ end -}}
{{- end -}}
{{- if and (eq $v.device.kind "nvidia") (ne (int $v.device.count) 1) -}}
{{- fail "device.count must be 1 for device.kind nvidia with ray.enabled: a replica takes one GPU of Ray" -}}
{{- end -}}
{{- if and $v.model.files (not (hasPrefix "/" (first $v.model.files))) -}}
{{- fail "the first of model.files is a path without NAME= with ray.enabled: clients use the file's name" -}}
{{- end -}}
{{- if gt (int (default 0 $v.serve.threads)) (int (include "llmrt.cpus" .)) -}}
{{- fail "serve.threads is more than the CPUs of resources: with ray.enabled no node would have them" -}}
{{- end -}}
{{- if $v.tls.existingSecret }}{{ fail "tls.existingSecret has no effect with ray.enabled: terminate TLS in front of Ray Serve" }}{{ end -}}
{{- end -}}
{{- end -}}
