{{/* The container. */}}
{{- define "quotient.container" -}}
name: quotient
{{- $name := required "image.repository is required: no image is published yet" .Values.image.repository }}
image: "{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if eq .Values.mode "leases" }}
# The operator's page is for kubectl port-forward.
args: ["leases", "--address", "$(POD_IP)", "--admin", "127.0.0.1:4042", "-c", "/etc/quotient/quotient.toml"]
{{- else }}
args: [{{ .Values.mode | quote }}, "--config", "/etc/quotient/quotient.toml"]
{{- end }}
env:
  - name: GOMEMLIMIT
    value: {{ .Values.goMemLimit | quote }}
{{- if eq .Values.mode "leases" }}
  - name: POD_IP # the address to which the stand-by redirects clients
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
{{- end }}
{{- if include "quotient.kube" . }}
  - name: POD_NAME # finds this pod among the endpoints
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
{{- end }}
{{- if .Values.ordinals }}
  - name: QUOTIENT_ORDINAL
    valueFrom:
      fieldRef:
        fieldPath: metadata.labels['apps.kubernetes.io/pod-index'] # from 0
{{- end }}
{{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $probed := ternary "leases" "admin" (eq .Values.mode "leases") }}
ports:
{{- range $name, $port := include "quotient.ports" . | fromYaml }}
  - name: {{ $name }}
    containerPort: {{ $port }}
{{- end }}
{{- if ne .Values.mode "leases" }}
  - name: admin
    containerPort: 4041
{{- end }}
{{- if include "quotient.gossip" . }}
  - name: gossip
    containerPort: 7946
  - name: gossip-udp
    containerPort: 7946
    protocol: UDP
{{- end }}
startupProbe: # alive within half a minute
  httpGet:
    path: /health
    port: {{ $probed }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /health
    port: {{ $probed }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6 # a process that is busy is not dead
readinessProbe: # the pool has been counted and no shutdown has begun; leases: this pod leads
{{- if hasKey (include "quotient.ports" . | fromYaml) "grpc" }}
  grpc: # says the same as /ready, to Envoy too
    port: 8081
{{- else }}
  httpGet:
    path: /ready
    port: {{ $probed }}
{{- end }}
  periodSeconds: {{ ternary 1 2 (eq .Values.mode "leases") }}
  timeoutSeconds: 2
  failureThreshold: {{ ternary 1 2 (eq .Values.mode "leases") }}
{{- if not .Values.sidecar.selector }}
lifecycle:
  preStop: # requests arrive until every node has learned that the pod ends; a leader serves until its successor does
    sleep:
      seconds: {{ .Values.preStop }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsUser: {{ .Values.runAsUser }}
  runAsGroup: {{ .Values.runAsUser }}
  runAsNonRoot: true
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
  seccompProfile:
    type: RuntimeDefault
volumeMounts: # whole volumes: with subPath a file never changes
  - name: quotient-config
    mountPath: /etc/quotient
    readOnly: true
{{- if ne .Values.mode "leases" }}
  - name: quotient-admin
    mountPath: /etc/quotient-admin
    readOnly: true
{{- if .Values.admin.overrides }}
  - name: quotient-overrides
    mountPath: /var/lib/quotient
{{- end }}
{{- end }}
{{- if include "quotient.gossip" . }}
  - name: quotient-gossip
    mountPath: /etc/quotient-gossip
    readOnly: true
{{- end }}
{{- if .Values.sidecar.selector }}
  - name: quotient-run
    mountPath: /run/quotient
{{- end }}
{{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The ports of clients, by name. A sidecar listens at a Unix socket or on loopback. */}}
{{- define "quotient.ports" -}}
{{- if .Values.sidecar.selector -}}
{}
{{- else if eq .Values.mode "proxy" -}}
http: 4040
{{- else if eq .Values.mode "decide" -}}
http: 8080
grpc: 8081
{{- else -}}
leases: 8000
{{- end -}}
{{- end -}}

{{/* The volumes of the container. */}}
{{- define "quotient.volumes" -}}
- name: quotient-config
{{- if .Values.configFrom.secret }}
  secret:
    secretName: {{ .Values.configFrom.secret | quote }}
    defaultMode: 0440
{{- else }}
  configMap:
    name: {{ default (include "quotient.fullname" .) .Values.configFrom.configMap | quote }}
{{- end }}
{{- if ne .Values.mode "leases" }}
- name: quotient-admin
  secret:
    secretName: {{ .Values.admin.tokenSecret | quote }}
    defaultMode: 0440
{{- if .Values.admin.overrides }}
- name: quotient-overrides
  emptyDir: {}
{{- end }}
{{- end }}
{{- if include "quotient.gossip" . }}
- name: quotient-gossip
  secret:
    secretName: {{ required "pool.gossipSecret is required with pool.source gossip" .Values.pool.gossipSecret | quote }}
    defaultMode: 0440
{{- end }}
{{- if .Values.sidecar.selector }}
- name: quotient-run # for Unix sockets: mount it into your container too
  emptyDir: {}
{{- end }}
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An item of initContainers: a sidecar starts before the other containers and ends after them. */}}
{{- define "quotient.sidecar" -}}
- {{ include "quotient.container" . | nindent 2 | trim }}
  restartPolicy: Always
{{- end -}}
