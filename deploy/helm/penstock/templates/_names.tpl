{{- define "penstock.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-{{ .Values.mode }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Room for the tables of three generations of the fleet: `penstock route` refuses to start with less than it needs. */}}
{{- define "penstock.tableMebibytes" -}}
{{- $endpoints := 0 }}
{{- range (fromYaml .Values.fleet).pools }}{{ $endpoints = add $endpoints (.replicas | default 1) }}{{ end }}
{{- add 32 (div $endpoints 4) (mul 2 .Values.workers) (div (mul $endpoints .Values.workers) 256) }}
{{- end }}
