{{/* The name of all objects: a label of DNS that begins with a letter, because a Service has it, and of 52 letters at
     most, because pods of a StatefulSet have a label with it and a hash. */}}
{{- define "quotient.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $label := default $full .Values.fullnameOverride | replace "." "-" -}}
{{- regexReplaceAll "^[0-9]" $label "q${0}" | trunc 52 | trimAll "-" -}}
{{- end -}}

{{/* The labels that choose the pods: for a sidecar those of the workload. */}}
{{- define "quotient.selector" -}}
{{- with .Values.sidecar.selector -}}
{{- toYaml . -}}
{{- else -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}
{{- end -}}

{{- define "quotient.metadata" -}}
name: {{ include "quotient.fullname" . | quote }}
labels:
  {{- include "quotient.labels" . | nindent 2 }}
{{- end -}}

{{- define "quotient.labels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "quotient.account" -}}
{{- $own := ternary "default" (include "quotient.fullname" .) (not (empty .Values.sidecar.selector)) -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{/* Whether the pods ask the API server: "true" or nothing. */}}
{{- define "quotient.kube" -}}
{{- if and (eq .Values.pool.source "kube") (ne .Values.mode "leases") }}true{{ end -}}
{{- end -}}

{{- define "quotient.gossip" -}}
{{- if and (eq .Values.pool.source "gossip") (ne .Values.mode "leases") }}true{{ end -}}
{{- end -}}

{{/* Whether the file of leases has no election: "true" or nothing. */}}
{{- define "quotient.alone" -}}
{{- if and (eq .Values.mode "leases") .Values.config (not (contains "election" .Values.config)) }}true{{ end -}}
{{- end -}}

{{/* The most pods at once: while the source is silent, so many count. */}}
{{- define "quotient.most" -}}
{{- $n := ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled -}}
{{- ternary $n (add $n 1) .Values.ordinals -}}
{{- end -}}

{{/* The section [pool]. */}}
{{- define "quotient.pool" -}}
{{- $replicas := printf "%s-replicas" (include "quotient.fullname" .) -}}
[pool]
{{ if eq .Values.pool.source "dns" -}}
source = "dns:{{ $replicas }}?uncapped"
{{ else if eq .Values.pool.source "kube" -}}
source = "kube:{{ $replicas }}"
{{ else if eq .Values.pool.source "gossip" -}}
source = "gossip::7946?join-dns={{ $replicas }}:7946&key-file=/etc/quotient-gossip/gossip.key"
{{ end -}}
replicas = {{ include "quotient.most" . }}
{{- if ne .Values.pool.source "none" }}
await = true # admit nothing before the first count
max-age = "5m"
hold-down = "1m"
{{- end }}
{{- end -}}

{{/* The section [proxy.admin]. */}}
{{- define "quotient.admin" -}}
[proxy.admin]
listen = "0.0.0.0:4041" # for the kubelet and Prometheus; all but /health and /ready needs the token
token-file = "/etc/quotient-admin/token"
{{- if .Values.admin.peers }}
peers = "{{ ternary "kube" "dns" (eq .Values.pool.source "kube") }}:{{ include "quotient.fullname" . }}-replicas:4041"
{{- end }}
{{- if .Values.admin.overrides }}
overrides = "/var/lib/quotient/overrides"
{{- end }}
{{- end -}}
