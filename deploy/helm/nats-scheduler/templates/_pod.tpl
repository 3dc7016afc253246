{{/* What all pods of the chart have in common: no rights, no account of Kubernetes, no variables of Services. */}}

{{- define "nats-scheduler.podBasis" -}}
serviceAccountName: {{ include "nats-scheduler.serviceAccountName" . }}
automountServiceAccountToken: false
# Without this, Kubernetes sets variables such as NATS_SCHEDULER_METRICS_PORT for each Service of the namespace.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAsUser }}
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "nats-scheduler.containerBasis" -}}
image: {{ include "nats-scheduler.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The variables that the image sets for itself, so that its own do not win over the settings file. */}}
{{- define "nats-scheduler.imageVariables" -}}
- {name: NATS_SCHEDULER_SETTINGS, value: /etc/nats-scheduler/settings/settings.json}
- {name: NATS_SCHEDULER_DATA, value: /var/lib/nats-scheduler/data}
- {name: NATS_SCHEDULER_LOG_FORMAT, value: {{ .Values.settings.log_format | default "json" }}}
- {name: NATS_SCHEDULER_METRICS_ADDRESS, value: {{ .Values.metrics.address | quote }}}
- {name: NATS_SCHEDULER_METRICS_PORT_NUMBER, value: {{ .Values.metrics.port | quote }}}
{{- end -}}

{{/* Where the pods of a component may run; of a dict with `root` and `component`. */}}
{{- define "nats-scheduler.placement" -}}
{{- $values := .root.Values -}}
{{- $selector := dict "matchLabels" (include "nats-scheduler.selector" . | fromYaml) -}}
{{- $apart := dict "labelSelector" $selector "topologyKey" "kubernetes.io/hostname" -}}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- else }}
{{- if eq $values.antiAffinity "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {{- list $apart | toYaml | nindent 6 }}
{{- else if eq $values.antiAffinity "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- list (dict "weight" 100 "podAffinityTerm" $apart) | toYaml | nindent 6 }}
{{- end }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{- merge (dict) . (dict "labelSelector" $selector) | toYaml | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}
