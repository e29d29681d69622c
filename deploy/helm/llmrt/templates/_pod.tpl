{{/* What pods of the Deployment and of Ray share. Each takes (dict "root" $ "device" BOOL "pulls" BOOL). */}}

{{/* The pod's spec but for containers and service account. */}}
{{- define "llmrt.pod" -}}
{{- $v := .root.Values -}}
{{- $hasCard := and .device (ne $v.device.kind "cpu") -}}
{{- $security := deepCopy $v.podSecurityContext -}}
{{- if and $hasCard (eq $v.device.kind "ascend") (not (kindIs "invalid" $v.device.ascend.group)) -}}
{{- $groups := append (default list $security.supplementalGroups) $v.device.ascend.group | uniq -}}
{{- $_ := set $security "supplementalGroups" $groups -}}
{{- end -}}
terminationGracePeriodSeconds: {{ include "llmrt.terminationGrace" .root }}
enableServiceLinks: false
securityContext:
  {{- toYaml $security | nindent 2 }}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- if and $hasCard $v.device.runtimeClassName }}
runtimeClassName: {{ $v.device.runtimeClassName }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with get $v $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- $pulls := and .pulls $v.model.pull }}
{{- if or $v.initContainers $pulls }}
initContainers:
  {{- with $v.initContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if $pulls }}
  {{- include "llmrt.pull" .root | nindent 2 }}
  {{- end }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  - name: home
    emptyDir: {}
  {{- include "llmrt.modelVolume" .root | nindent 2 }}
  {{- with $v.tls.existingSecret }}
  - name: tls
    secret:
      secretName: {{ . }}
      defaultMode: 0440
  {{- end }}
  {{- if and $hasCard (eq $v.device.kind "ascend") }}
  {{- range $i, $path := $v.device.ascend.hostPaths }}
  - name: ascend-{{ $i }}
    hostPath:
      path: {{ $path }}
  {{- end }}
  {{- end }}
  {{- with $v.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "llmrt.modelVolume" -}}
{{- $volume := .Values.model.volume -}}
- name: models
  {{- if eq $volume.kind "emptyDir" }}
  emptyDir:
    {{- with $volume.emptyDir.sizeLimit }}
    sizeLimit: {{ . }}
    {{- else }} {}
    {{- end }}
  {{- else if eq $volume.kind "pvc" }}
  persistentVolumeClaim:
    claimName: {{ include "llmrt.fullname" . }}-models
  {{- else if eq $volume.kind "existingClaim" }}
  persistentVolumeClaim:
    claimName: {{ $volume.existingClaim.name }}
  {{- else if eq $volume.kind "hostPath" }}
  hostPath:
    path: {{ $volume.hostPath.path }}
    type: {{ $volume.hostPath.type }}
  {{- else }}
  image:
    reference: {{ $volume.image.reference | quote }}
    pullPolicy: {{ $volume.image.pullPolicy }}
  {{- end }}
{{- end -}}

{{/* Environment of every container with the program: all that is written has a volume. */}}
{{- define "llmrt.baseEnv" -}}
- name: HOME
  value: /var/lib/llmrt
- name: LLMRT_MODELS
  value: {{ include "llmrt.store" . }}
{{- end -}}

{{/* The init container that fills the store. Names are arguments: the shell reads none of their characters. */}}
{{- define "llmrt.pull" -}}
- name: pull
  image: {{ include "llmrt.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  workingDir: /var/lib/llmrt
  command:
    - /bin/sh
    - -ec
    {{- if eq .Values.model.pullPolicy "Always" }}
    - for name; do llmrt pull --quiet --backend=cpu -- "$name"; done
    {{- else }}
    - for name; do llmrt show --backend=cpu -- "$name" >/dev/null 2>&1 || llmrt pull --quiet --backend=cpu -- "$name"; done
    {{- end }}
    - pull
  args:
    {{- toYaml .Values.model.pull | nindent 4 }}
  env:
    {{- include "llmrt.baseEnv" . | nindent 4 }}
    {{- with .Values.model.tokenSecret }}
    {{- if .name }}
    - name: HF_TOKEN
      valueFrom:
        secretKeyRef:
          name: {{ .name }}
          key: {{ .key }}
    {{- end }}
    {{- end }}
    {{- with .Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  resources:
    requests:
      cpu: 500m
      memory: 256Mi
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: home
      mountPath: /var/lib/llmrt
    - name: models
      mountPath: {{ .Values.model.volume.mountPath }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Keys of the serving container but for name, command, ports and probes. */}}
{{- define "llmrt.container" -}}
{{- $v := .root.Values -}}
{{- $hasCard := and .device (ne $v.device.kind "cpu") -}}
image: {{ include "llmrt.image" .root }}
imagePullPolicy: {{ $v.image.pullPolicy }}
workingDir: /var/lib/llmrt
securityContext:
  {{- toYaml $v.securityContext | nindent 2 }}
env:
  {{- include "llmrt.baseEnv" .root | nindent 2 }}
  {{- with include "llmrt.keySecret" .root }}
  - name: LLMRT_API_KEY
    valueFrom:
      secretKeyRef:
        name: {{ . }}
        key: {{ $v.auth.secretKey }}
  {{- end }}
  {{- if and $hasCard (eq $v.device.kind "nvidia") }}
  - name: NVIDIA_DRIVER_CAPABILITIES
    value: compute,utility
  {{- end }}
  {{- with $v.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $resources := deepCopy .resources }}
{{- if $hasCard }}
{{- $limits := default dict $resources.limits }}
{{- $_ := set $limits (include "llmrt.resourceName" .root) (int $v.device.count) }}
{{- $_ := set $resources "limits" $limits }}
{{- end }}
resources:
  {{- toYaml $resources | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  - name: home
    mountPath: /var/lib/llmrt
  - name: models
    mountPath: {{ $v.model.volume.mountPath }}
    {{- if or $v.model.volume.readOnly (eq $v.model.volume.kind "image") }}
    readOnly: true
    {{- end }}
  {{- if $v.tls.existingSecret }}
  - name: tls
    mountPath: /etc/llmrt/tls
    readOnly: true
  {{- end }}
  {{- if and $hasCard (eq $v.device.kind "ascend") }}
  {{- range $i, $path := $v.device.ascend.hostPaths }}
  - name: ascend-{{ $i }}
    mountPath: {{ $path }}
    readOnly: true
  {{- end }}
  {{- end }}
  {{- with $v.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Annotations of pods: a changed key restarts them. */}}
{{- define "llmrt.podAnnotations" -}}
{{- $annotations := deepCopy .Values.podAnnotations -}}
{{- if .Values.auth.apiKey }}{{ $_ := set $annotations "checksum/key" (sha256sum .Values.auth.apiKey) }}{{ end -}}
{{- with $annotations }}{{ toYaml . }}{{ end -}}
{{- end -}}
